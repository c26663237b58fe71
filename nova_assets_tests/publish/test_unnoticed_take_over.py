"""After a take-over, each reader of the field finds the same rows and types as before, with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.settings import Settings
from nova_assets.store.store import Store

DDL = (
    "dt date NOT NULL, action string NOT NULL, id bigint NOT NULL, small bigint, price decimal(10,2), "
    "at timestamp, tags array<string>"
)
DAYS = nova.daily("dt", start="2024-01-01")
ROWS = [
    ("2024-01-01", "a/b", 1, 10, Decimal("1.50"), datetime(2024, 1, 1, 12, tzinfo=UTC), ["x", None]),
    ("2024-01-01", "view", 2, None, None, None, []),
    ("2024-01-02", "view", 3, 30, Decimal("-7.25"), datetime(1969, 7, 20, 20, 17, tzinfo=UTC), None),
]


def by_pandas(folder: Path) -> tuple[Any, Any]:
    frame = pd.read_parquet(folder)
    return frame.dtypes.astype(str).to_dict(), frame.sort_values("id").to_csv(index=False)


def by_arrow_table(folder: Path) -> tuple[Any, Any]:
    table = pq.read_table(folder)
    return table.schema.remove_metadata(), sorted(map(str, table.to_pylist()))


def by_arrow_dataset(folder: Path) -> tuple[Any, Any]:
    table = ds.dataset(folder).to_table()
    return table.schema.remove_metadata(), sorted(map(str, table.to_pylist()))


def by_arrow_hive_dataset(folder: Path) -> tuple[Any, Any]:
    table = ds.dataset(folder, partitioning="hive").to_table()
    return table.schema.remove_metadata(), sorted(map(str, table.to_pylist()))


def by_polars(folder: Path) -> tuple[Any, Any]:
    frame = pl.read_parquet(folder)
    return dict(frame.schema), sorted(map(str, frame.rows(named=True)))


def by_duckdb(folder: Path) -> tuple[Any, Any]:
    found = duckdb.sql(f"SELECT * FROM '{folder}/*/*/*.parquet'")
    return list(zip(found.columns, map(str, found.types), strict=True)), sorted(map(str, found.fetchall()))


READERS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "pandas": by_pandas,
    "pq.read_table": by_arrow_table,
    "pyarrow.dataset": by_arrow_dataset,
    "pyarrow.dataset of Hive": by_arrow_hive_dataset,
    "polars": by_polars,
    "duckdb": by_duckdb,
}


def fill(folder: Path, types: dict[str, pa.DataType], **options: Any) -> None:
    """As other tools leave it: partition columns in the names alone, and a column order of its own."""
    schema = pa.schema([(c, types[c]) for c in ("price", "id", "small", "tags", "at")])
    for day, action in {(r[0], r[1]) for r in ROWS}:
        some = [
            dict(zip(("id", "small", "price", "at", "tags"), r[2:], strict=True))
            for r in ROWS
            if r[:2] == (day, action)
        ]
        if types["at"].tz is None:
            some = [{**r, "at": r["at"] and r["at"].replace(tzinfo=None)} for r in some]
        place = folder / f"dt={day}" / f"action={action.replace('/', '%2F')}"
        place.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(some, schema=schema), place / "part-0.snappy.parquet", **options)
    (folder / "_SUCCESS").touch()


TYPES = {
    "id": pa.int64(),
    "small": pa.int32(),
    "price": pa.decimal128(10, 2),
    "at": pa.timestamp("us", tz="UTC"),
    "tags": pa.list_(pa.string()),
}
FOLDERS: dict[str, tuple[dict[str, pa.DataType], dict[str, Any]]] = {
    "Spark's": (TYPES, {"store_schema": False}),
    "Arrow's": ({**TYPES, "tags": pa.list_(pa.large_string())}, {}),
    "Hive's, INT96": (
        {**TYPES, "at": pa.timestamp("ns")},
        {"use_deprecated_int96_timestamps": True, "store_schema": False},
    ),
}


def opened(root: Path, spark: Any) -> Store:
    channel = nova.Channel(
        "actions", nova.Append(), DDL, [DAYS, nova.dynamic("action")], publish=nova.hive("exports/actions")
    )
    settings = Settings(f"sqlite:///{root}/c.db", str(root / "wh"), root=root)
    return nova.open(nova.Project(channels=[channel]), spark=spark, settings=settings)


@pytest.mark.spark
@pytest.mark.parametrize("kind", FOLDERS)
def test_no_reader_notices_a_take_over(kind: str, spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "exports" / "actions"
    types, options = FOLDERS[kind]
    fill(folder, types, **options)
    before = {name: read(folder) for name, read in READERS.items()}
    frame = spark.read.parquet(str(folder))
    spark_before = frame.schema, sorted(map(str, frame.collect()))

    store = opened(tmp_path, spark)
    assert [e.rows for e in store.publish("actions", take_over=True)] == [3]

    for name, read in READERS.items():
        assert read(folder) == before[name], name
    frame = spark.read.parquet(str(folder.resolve()))
    assert (frame.schema, sorted(map(str, frame.collect()))) == spark_before

    new = {"dt": date(2024, 1, 3), "action": "view", "id": 4, "small": 40, "price": None, "at": None, "tags": ["y"]}
    store.insert("actions", [new])
    assert len(store.publish("actions")) == 1
    for name, read in READERS.items():
        columns, _ = read(folder)
        assert columns == before[name][0] or name == "pandas", f"{name}: later editions keep the columns and types"
    assert pd.read_parquet(folder).dtypes.astype(str)["small"] == before["pandas"][0]["small"]
    assert duckdb.sql(f"SELECT count(*) FROM '{folder}/*/*/*.parquet'").fetchall() == [(4,)]
    first, second = sorted(folder.resolve().parent.glob("0*"))
    old_file = "dt=2024-01-02/action=view"
    assert [p.stat().st_ino for p in (first / old_file).iterdir()] == [
        p.stat().st_ino for p in (second / old_file).iterdir()
    ], "a partition that has not changed is not converted again"

    store.insert("actions", [{**new, "id": 5, "small": 2**40}])
    with pytest.raises(nova.SchemaMismatch, match="'small' has a value that the published table cannot hold"):
        store.publish("actions")
    assert folder.resolve() == second, "readers keep what they have"
