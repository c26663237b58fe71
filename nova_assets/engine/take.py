"""What a user gives to ``insert``, as an Arrow table or a Spark frame; nothing here starts Spark."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from nova_assets.engine.arrow import adapt
from nova_assets.engine.values import coerced
from nova_assets.errors import BadRecord, EmptyInput, SchemaMismatch
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DELETED, Schema

SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}


def take(data: Any, schema: Schema | None) -> Any:
    """An Arrow table, or the Spark frame as it came.

    Args:
        data: an Arrow table or batches, a pandas or Spark DataFrame, a list of dicts, or one or several paths.
        schema: the channel's, by which text is parsed and Python values are typed; None to infer.

    Raises:
        BadRecord: a file is not what its suffix says, or a value is not of its column's type.
        EmptyInput: no paths, or a file without a byte.
        SchemaMismatch: a column cannot be of the declared type.
    """
    if isinstance(data, pa.Table):
        return adapt(data, schema, by_value=False)
    if isinstance(data, pa.RecordBatch):
        return adapt(pa.Table.from_batches([data]), schema, by_value=False)
    if isinstance(data, pa.RecordBatchReader):
        return adapt(data.read_all(), schema, by_value=False)
    if isinstance(data, str | PathLike):
        return _files([data], schema)
    module = type(data).__module__
    if module.startswith("pandas."):
        return adapt(pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(), schema, by_value=True)
    if module.startswith("pyspark."):
        return data
    if isinstance(data, Sequence) and not data:
        raise EmptyInput("nothing was given to insert", found="an empty list", expected="rows, or paths of files")
    if isinstance(data, Sequence) and all(isinstance(d, str | PathLike) for d in data):
        return _files(data, schema)
    if isinstance(data, Sequence) and all(isinstance(d, Mapping) for d in data):
        return adapt(_rows(data, schema), schema, by_value=True)
    raise BadRecord(
        "this kind of data cannot be inserted",
        found=type(data).__name__,
        expected="an Arrow table, a pandas or Spark DataFrame, a list of dicts, or paths of files",
    )


def _rows(rows: Sequence[Mapping[str, Any]], schema: Schema | None) -> pa.Table:
    """Rows as a table, each value checked against its column, so that the one that does not fit is named."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns: dict[str, Any] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if schema is not None and name in schema:
            type_ = schema.field(name).type
            columns[name] = pa.array([_value(v, type_, name, n) for n, v in enumerate(values, 1)], arrow_type(type_))
        else:
            try:
                columns[name] = pa.array(values, pa.bool_() if name == DELETED else None)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise BadRecord(f"the values of column {name!r} are of several types", found=str(error)) from error
    return pa.table(columns)


def _value(value: Any, type_: Any, name: str, row: int) -> Any:
    try:
        return coerced(value, type_)
    except ValueError as error:
        raise SchemaMismatch(
            f"row {row}, column {name!r}: {error}", found=repr(value)[:200], expected=str(type_), row=row, column=name
        ) from error


def _files(paths: Sequence[str | PathLike[str]], schema: Schema | None) -> pa.Table:
    tables = [adapt(_file(Path(p), schema), schema, by_value=False) for p in paths]
    try:
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaMismatch(
            "the files have different columns", found=str(error), next="insert them one by one"
        ) from error


def _file(path: Path, schema: Schema | None) -> pa.Table:
    suffixes = [s for s in path.suffixes if s != ".gz"]
    kind = SUFFIXES.get(suffixes[-1].lower()) if suffixes else None
    if kind is None:
        raise BadRecord(
            f"the format of {path} is not known by its name",
            found=path.name,
            expected=f"a name that ends in {', '.join(SUFFIXES)} (text also in .gz)",
            file=str(path),
        )
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        content = (
            b""
            if size == 0
            else gzip.decompress(path.read_bytes())
            if path.suffix == ".gz"
            else path.read_bytes()
            if kind != "parquet"
            else None
        )
    except (OSError, EOFError) as error:
        raise BadRecord(
            f"the file {path} cannot be read",
            found=str(error),
            next="check the path, or fetch the file again",
            file=str(path),
        ) from error
    if content is not None and not content.strip():
        raise EmptyInput(f"the file {path} is empty", found="no content", expected=f"{kind} records", file=str(path))
    try:
        return {"parquet": _parquet, "csv": _csv, "json": _json}[kind](path, content, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError, UnicodeDecodeError) as error:
        raise BadRecord(
            f"the file {path} is not readable as {_NAMES[kind]}: it is damaged, cut off, or of another kind",
            found=str(error).split("\n")[0][:500],
            expected=f"{_NAMES[kind]}{f' of {schema}' if schema is not None and kind != 'parquet' else ''}",
            next="mend or replace the file; nothing of it was inserted",
            file=str(path),
        ) from error


_NAMES = {"parquet": "Parquet", "csv": "CSV with a header line", "json": "JSON lines (one object a line)"}


def _parquet(path: Path, content: bytes | None, schema: Schema | None) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path).read().replace_schema_metadata()


def _csv(path: Path, content: bytes | None, schema: Schema | None) -> pa.Table:
    from pyarrow import csv

    types = {f.name: arrow_type(f.type) for f in schema.fields if not f.type.fields} if schema is not None else {}
    convert = csv.ConvertOptions(
        column_types={**types, DELETED: pa.bool_()},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = csv.ParseOptions(newlines_in_values=True)
    # One thread: an error then names its row.
    return csv.read_csv(pa.BufferReader(content), csv.ReadOptions(use_threads=False), parse, convert)


def _json(path: Path, content: bytes | None, schema: Schema | None) -> pa.Table:
    from pyarrow import json

    fields = [pa.field(f.name, arrow_type(f.type)) for f in schema.fields] if schema is not None else []
    options = json.ParseOptions(explicit_schema=pa.schema(fields) if fields else None)
    return json.read_json(pa.BufferReader(content), json.ReadOptions(use_threads=False), options)
