"""Rows as Python objects. A value that Python cannot represent is an error that names column, row and value."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from nova_assets.errors import NotSupported

VALUES_OF_PYTHON = "dates and times in the years 0001 to 9999, and text in UTF-8"


def to_python_rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts.

    Raises:
        NotSupported: Python cannot represent a value.
    """
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (ValueError, OverflowError) as error:
        refusal = python_value_error(table)
        if refusal is None:
            raise
        raise refusal from error
    return rows


def python_value_error(table: pa.Table | pa.RecordBatch) -> NotSupported | None:
    """Error for the first value that Python cannot represent; None if Python can represent all values."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        for index, value in enumerate(column):
            try:
                value.as_py()
            except (ValueError, OverflowError):
                return NotSupported(
                    f"row {index + 1} has a value that Python cannot represent, in column {name!r}",
                    found=text_of_value(column, index),
                    expected=VALUES_OF_PYTHON,
                    next="read the rows with to_arrow() or to_spark(), or leave the column out",
                    column=name,
                    row=index + 1,
                )
    return None


def text_of_value(column: pa.Array | pa.ChunkedArray, index: int) -> str:
    """Text of a value with its type, also if Python cannot represent the value."""
    text = column.slice(index, 1).to_string(indent=0, skip_new_lines=True, container_window=1)
    brackets = 2 if isinstance(column, pa.ChunkedArray) else 1
    shown = " ".join(text[brackets:-brackets].split())[:200]
    return f"{shown.encode('utf-8', 'replace').decode()} ({column.type})"


class MapEntries(NamedTuple):
    """Keys and values of all maps of an array."""

    keys: pa.Array
    values: pa.Array


def map_entries(array: pa.MapArray) -> MapEntries:
    """Entries of the maps of an array, which may be a slice. The entries of a null are left out."""
    array = array.drop_null()
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return MapEntries(array.keys.slice(start, end - start), array.items.slice(start, end - start))
