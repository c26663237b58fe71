"""What users give to ``insert``, as an Arrow table or a Spark DataFrame. Spark is not started for any of it.

Only Parquet files that are too big for memory, and frames that are Spark's already, stay with Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from nova_assets.engine.inputs.large_parquet import LargeParquet
from nova_assets.engine.inputs.typed_rows import check_columns, given_table, joined, named
from nova_assets.errors import BadRecord, EmptyInput, NovaError, SchemaMismatch
from nova_assets.formats import isolated_reader, readers
from nova_assets.formats.conversion import convert_values, inferred_values
from nova_assets.formats.input_file import File, bad, empty
from nova_assets.model.conversion import DICTS, PANDAS, TYPED, plain_value
from nova_assets.model.file_format import Format
from nova_assets.model.schema import DELETED, DataType, Schema

LARGE = 512 * 1024 * 1024
"""Parquet files of more bytes than this together are read by tasks of Spark."""

_TAKEN = [suffix for suffix, format_ in readers.SUFFIXES.items() if format_ != "text"]
_KINDS = (
    "an Arrow table, a pandas or Spark DataFrame, a list of dicts, or paths of Parquet, ORC, Avro, CSV or JSON files"
)


def is_spark(frame: Any) -> bool:
    """Whether something is a Spark DataFrame, classic or Connect. Loads no Spark to find out."""
    return "pyspark" in sys.modules and any(
        c.__name__ == "DataFrame" and c.__module__.startswith("pyspark.sql") for c in type(frame).__mro__
    )


def take(data: Any, schema: Schema | None, *, evolves: bool = False) -> Any:
    """A Spark DataFrame as it is; anything else as an Arrow table, converted to the declared types.

    Args:
        evolves: the channel takes wider types than it has.

    Raises:
        EmptyInput: nothing was given, or a file without a record. (A table without rows is a legal, empty block.)
        BadRecord: a file that is missing, cut short, or not what its name says.
        SchemaMismatch: a value or type that cannot be a channel's.
    """
    if is_spark(data):
        if not data.columns:
            check_columns(data.count(), 0)
        return data
    if _are_paths(data):
        return _from_paths([Path(p) for p in ([data] if isinstance(data, str | PathLike) else data)], schema, evolves)
    if data is None or (isinstance(data, Sequence) and not data):
        raise EmptyInput("nothing was given to insert", found=repr(data), expected=_KINDS)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        _check_dicts(data)
        return given_table(_from_rows(data, schema), schema, DICTS, evolves=evolves)
    if _is_frame_of("pandas", data):
        return given_table(_from_pandas(data, schema), schema, PANDAS, evolves=evolves)
    return given_table(_from_arrow(data), schema, TYPED, evolves=evolves)


def _check_dicts(rows: Sequence[Any]) -> None:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise SchemaMismatch(
                f"row {number} of the list is no dict", found=type(row).__name__, expected='{"column": value, ...}'
            )


def _is_frame_of(library: str, data: Any) -> bool:
    """Whether something is a DataFrame of a library. Does not import the library to find out.

    Another thread can be importing it just now. Then its module is there without the class, and no frame of it is.
    """
    frame = getattr(sys.modules.get(library), "DataFrame", None)
    return frame is not None and isinstance(data, frame)


# tables


def _from_arrow(data: Any) -> pa.Table:
    _check_no_polars_objects(data)
    try:
        return _as_table(data)
    except NovaError:
        raise
    except Exception as error:  # of whatever library exports it, or of the rows that a reader computes
        raise SchemaMismatch(
            "the data cannot be read as Arrow data",
            found=f"{type(data).__name__}: {error}"[:500],
            expected=_KINDS,
        ) from error


def _as_table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):  # polars, duckdb and others
        return pa.table(data)
    if hasattr(data, "to_table"):  # pyarrow's datasets and scanners
        return data.to_table()
    raise SchemaMismatch("this is no kind of data that can be inserted", found=type(data).__name__, expected=_KINDS)


def _check_no_polars_objects(data: Any) -> None:
    """polars exports a column of Python objects as their addresses in memory. Raises SchemaMismatch."""
    if not _is_frame_of("polars", data):
        return
    objects = [name for name, type_ in data.schema.items() if "Object" in str(type_)]
    if objects:
        raise SchemaMismatch(
            f"column {objects[0]!r} of the polars DataFrame holds Python objects",
            found=str(data.schema[objects[0]]),
            next="cast the column to a type of polars first",
            column=objects[0],
        )


def _from_pandas(data: Any, schema: Schema | None) -> pa.Table:
    """A DataFrame; its columns of Python objects value by value, as those of dicts."""
    if not all(isinstance(c, str) and _is_unicode(c) for c in data.columns):
        raise SchemaMismatch(
            "a pandas DataFrame has columns whose names are no text",
            found=", ".join(ascii(c) for c in data.columns)[:500],
            next="data.columns = data.columns.astype(str)",
        )
    check_columns(len(data), len(data.columns))
    columns = [_column_of_pandas(name, data.iloc[:, n], schema) for n, name in enumerate(data.columns)]
    return pa.Table.from_arrays(columns, names=list(data.columns))


def _column_of_pandas(name: str, series: Any, schema: Schema | None) -> pa.ChunkedArray:
    if series.dtype == object:
        declared = _declared(schema).get(name)
        if declared is not None:
            return convert_values(series, declared, name, PANDAS)
    try:
        column = _inferred(series) if series.dtype == object else pa.Array.from_pandas(series)
    except _NO_COLUMN as error:
        raise SchemaMismatch(
            f"column {name!r} of the pandas DataFrame holds values of different types",
            found=" ".join(str(a) for a in error.args),
            next="convert the column to one type first",
            column=name,
        ) from error
    if series.dtype == object:
        return inferred_values(series, column, name, PANDAS)
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _from_rows(rows: Sequence[Mapping[str, Any]], schema: Schema | None) -> pa.Table:
    """Dicts; one that lacks a name that others have is null there."""
    names = dict.fromkeys(n for row in rows for n in row)
    strange = [n for n in names if not isinstance(n, str) or not _is_unicode(n)]
    if strange:
        raise SchemaMismatch(
            "a row has names of columns that are no text",
            found=", ".join(ascii(n) for n in strange[:5]),
            expected='rows as {"column": value, ...}',
        )
    check_columns(len(rows), len(names))
    declared = _declared(schema)
    return pa.table({n: _column_of_rows(n, [row.get(n) for row in rows], declared.get(n)) for n in names})


def _is_unicode(name: str) -> bool:
    return name.encode("utf-8", "replace").decode() == name


def _declared(schema: Schema | None) -> dict[str, DataType]:
    fields = {f.name: f.type for f in schema.fields} if schema is not None else {}
    return {**fields, DELETED: DataType("boolean")}


def _column_of_rows(name: str, values: list[Any], type_: DataType | None) -> pa.ChunkedArray:
    if type_ is not None:
        return convert_values(values, type_, name, DICTS)
    try:
        inferred = _inferred(values)
    except _NO_COLUMN as error:
        raise SchemaMismatch(
            f"column {name!r} has values of different types, or of a type of no channel",
            found=str(error),
            next="declare the column in the channel's schema",
            column=name,
        ) from error
    return inferred_values(values, inferred, name, DICTS)


def _inferred(values: Iterable[Any]) -> pa.Array:
    """What Arrow makes of values. It sees none of NumPy's own: some of them together end the process."""
    _check_depth(values, _DEEPEST)
    return pa.array([_without_numpy(v) for v in values], from_pandas=True)


def _without_numpy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_numpy(v) for k, v in value.items()}
    is_array = type(value).__module__ == "numpy" and hasattr(value, "tolist") and value.ndim > 0
    if is_array or isinstance(value, list | tuple):
        return [_without_numpy(v) for v in value]
    plain = plain_value(value)
    is_too_fine = type(plain).__module__ == "numpy" and plain.dtype.kind == "M"
    return plain.astype("datetime64[us]").item() if is_too_fine else plain


def _check_depth(values: Iterable[Any], left: int) -> None:
    """pyarrow follows values into their depth until the process ends. Raises ValueError."""
    for value in values:
        if isinstance(value, list | tuple | Mapping):
            if not left:
                raise ValueError(f"values within values, more than {_DEEPEST} deep")
            _check_depth(value.values() if isinstance(value, Mapping) else value, left - 1)


_DEEPEST = 64
_NO_COLUMN = (pa.ArrowException, OverflowError, ValueError, TypeError, AttributeError)
"""What pyarrow raises of values of which it cannot make a column."""


# files


def _are_paths(data: Any) -> bool:
    if isinstance(data, str | PathLike):
        return True
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(p, str | PathLike) for p in data)


def _from_paths(paths: list[Path], schema: Schema | None, evolves: bool) -> Any:
    formats = [_format(p) for p in paths]
    for path in paths:
        _check_there(path)
    if set(formats) == {"parquet"} and sum(p.stat().st_size for p in paths) > LARGE:
        for path in paths:
            isolated_reader.check_parquet_footer(File(path))
        return LargeParquet(paths, schema, evolves)
    tables = [_from_file(File(p), f, schema, evolves) for p, f in zip(paths, formats, strict=True)]
    return joined(tables, [str(p) for p in paths])


def _from_file(file: File, format_: Format, schema: Schema | None, evolves: bool) -> pa.Table:
    table = isolated_reader.read(file, format_, schema)
    with named(file.said):
        return given_table(table.replace_schema_metadata(None), schema, TYPED, evolves=evolves)


def _format(path: Path) -> Format:
    found = readers.format_of(path.name)
    if found is None or found == "text":
        raise BadRecord(
            f"{path}: the file's name does not say what it holds",
            found=path.name,
            expected=f"a name that ends in {', '.join(_TAKEN)} (JSON and CSV also with .gz or .zst)",
            file=str(path),
        )
    return found


def _check_there(path: Path) -> None:
    if path.is_dir():
        raise bad(File(path), "this is a folder", expected="files", next=f"name them: {path}/*")
    if not path.is_file():
        raise bad(File(path), "there is no such file", next="check the path")
    if path.stat().st_size == 0:
        raise empty(File(path))
