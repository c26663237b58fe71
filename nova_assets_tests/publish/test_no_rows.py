"""A published folder without rows is a table without rows, for every reader of the field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.block import DataFile
from nova_assets.model.partitions import Dimension
from nova_assets.model.published_version import PublishedContent
from nova_assets.model.schema import parse_ddl
from nova_assets.publish.hive import HivePublishTarget
from nova_assets.publish.target import Edition

SCHEMA = parse_ddl("day date, action string, id bigint, n decimal(10,2), at timestamp, tags array<string>")
COLUMNS = sorted(SCHEMA.names)
DAY, ACTION = nova.daily("day", start="2024-01-01"), nova.dynamic("action")

TABLES: dict[str, tuple[tuple[Dimension, ...], tuple[str, ...]]] = {
    "unpartitioned": ((), ()),
    "by day": ((DAY,), ()),
    "by day and action": ((DAY, ACTION), ()),
    "by day, sealed": ((DAY,), ("day=2024-01-01",)),
    "by day and action, sealed": ((DAY, ACTION), ("day=2024-01-01", "day=2024-01-03")),
}

Reader = Callable[[Path], tuple[list[str], int]]
"""The columns of a folder, and how many rows it has."""


def by_duckdb(folder: Path) -> tuple[list[str], int]:
    found = duckdb.sql(f"SELECT * FROM read_parquet('{folder}/**/*.parquet', hive_partitioning = true)")
    return sorted(found.columns), len(found.fetchall())


def by_polars(folder: Path) -> tuple[list[str], int]:
    found = pl.scan_parquet(folder / "**/*.parquet", hive_partitioning=True).collect()
    return sorted(found.columns), found.height


def published(root: Path, table: str, *, has_rows: bool) -> Path:
    """A folder in which a channel is published."""
    dimensions, sealed = TABLES[table]
    files, where = [], []
    if has_rows:
        source = root / "blocks" / "abc" / "rows.parquet"
        source.parent.mkdir(parents=True)
        row = {"day": "2024-01-02", "action": "a", "id": 1, "n": None, "at": None, "tags": ["x"]}
        columns = [pa.array([row[f.name]]).cast(f.type) for f in to_arrow_schema(SCHEMA)]
        pq.write_table(pa.Table.from_arrays(columns, schema=to_arrow_schema(SCHEMA)), source)
        partition = "/".join(f"{d.column}={row[d.column]}" for d in dimensions)
        files, where = [DataFile("blocks/abc/rows.parquet", 1, 1, partition=partition)], [str(source)]
    content = PublishedContent("c", 1, SCHEMA, dimensions, tuple(files), sealed)
    folder = HivePublishTarget(root / "out", (), "me")
    folder.publish(Edition(1, content, where))
    return (root / "out").resolve()


@pytest.mark.parametrize("has_rows", [False, True], ids=["no rows", "rows of another day"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("reader", [by_duckdb, by_polars])
def test_a_folder_without_rows_is_read(reader: Reader, table: str, has_rows: bool, tmp_path: Path) -> None:
    folder = published(tmp_path, table, has_rows=has_rows)
    assert reader(folder) == (COLUMNS, int(has_rows))
    for scope in TABLES[table][1]:
        assert reader(folder / scope)[1] == 0, "an empty day that is sealed, by itself"


@pytest.mark.spark
def test_spark_reads_them_too(spark: Any, tmp_path: Path) -> None:
    for n, (table, has_rows) in enumerate((t, r) for t in TABLES for r in (False, True)):
        root = tmp_path / str(n)
        root.mkdir()
        frame = spark.read.parquet(str(published(root, table, has_rows=has_rows)))
        assert (sorted(frame.columns), frame.count()) == (COLUMNS, int(has_rows)), table


def test_each_value_of_a_schema_keeps_its_type(tmp_path: Path) -> None:
    folder = published(tmp_path, "unpartitioned", has_rows=False)
    assert pq.read_schema(folder / "no-rows.parquet").remove_metadata() == to_arrow_schema(SCHEMA)
