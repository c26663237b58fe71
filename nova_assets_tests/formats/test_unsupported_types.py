"""Types that channels do not have: refused by column, and never stored as the numbers and bytes that encode them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.engine.inputs.large_parquet import LargeParquetFiles
from nova_assets.service.decode_worker import decode_body


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c"))
        yield store


@pytest.mark.parametrize(
    "value",
    ["{'a': 1}::VARIANT", "'POINT(1 2)'::GEOMETRY", "['POINT(1 2)'::GEOMETRY]", "INTERVAL 1 DAY", "[INTERVAL 1 DAY]"],
)
def test_parquet_types_that_arrow_reads_as_bytes_are_refused(value: str, store: nova.Store, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    duckdb.sql(f"COPY (SELECT 1 AS n, {value} AS v) TO '{path}' (FORMAT parquet, GEOPARQUET_VERSION 'NONE')")
    for read in (
        lambda: store.insert("c", path),
        lambda: LargeParquetFiles([path], None, False).row_schema(),
        lambda: decode_body(path, "parquet", None, tmp_path / "rows.arrow", 2**20),
    ):
        with pytest.raises(nova.SchemaMismatch, match="column 'v' has a type that channels do not support"):
            read()
    assert store.timeline("c") == []


def test_intervals_of_spark_are_no_numbers(store: nova.Store, tmp_path: Path) -> None:
    """Spark writes them as numbers, and their type into the footer."""
    path, types = tmp_path / "t.parquet", {"type": "array", "elementType": "interval day to second"}
    fields = [{"name": "n", "type": "integer"}, {"name": "v", "type": types}]
    metadata = {"org.apache.spark.sql.parquet.row.metadata": json.dumps({"type": "struct", "fields": fields})}
    pq.write_table(pa.table({"n": [1], "v": [[2]]}).replace_schema_metadata(metadata), path)
    with pytest.raises(nova.SchemaMismatch, match=r"(?s)column 'v'.*found: +interval day to second"):
        store.insert("c", path)


def test_structs_without_fields_are_refused(store: nova.Store, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"n": 1, "v": {}}\n')
    for data in (
        pa.table({"v": pa.array([[{}]], pa.list_(pa.struct([])))}),
        [{"n": 1, "v": {}}],
        [{"n": 1, "v": [{}]}],
        tmp_path / "t.jsonl",
    ):
        with pytest.raises(nova.SchemaMismatch, match="column 'v' has a struct without fields"):
            store.insert("c", data)
    assert store.timeline("c") == []
    store.register(nova.Channel("declared", schema="n bigint, v struct<a:int>"))
    store.insert("declared", [{"n": 1, "v": {}}])
    assert store.read("declared").to_arrow().to_pylist() == [{"n": 1, "v": {"a": None}}]


def list_views() -> pa.Table:
    numbers = pa.list_view(pa.int64())
    return pa.table(
        {
            "flat": pa.array([[1, None], None, []], numbers),
            "large": pa.array([[1, None], None, []], pa.large_list_view(pa.int64())),
            "deep": pa.array([{"l": [[1], None]}, {"l": None}, None], pa.struct([("l", pa.list_(numbers))])),
        }
    )


def test_list_views_arrive_as_lists(store: nova.Store, tmp_path: Path) -> None:
    table = list_views()
    store.insert("c", table)
    assert store.read("c").to_arrow().to_pylist() == table.to_pylist()
    with pa.OSFile(str(tmp_path / "body"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    decode_body(tmp_path / "body", "arrow", None, tmp_path / "rows.arrow", 2**20)
    with pa.memory_map(str(tmp_path / "rows.arrow")) as source:
        rows = pa.ipc.open_file(source).read_all()
        rows.validate(full=True)
        assert rows.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("declared", [None, "u string, n bigint"])
def test_a_uuid_of_avro_is_the_text_of_the_file(declared: str | None, store: nova.Store, tmp_path: Path) -> None:
    uuid = {"type": "string", "logicalType": "uuid"}
    fields = [{"name": "u", "type": ["null", uuid]}, {"name": "n", "type": "long"}]
    out, text = io.BytesIO(), "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"
    writer = fastavro.write.Writer(out, {"type": "record", "name": "r", "fields": fields})
    writer.write({"u": text, "n": 1})
    writer.write({"u": None, "n": 2})
    writer.flush()
    (tmp_path / "t.avro").write_bytes(out.getvalue())
    channel = nova.Channel("avro", schema=declared)
    store.register(channel)
    store.insert("avro", tmp_path / "t.avro")
    assert store.read("avro").to_arrow().select(["u", "n"]).to_pylist() == [{"u": text, "n": 1}, {"u": None, "n": 2}]
