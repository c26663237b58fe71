"""Readers for Parquet and ORC files, which declare their own columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import orc

from nova_assets.errors import SchemaMismatch
from nova_assets.formats.input_file import FileTooLarge, InputFile, bad_record_error, unreadable_file_error
from nova_assets.formats.parquet_input import ParquetInput
from nova_assets.formats.value_checks import check_not_julian
from nova_assets.model.schema import Schema
from nova_assets.nova_error import NovaError

_BATCH_ROWS = 1 << 16
"""Number of rows of a Parquet file that are decoded between two checks of their size."""


def read_parquet(file: InputFile, schema: Schema | None) -> pa.Table:
    """Read a whole Parquet file.

    Args:
        schema: declared columns; None if there are none.

    Raises:
        BadRecord: the file is no valid Parquet file, or is too large when decompressed.
    """
    return call_columnar_reader(file, partial(_read_parquet_table, file, schema), "Parquet")


def read_orc(file: InputFile) -> pa.Table:
    """Read a whole ORC file.

    Raises:
        BadRecord: the file is no valid ORC file, or is too large when decompressed.
    """
    return call_columnar_reader(file, partial(_read_orc_table, file), "ORC")


def _read_parquet_table(file: InputFile, schema: Schema | None, path: Path) -> pa.Table:
    with closing(ParquetInput(path, schema, file.display_name)) as opened:
        if file.max_bytes is None:
            return opened.read()
        return _concat_within_limit(opened.iter_tables(_BATCH_ROWS), opened.schema, file.max_bytes)


def _read_orc_table(file: InputFile, path: Path) -> pa.Table:
    opened = orc.ORCFile(path)
    for field in opened.schema:
        _check_orc_type(field, field.name, file)
    if file.max_bytes is None:
        table = opened.read()
    else:
        stripes = (pa.Table.from_batches([opened.read_stripe(n)]) for n in range(opened.nstripes))
        table = _concat_within_limit(stripes, opened.schema, file.max_bytes)
    if table.num_rows != opened.nrows:  # Arrow does not compare them
        raise pa.ArrowInvalid(f"corrupt footer: {opened.nrows} rows, and {table.num_rows} rows in its stripes")
    if opened.writer != "ORC_CPP":  # the footer names the calendar, and Arrow does not tell it
        check_not_julian(table, file.display_name, dates_only=True)
    return _restore_local_times(table)


def _check_orc_type(field: pa.Field, column: str, file: InputFile) -> None:
    """Raise SchemaMismatch for an interval or a time of day, which Spark writes as a number."""
    spark_type_name = _spark_type_name(field)
    if spark_type_name.startswith(("interval", "time(")):
        raise SchemaMismatch(
            f"{file.display_name}: column {column!r} has a type that channels do not support",
            found=spark_type_name,
            next="write the column as text, bytes, numbers or structs",
            column=column,
        )
    if pa.types.is_nested(field.type):
        for n in range(field.type.num_fields):
            _check_orc_type(field.type.field(n), column, file)


def _spark_type_name(field: pa.Field) -> str:
    """Spark's name of a type that ORC lacks; empty for other types."""
    name: bytes = (field.metadata or {}).get(b"spark.sql.catalyst.type", b"")
    return name.decode("utf-8", "replace")


def _restore_local_times(table: pa.Table) -> pa.Table:
    """Table of an ORC file with local times instead of the integers (microseconds) as which Spark writes them."""
    return table.cast(pa.schema([_restore_local_times_of_field(field) for field in table.schema]))


def _restore_local_times_of_field(field: pa.Field) -> pa.Field:
    type_ = field.type
    if pa.types.is_int64(type_) and _spark_type_name(field) == "timestamp_ntz":
        type_ = pa.timestamp("us")
    elif pa.types.is_list(type_):
        type_ = pa.list_(_restore_local_times_of_field(type_.value_field))
    elif pa.types.is_struct(type_):
        type_ = pa.struct([_restore_local_times_of_field(type_.field(n)) for n in range(type_.num_fields)])
    elif pa.types.is_map(type_):
        type_ = pa.map_(_restore_local_times_of_field(type_.key_field), _restore_local_times_of_field(type_.item_field))
    return field.with_type(type_)


def _concat_within_limit(tables: Iterable[pa.Table], schema: pa.Schema, max_bytes: int) -> pa.Table:
    """Concatenate the parts of a file. Raises FileTooLarge if they exceed ``max_bytes`` in memory."""
    result: list[pa.Table] = []
    for part in tables:
        result.append(part)
        if sum(p.nbytes for p in result) > max_bytes:
            raise FileTooLarge(f"more than {max_bytes} bytes after decompression")
    return pa.concat_tables(result) if result else schema.empty_table()


def call_columnar_reader(file: InputFile, read: Callable[[Any], Any], format_name: str) -> Any:
    """Call a reader with a file's path and translate its errors.

    Raises:
        BadRecord: the file is truncated, damaged or not supported.
        SourceUnavailable: the machine or the storage fails.
    """
    try:
        return read(file.path)
    except (pa.ArrowException, OSError) as error:
        raise _columnar_file_error(file, format_name, error) from error


_SIGNS_OF_DAMAGE = ("checksum", "corrupt", "thrift")
"""Words in the errors of readers that no intact file causes."""


def _columnar_file_error(file: InputFile, format_name: str, error: Exception) -> NovaError:
    """Error that tells a truncated file, a damaged one, and one that its reader does not support from each other."""
    found = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, FileTooLarge):
        return bad_record_error(
            file, f"the {format_name} file is too large", found=found, next="split the file into smaller files"
        )
    if isinstance(error, OSError) and error.errno is not None:
        return unreadable_file_error(file, error)
    if "out of range for nanosecond" in str(error):
        return bad_record_error(
            file,
            f"the {format_name} file has times outside the years 1678 to 2261, which its reader does not support",
            found=found,
            expected="times that fit into 64 bits of nanoseconds",
            next="write the file as Parquet, or insert it as a Spark DataFrame",
        )
    if "Invalid UTF8" in str(error):
        return bad_record_error(
            file, f"the {format_name} file has text that is not UTF-8", found=found, expected="text in UTF-8"
        )
    if any(word in found for word in ("decrypt", "Decrypt", "encrypted")):
        return bad_record_error(
            file,
            f"the {format_name} file is encrypted",
            found=found,
            expected="a file without encryption",
            next="insert it as a Spark DataFrame whose session has the keys, or write it without encryption",
        )
    if not _is_complete(file.path, format_name):
        return bad_record_error(
            file,
            f"the file is not a complete {format_name} file",
            found=found,
            expected=f"a {format_name} file with its footer",
            next="fetch the file again: it seems to be truncated, or has another format",
        )
    if any(sign in found.lower() for sign in _SIGNS_OF_DAMAGE):
        return bad_record_error(
            file,
            f"the {format_name} file is damaged",
            found=found,
            expected="pages as their writer wrote them",
            next="fetch the file again, or let its writer write it again",
        )
    if isinstance(error, pa.ArrowNotImplementedError | pa.ArrowCapacityError):
        return bad_record_error(
            file,
            f"the {format_name} file has values that its reader does not support",
            found=found,
            expected="maps and lists of less than 2 GiB in each row group",
            next="insert the file as a Spark DataFrame, or write it with smaller row groups",
        )
    return bad_record_error(
        file,
        f"the {format_name} file is complete, but cannot be read: it is damaged, or its reader does not support it",
        found=found,
        expected=f"a valid {format_name} file",
        next="fetch the file again, or insert it as a Spark DataFrame if Spark can read it",
    )


def _is_complete(path: Path, format_name: str) -> bool:
    """Whether a file has the marks of its format at both ends, and room for the footer whose length its end names."""
    mark = b"PAR1" if format_name == "Parquet" else b"ORC"
    with path.open("rb") as stream:
        size, head = path.stat().st_size, stream.read(len(mark))
        stream.seek(max(0, size - 8))
        tail = stream.read()
    if format_name == "Parquet":
        return head == mark and tail.endswith(mark) and int.from_bytes(tail[:4], "little") + 12 <= size
    return head == mark and tail[:-1].endswith(mark)  # the last byte of ORC is the length of its postscript
