"""Parquet and ORC files as Spark writes them by default, with times that other readers lack."""

from __future__ import annotations

import os
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import nova_assets as nova
from nova_assets.engine.inputs.insert_data import convert_insert_data
from nova_assets.engine.inputs.large_parquet import LargeParquetFiles, read_part
from nova_assets.engine.storage import file_io
from nova_assets.model.schema import parse_ddl
from nova_assets.service.decode_worker import decode_body

TIMES = [
    datetime(1, 3, 1, 12),
    datetime(1500, 2, 28),
    datetime(2024, 1, 31, 12, 0, 0, 7),
    datetime(9999, 12, 31, 23, 59),
]
INSTANTS = [t.replace(tzinfo=UTC) for t in TIMES]


def inserted(folder: Path, file: Path, ddl: str) -> Any:
    with nova.open(catalog=f"sqlite:///{folder}/c.db", warehouse=folder / "wh") as store:
        store.register(nova.Channel("c", schema=ddl))
        store.insert("c", file)
        return store.read("c").to_arrow().sort_by("t").to_pydict()


def test_times_of_int96_arrive_whole(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array(TIMES, pa.timestamp("us")), "l": pa.array([[t] for t in TIMES])})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    rows = inserted(tmp_path, tmp_path / "t.parquet", "t timestamp, l array<timestamp>")
    assert rows == {"t": INSTANTS, "l": [[t] for t in INSTANTS]}
    assert file_io.open_parquet_file(str(tmp_path / "t.parquet")).read()["t"].to_pylist() == TIMES, (
        "of external channels, too"
    )


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        (None, "t timestamp, l array<timestamp>, s struct<t:timestamp>, m map<string,timestamp>"),
        ("t timestamp_ntz, l array<timestamp_ntz>", "t timestamp_ntz, l array<timestamp_ntz>"),
    ],
)
def test_int96_is_an_instant_as_in_spark_unless_declared_otherwise(
    ddl: str | None, expected: str, tmp_path: Path
) -> None:
    times = pa.array(TIMES, pa.timestamp("us"))
    table = pa.table({"t": times, "l": [[t] for t in TIMES]})
    if ddl is None:
        pairs = pa.array([[("k", t)] for t in TIMES], pa.map_(pa.string(), times.type))
        table = table.append_column("s", pa.array([{"t": t} for t in TIMES])).append_column("m", pairs)
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c", schema=ddl))
        store.insert("c", tmp_path / "t.parquet")
        assert str(store.channels()[0].schema) == expected
        read = store.read("c").to_arrow()
        assert read.cast(table.schema).to_pydict() == table.to_pydict()
    decode_body(tmp_path / "t.parquet", "parquet", None if ddl is None else parse_ddl(ddl), tmp_path / "out", 2**20)
    with pa.memory_map(str(tmp_path / "out")) as source:
        assert pa.ipc.open_file(source).read_all().to_pydict() == read.to_pydict()


def test_a_far_int96_time_is_refused_and_not_read_as_another(tmp_path: Path) -> None:
    """Arrow wraps around, and reads the day as 1969-12-31."""
    path = tmp_path / "t.parquet"
    table = pa.table({"n": [1, 2], "t": pa.array([86_400_000_000, 0], pa.timestamp("us"))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, use_dictionary=False, compression="none")
    epoch, far = (struct.pack("<qi", 0, day) for day in (2440588, 2440588 + 213503982))
    path.write_bytes(path.read_bytes().replace(epoch, far))
    assert file_io.open_parquet_file(str(path)).read()["t"].to_pylist()[1].year == 1969
    for ddl in (None, "n bigint, t timestamp", "n bigint, t timestamp_ntz"):
        schema = None if ddl is None else parse_ddl(ddl)
        rows = LargeParquetFiles([path], schema, allow_widening=False)
        for read in (
            lambda schema=schema: convert_insert_data(path, schema),
            lambda rows=rows, schema=schema: [
                t for part in rows.split_into_parts() for t in read_part(part, schema, False, rows.row_schema())
            ],
            lambda schema=schema: decode_body(path, "parquet", schema, tmp_path / "out", 2**20),
        ):
            with pytest.raises(nova.SchemaMismatch, match=rf"(?s)row 2 .* column 't'.*{213503982 * 86_400}") as caught:
                read()
            assert (caught.value.fields["column"], caught.value.fields["row"]) == ("t", 2)


def test_times_that_the_reader_of_orc_lacks_are_refused_by_their_cause(tmp_path: Path) -> None:
    orc.write_table(pa.table({"t": pa.array([datetime(1500, 1, 1)], pa.timestamp("us"))}), tmp_path / "t.orc")
    with pytest.raises(nova.BadRecord, match=r"(?s)times outside the years 1678 to 2261.*write the file as Parquet"):
        inserted(tmp_path, tmp_path / "t.orc", "t timestamp_ntz")


@pytest.mark.spark
def test_files_of_spark_s_own_writer(tmp_path: Path, spark: Any) -> None:
    from nova_assets.engine.session.shared_settings import temporary_settings

    pq.write_table(pa.table({"t": pa.array(TIMES, pa.timestamp("us")), "i": INSTANTS}), tmp_path / "t.parquet")
    frame = spark.read.parquet(str(tmp_path / "t.parquet")).coalesce(1)
    with temporary_settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        frame.write.parquet(str(tmp_path / "int96"))
    frame.selectExpr("t", "array(t) l", "struct(t) s").write.orc(str(tmp_path / "orc"))
    (parquet,), (file,) = (list((tmp_path / f).glob(f"*.{s}")) for f, s in (("int96", "parquet"), ("orc", "orc")))
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    assert inserted(tmp_path / "a", parquet, "t timestamp_ntz, i timestamp") == {"t": TIMES, "i": INSTANTS}
    ddl = "t timestamp_ntz, l array<timestamp_ntz>, s struct<t:timestamp_ntz>"
    assert inserted(tmp_path / "b", file, ddl) == {
        "t": TIMES,
        "l": [[t] for t in TIMES],
        "s": [{"t": t} for t in TIMES],
    }


def write_parquet(path: Path, table: pa.Table) -> bytes:
    """A file with checksums of its pages, as Spark writes it, and its bytes."""
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    return path.read_bytes()


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A file in which the first 2000 became 2004. Its pages have checksums."""
    path = tmp_path / "arriving" / "damaged.parquet"
    path.parent.mkdir()
    content = bytearray(write_parquet(path, pa.table({"k": list(range(100)), "v": [2000] * 100})))
    content[content.find((2000).to_bytes(8, "little") * 3)] ^= 4
    path.write_bytes(content)
    assert pq.read_table(path)["v"].to_pylist()[:2] == [2004, 2000]
    return path


@pytest.mark.parametrize("keep_files", [False, True])
def test_a_damaged_page_is_refused_before_the_commit(tmp_path: Path, damaged: Path, keep_files: bool) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c", schema="k bigint, v bigint"))
        with pytest.raises(nova.BadRecord, match=r"(?s)damaged.parquet: the Parquet file is damaged.*CRC.*again"):
            store.insert("c", damaged, keep_files=keep_files)
        assert store.read("c").to_arrow().num_rows == 0


def test_a_damaged_page_of_an_arrived_file_is_set_aside(tmp_path: Path, damaged: Path) -> None:
    channel = nova.Channel("c", schema="k bigint, v bigint", source=nova.files(str(damaged.parent), min_age="1s"))
    good = damaged.with_name("good.parquet")
    write_parquet(good, pa.table({"k": [1], "v": [2000]}))
    for path in (good, damaged):
        os.utime(path, (path.stat().st_mtime - 60,) * 2)
    with nova.open(nova.Project(channels=[channel]), f"sqlite:///{tmp_path}/c.db", tmp_path / "wh") as store:
        store.receive("c")
        assert store.read("c").to_arrow().to_pylist() == [{"k": 1, "v": 2000}]
        [refused] = store.read("c_quarantine").to_arrow().to_pylist()
    assert refused["file"].endswith("damaged.parquet") and "the Parquet file is damaged" in refused["reason"]


def test_a_damaged_page_of_an_external_file_is_not_read(tmp_path: Path, damaged: Path) -> None:
    channel = nova.Channel("c", schema="k bigint, v bigint", external=nova.external(str(damaged.parent)))
    with nova.open(nova.Project(channels=[channel]), f"sqlite:///{tmp_path}/c.db", tmp_path / "wh") as store:
        store.refresh("c")  # from the footer, without a page
        with pytest.raises(nova.BadRecord, match=r"(?s)damaged.parquet is damaged.*CRC.*refresh the channel"):
            list(store.read("c").to_batches())


def test_a_map_that_arrow_does_not_read_is_not_called_truncated(tmp_path: Path) -> None:
    table = pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))})
    content = bytearray(write_parquet(tmp_path / "m.parquet", table))
    key_is_required = content.find(b"\x0c\x25\x00\x18\x03key") + 2
    content[key_is_required] = 2  # optional, as old writers declare it
    (tmp_path / "m.parquet").write_bytes(content)
    with pytest.raises(nova.BadRecord, match=r"(?s)the Parquet file is complete, but cannot.*Map keys.*DataFrame"):
        inserted(tmp_path, tmp_path / "m.parquet", "m map<string,int>")


def test_rows_that_only_one_part_of_a_footer_counts_are_not_left_out(tmp_path: Path) -> None:
    """A turned bit in a count of ORC's stripe, or of Parquet's row group, hides rows from Arrow, without an error."""
    table = pa.table({"k": [7, 8, 9]})
    orc.write_table(table, tmp_path / "whole.orc")
    pq.write_table(table, tmp_path / "whole.parquet", compression="none", write_statistics=False)
    hidden = 0
    for suffix, count in ((".orc", b"\x28\x03"), (".parquet", b"\x16\x06")):
        content = (tmp_path / f"whole{suffix}").read_bytes()
        places = [n for n in range(len(content)) if content.startswith(count, n)]
        assert places
        for place in places:
            path = tmp_path / f"{place}{suffix}"
            path.write_bytes(content[: place + 1] + bytes([count[1] ^ 2]) + content[place + 2 :])
            rows = orc.read_table(path) if suffix == ".orc" else pq.ParquetFile(path).read()
            hidden += rows.num_rows < 3
            if rows.num_rows < 3:
                with pytest.raises(nova.BadRecord, match=f"{path.name}: the (ORC|Parquet) file is damaged"):
                    convert_insert_data(path, None)
    assert hidden == 2


def test_a_page_that_arrow_skips_is_damage(tmp_path: Path) -> None:
    """Arrow skips a page of an unknown kind, and reads no rows."""
    path = tmp_path / "t.parquet"
    duckdb.sql(f"COPY (SELECT 7 AS v UNION ALL SELECT NULL) TO '{path}' (FORMAT parquet)")
    content = path.read_bytes()
    assert content[4:6] == b"\x15\x00", "the kind of the first page"
    path.write_bytes(content[:5] + b"\x10" + content[6:])
    assert pq.ParquetFile(path).read().num_rows == 0
    rows = LargeParquetFiles([path], None, allow_widening=False)
    for read in (
        lambda: convert_insert_data(path, None),
        lambda: [t for part in rows.split_into_parts() for t in read_part(part, None, False, rows.row_schema())],
        lambda: decode_body(path, "parquet", None, tmp_path / "out", 2**20),
    ):
        with pytest.raises(nova.BadRecord, match=r"(?s)the Parquet file is damaged.*0 rows in its pages, and 2 in"):
            read()


def test_a_column_without_a_valid_repetition_is_not_read_as_other_values(tmp_path: Path) -> None:
    """Arrow reads such a column as required, so it takes the marks of nulls for values."""
    path = tmp_path / "t.parquet"
    duckdb.sql(f"COPY (SELECT 7 AS v UNION ALL SELECT NULL) TO '{path}' (FORMAT parquet)")
    content = path.read_bytes()
    assert content.count(b"\x25\x02\x18\x01v") == 1
    path.write_bytes(content.replace(b"\x25\x02\x18\x01v", b"\x25\x42\x18\x01v"))
    assert pq.ParquetFile(path).read().to_pylist() != [{"v": 7}, {"v": None}]
    with pytest.raises(nova.BadRecord, match=r"(?s)t.parquet: the Parquet file is damaged.*neither required"):
        convert_insert_data(path, None)
    for name in ("a\nb", "a\u2028b"):
        pq.write_table(pa.table({name: [1]}), path)
        assert convert_insert_data(path, None).to_pylist() == [{name: 1}]


def test_a_type_that_arrow_does_not_know_is_not_read_as_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    duckdb.sql(f"COPY (SELECT 1.25::DECIMAL(9, 2) AS v) TO '{path}' (FORMAT parquet)")
    decimal = b"\x2c\x5c\x15\x04\x15\x12"  # field 5 of the logical type
    assert path.read_bytes().count(decimal) == 1
    path.write_bytes(path.read_bytes().replace(decimal, b"\x2c\x4c\x15\x04\x15\x12"))
    assert pq.ParquetFile(path).read()["v"].to_pylist() == [125]
    with pytest.raises(nova.SchemaMismatch, match=r"(?s)t.parquet: column 'v' has a type.*Arrow does not know"):
        convert_insert_data(path, None)


def test_old_days_that_spark_may_count_in_the_julian_calendar_are_refused(tmp_path: Path) -> None:
    """Spark converts them: the first of these days is 1500-02-28 for Spark, and 1500-03-09 for Arrow."""
    days = pa.array([date(1500, 3, 9), date(1582, 10, 15), None])
    refused = r"(?s)row 1 has an old date.* column 'v'.* Julian calendar.*1500, 3, 9.*Spark DataFrame"
    path = tmp_path / "t.parquet"
    for key in ("org.apache.spark.legacyDateTime", "org.apache.spark.version"):
        for legacy in (True, False):
            metadata = {key: "2.4.8" if legacy else "3.0.0"} if "version" in key or legacy else {}
            pq.write_table(pa.table({"v": days}).replace_schema_metadata(metadata), path)
            rows = LargeParquetFiles([path], None, allow_widening=False)
            for read in (
                lambda: convert_insert_data(path, None),
                lambda rows=rows: pa.concat_tables(
                    t for part in rows.split_into_parts() for t in read_part(part, None, False, rows.row_schema())
                ),
            ):
                if legacy:
                    with pytest.raises(nova.SchemaMismatch, match=refused):
                        read()
                else:
                    assert read()["v"].to_pylist() == days.to_pylist()
    schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": {"type": "int", "logicalType": "date"}}]}
    with (tmp_path / "t.avro").open("wb") as stream:
        records = [{"v": day} for day in days.to_pylist()[:2]]
        fastavro.writer(stream, schema, records, metadata={"org.apache.spark.legacyDateTime": ""})
    with pytest.raises(nova.SchemaMismatch, match=refused):
        convert_insert_data(tmp_path / "t.avro", None)


@pytest.mark.spark
def test_old_days_and_intervals_of_spark_s_orc_are_refused(tmp_path: Path, spark: Any) -> None:
    cases: dict[str, str | date] = {
        "DATE'1500-02-28'": r"(?s)row 1 has an old date.* column 'v'.* Julian calendar",
        "INTERVAL '1' DAY": r"(?s)column 'v' has a type that channels do not support.*interval day",
        "array(INTERVAL '1' MONTH)": r"(?s)column 'v' has a type that channels do not support.*interval month",
        "DATE'1582-10-15'": date(1582, 10, 15),
        "TIMESTAMP'1850-01-01 00:00:00'": datetime(1850, 1, 1),
    }
    for n, (value, refused) in enumerate(cases.items()):
        spark.range(1).selectExpr(f"{value} AS v").coalesce(1).write.orc(str(tmp_path / f"{n}"))
        [path] = (tmp_path / f"{n}").glob("*.orc")
        if isinstance(refused, date):
            assert convert_insert_data(path, None)["v"].to_pylist() == [refused]
        else:
            with pytest.raises(nova.SchemaMismatch, match=refused):
                convert_insert_data(path, None)


@pytest.mark.spark
def test_old_days_of_an_external_legacy_file_are_read_by_spark(tmp_path: Path, spark: Any) -> None:
    from nova_assets.engine.session.shared_settings import temporary_settings

    with temporary_settings(spark, {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}):
        spark.sql("SELECT DATE'1500-02-28' AS v").coalesce(1).write.parquet(str(tmp_path / "old"))
    [path] = (tmp_path / "old").glob("*.parquet")
    assert pq.ParquetFile(path).read()["v"].to_pylist() == [date(1500, 3, 9)]
    channel = nova.Channel("c", schema="v date", external=nova.external(str(tmp_path / "old")))
    with nova.open(nova.Project(channels=[channel]), f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.refresh("c")
        assert store.read("c").to_arrow()["v"].to_pylist() == [date(1500, 2, 28)]
        assert store.read("c").to_batches().read_all()["v"].to_pylist() == [date(1500, 2, 28)]


def test_an_encrypted_file_is_not_called_truncated(tmp_path: Path) -> None:
    for plain_footer in (False, True):
        keys = pl.ParquetEncryptionProperties(footer_key=b"0123456789012345", plaintext_footer=plain_footer)
        pl.DataFrame({"n": [1, 2]}).write_parquet(tmp_path / "t.parquet", encryption=keys)
        with pytest.raises(nova.BadRecord, match=r"(?s)t.parquet: the Parquet file is encrypted.*without encryption"):
            convert_insert_data(tmp_path / "t.parquet", None)


@pytest.mark.parametrize("declared", [None, "v string, l array<string>"])
def test_json_of_parquet_is_text_as_in_spark(tmp_path: Path, declared: str | None) -> None:
    path = tmp_path / "t.parquet"
    duckdb.sql(f"COPY (SELECT '{{}}'::JSON AS v, ['[1]'::JSON, NULL] AS l) TO '{path}' (FORMAT parquet)")
    schema = None if declared is None else parse_ddl(declared)
    table = convert_insert_data(path, schema)
    assert table.schema.field("v").type == pa.string()
    assert table.to_pylist() == [{"v": "{}", "l": ["[1]", None]}]


def test_a_decimal_beyond_its_type_is_refused_by_column(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    table = pa.table({"d": pa.array([Decimal("1.25"), Decimal("2.50")], pa.decimal128(4, 2))})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    content = path.read_bytes()
    assert content.count(b"\x00\xfa") == 1
    path.write_bytes(content.replace(b"\x00\xfa", b"\x7f\xfa"))
    rows = LargeParquetFiles([path], None, allow_widening=False)
    for read in (
        lambda: convert_insert_data(path, None),
        lambda: [t for part in rows.split_into_parts() for t in read_part(part, None, False, rows.row_schema())],
    ):
        with pytest.raises(nova.SchemaMismatch, match=r"(?s)d.parquet: column 'd' has values that are not of its type"):
            read()
