"""Check of a user's table for values that no column can hold, whatever its type."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.errors import SchemaMismatch
from nova_assets.formats.python_values import VALUES_OF_PYTHON, map_entries, text_of_value

_FIRST_DAY = (date.min - date(1970, 1, 1)).days
_LAST_DAY = (date.max - date(1970, 1, 1)).days
_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6}


def check_values(table: pa.Table, first_row_number: int = 1) -> None:
    """Check that dates and times are in the years 0001 to 9999, and that text is UTF-8.

    Args:
        table: columns without dictionaries and views.
        first_row_number: number of the first row in error messages.

    Raises:
        SchemaMismatch: the error names column, row and value.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        if any(not _are_valid(chunk) for chunk in column.chunks):
            index = _first_invalid_index(column)
            raise SchemaMismatch(
                f"row {first_row_number + index} has a value that no column can hold, in column {name!r}",
                found=f"{text_of_value(column[index])[:300]} ({column.type})",
                expected=VALUES_OF_PYTHON,
                next="correct the value, or remove the row",
                column=name,
                row=first_row_number + index,
            )


def validate_table(table: pa.Table) -> None:
    """Validate a table of external origin completely. An error about text names column, row and value.

    Raises:
        SchemaMismatch: text is not UTF-8.
        ArrowInvalid: the table is damaged.
    """
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            check_values(table)
        raise


def _first_invalid_index(column: pa.ChunkedArray) -> int:
    low, high = 0, len(column)  # the rows before low are valid, and one of those before high is not
    while high - low > 1:
        middle = (low + high) // 2
        if all(_are_valid(chunk) for chunk in column.slice(low, middle - low).chunks):
            low = middle
        else:
            high = middle
    return low


def _are_valid(array: pa.Array) -> bool:
    type_ = array.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True
    if pa.types.is_date32(type_):
        return _is_in_range(array.view(pa.int32()), 1)
    if pa.types.is_date64(type_):
        return _is_in_range(array.view(pa.int64()), _UNITS_PER_DAY["ms"])
    if pa.types.is_timestamp(type_):
        return type_.unit == "ns" or _is_in_range(array.view(pa.int64()), _UNITS_PER_DAY[type_.unit])
    if pa.types.is_struct(type_):
        return all(map(_are_valid, array.flatten()))
    if pa.types.is_map(type_):
        return all(map(_are_valid, map_entries(array)))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return _are_valid(array.flatten())
    return True


def _is_in_range(numbers: pa.Array, units_per_day: int) -> bool:
    bounds = pc.min_max(numbers)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or (least >= _FIRST_DAY * units_per_day and greatest < (_LAST_DAY + 1) * units_per_day)
