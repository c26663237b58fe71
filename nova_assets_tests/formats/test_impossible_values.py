"""Values that no column can hold: an insert refuses them by column and value, whoever made them, and so do readers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.engine.buckets.file_writer import FileTarget, write_unsorted_files
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.pandas_frame import to_pandas_frame
from nova_assets.formats.python_values import to_python_rows
from nova_assets.formats.readers import read_valid_records
from nova_assets.formats.table_writers import UnsupportedColumn, write_table
from nova_assets.model.arrow_types import spark_type
from nova_assets.model.schema import parse_ddl

LAST_DAY = 2932896
DAY_US = 86_400 * 10**6
TIME = pa.timestamp("us")
NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
"""One text that is not UTF-8."""

IMPOSSIBLE = {
    "date": (pa.array([LAST_DAY + 1], pa.date32()), "10000-01-01"),
    "year 0": (pa.array([-719163], pa.date32()), "0000-12-31"),
    "milliseconds of a date": (pa.array([(LAST_DAY + 1) * 86_400_000], pa.date64()), "10000-01-01"),
    "microseconds": (pa.array([(LAST_DAY + 1) * DAY_US], TIME), "10000-01-01 00:00:00"),
    "far microseconds": (pa.array([2**62], TIME), str(2**62)),
    "instant": (pa.array([-719162 * DAY_US - 1], pa.timestamp("us", "UTC")), "0000-12-31 23:59:59.999999"),
    "seconds": (pa.array([2**62], pa.timestamp("s")), str(2**62)),
    "milliseconds": (pa.array([-(2**61)], pa.timestamp("ms", "UTC")), str(-(2**61))),
    "list": (pa.array([[0, LAST_DAY + 1]], pa.list_(pa.date32())), "10000-01-01"),
    "struct": (pa.array([{"a": 2**62}], pa.struct([("a", TIME)])), str(2**62)),
    "map": (pa.array([[("a", LAST_DAY + 1)]], pa.map_(pa.string(), pa.date32())), "10000-01-01"),
    "text": (NO_TEXT, r"\\xff\\xfe"),
    "large text": (NO_TEXT.cast(pa.large_string()), r"\\xff\\xfe"),
    "text of a dictionary": (pa.DictionaryArray.from_arrays(pa.array([0]), NO_TEXT), r"\\xff\\xfe"),
    "text in a list": (pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), NO_TEXT), r"\\xff\\xfe"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_insert_refuses_the_value_by_column_and_row(name: str, tmp_path: Path) -> None:
    impossible, text = IMPOSSIBLE[name]
    array = pa.concat_arrays([pa.nulls(2, impossible.type), impossible, pa.nulls(1, impossible.type)])
    table, type_ = pa.table({"v": array, "n": range(4)}), spark_type(array.type, "v")
    forms = [table]
    if name not in ("seconds", "text of a dictionary"):  # Parquet has no seconds
        pq.write_table(table, tmp_path / "t.parquet")
        forms.append(tmp_path / "t.parquet")
    channels = [nova.Channel("free"), nova.Channel("declared", schema=f"v {type_}, n bigint")]
    if not type_.fields:
        keyed = nova.Channel("keyed", schema=f"v {type_}, n bigint", merge=nova.Upsert(key="v"))
        channels.append(keyed)
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        for channel in channels:
            store.register(channel)
            for data in forms:
                with pytest.raises(nova.NovaError, match=f"(?s)row 3 .* column 'v'.*{text}") as caught:
                    store.insert(channel, data)
                assert (caught.value.fields["column"], caught.value.fields["row"]) == ("v", 3)
            assert store.timeline(channel) == []


def test_the_first_and_the_last_moment_arrive(tmp_path: Path) -> None:
    days = pa.array([-719162, LAST_DAY, None], pa.date32())
    table = pa.table(
        {
            "day": days,
            "time": pa.array([-719162 * DAY_US, (LAST_DAY + 1) * DAY_US - 1, None], TIME),
            "seconds": pa.array([-719162 * 86_400, (LAST_DAY + 1) * 86_400 - 1, None], pa.timestamp("s", "UTC")),
            "map": pa.array([[("a", -719162)], [("b", LAST_DAY)], None], pa.map_(pa.string(), pa.date32())),
        }
    )
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c"))
        store.insert("c", table.slice(0, 1))
        store.insert("c", table.slice(1, 2))
        assert store.read("c").to_arrow().to_pydict() == table.to_pydict()


def test_frames_of_pandas_and_polars_follow_the_same_rule(tmp_path: Path) -> None:
    far = pa.table({"v": pa.array([2**62], TIME)})
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c"))
        for frame in (pl.from_arrow(far), far.to_pandas(), far.to_pandas(types_mapper=pd.ArrowDtype)):
            with pytest.raises(nova.SchemaMismatch, match=f"(?s)row 1 .* column 'v'.*{2**62}"):
                store.insert("c", frame)


DATE, MICROS = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}


def test_avro_refuses_the_record_and_reads_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    for fields, number, type_ in ((DATE, LAST_DAY + 1, "date"), (MICROS, 2**62, "timestamp")):
        write_far_avro(path, fields, [0, number, 0])
        found = read_valid_records(InputFile(path), "avro", parse_ddl(f"v {type_}"))
        assert list(found.line_numbers) == [1, 3] and found.table.num_rows == 2
        [refused] = found.refused
        assert refused.line == 2 and f"column 'v': {number} ({fields['logicalType']})" in refused.reason


def write_far_avro(path: Path, type_: dict[str, str], numbers: list[int]) -> None:
    """File whose schema has a logical type, with any numbers: fastavro writes no such file."""

    def file_of(type_: Any, numbers: list[int]) -> bytes:
        out, schema = io.BytesIO(), {"type": "record", "name": "r", "fields": [{"name": "v", "type": type_}]}
        fastavro.writer(out, schema, [{"v": n} for n in numbers], sync_marker=b"0123456789abcdef")
        return out.getvalue()

    head, rows = file_of(type_, []), file_of(type_["type"], numbers)
    path.write_bytes(head + rows[len(file_of(type_["type"], [])) :])


def test_readers_name_column_and_value(tmp_path: Path) -> None:
    """Values that are there already: of an older version, of a task, or of files outside."""
    for name, (array, text) in IMPOSSIBLE.items():
        table = pa.table({"n": [1], "v": array})
        with pytest.raises(nova.NotSupported, match=f"(?s)row 1 .*column 'v'.*{text}"):
            to_python_rows(table)
        if not pa.types.is_timestamp(array.type):  # pandas has these
            with pytest.raises(nova.NotSupported, match=f"(?s)row 1 .*column 'v'.*{text}"):
                to_pandas_frame(table)
        else:
            assert to_pandas_frame(table)["v"].astype("int64").tolist() == array.cast(pa.int64()).to_pylist(), name
    far = pa.table({"v": IMPOSSIBLE["date"][0]})
    for format_ in ("json", "avro"):
        with pytest.raises(UnsupportedColumn, match="column 'v': 10000-01-01") as caught:
            write_table(far, tmp_path / f"t.{format_}", format_)
        assert caught.value.column == "v"
    with pytest.raises(UnsupportedColumn, match="column 'v'"):
        write_table(pa.table({"v": IMPOSSIBLE["far microseconds"][0]}), tmp_path / "t.csv", "csv")


def test_a_partition_of_a_far_date_is_refused_by_column_and_value(tmp_path: Path) -> None:
    far = pa.table({"day": IMPOSSIBLE["date"][0]})
    target = FileTarget(str(tmp_path), "b", far.schema, None, False, dimensions=(nova.dynamic("day"),))
    [written] = write_unsorted_files([far], target, 1)
    assert written.partition_error_args is not None
    assert "column 'day'" in written.partition_error_args["what"]
    assert (written.partition_error_args["found"], written.partition_error_args["column"]) == ("10000-01-01", "day")


@pytest.mark.spark
def test_frames_of_spark_follow_the_same_rule(tmp_path: Path, spark: Any) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c"))
        for value in ("DATE'9999-12-31' + INTERVAL 1 DAY", "map('a', array(timestamp_micros(253402300800000000)))"):
            with pytest.raises(nova.SchemaMismatch, match=r"(?s)column 'v'.*\+10000-01-01"):
                store.insert("c", spark.sql(f"SELECT {value} AS v"))
        store.insert("c", spark.sql("SELECT DATE'9999-12-31' AS v, named_struct('a b', CAST(NULL AS DATE)) AS s"))
        assert store.read("c").to_arrow().num_rows == 1
