"""Partitioned channels on real Spark (R13): any values, any type of column, from Arrow and from Spark alike."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.store.store import Store

pytestmark = pytest.mark.spark

VALUES = ["a/b", "..", "../../etc", "a=b", "two words", "🚀 é", "x" * 300, "", "__null__", "%2F", "back\\slash", None]


@pytest.fixture
def store(tmp_path: Path, spark: Any) -> Any:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as opened:
        yield opened


@pytest.fixture(params=["arrow", "spark"])
def given(request: pytest.FixtureRequest, spark: Any) -> Any:
    """Rows as an Arrow table or a Spark frame."""

    def make(rows: list[dict[str, Any]], ddl: str) -> Any:
        if request.param == "arrow":
            return rows
        columns = [c.strip().split(" ")[0] for c in ddl.split(",")]
        return spark.createDataFrame([tuple(r.get(c) for c in columns) for r in rows], ddl)

    return make


def rows_of(selection: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = selection.to_arrow().to_pylist()
    return rows


def test_r13_partition_values_of_every_kind(store: Store, given: Any, tmp_path: Path) -> None:
    ddl = "p string, n bigint"
    store.register(nova.Channel("t", schema=ddl, partitions=nova.dynamic("p")))
    rows = [{"p": v, "n": n} for n, v in enumerate(VALUES)] * 2
    commit = store.insert("t", given(rows, ddl))
    assert len(commit.blocks) == len(VALUES) and commit.seq == 1
    for n, value in enumerate(VALUES):
        found = rows_of(store.read("t", partition={"p": value}))
        assert found == [{"p": value, "n": n}] * 2
    assert Counter(r["p"] for r in rows_of(store.read("t"))) == Counter(VALUES * 2)
    outside = [p for p in tmp_path.rglob("*.parquet") if not p.resolve().is_relative_to(tmp_path / "wh" / "blocks")]
    assert outside == []


def test_r13_three_dimensions_one_number_and_partitions_that_are_left_alone(store: Store, given: Any) -> None:
    ddl = "dt date, shop int, kind string, n bigint"
    parts = [nova.daily("dt", start="2024-01-01"), nova.dynamic("shop"), nova.static("kind", ["sale", "back"])]
    store.register(
        nova.Channel("t", merge=nova.Keyed(["dt", "shop", "kind"], {"n": "sum"}), schema=ddl, partitions=parts)
    )
    one, two = date(2024, 1, 1), date(2024, 1, 2)
    first = [{"dt": d, "shop": s, "kind": "sale", "n": 1} for d in (one, two) for s in (1, 2)]
    store.insert("t", given(first, ddl))
    commit = store.insert("t", given([{"dt": two, "shop": 2, "kind": "sale", "n": 5}], ddl))
    assert [b.partition for b in commit.blocks] == ["dt=2024-01-02/shop=2/kind=sale"] and commit.seq == 2
    assert sum(r["n"] for r in rows_of(store.read("t"))) == 9
    assert sum(r["n"] for r in rows_of(store.read("t", partition="shop=2"))) == 7
    assert [(s.partition, s.seq, s.blocks) for s in store.partitions("t", "shop=2")] == [
        ("dt=2024-01-01/shop=2/kind=sale", 1, 1),
        ("dt=2024-01-02/shop=2/kind=sale", 2, 2),
    ]
    store.insert(
        "t", given([{"dt": two, "shop": 3, "kind": "back", "n": 2}], ddl), kind="base", partition="dt=2024-01-02"
    )
    assert sorted((r["dt"], r["shop"], r["n"]) for r in rows_of(store.read("t"))) == [
        (one, 1, 1),
        (one, 2, 1),
        (two, 3, 2),
    ]
    changes = rows_of(store.read("t", since=2, partition="dt=2024-01-02"))
    assert sorted((r["shop"], r["n"], r["_deleted"]) for r in changes) == [(1, 1, True), (2, 6, True), (3, 2, False)]


@pytest.mark.parametrize(
    ("partition", "row", "match"),
    [
        (nova.daily("p", start="2024-01-01"), "2023-12-31", "daily partitions of 'p' have no '2023-12-31'"),
        (nova.daily("p", start="2024-01-01"), "2024-1-5", "daily partitions of 'p' have no '2024-1-5'"),
        (nova.daily("p", start="2024-01-01"), "20240105", "is not how partitions of 'p' are written"),
        (nova.daily("p", start="2024-01-01"), None, "daily partitions of 'p' have no rows without a value"),
        (nova.static("p", ["x"]), "y", "static partitions of 'p' have no 'y'"),
        (nova.dynamic("p"), "🚀" * 600, "name is 2402 bytes long"),
    ],
)
def test_rows_that_are_in_no_partition_are_refused_and_nothing_is_left(
    partition: Any, row: Any, match: str, store: Store, given: Any, tmp_path: Path
) -> None:
    store.register(nova.Channel("t", schema="p string, n bigint", partitions=partition))
    with pytest.raises(nova.PartitionError, match=match):
        store.insert("t", given([{"p": row, "n": 1}], "p string, n bigint"))
    assert store.catalog.definitions.channel("t").head == 0 and list((tmp_path / "wh").rglob("*.parquet")) == []


def test_a_partition_that_is_named_fills_the_column_and_refuses_others(store: Store, given: Any) -> None:
    ddl = "h timestamp, n bigint"
    store.register(nova.Channel("t", schema=ddl, partitions=nova.hourly("h", start="2024-01-01", tz="Europe/Berlin")))
    store.insert("t", given([{"n": 1}], "n bigint"), partition="2024-06-01T12:00")
    (row,) = rows_of(store.read("t"))
    assert row["h"] == datetime(2024, 6, 1, 10, tzinfo=UTC)
    moment = datetime(2024, 6, 1, 11, tzinfo=UTC)
    store.insert("t", given([{"h": moment, "n": 2}], ddl))
    assert [s.partition for s in store.partitions("t")] == ["h=2024-06-01T12:00", "h=2024-06-01T13:00"]
    with pytest.raises(nova.PartitionError, match="has rows of another partition than h=2024-06-01T12:00"):
        store.insert("t", given([{"h": moment, "n": 2}], ddl), partition="2024-06-01T12:00")
    with pytest.raises(nova.PartitionError, match="does not determine its partition"):
        store.insert("t", given([{"n": 3}], "n bigint"))
    with pytest.raises(nova.PartitionError, match="hourly partitions of 'h' have no"):
        store.insert("t", given([{"h": datetime(2024, 6, 1, 11, 30, tzinfo=UTC), "n": 2}], ddl))


def test_keys_are_resolved_within_partitions(store: Store, spark: Any) -> None:
    model = nova.Upsert(key=["p", "k"], order_by="at")
    store.register(nova.Channel("t", merge=model, schema="p string, k int, at int", partitions=nova.dynamic("p")))
    rows = [("a", 1, 1), ("a", 1, 2), ("b", 1, 3), ("b", 1, 1), ("c", 1, 0)]
    commit = store.insert("t", spark.createDataFrame(rows, "p string, k int, at int"))
    assert [(b.partition, b.rows) for b in sorted(commit.blocks, key=lambda b: b.partition)] == [
        ("p=a", 1),
        ("p=b", 1),
        ("p=c", 1),
    ]
    assert sorted((r["p"], r["at"]) for r in rows_of(store.read("t"))) == [("a", 2), ("b", 3), ("c", 0)]


def test_an_unpartitioned_execution_writes_the_partitions_that_it_finds(tmp_path: Path, spark: Any) -> None:
    raw = nova.Channel("raw", schema="at timestamp, n bigint")
    days = nova.Channel(
        "days",
        merge=nova.Keyed("dt", {"n": "sum"}),
        schema="dt date, n bigint",
        partitions=nova.daily("dt", start="2024-01-01"),
    )
    top = nova.Channel("top", schema="dt date, n bigint", partitions=nova.daily("dt", start="2024-01-01"))

    @nova.task(consumes=nova.new(raw), produces=nova.delta(days))
    def by_day(raw: Any) -> Any:
        return raw.groupBy(raw["at"].cast("date").alias("dt")).sum("n").withColumnRenamed("sum(n)", "n")

    @nova.task(consumes=nova.all(days), produces=nova.base(top))
    def best(ctx: nova.Context, days: Any) -> Any:
        assert ctx.partition == "dt=2024-01-02"
        return days.orderBy("n", ascending=False).limit(1)

    project = nova.Project(
        [nova.bind(nova.Workflowette("split", [by_day])), nova.bind(nova.Workflowette("rank", [best]))]
    )
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.insert(
            raw,
            pa.table(
                {
                    "at": pa.array([datetime(2024, 1, d, 5, tzinfo=UTC) for d in (1, 2, 2)], pa.timestamp("us", "UTC")),
                    "n": [1, 2, 3],
                }
            ),
        )
        done = store.run("split")
        assert done.commit and sorted(b.partition for b in done.commit.blocks) == ["dt=2024-01-01", "dt=2024-01-02"]
        with pytest.raises(nova.PartitionError, match="'split' has run whole, and would read the same rows again"):
            store.run("split", partition="dt=2024-01-01")
        store.run("rank", partition="2024-01-02")
        assert rows_of(store.read("top")) == [{"dt": date(2024, 1, 2), "n": 5}]
        assert [(c.binding, c.partition) for c in store.cursors()] == [("split", "")]


def test_what_a_task_staged_in_several_partitions_is_merged_with_what_is_there(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5: the next task reads it as if it were committed; by whole, by key and as what is new."""
    monkeypatch.setattr("nova_assets.engine.read.read_executor.MIN_LOOKUP_SNAPSHOT_BYTES", 0)
    by = nova.dynamic("p")
    ddl = "p string, k bigint, v bigint"
    table = nova.Channel("table", merge=nova.Upsert(key=["p", "k"]), schema=ddl, partitions=by)
    asked = nova.Channel("asked", merge=nova.Append(), schema="p string, k bigint")
    whole, found, told = (nova.Channel(n, merge=nova.Append(), schema=ddl) for n in ("whole", "found", "told"))

    @nova.task(consumes=nova.all(asked), produces=nova.delta(table))
    def change(ctx: nova.Context, asked: Any) -> Any:
        rows = [("a", 1, 10, False), ("a", 2, None, True), ("b", 1, None, True), ("b", 3, 30, False)]
        return ctx.spark.createDataFrame(rows, f"{ddl}, _deleted boolean")

    @nova.task(consumes=nova.all(table), produces=nova.base(whole))
    def copy(table: Any) -> Any:
        return table

    @nova.task(consumes=[nova.all(asked), nova.matching(table, keys_of=asked, as_="known")], produces=nova.base(found))
    def look_up(asked: Any, known: Any) -> Any:
        return known

    @nova.task(consumes=nova.new(table), produces=nova.base(told))
    def tell(table: Any) -> Any:
        return table.where("NOT _deleted").drop("_deleted")

    flow = nova.Workflowette("flow", [change, copy, look_up, tell])
    project = nova.Project([nova.bind(flow, partitions=[])])
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.register(project)
        store.insert("table", [{"p": p, "k": k, "v": k} for p in "ab" for k in (1, 2)], kind="base")
        store.insert("asked", [{"p": "a", "k": 1}, {"p": "a", "k": 2}, {"p": "b", "k": 3}])
        store.run("flow")
        rows = {n: sorted((r["p"], r["k"], r["v"]) for r in rows_of(store.read(n))) for n in ("whole", "found", "told")}
    assert rows["whole"] == [("a", 1, 10), ("b", 2, 2), ("b", 3, 30)]
    assert rows["found"] == [("a", 1, 10), ("b", 3, 30)]
    assert rows["told"] == rows["whole"], "the first run is told of everything"


def test_rows_of_a_dropped_partition_are_told_in_the_columns_of_today(tmp_path: Path, spark: Any) -> None:
    told: list[tuple[list[str], list[tuple[Any, ...]]]] = []

    def opened(column: str) -> Store:
        visits = nova.Channel("visits", schema=f"day string, {column} int", partitions=[nova.dynamic("day")])

        @nova.task(consumes=nova.new(visits), produces=nova.delta(nova.Channel("count", schema="n bigint")))
        def count(visits: Any) -> Any:
            told.append((visits.columns, sorted(tuple(r) for r in visits.collect())))
            return visits.groupBy().count().withColumnRenamed("count", "n")

        project = nova.Project([nova.bind(nova.Workflowette("count", [count]), name="count", partitions=[])])
        store = nova.open(project, catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark)
        store.register(visits, replace=True)
        return store

    with opened("hits") as store:
        store.run("count")
        store.insert("visits", [{"day": "mon", "hits": 1}, {"day": "tue", "hits": 2}])
        store.drop("visits", {"day": "mon"})
    with opened("pages") as store:
        store.insert("visits", [{"day": "wed", "pages": 3}])
        store.run("count")
    assert told[1:] == [(["day", "pages"], [("mon", None), ("tue", None), ("wed", 3)])]
