"""Rows as Python objects. A value that Python cannot represent is an error that names column, row and value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nova_assets.errors import NotSupported

if TYPE_CHECKING:
    import pyarrow as pa

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
                    found=text_of_value(value)[:300],
                    expected=VALUES_OF_PYTHON,
                    next="read the rows with to_arrow() or to_spark(), or leave the column out",
                    column=name,
                    row=index + 1,
                )
    return None


def text_of_value(value: pa.Scalar) -> str:
    """Text of a value, also if Python cannot represent it."""
    import pyarrow as pa

    try:
        return repr(value.as_py())
    except (ValueError, OverflowError):
        pass
    if isinstance(value, pa.DictionaryScalar):
        return text_of_value(value.value)
    if isinstance(value, pa.StructScalar):
        return f"{{{', '.join(f'{name}: {text_of_value(part)}' for name, part in value.items())}}}"
    if hasattr(value, "values"):  # of a list or a map
        return f"[{', '.join(map(text_of_value, value.values))}]"
    if hasattr(value, "as_buffer"):  # text
        return repr(value.as_buffer().to_pybytes())
    text: str = pa.repeat(value, 1).to_string(indent=0, skip_new_lines=True)
    return text[1:-1]


class MapEntries(NamedTuple):
    """Keys and values of all maps of an array."""

    keys: pa.Array
    values: pa.Array


def map_entries(array: pa.MapArray) -> MapEntries:
    """Entries of the maps of an array, which may be a slice. The entries of a null are left out."""
    array = array.drop_null()
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return MapEntries(array.keys.slice(start, end - start), array.items.slice(start, end - start))
