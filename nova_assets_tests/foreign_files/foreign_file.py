"""Files that other programs write, with the reader that judges them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class ForeignFile:
    """A file of another writer.

    Args:
        name: writer, and the feature of its format that the file has.
        suffix: end of the file's name.
        write: writes the file.
        read: reads the file, or a damaged copy of it, with the writer's reader or with an independent one. For a file
            with checksums, this reader verifies the checksums.
        rows: rows that were written; None if ``read`` of the whole file says what they are.
        refusal: pattern of the error that names the unsupported feature; None for a file that nova takes.
        schema: columns of the channel; None to take those of the file.
        other_reader: independent reader that counts too for a damaged file, where nothing tells the damage.
    """

    name: str
    suffix: str
    write: Callable[[Path], object]
    read: Callable[[Path], Rows]
    rows: Rows | None = None
    refusal: str | None = None
    schema: str | None = None
    other_reader: Callable[[Path], Rows] | None = None


def rows_of_arrow(table: pa.Table) -> Rows:
    """Rows of a table, with dates and times as numbers of days and microseconds, which Python always has."""
    columns = {n: _values(_single_array(c)) for n, c in zip(table.column_names, table.columns, strict=True)}
    return [{n: columns[n][row] for n in columns} for row in range(table.num_rows)]


def _single_array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _values(array: pa.Array) -> list[Any]:
    type_, t = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return array.to_pylist()
    if t.is_dictionary(type_):
        return _values(array.dictionary_decode())
    if t.is_timestamp(type_):
        return [None if n is None else _micros(n, type_.unit) for n in array.view(pa.int64()).to_pylist()]
    if t.is_date32(type_):
        return array.view(pa.int32()).to_pylist()
    if t.is_date64(type_):
        return [None if n is None else n // 86_400_000 for n in array.view(pa.int64()).to_pylist()]
    if t.is_struct(type_):
        parts = [_values(array.field(n)) for n in range(type_.num_fields)]
        names = [type_.field(n).name for n in range(type_.num_fields)]
        return [
            {n: p[row] for n, p in zip(names, parts, strict=True)} if array[row].is_valid else None
            for row in range(len(array))
        ]
    if t.is_map(type_) or t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return [None if not s.is_valid else _list_values(s, t.is_map(type_)) for s in array]
    return array.to_pylist()


def _micros(number: int, unit: str) -> float:
    if unit == "ns":
        return number / 1000 if number % 1000 else number // 1000
    return number * {"s": 10**6, "ms": 10**3, "us": 1}[unit]


def _list_values(scalar: Any, is_map: bool) -> list[Any]:
    items = _values(scalar.values)
    return [tuple(item.values()) for item in items] if is_map else items


_EPOCH = datetime(1970, 1, 1)


def comparable(value: Any) -> Any:
    """Value that is equal to another exactly if both readers mean the same.

    Dates are days, and times are microseconds, since 1970. Structs and maps are sorted pairs.
    """
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, datetime):
        since = (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value) - _EPOCH
        return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, Decimal):
        return format(value.normalize(), "f") if value else "0"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return sorted(((k, comparable(v)) for k, v in value.items()), key=repr)
    if isinstance(value, list | tuple):
        if value and all(isinstance(v, tuple) and len(v) == 2 for v in value):
            return sorted(((k, comparable(v)) for k, v in value), key=repr)
        return [comparable(v) for v in value] or []
    return value


def comparable_rows(rows: Rows) -> list[str]:
    """Rows as sorted texts, so that two lists are equal exactly if they have the same rows."""
    return sorted(repr(comparable(row)) for row in rows)
