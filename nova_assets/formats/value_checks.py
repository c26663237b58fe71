"""Checks of whole columns for values that their type, or a reader, cannot represent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.errors import SchemaMismatch
from nova_assets.formats.python_values import map_entries, python_value_error, text_of_value

_Limits = Mapping[str, tuple[int, int]]
"""First and last number of a date (``D``), a date in milliseconds (``date64``), and a time in ``s``, ``ms``, ``us``."""

_STORED_LIMITS: _Limits = {
    "date64": (-(2**31) * 86_400_000, (2**31 - 1) * 86_400_000),
    "s": (-(2**63) // 10**6 + 1, 2**63 // 10**6 - 1),
    "ms": (-(2**63) // 10**3 + 1, 2**63 // 10**3 - 1),
}
"""Limits of ``date`` and ``timestamp``: days in 32 bits, and microseconds in 64 bits."""

_FIRST_GREGORIAN_DAY = (date(1582, 10, 15) - date(1970, 1, 1)).days
_FIRST_STANDARD_SECOND = (date(1900, 1, 1) - date(1970, 1, 1)).days * 86_400
_SAME_IN_BOTH_CALENDARS: _Limits = {
    "D": (_FIRST_GREGORIAN_DAY, 2**31 - 1),
    **{
        unit: (_FIRST_STANDARD_SECOND * per_second, 2**63 - 1)
        for unit, per_second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
    },
}
"""Dates and times that the Julian and the Gregorian calendar count alike. Spark also converts the times of a file that
are older than 1900, when zones had other offsets."""

_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
_PYTHON_LIMITS: _Limits = {
    "D": (_FIRST_DAY, _LAST_DAY),
    **{
        unit: (_FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day - 1)
        for unit, per_day in (("date64", 86_400_000), ("s", 86_400), ("ms", 86_400 * 10**3), ("us", 86_400 * 10**6))
    },
}


def check_values(table: pa.Table, first_row_number: int = 1) -> None:
    """Check that a channel can store the values of a user's table.

    Args:
        table: columns without dictionaries and views.
        first_row_number: number of the first row in error messages.

    Raises:
        SchemaMismatch: text is not UTF-8, or microseconds cannot represent a time. The error names column, row and
            value.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        if _has_invalid(column, _STORED_LIMITS):
            index = _first_invalid_index(column, _STORED_LIMITS)
            raise SchemaMismatch(
                f"row {first_row_number + index} has a value that no column can hold, in column {name!r}",
                found=f"{text_of_value(column[index])[:300]} ({column.type})",
                expected="text in UTF-8, and times that 64 bits of microseconds represent",
                next="correct the value, or remove the row",
                column=name,
                row=first_row_number + index,
            )


def validate_table(table: pa.Table) -> None:
    """Validate a table of external origin completely. An error names the column, and for text also row and value.

    Raises:
        SchemaMismatch: text is not UTF-8, or a value does not have the type of its column.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" in str(error):
                check_values(table)
            raise SchemaMismatch(
                f"column {name!r} has values that are not of its type",
                found=f"{error} ({column.type})",
                expected="values that the type of the column represents",
                next="create the data again: they are damaged, or their writer is wrong",
                column=name,
            ) from error


def check_not_julian(table: pa.Table, file_name: str, first_row_number: int = 1, *, dates_only: bool = False) -> None:
    """Check the rows of a file that may count days before 1582-10-15 in the Julian calendar, as Hive and Spark 2 do.

    Spark converts such dates and times, and Arrow reads other ones.

    Args:
        file_name: name of the file in errors.
        first_row_number: number of the first row in errors.
        dates_only: whether times are the same in both calendars, for a format whose reader lacks times before 1678.

    Raises:
        SchemaMismatch: a date or time may be another one in the Gregorian calendar.
    """
    limits = {"D": _SAME_IN_BOTH_CALENDARS["D"]} if dates_only else _SAME_IN_BOTH_CALENDARS
    check_values(table, first_row_number)  # text, which the limits do not concern
    for name, column in zip(table.column_names, table.columns, strict=True):
        if _has_invalid(column, limits):
            index = _first_invalid_index(column, limits)
            raise SchemaMismatch(
                f"{file_name}: row {first_row_number + index} has an old date or time, in column {name!r}, which the "
                "file may count in the Julian calendar",
                found=f"{text_of_value(column[index])[:300]} ({column.type})",
                expected="dates since 1582-10-15 and times since 1900, which both calendars count alike",
                next="insert the file as a Spark DataFrame",
                column=name,
                row=first_row_number + index,
            )


def check_python_values(table: pa.Table) -> None:
    """Check that Python can represent all values. Other libraries write no valid text for other dates and times.

    Raises:
        NotSupported: with the first other value.
    """
    if any(_has_invalid(column, _PYTHON_LIMITS) for column in table.columns):
        refusal = python_value_error(table)
        if refusal is not None:
            raise refusal


def _has_invalid(column: pa.ChunkedArray, limits: _Limits) -> bool:
    return any(not _are_valid(chunk, limits) for chunk in column.chunks)


def _first_invalid_index(column: pa.ChunkedArray, limits: _Limits) -> int:
    low, high = 0, len(column)  # the rows before low are valid, and one of those before high is not
    while high - low > 1:
        middle = (low + high) // 2
        if _has_invalid(column.slice(low, middle - low), limits):
            high = middle
        else:
            low = middle
    return low


def _are_valid(array: pa.Array, limits: _Limits) -> bool:
    type_, t = array.type, pa.types
    if t.is_string(type_) or t.is_large_string(type_):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True
    if t.is_date32(type_):
        return _is_in_range(array.view(pa.int32()), limits.get("D"))
    if t.is_date64(type_):
        return _is_in_range(array.view(pa.int64()), limits.get("date64"))
    if t.is_timestamp(type_):
        return _is_in_range(array.view(pa.int64()), limits.get(type_.unit))
    if t.is_struct(type_):
        return all(_are_valid(field, limits) for field in array.flatten())
    if t.is_map(type_):
        return all(_are_valid(entries, limits) for entries in map_entries(array))
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return _are_valid(array.flatten(), limits)
    return True


def _is_in_range(numbers: pa.Array, limits: tuple[int, int] | None) -> bool:
    if limits is None:
        return True
    bounds = pc.min_max(numbers)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or (least >= limits[0] and greatest <= limits[1])
