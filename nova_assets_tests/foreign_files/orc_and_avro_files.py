"""ORC files of pyarrow and pyorc, and Avro files of fastavro and polars: every codec and logical type they write."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import polars as pl
import pyarrow as pa
import pyorc
from pyarrow import orc

from nova_assets_tests.foreign_files.foreign_file import ForeignFile, Rows, rows_of_arrow
from nova_assets_tests.foreign_files.parquet_files import NO_TYPE, ROWS, mixed_table

# ORC


class _Days(pyorc.converters.ORCConverter):
    """Dates as numbers of days, because Python lacks some."""

    @staticmethod
    def from_orc(days: int) -> int:
        return days

    to_orc = staticmethod(pyorc.converters.DateConverter.to_orc)


class _Micros(pyorc.converters.ORCConverter):
    """Times as numbers of microseconds, because Python lacks some."""

    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, timezone: Any) -> int:
        return seconds * 10**6 + nanoseconds // 1000

    to_orc = staticmethod(pyorc.converters.TimestampConverter.to_orc)


_CONVERTERS = {pyorc.TypeKind.DATE: _Days, pyorc.TypeKind.TIMESTAMP: _Micros, pyorc.TypeKind.TIMESTAMP_INSTANT: _Micros}


def read_pyorc(path: Path) -> Rows:
    with path.open("rb") as stream:
        reader = pyorc.Reader(stream, struct_repr=pyorc.StructRepr.DICT, converters=_CONVERTERS)
        return [dict(row) for row in reader]


def orc_files() -> Iterator[ForeignFile]:
    table = mixed_table()
    layouts: dict[str, dict[str, Any]] = {
        **{
            f"{codec} {strategy} {version}": {
                "compression": codec, "compression_strategy": strategy, "file_version": version,
            }
            for codec in ("uncompressed", "snappy", "zlib", "lz4", "zstd")
            for strategy, version in (("speed", "0.12"), ("compression", "0.11"))
        },
        "dictionaries": {"dictionary_key_size_threshold": 1.0},
        "bloom filters": {"bloom_filter_columns": [0, 1, 2]},
        "small stripes": {"stripe_size": 1024, "batch_size": 8},
        "padding": {"padding_tolerance": 0.5, "compression_block_size": 1 << 17, "compression": "zstd"},
    }  # fmt: skip
    for feature, options in layouts.items():
        write = partial(orc.write_table, table, **options)
        yield ForeignFile(f"pyarrow ORC {feature}", ".orc", write, read_pyorc, rows_of_arrow(table))
    for name, values in _ARROW_ORC_TYPES.items():
        typed = pa.table({"v": values})
        yield ForeignFile(
            f"pyarrow ORC type {name}", ".orc", partial(orc.write_table, typed), read_pyorc, rows_of_arrow(typed)
        )
    for codec in ("NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"):
        schema = "struct<id:bigint,name:string,f:double,d:decimal(10,2),l:array<int>,m:map<string,int>>"
        rows: Rows = [
            {"id": n, "name": f"n{n % 7}", "f": n / 3, "d": Decimal(n) / 4, "l": [n, None], "m": {"k": n}}
            for n in range(ROWS)
        ]
        yield _pyorc_file(f"codec {codec}", schema, rows, compression=pyorc.CompressionKind[codec])
    for type_, (values_, refusal) in _PYORC_TYPES.items():
        yield _pyorc_file(f"type {type_}", f"struct<v:{type_}>", [{"v": v} for v in values_], refusal)


_ARROW_ORC_TYPES: dict[str, pa.Array] = {
    "null date": pa.array([date(1, 1, 1), date(1582, 10, 14), date(9999, 12, 31), None]),
    "timestamp": pa.array([datetime(1700, 1, 1), datetime(2024, 1, 1, 12, 0, 0, 7), None], pa.timestamp("us")),
    "instant": pa.array([datetime(2024, 1, 1, 12, 0, 0, 7), None], pa.timestamp("us", "UTC")),
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int32())),
    "decimal 38": pa.array([Decimal(10**37), None], pa.decimal128(38, 0)),
    "float": pa.array([0.5, float("nan"), None], pa.float32()),
}


def _pyorc_file(feature: str, schema: str, rows: Rows, refusal: str | None = None, **options: Any) -> ForeignFile:
    def write(path: Path) -> None:
        with (
            path.open("wb") as stream,
            pyorc.Writer(stream, schema, struct_repr=pyorc.StructRepr.DICT, **options) as writer,
        ):
            for row in rows:
                writer.write(row)

    return ForeignFile(f"pyorc {feature}", ".orc", write, read_pyorc, None if refusal else rows, refusal)


_PYORC_TYPES: dict[str, tuple[list[Any], str | None]] = {
    "boolean": ([True, False, None], None),
    "tinyint": ([-128, 127, None], None),
    "smallint": ([-(2**15), None], None),
    "int": ([2**31 - 1, None], None),
    "bigint": ([-(2**63), None], None),
    "float": ([0.5, None], None),
    "double": ([1e300, float("nan"), None], None),
    "string": (["é", "", None], None),
    "varchar(10)": (["abc", None], None),
    "char(4)": (["abcd", None], None),
    "binary": ([b"\x00\xff", b"", None], None),
    "date": ([date(1, 1, 1), date(9999, 12, 31), None], None),
    "timestamp": ([datetime(2024, 1, 1, 12, 0, 0, 7), None], None),
    "timestamp with local time zone": ([datetime(2024, 1, 1, 12, tzinfo=UTC), None], None),
    "decimal(5,2)": ([Decimal("1.25"), None], None),
    "decimal(38,10)": ([Decimal("-12345678901234567890.0123456789"), None], None),
    "array<array<int>>": ([[[1], None], None], None),
    "map<int,string>": ([{1: "x"}, None], None),
    "struct<a:int,b:array<string>>": ([{"a": 1, "b": ["x"]}, None], None),
    "uniontype<int,string>": ([1, "x"], "'v'"),
}


# Avro


def read_fastavro(path: Path) -> Rows:
    with path.open("rb") as stream:
        return list(fastavro.reader(stream))  # type: ignore[arg-type]


def read_polars_avro(path: Path) -> Rows:
    return rows_of_arrow(pl.read_avro(path).to_arrow())


def avro_files() -> Iterator[ForeignFile]:
    fields: list[tuple[str, Any]] = [
        ("id", "long"),
        ("name", ["null", "string"]),
        ("f", "double"),
        ("b", "boolean"),
        ("raw", "bytes"),
    ]
    fields += [("tags", {"type": "array", "items": ["null", "string"]}), ("m", {"type": "map", "values": "int"})]
    rows: Rows = [
        {"id": n, "name": None if n % 5 == 2 else f"n{n % 9}", "f": n / 3, "b": n % 3 == 0, "raw": b"\xff" * (n % 3),
         "tags": ["a", None][: n % 3], "m": {"k": n}}
        for n in range(ROWS)
    ]  # fmt: skip
    for codec in ("null", "deflate", "snappy", "zstandard", "bzip2", "xz"):
        for interval in (16_000, 200):
            yield _avro_file(f"{codec}, blocks of {interval}", fields, rows, codec=codec, sync_interval=interval)
    yield _avro_file("no rows", fields, [], refusal="empty|no record")
    for name, (type_, values, refusal) in _AVRO_TYPES.items():
        yield _avro_file(f"type {name}", [("v", type_)], [{"v": v} for v in values], refusal)
    frame = pl.DataFrame({"id": range(ROWS), "name": [f"n{n}" for n in range(ROWS)], "f": [n / 3 for n in range(ROWS)]})
    for polars_codec in ("uncompressed", "snappy", "deflate"):
        write = partial(frame.write_avro, compression=polars_codec)
        yield ForeignFile(f"polars Avro {polars_codec}", ".avro", write, read_polars_avro)


def _avro_file(
    feature: str, fields: list[tuple[str, Any]], rows: Rows, refusal: str | None = None, **options: Any
) -> ForeignFile:
    schema = {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields]}

    def write(path: Path) -> None:
        out = io.BytesIO()
        fastavro.writer(out, schema, rows, **options)
        path.write_bytes(out.getvalue())

    return ForeignFile(f"fastavro {feature}", ".avro", write, read_fastavro, None, refusal)


def _logical(type_: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": logical, **more}


_RECORD = {"type": "record", "name": "q", "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "string"}]}
_TREE = {
    "type": "record",
    "name": "t",
    "fields": [{"name": "x", "type": "int"}, {"name": "next", "type": ["null", "t"]}],
}
_FIXED16 = {"type": "fixed", "name": "f16", "size": 16}
_INSTANT = datetime(2024, 1, 1, 12, 0, 0, 7000, tzinfo=UTC)
_AVRO_TYPES: dict[str, tuple[Any, list[Any], str | None]] = {
    "int": ("int", [1, -1], None),
    "long": ("long", [2**63 - 1], None),
    "float": ("float", [0.5], None),
    "double": ("double", [1e300, float("nan")], None),
    "boolean": ("boolean", [True, False], None),
    "bytes": ("bytes", [b"\x00\xff"], None),
    "string": ("string", ["é", ""], None),
    "null": (["null", "string"], [None, "x"], None),
    "enum": ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["A", "B"], None),
    "fixed": ({"type": "fixed", "name": "f", "size": 3}, [b"abc"], None),
    "array": ({"type": "array", "items": "long"}, [[1, 2], []], None),
    "map": ({"type": "map", "values": "string"}, [{"a": "x"}], None),
    "record": (_RECORD, [{"x": 1, "y": "q"}], None),
    "recursive record": (_TREE, [{"x": 1, "next": {"x": 2, "next": None}}], "column 'v' has a part without a type"),
    "union of numbers": (["null", "int", "double"], [1.0, 1.5, None], None),
    "union of number and text": (["int", "string"], [1, "x"], "'v'"),
    "decimal": (_logical("bytes", "decimal", precision=10, scale=2), [Decimal("1.25"), Decimal("-0.01")], None),
    "decimal fixed": (
        {"type": "fixed", "name": "d", "size": 8, "logicalType": "decimal", "precision": 10, "scale": 2},
        [Decimal("1.25")],
        None,
    ),
    "date": (_logical("int", "date"), [date(1, 1, 1), date(9999, 12, 31)], None),
    "time-millis": (_logical("int", "time-millis"), [time(1, 2, 3)], NO_TYPE),
    "time-micros": (_logical("long", "time-micros"), [time(1, 2, 3, 4)], NO_TYPE),
    "timestamp-millis": (_logical("long", "timestamp-millis"), [_INSTANT], None),
    "timestamp-micros": (_logical("long", "timestamp-micros"), [_INSTANT], None),
    "timestamp-nanos": (_logical("long", "timestamp-nanos"), [1_700_000_000_000_000_000], None),
    "local-timestamp-millis": (_logical("long", "local-timestamp-millis"), [datetime(2024, 1, 1, 12)], None),
    "local-timestamp-micros": (_logical("long", "local-timestamp-micros"), [datetime(2024, 1, 1, 12)], None),
    "uuid": (_logical("string", "uuid"), [UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")], None),
    "uuid fixed": ({**_FIXED16, "logicalType": "uuid"}, [bytes(range(16))], None),
    "duration": ({"type": "fixed", "name": "du", "size": 12, "logicalType": "duration"}, [b"\x01" + b"\0" * 11], None),
}
