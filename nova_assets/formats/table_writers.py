"""Writers of whole tables as ORC, Avro, CSV and JSON-lines files, in the notation that ``readers`` reads.

A writer refuses types that a format cannot hold. Values that it cannot hold are found by reading the file again, which
the caller does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyarrow import orc

from nova_assets.formats.python_values import python_value_error
from nova_assets.model.arrow_types import spark_type
from nova_assets.model.block_options import type_problem
from nova_assets.model.schema import DataType

SUFFIX_BY_FORMAT: Mapping[str, str] = {
    "parquet": ".parquet",
    "orc": ".orc",
    "avro": ".avro",
    "csv": ".csv",
    "json": ".jsonl",
}


class UnsupportedColumn(ValueError):
    """A format cannot hold a column.

    Args:
        column: name of the column.
        reason: what the format cannot hold.
    """

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column = column


def write_table(table: pa.Table, path: Path, format_: str) -> None:
    """Write a table as one file.

    Args:
        table: rows, in the types that Spark writes.
        path: local path of the new file.
        format_: ``orc``, ``avro``, ``csv`` or ``json`` (one object per line).

    Raises:
        UnsupportedColumn: the format has no such type, or cannot hold a value.
        OSError: the file cannot be written.
    """
    for field in table.schema:
        problem = type_problem(format_, field.name, spark_type(field.type, field.name))
        if problem is not None:
            raise UnsupportedColumn(field.name, problem)
    try:
        _WRITERS[format_](table, path)
    except (ValueError, OverflowError) as error:
        refusal = None if isinstance(error, UnsupportedColumn) else python_value_error(table)
        if refusal is None:
            raise
        raise UnsupportedColumn(str(refusal.fields["column"]), f"{refusal.what}: {refusal.found}") from error


def _write_orc(table: pa.Table, path: Path) -> None:
    try:
        orc.write_table(table, str(path), compression="zstd")
    except pa.ArrowException as error:
        raise UnsupportedColumn(", ".join(table.column_names), str(error).splitlines()[0]) from error


def _write_csv(table: pa.Table, path: Path) -> None:
    """A null is an empty field, and empty text is ``""``."""
    columns = [_to_csv_column(table.column(n)) for n in table.column_names]
    pyarrow.csv.write_csv(pa.Table.from_arrays(columns, names=table.column_names), str(path))


def _to_csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        texts = [None if v is None else _moment_text(v) for v in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_decimal(column.type):
        return pa.chunked_array([pa.array([None if v is None else f"{v:f}" for v in column.to_pylist()], pa.string())])
    if pa.types.is_date(column.type):
        return pc.cast(column, pa.string())
    return column


def _write_json(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for batch in table.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                file.write(json.dumps({n: _to_json(v) for n, v in row.items()}, ensure_ascii=False, allow_nan=False))
                file.write("\n")


def _to_json(value: Any) -> Any:
    """Value in the notation of JSON input."""
    if isinstance(value, float):
        return value if value - value == 0 else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
    if isinstance(value, datetime):
        return _moment_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, list | tuple):  # an entry of a map is a tuple
        return [_to_json(v) for v in value]
    return {n: _to_json(v) for n, v in value.items()} if isinstance(value, dict) else value


def _moment_text(moment: datetime) -> str:
    return moment.isoformat() if moment.tzinfo is None else moment.astimezone(UTC).isoformat()


# Avro

_AVRO_PRIMITIVES: Mapping[str, Any] = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def _write_avro(table: pa.Table, path: Path) -> None:
    names = _record_names()
    fields = [{"name": f.name, "type": _avro_type(spark_type(f.type, f.name), names)} for f in table.schema]
    schema = fastavro.parse_schema({"type": "record", "name": next(names), "fields": fields})
    is_map = {f.name for f in table.schema if "map" in str(spark_type(f.type, f.name))}
    with path.open("wb") as file:
        fastavro.writer(file, schema, _avro_records(table, is_map), codec="deflate")


def _avro_records(table: pa.Table, map_columns: set[str]) -> Iterator[dict[str, Any]]:
    types = {n: spark_type(table.schema.field(n).type, n) for n in map_columns}
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            yield {n: _to_avro(v, types[n]) if n in types else v for n, v in row.items()}


def _to_avro(value: Any, type_: DataType) -> Any:
    """Value with maps as dicts, which Arrow returns as lists of pairs."""
    if value is None:
        return None
    if type_.name == "map":
        return {k: _to_avro(v, type_.fields[1].type) for k, v in value}
    if type_.name == "array":
        return [_to_avro(v, type_.fields[0].type) for v in value]
    return {f.name: _to_avro(value[f.name], f.type) for f in type_.fields} if type_.name == "struct" else value


def _avro_type(type_: DataType, names: Iterator[str]) -> list[Any]:
    """Nullable Avro type."""
    if type_.name == "decimal":
        precision, scale = type_.args
        return ["null", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}]
    if type_.name == "array":
        return ["null", {"type": "array", "items": _avro_type(type_.fields[0].type, names)}]
    if type_.name == "map":
        return ["null", {"type": "map", "values": _avro_type(type_.fields[1].type, names)}]
    if type_.name == "struct":
        fields = [{"name": f.name, "type": _avro_type(f.type, names)} for f in type_.fields]
        return ["null", {"type": "record", "name": next(names), "fields": fields}]
    return ["null", _AVRO_PRIMITIVES[type_.name]]


def _record_names() -> Iterator[str]:
    number = 0
    while True:
        yield f"row{number or ''}"
        number += 1


_WRITERS: Mapping[str, Callable[[pa.Table, Path], None]] = {
    "orc": _write_orc,
    "avro": _write_avro,
    "csv": _write_csv,
    "json": _write_json,
}
