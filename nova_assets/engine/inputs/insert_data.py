"""Conversion of user data for ``insert`` to an Arrow table or a Spark DataFrame. The conversion never starts Spark.

Only Spark DataFrames, and Parquet files that are too large for memory, are left to Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from nova_assets.engine.inputs.large_parquet import LargeParquetFiles
from nova_assets.engine.inputs.user_tables import (
    check_has_columns,
    concat_file_tables,
    convert_user_table,
)
from nova_assets.errors import BadRecord, DefinitionError, EmptyInput, SchemaMismatch
from nova_assets.formats import isolated_reader, readers
from nova_assets.formats.column_conversion import convert_to_inferred_type, convert_values, declared_types
from nova_assets.formats.input_file import InputFile, bad_record_error, empty_file_error, name_file_in_nova_errors
from nova_assets.formats.row_collector import great_number_error
from nova_assets.model.block_options import BlockOptions, options_from_arguments
from nova_assets.model.file_source import Format
from nova_assets.model.schema import DataType, Schema
from nova_assets.model.value_conversion import DICTS, PANDAS, TYPED, to_python_value
from nova_assets.nova_error import NovaError

LARGE_PARQUET_BYTES = 512 * 1024 * 1024
"""Total size of Parquet files above which Spark tasks read them."""

_SUPPORTED_SUFFIXES = [suffix for suffix, format_ in readers.FORMAT_BY_SUFFIX.items() if format_ != "text"]
_SUPPORTED_INPUTS = (
    "an Arrow table, a pandas or Spark DataFrame, a list of dicts, or paths of Parquet, ORC, Avro, CSV or JSON files"
)


def is_spark_frame(data: Any) -> bool:
    """Whether an object is a Spark DataFrame, classic or Connect. The check does not import Spark."""
    return "pyspark" in sys.modules and any(
        c.__name__ == "DataFrame" and c.__module__.startswith("pyspark.sql") for c in type(data).__mro__
    )


def convert_insert_data(data: Any, schema: Schema | None, *, allow_widening: bool = False) -> Any:
    """A Spark DataFrame unchanged, large Parquet files as ``LargeParquetFiles``, and all other data as an Arrow table
    in the declared types.

    Args:
        data: data that the user passed.
        schema: schema of the channel; None leaves the types unchanged.
        allow_widening: whether the channel accepts wider types than it has.

    Raises:
        EmptyInput: there is no data, or a file has no record. (A table without rows is a valid, empty block.)
        BadRecord: a file is missing, truncated, or not in the format that its name says.
        SchemaMismatch: a channel cannot hold a value or type.
    """
    if is_spark_frame(data):
        if not data.columns:
            check_has_columns(data.count(), 0)
        return data
    if _is_path_input(data):
        return _read_paths(
            [Path(p) for p in ([data] if isinstance(data, str | PathLike) else data)], schema, allow_widening
        )
    if data is None or (isinstance(data, Sequence) and not data):
        raise EmptyInput("there is no data to insert", found=repr(data), expected=_SUPPORTED_INPUTS)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        _check_rows_are_dicts(data)
        return convert_user_table(_dicts_to_table(data, schema), schema, DICTS, allow_widening=allow_widening)
    if _is_dataframe_of("pandas", data):
        return convert_user_table(_pandas_to_table(data, schema), schema, PANDAS, allow_widening=allow_widening)
    return convert_user_table(_table_from_arrow_source(data), schema, TYPED, allow_widening=allow_widening)


def _check_rows_are_dicts(rows: Sequence[Any]) -> None:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise SchemaMismatch(
                f"row {number} of the list is not a dict", found=type(row).__name__, expected='{"column": value, ...}'
            )


def _is_dataframe_of(library: str, data: Any) -> bool:
    """Whether an object is a DataFrame of a library. The check does not import the library.

    Another thread may be importing the library. Its module then exists without the class, and no object can be its
    DataFrame.
    """
    frame = getattr(sys.modules.get(library), "DataFrame", None)
    return frame is not None and isinstance(data, frame)


# tables


def _table_from_arrow_source(data: Any) -> pa.Table:
    _check_no_polars_object_columns(data)
    try:
        return _export_arrow_table(data)
    except NovaError:
        raise
    except Exception as error:  # the exporting library, or a reader's computation, can raise anything
        raise SchemaMismatch(
            "the data cannot be read as Arrow data",
            found=f"{type(data).__name__}: {error}"[:500],
            expected=_SUPPORTED_INPUTS,
        ) from error


def _export_arrow_table(data: Any) -> pa.Table:
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
    raise SchemaMismatch("data of this type cannot be inserted", found=type(data).__name__, expected=_SUPPORTED_INPUTS)


def _check_no_polars_object_columns(data: Any) -> None:
    """Reject polars columns of Python objects, which polars exports as memory addresses. Raises SchemaMismatch."""
    if not _is_dataframe_of("polars", data):
        return
    object_columns = [name for name, type_ in data.schema.items() if "Object" in str(type_)]
    if object_columns:
        raise SchemaMismatch(
            f"column {object_columns[0]!r} of the polars DataFrame holds Python objects",
            found=str(data.schema[object_columns[0]]),
            next="cast the column to a type of polars first",
            column=object_columns[0],
        )


def _pandas_to_table(data: Any, schema: Schema | None) -> pa.Table:
    """Table of a pandas DataFrame. Columns of Python objects are converted value by value, as for dicts."""
    if not all(isinstance(c, str) and _is_unicode(c) for c in data.columns):
        raise SchemaMismatch(
            "column names of the pandas DataFrame are not text",
            found=", ".join(ascii(c) for c in data.columns)[:500],
            next="data.columns = data.columns.astype(str)",
        )
    check_has_columns(len(data), len(data.columns))
    columns = [_pandas_column_to_arrow(name, data.iloc[:, n], schema) for n, name in enumerate(data.columns)]
    return pa.Table.from_arrays(columns, names=list(data.columns))


def _pandas_column_to_arrow(name: str, series: Any, schema: Schema | None) -> pa.ChunkedArray:
    if series.dtype == object:
        declared = declared_types(schema).get(name)
        if declared is not None:
            return convert_values(series, declared, name, PANDAS)
    try:
        column = _infer_arrow_array(series) if series.dtype == object else pa.Array.from_pandas(series)
    except _CONVERSION_ERRORS as error:
        raise SchemaMismatch(
            f"column {name!r} of the pandas DataFrame holds values of different types",
            found=" ".join(str(a) for a in error.args),
            next="convert the column to one type first",
            column=name,
        ) from error
    if series.dtype == object:
        return convert_to_inferred_type(series, column, name, PANDAS)
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _dicts_to_table(rows: Sequence[Mapping[str, Any]], schema: Schema | None) -> pa.Table:
    """Table of dicts. A name that a dict lacks is null in its row."""
    names = dict.fromkeys(n for row in rows for n in row)
    invalid_names = [n for n in names if not isinstance(n, str) or not _is_unicode(n)]
    if invalid_names:
        raise SchemaMismatch(
            "column names of a row are not text",
            found=", ".join(ascii(n) for n in invalid_names[:5]),
            expected='rows as {"column": value, ...}',
        )
    check_has_columns(len(rows), len(names))
    declared = declared_types(schema)
    return pa.table({n: _values_to_column(n, [row.get(n) for row in rows], declared.get(n)) for n in names})


def _is_unicode(name: str) -> bool:
    return name.encode("utf-8", "replace").decode() == name


def _values_to_column(name: str, values: list[Any], declared_type: DataType | None) -> pa.ChunkedArray:
    if declared_type is not None:
        return convert_values(values, declared_type, name, DICTS)
    try:
        inferred = _infer_arrow_array(values)
    except OverflowError as error:
        raise great_number_error(name, values) from error
    except _CONVERSION_ERRORS as error:
        raise SchemaMismatch(
            f"column {name!r} has values of different types, or of a type that channels do not support",
            found=str(error),
            next="declare the column in the channel's schema",
            column=name,
        ) from error
    return convert_to_inferred_type(values, inferred, name, DICTS)


def _infer_arrow_array(values: Iterable[Any]) -> pa.Array:
    """Array with the type that Arrow infers. NumPy values are replaced first, because some combinations crash the
    process."""
    _check_nesting_depth(values, _MAX_DEPTH)
    # numpy.datetime64 beside numpy.int32 in one column made Arrow's inference end the process.
    return pa.array([_numpy_to_python(v) for v in values], from_pandas=True)


def _numpy_to_python(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _numpy_to_python(v) for k, v in value.items()}
    is_array = type(value).__module__ == "numpy" and hasattr(value, "tolist") and value.ndim > 0
    if is_array or isinstance(value, list | tuple):
        return [_numpy_to_python(v) for v in value]
    python_or_numpy = to_python_value(value)
    is_too_fine = type(python_or_numpy).__module__ == "numpy" and python_or_numpy.dtype.kind == "M"
    return python_or_numpy.astype("datetime64[us]").item() if is_too_fine else python_or_numpy


def _check_nesting_depth(values: Iterable[Any], remaining_depth: int) -> None:
    """Reject deeply nested values, at which pyarrow's recursion would crash the process. Raises ValueError."""
    for value in values:
        if isinstance(value, list | tuple | Mapping):
            if not remaining_depth:
                raise ValueError(f"values are nested more than {_MAX_DEPTH} levels deep")
            _check_nesting_depth(value.values() if isinstance(value, Mapping) else value, remaining_depth - 1)


_MAX_DEPTH = 64
_CONVERSION_ERRORS = (pa.ArrowException, OverflowError, ValueError, TypeError, AttributeError)
"""Exceptions that pyarrow raises for values that do not form a column."""


# files


def _is_path_input(data: Any) -> bool:
    if isinstance(data, str | PathLike):
        return True
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(p, str | PathLike) for p in data)


def _read_paths(paths: list[Path], schema: Schema | None, allow_widening: bool) -> Any:
    formats = [_format_from_suffix(p) for p in paths]
    for path in paths:
        _check_file_readable(path)
    if set(formats) == {"parquet"} and sum(p.stat().st_size for p in paths) > LARGE_PARQUET_BYTES:
        for path in paths:
            isolated_reader.check_parquet_footer(InputFile(path))
        return LargeParquetFiles(paths, schema, allow_widening)
    tables = [_read_file(InputFile(p), f, schema, allow_widening) for p, f in zip(paths, formats, strict=True)]
    return concat_file_tables(tables, [str(p) for p in paths])


def read_kept_files(data: Any, schema: Schema | None, allow_widening: bool) -> tuple[pa.Table, BlockOptions]:
    """Rows of files that are inserted as they are, one file after the other, and the options of their block.

    Raises:
        BadRecord: a file is damaged, or the files have different formats.
        DefinitionError: the data is no list of files.
    """
    paths = _kept_file_paths(data)
    formats = [_format_from_suffix(p) for p in paths]
    if len(set(formats)) > 1:
        raise BadRecord(
            "files that are kept as they are need one format",
            found=", ".join(sorted(set(formats))),
            expected="files of one format: a block has one format",
            next="insert the files of each format by themselves",
        )
    for path in paths:
        _check_file_readable(path)
    tables = [_read_file(InputFile(p), formats[0], schema, allow_widening) for p in paths]
    for path, table in zip(paths, tables, strict=True):
        if not table.num_rows:
            raise empty_file_error(InputFile(path))
    kept = tuple((str(p), t.num_rows) for p, t in zip(paths, tables, strict=True))
    return concat_file_tables(tables, [str(p) for p in paths]), options_from_arguments(None, formats[0], kept)


def _kept_file_paths(data: Any) -> list[Path]:
    if not _is_path_input(data):
        raise DefinitionError(
            "keep_files= needs files", found=type(data).__name__, expected="the path of a file, or a list of paths"
        )
    return [Path(p) for p in ([data] if isinstance(data, str | PathLike) else data)]


def _read_file(file: InputFile, file_format: Format, schema: Schema | None, allow_widening: bool) -> pa.Table:
    table = isolated_reader.read_table(file, file_format, schema)
    with name_file_in_nova_errors(file.display_name):
        return convert_user_table(table.replace_schema_metadata(None), schema, TYPED, allow_widening=allow_widening)


def _format_from_suffix(path: Path) -> Format:
    file_format = readers.format_from_file_name(path.name)
    if file_format is None or file_format == "text":
        raise BadRecord(
            f"{path}: the file name does not show the file's format",
            found=path.name,
            expected=f"a name that ends in {', '.join(_SUPPORTED_SUFFIXES)} (JSON and CSV also with .gz or .zst)",
            file=str(path),
        )
    return file_format


def _check_file_readable(path: Path) -> None:
    if path.is_dir():
        raise bad_record_error(
            InputFile(path), "the path is a folder", expected="files", next=f"pass the files in it: {path}/*"
        )
    if not path.is_file():
        raise bad_record_error(InputFile(path), "the file does not exist", next="check the path")
    if path.stat().st_size == 0:
        raise empty_file_error(InputFile(path))
