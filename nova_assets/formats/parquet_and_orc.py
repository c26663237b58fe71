"""Parquet and ORC files as Arrow tables. They say of themselves what their columns are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from nova_assets.formats.input_file import File, TooLarge, bad


def read_parquet(file: File) -> pa.Table:
    """A whole Parquet file. Raises BadRecord where it is none, or becomes too large."""
    return columnar(file, partial(_parquet, most=file.largest), "Parquet")


def read_orc(file: File) -> pa.Table:
    """A whole ORC file. Raises BadRecord where it is none, or becomes too large."""
    return columnar(file, partial(_orc, most=file.largest), "ORC")


def open_parquet(path: Path) -> pq.ParquetFile:
    """A Parquet file; its times in microseconds, where Spark's old type has them in nanoseconds."""
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _parquet(path: Path, most: int | None) -> pa.Table:
    if most is None:  # partitioning would add columns that stand in the path and not in the file
        return pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
    with open_parquet(path) as opened:
        parts = (opened.read_row_group(n) for n in range(opened.num_row_groups))
        return _bounded(parts, opened.schema_arrow, most)


def _orc(path: Path, most: int | None) -> pa.Table:
    if most is None:
        return _with_types_of_spark(orc.read_table(path))
    opened = orc.ORCFile(path)
    parts = (pa.Table.from_batches([opened.read_stripe(n)]) for n in range(opened.nstripes))
    return _with_types_of_spark(_bounded(parts, opened.schema, most))


def _with_types_of_spark(table: pa.Table) -> pa.Table:
    """A table of an ORC file, with local times where Spark wrote them as numbers of microseconds."""
    return table.cast(pa.schema([_type_of_spark(field) for field in table.schema]))


def _type_of_spark(field: pa.Field) -> pa.Field:
    type_, said = field.type, (field.metadata or {}).get(b"spark.sql.catalyst.type")
    if pa.types.is_int64(type_) and said == b"timestamp_ntz":
        type_ = pa.timestamp("us")
    elif pa.types.is_list(type_):
        type_ = pa.list_(_type_of_spark(type_.value_field))
    elif pa.types.is_struct(type_):
        type_ = pa.struct([_type_of_spark(type_.field(n)) for n in range(type_.num_fields)])
    elif pa.types.is_map(type_):
        type_ = pa.map_(_type_of_spark(type_.key_field), _type_of_spark(type_.item_field))
    return field.with_type(type_)


def _bounded(parts: Iterable[pa.Table], schema: pa.Schema, most: int) -> pa.Table:
    """All parts of a file, unless they take too much memory together."""
    found: list[pa.Table] = []
    for part in parts:
        found.append(part)
        if sum(p.nbytes for p in found) > most:
            raise TooLarge(f"more than {most} bytes when it is decompressed")
    return pa.concat_tables(found) if found else schema.empty_table()


def columnar(file: File, read: Callable[[Any], Any], format_: str) -> Any:
    """What a reader makes of a file. Raises BadRecord where that fails."""
    try:
        return read(file.path)
    except (pa.ArrowException, OSError) as error:
        if "out of range for nanosecond" in str(error):
            raise bad(
                file,
                f"the {format_} file has times outside the years 1678 to 2261, which its reader does not have",
                found=str(error),
                expected="times that fit into 64 bits of nanoseconds",
                next="write the file as Parquet, or insert it as a Spark DataFrame",
            ) from error
        raise bad(
            file,
            f"the file is no whole {format_} file",
            found=str(error).splitlines()[0] if str(error) else type(error).__name__,
            expected=f"a {format_} file with its footer",
            next="fetch the file again: it looks cut short, or is of another format",
        ) from error
