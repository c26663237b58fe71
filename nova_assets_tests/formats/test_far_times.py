"""Dates and times that Python lacks, and values that no column can hold: exact, or refused by column and value."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import nova_assets as nova
from nova_assets.cli.main import cli
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.readers import read_valid_records
from nova_assets.model.arrow_types import spark_type
from nova_assets.model.schema import parse_ddl

LAST_DAY = 2932896
DAY_US = 86_400 * 10**6
TIME, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
"""One text that is not UTF-8."""

FAR = {
    "date": (pa.array([LAST_DAY + 1], pa.date32()), "10000-01-01"),
    "farthest date": (pa.array([-(2**31)], pa.date32()), str(2**31)),
    "year 0": (pa.array([-719163], pa.date32()), "0000-12-31"),
    "time": (pa.array([(LAST_DAY + 1) * DAY_US], TIME), "10000-01-01 00:00:00"),
    "farthest time": (pa.array([2**63 - 1], TIME), str(2**63 - 1)),
    "instant": (pa.array([-719162 * DAY_US - 1], INSTANT), "0000-12-31 23:59:59.999999"),
    "list": (pa.array([[0, LAST_DAY + 1]], pa.list_(pa.date32())), "10000-01-01"),
    "struct": (pa.array([{"a": 2**62}], pa.struct([("a", TIME)])), str(2**62)),
    "map": (pa.array([[("a", LAST_DAY + 1)]], pa.map_(pa.string(), pa.date32())), "10000-01-01"),
}
"""Values of Spark's types that Python lacks, and a part of their text."""

IMPOSSIBLE = {
    "seconds": (pa.array([2**62], pa.timestamp("s")), str(2**62)),
    "milliseconds": (pa.array([-(2**61)], pa.timestamp("ms", "UTC")), str(-(2**61))),
    "milliseconds of a date": (pa.array([2**62 // 86_400_000 * 86_400_000], pa.date64()), "4611686018"),
    "seconds in a list": (pa.array([[0, 2**62]], pa.list_(pa.timestamp("s"))), str(2**62)),
    "text": (NO_TEXT, r"\\xff\\xfe"),
    "large text": (NO_TEXT.cast(pa.large_string()), r"\\xff\\xfe"),
    "text of a dictionary": (pa.DictionaryArray.from_arrays(pa.array([0]), NO_TEXT), r"\\xff\\xfe"),
    "text in a list": (pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), NO_TEXT), r"\\xff\\xfe"),
}
"""Values of Arrow that no column can hold."""


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_insert_refuses_the_value_by_column_and_row(name: str, tmp_path: Path) -> None:
    impossible, text = IMPOSSIBLE[name]
    array = pa.concat_arrays([pa.nulls(2, impossible.type), impossible, pa.nulls(1, impossible.type)])
    table, type_ = pa.table({"v": array, "n": range(4)}), spark_type(array.type, "v")
    forms = [table]
    if name in ("text", "large text", "text in a list"):
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


def far_columns() -> pa.Table:
    return pa.table({"n": [1], **{name: array for name, (array, _) in FAR.items()}})


@pytest.fixture
def nova_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The shell, at a catalog."""
    monkeypatch.setenv("NOVA_CATALOG", f"sqlite:///{tmp_path}/c.db")
    monkeypatch.setenv("NOVA_WAREHOUSE", str(tmp_path / "wh"))
    return lambda *arguments: CliRunner().invoke(cli, list(map(str, arguments)), prog_name="nova")


def test_far_times_arrive_and_each_reader_gives_them_or_says_which(tmp_path: Path, nova_at: Any) -> None:
    table = far_columns()
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        for name, schema in (("free", None), ("declared", table.schema)):
            store.register(nova.Channel(name, schema=schema))
            store.insert(name, table)
            read = store.read(name).to_arrow()
            assert read.cast(table.schema).equals(table), name
            with store.pin(name) as pinned, pinned.read(name).to_batches() as reader:
                assert reader.read_all().equals(read)
        for column, (array, text) in FAR.items():
            selected = store.read("free", columns=[column])
            if pa.types.is_timestamp(array.type):  # pandas has these
                assert selected.to_pandas()[column].astype("int64").tolist() == array.cast(pa.int64()).to_pylist()
            else:
                with pytest.raises(nova.NotSupported, match=f"(?s)row 1 .*column {column!r}.*{text}"):
                    selected.to_pandas()
            for options in (["--json"], [], ["--output", tmp_path / "o.csv"], ["--output", tmp_path / "o.jsonl"]):
                if options and str(options[-1]).endswith("csv") and pa.types.is_nested(array.type):
                    continue
                done = nova_at("read", "free", "--columns", column, *options)
                assert done.exit_code == 1 and "NOVA-NOT-SUPPORTED" in done.stderr, (column, options, done.output)
                assert column in done.stderr and text in done.stderr, (column, options, done.stderr)


@pytest.mark.parametrize("name", FAR)
def test_other_formats_refuse_far_times_by_column(name: str, tmp_path: Path) -> None:
    array, text = FAR[name]
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c", schema=f"v {spark_type(array.type, 'v')}"))
        for format_ in ("json", "avro") if pa.types.is_nested(array.type) else ("json", "avro", "csv"):
            with pytest.raises(nova.SchemaMismatch, match=rf"(?s)column 'v'.*{text}|'v'.*{text}"):
                store.insert("c", pa.table({"v": array}), format=format_)
        assert store.timeline("c") == []


def test_a_file_with_a_partition_that_python_lacks_is_refused_by_column_and_value(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    days = pa.array([0, 0, LAST_DAY + 1], pa.date32())
    pq.write_table(pa.table({"day": days, "n": range(3)}), tmp_path / "in" / "a.parquet")
    os.utime(tmp_path / "in" / "a.parquet", (0, 0))  # a new file may still grow
    source = nova.files(str(tmp_path / "in"))
    parts = nova.Channel("parts", schema="day date, n bigint", partitions=[nova.dynamic("day")], source=source)
    project = nova.Project(channels=[parts])
    with nova.open(project, catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(project)
        assert store.receive("parts").rows == 0
        [reason] = store.read("parts_quarantine").to_arrow()["reason"].to_pylist()
    assert reason == "row 3 has a value that Python cannot represent, in column 'day' (10000-01-01)"


def test_a_far_date_is_no_partition_and_a_key_like_others(tmp_path: Path) -> None:
    days = pa.array([0, LAST_DAY + 1, -(2**31)], pa.date32())
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("parts", schema="day date, n bigint", partitions=[nova.dynamic("day")]))
        with pytest.raises(nova.NovaError, match=r"(?s)column 'day'.*10000-01-01"):
            store.insert("parts", pa.table({"day": days, "n": range(3)}))
        assert store.timeline("parts") == []
        sums = nova.Keyed("day", combine={"n": "sum"})
        for name, merge in (("upsert", nova.Upsert(key="day")), ("keyed", sums), ("multiset", nova.Multiset())):
            store.register(nova.Channel(name, merge, "day date, n bigint"))
            for n in (1, 2):
                store.insert(name, pa.table({"day": days, "n": [n, n, n]}))
            read = store.read(name).to_arrow()
            expected = {"upsert": [2, 2, 2], "keyed": [3, 3, 3], "multiset": [1, 1, 1, 2, 2, 2]}[name]
            assert sorted(read["n"].to_pylist()) == expected
            assert set(read["day"].cast(pa.int32()).to_pylist()) == set(days.cast(pa.int32()).to_pylist())


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


@pytest.mark.spark
def test_far_times_of_spark_arrive(tmp_path: Path, spark: Any) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c"))
        store.insert("c", spark.sql("SELECT DATE'9999-12-31' + INTERVAL 1 DAY AS v, timestamp_micros(1L << 62) AS t"))
        read = store.read("c").to_arrow()
        numbers = read["v"].cast(pa.int32()).to_pylist(), read["t"].cast(pa.int64()).to_pylist()
        assert numbers == ([LAST_DAY + 1], [2**62])
        assert store.read("c").to_spark().selectExpr("CAST(v AS STRING)").first()[0] == "+10000-01-01"
        with pytest.raises(nova.NotSupported, match=r"(?s)column 'v'.*10000-01-01"):
            store.read("c").to_pandas()
        with pytest.raises(nova.SchemaMismatch, match="column 's' has a type that channels do not support"):
            store.insert("c", spark.sql("SELECT named_struct() AS s"))
