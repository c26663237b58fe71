"""What a test of the scheduler kills: ticks over datasets in SQL, in a process of its own.

``python -m nova_assets_tests.scenarios.tick_worker CATALOG WAREHOUSE FOLDER``

The stub engine keeps the rows and DuckDB runs the queries, so that many processes can be killed in little time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

import nova_assets as nova
from nova_assets.catalog.database.transactions import utc_now
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.crash_points import crash_point
from nova_assets.model.schema import DataType, Field, Schema
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

LEASE, GRACE = 0.5, 0.1
DAYS, STORES = ("2022-03-30", "2022-03-31"), ("Oslo", "Paris")

DATASETS = {
    "store_sales": "FOR t IN TIMESERIES('2022-03-30', '2022-03-31'), store IN ('Oslo', 'Paris') "
    "LET d = DATE_FORMAT(t, 'yyyy-MM-dd') INSERT OVERWRITE store_sales PARTITION (day = d, store) "
    "SELECT SUM(price) AS revenue FROM tickets WHERE tickets.day = :d AND tickets.store = :store",
    "day_sales": "FOR t IN TIMESERIES('2022-03-30', '2022-03-31') LET d = DATE_FORMAT(t, 'yyyy-MM-dd') "
    "INSERT OVERWRITE day_sales PARTITION (day = d) SELECT SUM(revenue) AS revenue FROM store_sales s WHERE s.day = :d",
    "total": "SELECT SUM(revenue) AS revenue FROM day_sales",
}
TASKS = [("store_sales", f"day={d}/store={s}") for d in DAYS for s in STORES]
TASKS += [("day_sales", f"day={d}") for d in DAYS] + [("total", "")]
"""All that there are, in an order in which they can be made."""

TICKETS = nova.Channel(
    "tickets",
    schema="price bigint, day string, store string",
    partitions=[nova.daily("day", start=DAYS[0]), nova.static("store", STORES)],
)


class QueryResult(list[Row]):
    """The rows of a query, with the columns that the database says."""

    schema: Schema


_TYPES = {"BIGINT": "bigint", "VARCHAR": "string"}


class Duck:
    """As much of a Spark session as a query needs."""

    conf: ClassVar = {"spark.sql.session.timeZone": "UTC"}

    def sql(self, sql: str, args: Mapping[str, Any], **frames: list[Row]) -> list[Row]:
        with duckdb.connect() as connection:
            for name, rows in frames.items():
                empty = pa.schema([("price", pa.int64()), ("revenue", pa.int64()), ("day", pa.string())])
                table = pa.Table.from_pylist(rows, schema=None if rows else empty)
                connection.register(name, table)
            for name in args:
                sql = sql.replace(f":{name}", f"${name}")
            text = sql.format(**{name: name for name in frames}).replace("`", '"').replace("AS string", "AS varchar")
            text = text.replace("SUM(price)", "CAST(SUM(price) AS bigint)")
            text = text.replace("SUM(revenue)", "CAST(SUM(revenue) AS bigint)")
            used = {name: value for name, value in args.items() if f"${name}" in text}
            made = connection.execute(text, used)
            columns = [(column[0], _TYPES[str(column[1])]) for column in made.description or ()]
            rows = QueryResult(dict(zip([n for n, _ in columns], row, strict=True)) for row in made.fetchall())
            rows.schema = Schema(tuple(Field(name, DataType(type_)) for name, type_ in columns))
            return rows


class DuckEngine(StubEngine):
    """The stub engine, with DuckDB for queries in SQL."""

    def create_frame(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any]) -> list[Row]:
        return Duck().sql(sql, values, **frames)

    def schema_of(self, frame: list[Row]) -> Schema:
        return frame.schema if isinstance(frame, QueryResult) else super().schema_of(frame)


def open_store(
    catalog: str,
    warehouse: str,
    folder: str,
    datasets: Mapping[str, str] = DATASETS,
    channels: Sequence[nova.Channel] = (TICKETS,),
    clock: Callable[[], datetime] = utc_now,
    freshness: str | Mapping[str, str] | None = None,
) -> Store:
    for name, sql in datasets.items():
        file = Path(folder, f"{name}.sql")
        new_file = file.with_suffix(f".{os.getpid()}.new")
        new_file.write_text(sql)
        new_file.replace(file)  # at once: other processes read the folder meanwhile
    settings = load_settings(catalog=catalog, warehouse=warehouse, lease=LEASE, grace=GRACE)
    made = open_catalog(settings.catalog, on_before_commit=lambda: crash_point("commit.inside"), clock=clock)
    engine = DuckEngine(warehouse, "revenue bigint")
    engine.session = Duck()
    # DuckDB computes the queries here, and only Spark can confirm how a maintained query is understood.
    project = nova.Project(bindings=nova.datasets(folder, channels=channels, refresh="full", freshness=freshness))
    return Store(settings, project, made, engine)


def main(catalog: str, warehouse: str, folder: str) -> None:
    with open_store(catalog, warehouse, folder) as store:
        while store.tick():
            pass
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
