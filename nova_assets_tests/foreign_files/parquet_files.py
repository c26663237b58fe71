"""Parquet files of pyarrow, DuckDB and polars: every codec, page version, encoding and logical type that they write."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets_tests.foreign_files.foreign_file import ForeignFile, Rows, rows_of_arrow

ROWS = 60
CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")


def mixed_table() -> pa.Table:
    """Columns of the common types, with nulls, repeated values, and nesting."""
    numbers = range(ROWS)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "n": pa.array([None if n % 7 == 3 else n * 1_000_003 % 2**31 for n in numbers], pa.int32()),
            "name": pa.array([None if n % 5 == 2 else f"name {n % 9}" for n in numbers]),
            "f": pa.array([n / 3 for n in numbers]),
            "g": pa.array([n / 4 for n in numbers], pa.float32()),
            "b": pa.array([n % 3 == 0 for n in numbers]),
            "d": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(10, 2)),
            "day": pa.array([date(2024, 1, 1 + n % 28) for n in numbers]),
            "at": pa.array([datetime(2024, 1, 1, n % 24, n, tzinfo=UTC) for n in numbers], pa.timestamp("us", "UTC")),
            "raw": pa.array([b"\x00\xff" * (n % 4) for n in numbers]),
            "tags": pa.array([["a", None, f"t{n}"][: n % 4] for n in numbers]),
            "s": pa.array([None if n % 6 == 5 else {"x": n, "y": f"y{n}"} for n in numbers]),
        }
    )


def read_arrow(path: Path) -> Rows:
    return rows_of_arrow(pq.ParquetFile(path, page_checksum_verification=True, coerce_int96_timestamp_unit="us").read())


def read_duckdb(path: Path) -> Rows:
    with duckdb.connect() as connection:
        return rows_of_arrow(connection.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table())


def read_polars(path: Path) -> Rows:
    return rows_of_arrow(pl.read_parquet(path, use_statistics=False).to_arrow())


def parquet_files() -> Iterator[ForeignFile]:
    yield from _arrow_layouts()
    yield from _arrow_types()
    yield from _duckdb_files()
    yield from _polars_files()


# pyarrow


def _arrow_file(feature: str, table: pa.Table, refusal: str | None = None, **options: Any) -> ForeignFile:
    def write(path: Path) -> None:
        pq.write_table(table, path, **options)

    rows = None if refusal else rows_of_arrow(table)
    return ForeignFile(f"pyarrow {feature}", ".parquet", write, read_arrow, rows, refusal)


ENCODINGS = {
    "DELTA_BINARY_PACKED": ["id", "n"],
    "DELTA_LENGTH_BYTE_ARRAY": ["name", "raw"],
    "DELTA_BYTE_ARRAY": ["name", "raw"],
    "BYTE_STREAM_SPLIT": ["id", "n", "f", "g"],
    "RLE": ["b"],
    "PLAIN": ["id", "n", "name", "f", "g", "b", "d", "day", "at", "raw"],
}


def _arrow_layouts() -> Iterator[ForeignFile]:
    table = mixed_table()
    for codec in CODECS:
        for page in ("1.0", "2.0"):
            for checksum in (False, True):
                yield _arrow_file(
                    f"{codec}, pages {page}, {checksum=}",
                    table,
                    compression=codec,
                    data_page_version=page,
                    write_page_checksum=checksum,
                )
    for encoding, columns in ENCODINGS.items():
        for page in ("1.0", "2.0"):
            yield _arrow_file(
                f"{encoding}, pages {page}",
                table,
                use_dictionary=False,
                column_encoding=dict.fromkeys(columns, encoding),
                data_page_version=page,
                compression="none",
            )
    layouts: dict[str, dict[str, Any]] = {
        "version 1.0": {"version": "1.0"},
        "version 2.4": {"version": "2.4"},
        "without Arrow's schema": {"store_schema": False},
        "without statistics": {"write_statistics": False},
        "row groups of 7": {"row_group_size": 7},
        "page index": {"write_page_index": True, "data_page_size": 64},
        "small dictionary": {"dictionary_pagesize_limit": 8},
        "small pages with checksums": {"data_page_size": 32, "write_page_checksum": True, "compression": "none"},
        "decimals as integers": {"store_decimal_as_integer": True},
        "old names of lists": {"use_compliant_nested_type": False},
        "bloom filters": {"bloom_filter_options": {"id": {"ndv": 100, "fpp": 0.1}}},
        "content-defined chunks": {"use_content_defined_chunking": True},
    }
    for feature, options in layouts.items():
        yield _arrow_file(feature, table, **options)
    instants = pa.table({"t": pa.array([datetime(1, 1, 1), datetime(2024, 1, 31, 12, 0, 0, 7), None], "timestamp[us]")})
    yield _arrow_file("INT96", instants, use_deprecated_int96_timestamps=True)
    yield _arrow_file("INT96 with nanoseconds", pa.table({"t": pa.array([1_700_000_000_000_000_000], "timestamp[ns]")}),
                      use_deprecated_int96_timestamps=True)  # fmt: skip
    yield _arrow_file("no rows", table.slice(0, 0))


def _times(unit: str, zone: str | None = None) -> pa.Array:
    return pa.array([0, 1_700_000_000, -1, None], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit, zone))


NO_TYPE = r"column 'v' has the Arrow type .*, which Spark has no type for"

ARROW_TYPES: dict[str, pa.Array] = {
    **{str(t): pa.array([0, 1, 2**7 - 1, None], t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): pa.array([0, 2**b - 1, None], t) for t, b in ((pa.uint8(), 8), (pa.uint16(), 16), (pa.uint32(), 32))},
    "float16": pa.array([0.5, -2.0, None], pa.float16()),
    "float": pa.array([0.5, float("nan"), float("inf"), -0.0, None], pa.float32()),
    "double": pa.array([1e300, float("nan"), float("-inf"), -0.0, None]),
    "string": pa.array(["", "é", "\U0001f600", "\x00", None]),
    "large string": pa.array(["", "x", None], pa.large_string()),
    "string view": pa.array(["", "a text of more than twelve bytes", None], pa.string_view()),
    "binary": pa.array([b"", b"\x00\xff", None]),
    "large binary": pa.array([b"", b"\x00\xff", None], pa.large_binary()),
    "fixed size binary": pa.array([b"abc", b"\x00\xff\x01", None], pa.binary(3)),
    "boolean": pa.array([True, False, None]),
    "date": pa.array([date(1, 1, 1), date(1582, 10, 14), date(9999, 12, 31), None]),
    "far date": pa.array([-(2**31), 2**31 - 1, None], pa.int32()).view(pa.date32()),
    "date64": pa.array([date(1, 1, 1), date(2024, 2, 29), None], pa.date64()),
    **{f"timestamp {unit}": _times(unit) for unit in ("s", "ms", "us", "ns")},
    **{f"instant {unit}": _times(unit, "UTC") for unit in ("ms", "us", "ns")},
    "instant of Paris": _times("us", "Europe/Paris"),
    "far timestamp": pa.array([-(2**63), 2**63 - 1, None], pa.int64()).view(pa.timestamp("us")),
    **{
        f"decimal {p},{s}": pa.array([Decimal(10**p - 1).scaleb(-s), -Decimal(1).scaleb(-s), None], pa.decimal128(p, s))
        for p, s in ((1, 0), (9, 2), (18, 18), (19, 4))
    },
    "decimal 38,10": pa.array([Decimal("-1234567890123456789012345678.0123456789"), None], pa.decimal128(38, 10)),
    "decimal256": pa.array([Decimal("1.5"), None], pa.decimal256(38, 1)),
    "dictionary": pa.array(["x", "y", "x", None]).dictionary_encode(),
    "list": pa.array([[1, None], [], None]),
    "large list": pa.array([[1, None], [], None], pa.large_list(pa.int32())),
    "fixed size list": pa.array([[1, 2], [3, None], [0, 0]], pa.list_(pa.int32(), 2)),
    "list of lists": pa.array([[[1], None, []], None]),
    "map": pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int32())),
    "map of lists": pa.array([[(1, ["x"])], None], pa.map_(pa.int64(), pa.list_(pa.string()))),
    "struct": pa.array([{"a": 1, "b": {"c": [1.5]}}, {"a": None, "b": None}, None]),
    "json": pa.array(['{"a": 1}', None], pa.json_()),
}

REFUSED_ARROW_TYPES: dict[str, tuple[pa.Array, str]] = {
    "null": (pa.nulls(3), "only nulls in v"),
    "uint64": (pa.array([2**64 - 1, None], pa.uint64()), NO_TYPE),
    "time32": (pa.array([time(1, 2, 3), None], pa.time32("ms")), NO_TYPE),
    "time64": (pa.array([time(1, 2, 3, 4), None], pa.time64("us")), NO_TYPE),
    "time64 ns": (pa.array([time(1, 2, 3, 4), None], pa.time64("ns")), NO_TYPE),
    "duration": (pa.array([1, None], pa.duration("us")), NO_TYPE),
    "uuid": (pa.array([b"0123456789abcdef", None], pa.uuid()), NO_TYPE),
    "decimal of 39 digits": (pa.array([Decimal(10**38), None], pa.decimal256(39, 0)), NO_TYPE),
    "fine timestamp": (pa.array([1_700_000_000_000_000_001], pa.timestamp("ns")), "'v' has times finer than a micro"),
    "far seconds": (pa.array([2**60], pa.int64()).view(pa.timestamp("ms")), "value that no column can hold, in .*'v'"),
}


def _arrow_types() -> Iterator[ForeignFile]:
    for name, values in ARROW_TYPES.items():
        yield _arrow_file(f"type {name}", pa.table({"v": values}))
    for name, (values, refusal) in REFUSED_ARROW_TYPES.items():
        yield _arrow_file(f"type {name}", pa.table({"v": values}), refusal)
    yield _arrow_file("two columns of one name", pa.table([pa.array([1]), pa.array([2])], names=["v", "v"]), "'v'")


# DuckDB


def _duckdb_file(feature: str, query: str, refusal: str | None = None, options: str = "") -> ForeignFile:
    def write(path: Path) -> None:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, GEOPARQUET_VERSION 'NONE'{options})")

    return ForeignFile(f"DuckDB {feature}", ".parquet", write, read_duckdb, None, refusal)


DUCKDB_MIXED = (
    f"SELECT range AS id, CASE WHEN range % 5 <> 2 THEN 'name ' || range % 9 END AS name, range / 3.0::DOUBLE AS f, "
    "range % 3 = 0 AS b, (range / 4)::DECIMAL(10, 2) AS d, DATE '2024-01-01' + range::INT AS day, "
    f"[range, NULL] AS l, {{'x': range, 'y': 'q'}} AS s, MAP {{'k': range}} AS m FROM range({ROWS})"
)
NOT_SUPPORTED = "column 'v' has a type that channels do not support"
DUCKDB_TYPES: dict[str, tuple[str, str | None]] = {
    "BOOLEAN": ("true", None),
    "TINYINT": ("-128", None),
    "UTINYINT": ("255", None),
    "SMALLINT": ("-3", None),
    "USMALLINT": ("65535", None),
    "INTEGER": ("7", None),
    "UINTEGER": ("4294967295", None),
    "BIGINT": ("-9223372036854775808", None),
    "UBIGINT": ("18446744073709551615", NO_TYPE),
    "HUGEINT": ("5", None),
    "FLOAT": ("1.5", None),
    "DOUBLE": ("'nan'", None),
    "DECIMAL(4, 1)": ("123.4", None),
    "DECIMAL(9, 2)": ("1.25", None),
    "DECIMAL(18, 3)": ("1.125", None),
    "DECIMAL(38, 10)": ("-12345678901234567890.0123456789", None),
    "VARCHAR": ("'x'", None),
    "BLOB": ("'\\xAA'", None),
    "BIT": ("'101'", None),
    "DATE": ("'2024-02-29'", None),
    "TIME": ("'12:00:01.5'", NO_TYPE),
    "TIMETZ": ("'12:00:01+02'", NO_TYPE),
    "TIMESTAMP": ("'2024-01-02 03:04:05.678901'", None),
    "TIMESTAMP_S": ("'2024-01-02 03:04:05'", None),
    "TIMESTAMP_MS": ("'2024-01-02 03:04:05.678'", None),
    "TIMESTAMP_NS": ("'2024-01-02 03:04:05.678901234'", "column 'v' has times finer than a microsecond"),
    "TIMESTAMPTZ": ("'2024-01-02 03:04:05.678901+02'", None),
    "INTERVAL": ("'1 day'", NOT_SUPPORTED),
    "UUID": ("'f81d4fae-7dec-11d0-a765-00a0c91e6bf6'", NO_TYPE),
    "JSON": ("'{\"a\": 1}'", None),
    "VARIANT": ("{'a': 1}", NOT_SUPPORTED),
    "GEOMETRY": ("'POINT(1 2)'", NOT_SUPPORTED),
    "INTEGER[]": ("[1, NULL]", None),
    "INTEGER[2]": ("[1, 2]", None),
    "INTEGER[][]": ("[[1], NULL, []]", None),
    "STRUCT(a INTEGER, b VARCHAR[])": ("{'a': 1, 'b': ['x']}", None),
    "MAP(VARCHAR, INTEGER)": ("MAP {'a': 1}", None),
    "ENUM('happy', 'sad')": ("'sad'", None),
}


def _duckdb_files() -> Iterator[ForeignFile]:
    for codec in ("uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw"):
        for version in ("v1", "v2"):
            yield _duckdb_file(
                f"{codec} {version}", DUCKDB_MIXED, options=f", CODEC '{codec}', PARQUET_VERSION {version}"
            )
    yield _duckdb_file("without dictionaries", DUCKDB_MIXED, options=", STRING_DICTIONARY_PAGE_SIZE_LIMIT 1")
    yield _duckdb_file("v2 without dictionaries", DUCKDB_MIXED,
                       options=", STRING_DICTIONARY_PAGE_SIZE_LIMIT 1, PARQUET_VERSION v2")  # fmt: skip
    yield _duckdb_file("field ids", "SELECT 1 AS a, 2 AS b", options=", FIELD_IDS {a: 7, b: 8}")
    # For an array that is null, DuckDB writes two numbers that are null, which Arrow does not read.
    yield _duckdb_file("null array", "SELECT [1, 2]::INTEGER[2] AS v UNION ALL SELECT NULL", "but cannot be read")
    for type_, (value, refusal) in DUCKDB_TYPES.items():
        query = f"SELECT ({value})::{type_} AS v" + (" UNION ALL SELECT NULL" if type_ != "INTEGER[2]" else "")
        yield _duckdb_file(f"type {type_}", query, refusal)


# polars


def _polars_types() -> dict[str, tuple[pl.Series, str | None]]:
    integers = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
    return {
        **{str(t): (pl.Series("v", [1, 0, None], t), None) for t in integers},
        "UInt64": (pl.Series("v", [2**64 - 1, None], pl.UInt64), NO_TYPE),
        "Float32": (pl.Series("v", [0.5, float("nan"), None], pl.Float32), None),
        "Float64": (pl.Series("v", [1e300, -0.0, None], pl.Float64), None),
        "Boolean": (pl.Series("v", [True, None]), None),
        "String": (pl.Series("v", ["é", "", "a text of more than twelve bytes", None]), None),
        "Binary": (pl.Series("v", [b"\x00", b"", None]), None),
        "Categorical": (pl.Series("v", ["x", "y", "x", None], pl.Categorical), None),
        "Enum": (pl.Series("v", ["x", "y", None], pl.Enum(["x", "y"])), None),
        "Date": (pl.Series("v", [date(2024, 2, 29), None]), None),
        "Time": (pl.Series("v", [time(1, 2, 3), None]), NO_TYPE),
        "Datetime ms": (pl.Series("v", [datetime(2024, 1, 1), None], pl.Datetime("ms")), None),
        "Datetime us": (pl.Series("v", [datetime(2024, 1, 1), None], pl.Datetime("us")), None),
        "Datetime ns": (pl.Series("v", [datetime(2024, 1, 1), None], pl.Datetime("ns")), None),
        "Datetime UTC": (pl.Series("v", [datetime(2024, 1, 1), None], pl.Datetime("us", "UTC")), None),
        "Duration": (pl.Series("v", [1, None], pl.Duration("us")), NO_TYPE),
        "Decimal": (pl.Series("v", [Decimal("1.25"), None], pl.Decimal(20, 2)), None),
        "List": (pl.Series("v", [[1, None], [], None], pl.List(pl.Int32)), None),
        "Array": (pl.Series("v", [[1, 2], [3, 4]], pl.Array(pl.Int32, 2)), None),
        "Struct": (pl.Series("v", [{"a": 1, "b": ["x"]}, None]), None),
        "Null": (pl.Series("v", [None, None], pl.Null), "only nulls in v"),
    }


def _polars_files() -> Iterator[ForeignFile]:
    frame = pl.from_arrow(mixed_table())
    assert isinstance(frame, pl.DataFrame)
    for codec in ("uncompressed", "snappy", "gzip", "brotli", "lz4", "zstd"):
        for size in (1 << 20, 64):
            write = partial(frame.write_parquet, compression=codec, data_page_size=size, row_group_size=25)
            yield ForeignFile(f"polars {codec}, pages of {size}", ".parquet", write, read_polars)
    for plain in (False, True):
        keys = pl.ParquetEncryptionProperties(footer_key=b"0123456789012345", plaintext_footer=plain)
        write = partial(frame.write_parquet, encryption=keys)
        feature = f"encrypted, {'plain' if plain else 'encrypted'} footer"
        yield ForeignFile(f"polars {feature}", ".parquet", write, read_polars, None, "the Parquet file is encrypted")
    for name, (series, refusal) in _polars_types().items():
        typed = series.to_frame()
        yield ForeignFile(f"polars type {name}", ".parquet", typed.write_parquet, read_polars, None, refusal)
