"""Real sales as daily × store partitions: days arrive in shuffled order, some twice, and the totals are right."""

from __future__ import annotations

import csv
import gzip
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import nova_assets as nova

pytestmark = [pytest.mark.spark, pytest.mark.long]

DAY = nova.daily("day", start="2000-01-01")

NOWHERE = -1


def shuffled(days: list[str]) -> list[str]:
    """Every day, in random order, and every fifth once more."""
    rng = random.Random(11)
    arriving = days + days[::5]
    rng.shuffle(arriving)
    return arriving


@pytest.mark.exhaustive
def test_tpcds_store_sales_by_day_and_store(shared_data: Path, tmp_path: Path, spark: Any) -> None:
    from pyspark.sql import functions as F

    folder = shared_data / "tpcds_sf1_store_window"
    by = [DAY, nova.dynamic("store")]
    ddl = "day date, store int, ticket int, item int, quantity int, net_paid decimal(7,2)"
    sales = nova.Channel("sales", schema=ddl, partitions=by)
    columns = "day date, store int, n bigint, quantity bigint, net_paid decimal(38,2)"
    summed = {"n": "sum", "quantity": "sum", "net_paid": "sum"}
    totals, daily = (
        nova.Channel(name, merge=nova.Keyed(["day", "store"], summed), schema=columns, partitions=by)
        for name in ("totals", "daily")
    )

    def add_up(sales: Any) -> Any:
        added = [F.sum(c).cast(t).alias(c) for c, t in (("quantity", "bigint"), ("net_paid", "decimal(38,2)"))]
        known = sales.withColumn("store", F.coalesce("store", F.lit(NOWHERE)))  # some sales are of no store
        return known.groupBy("day", "store").agg(F.count("*").alias("n"), *added)

    def task(channel: nova.Channel) -> nova.Task:
        return nova.task(consumes=nova.new(sales), produces=nova.delta(channel))(add_up)

    project = nova.Project(
        [
            nova.bind(nova.Workflowette("whole", [task(totals)]), partitions=[]),
            nova.bind(nova.Workflowette("by_day", [task(daily)]), partitions=["day"]),
        ]
    )
    days = sorted(p.name.removeprefix("day=") for p in (folder / "store_sales").iterdir())
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        repeated = 0
        for n, day in enumerate(shuffled(days)):
            table = pq.read_table(folder / "store_sales" / f"day={day}" / "part.parquet")
            given = pa.table(
                {
                    "store": table["ss_store_sk"],
                    "ticket": table["ss_ticket_number"],
                    "item": table["ss_item_sk"],
                    "quantity": table["ss_quantity"],
                    "net_paid": table["ss_net_paid"],
                }
            )
            repeated += store.insert(sales, given, idempotency_key=day, partition={"day": day}).repeated
            if n % 20 == 19:
                store.run("whole")
        store.run("whole")
        for day in days[:10]:
            store.run("by_day", partition=day)
        assert repeated == len(days[::5])
        truth = _truth(folder / "truth_store_sales_by_day_store.csv.gz")
        assert _told(store, "totals") == truth
        assert _told(store, "daily") == {k: v for k, v in truth.items() if k[0] in days[:10]}
        assert len(store.partitions("sales")) == len(truth)
        nowhere = store.read("sales", partition={"day": days[0], "store": None}).to_arrow()
        assert nowhere.num_rows == truth[days[0], NOWHERE][0]
        one = store.read("totals", partition={"day": days[3], "store": "4"}).to_arrow().to_pylist()
        assert [(r["n"], r["quantity"]) for r in one] == [truth[days[3], 4][:2]]


def _truth(path: Path) -> dict[tuple[str, int], tuple[int, int, Decimal]]:
    with gzip.open(path, "rt") as lines:
        return {
            (r["day"], int(r["ss_store_sk"] or NOWHERE)): (int(r["n"]), int(r["quantity"]), Decimal(r["net_paid"]))
            for r in csv.DictReader(lines)
        }


def _told(store: nova.Store, channel: str) -> dict[tuple[str, int], tuple[int, int, Decimal]]:
    rows = store.read(channel).to_arrow().to_pylist()
    return {(r["day"].isoformat(), r["store"]): (r["n"], r["quantity"], r["net_paid"]) for r in rows}


def test_retail_days_by_country(shared_data: Path, tmp_path: Path, spark: Any) -> None:
    from pyspark.sql import functions as F

    ddl = "InvoiceNo string, StockCode string, Quantity bigint, UnitPrice double, Country string, day date"
    by = [DAY, nova.dynamic("Country")]
    lines = nova.Channel("lines", schema=ddl, partitions=by)
    sold = nova.Channel(
        "sold",
        merge=nova.Keyed(["day", "Country"], {"n": "sum", "pieces": "sum"}),
        schema="day date, Country string, n bigint, pieces bigint",
        partitions=by,
    )

    @nova.task(consumes=nova.new(lines), produces=nova.delta(sold))
    def sum_up(lines: Any) -> Any:
        counted = lines.groupBy("day", "Country").agg(F.count("*").alias("n"), F.sum("Quantity").alias("pieces"))
        return counted

    folder = shared_data / "retail_uci_online_by_day"
    days = sorted(p.name.removeprefix("day=") for p in folder.iterdir() if p.name.startswith("day="))
    project = nova.Project([nova.bind(nova.Workflowette("sum_up", [sum_up]), partitions=[])])
    truth: Counter[tuple[str, str]] = Counter()
    pieces: Counter[tuple[str, str]] = Counter()
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        seen = set()
        for n, day in enumerate(shuffled(days)):
            table = _retail(folder / f"day={day}" / "sales.csv.gz")
            if day not in seen:
                for country, quantity in zip(table["Country"].to_pylist(), table["Quantity"].to_pylist(), strict=True):
                    truth[day, country] += 1
                    pieces[day, country] += quantity
            commit = store.insert(lines, table, idempotency_key=f"day={day}", partition=f"day={day}")
            assert commit.repeated == (day in seen)
            seen.add(day)
            if n % 25 == 24:
                store.run("sum_up")
        store.run("sum_up")
        found = {(r["day"].isoformat(), r["Country"]): (r["n"], r["pieces"]) for r in _rows(store, "sold")}
        assert found == {k: (n, pieces[k]) for k, n in truth.items()}
        assert {s.partition.split("/")[0] for s in store.partitions("lines")} == {f"day={d}" for d in days}


def _retail(path: Path) -> pa.Table:
    strings = {c: pa.string() for c in ("InvoiceNo", "StockCode", "Country")}
    convert = pa.csv.ConvertOptions(
        column_types=strings, include_columns=["InvoiceNo", "StockCode", "Quantity", "UnitPrice", "Country"]
    )
    return pa.csv.read_csv(path, convert_options=convert, parse_options=pa.csv.ParseOptions(newlines_in_values=True))


def _rows(store: nova.Store, channel: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = store.read(channel).to_arrow().to_pylist()
    return rows
