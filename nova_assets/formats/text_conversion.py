"""Conversion of text columns to declared types.

``model.value_conversion.convert_value`` defines the meaning of a text. Arrow's casts convert a column if their result
is certain to be the same. Otherwise the column is converted value by value.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DataType
from nova_assets.model.value_conversion import InputKind, convert_value

TIME_TYPES = ("date", "timestamp", "timestamp_ntz")
_INTEGER_TYPES = ("tinyint", "smallint", "int", "bigint")
_MAX_EXACT_INTEGER = {"double": 2.0**53, "float": 2.0**24}
"""Absolute value by float type, below which the nearest float is less than 1/2 off."""


def convert_text_column(
    column: pa.ChunkedArray, type_: DataType, input_kind: InputKind
) -> tuple[pa.ChunkedArray, Mapping[int, str]]:
    """Convert a text column to a declared type.

    Returns:
        The converted column, and the reason of each row whose text is not a value of the type, by row index. These rows
        are null in the column.
    """
    cast_column = cast_text_if_exact(column, type_)
    if cast_column is not None:
        return cast_column, {}
    values, reason_by_row = [], {}
    for row, text in enumerate(column.to_pylist()):
        try:
            values.append(convert_value(text, type_, input_kind))
        except (ValueError, ArithmeticError) as error:
            values.append(None)
            reason_by_row[row] = str(error) or type(error).__name__
    return pa.chunked_array([pa.array(values, arrow_type(type_))]), reason_by_row


def cast_text_if_exact(column: pa.ChunkedArray, type_: DataType) -> pa.ChunkedArray | None:
    """Text column cast by Arrow; None if ``convert_value`` might give another result."""
    try:
        if type_.name == "string":
            return column.cast(pa.string())
        if type_.name in TIME_TYPES:
            return _cast_times(column, type_)
        if type_.name in _INTEGER_TYPES:
            return (
                None
                if _is_any_true(pc.match_substring(column, "x", ignore_case=True))
                else column.cast(arrow_type(type_))
            )
        if type_.name in _MAX_EXACT_INTEGER:
            return _cast_floats(column, type_)
        if type_.name == "decimal" and _is_any_true(pc.match_substring(column, "e", ignore_case=True)):
            return None  # Arrow misreads large exponents
        return column.cast(arrow_type(type_)) if type_.name in ("boolean", "decimal") else None
    except pa.ArrowException:
        return None


def _cast_floats(column: pa.ChunkedArray, type_: DataType) -> pa.ChunkedArray | None:
    """Text column cast to floats; None if a value is too large to be exact or underflows.

    Arrow reads a number that is too large as infinity, and a number that is too small as 0.
    """
    doubles = column.cast(pa.float64())
    floats = doubles.cast(arrow_type(type_), safe=False)
    is_large = pc.greater_equal(pc.abs(doubles), _MAX_EXACT_INTEGER[type_.name])
    is_underflow = pc.and_(pc.equal(floats, 0.0), pc.match_substring_regex(column, "[1-9]"))
    return None if _is_any_true(pc.or_(is_large, is_underflow)) else floats


def _cast_times(column: pa.ChunkedArray, type_: DataType) -> pa.ChunkedArray | None:
    """Text column cast to times; None if a time is outside Python's years. A ``timestamp`` without a zone is UTC."""
    target = arrow_type(type_)
    if type_.name == "timestamp":
        try:
            cast_column = column.cast(pa.timestamp("us")).cast(target)
        except pa.ArrowInvalid:
            cast_column = column.cast(target)  # every text has a zone
        bounds: tuple[date, date] = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    else:
        cast_column = column.cast(target)
        bounds = (date.min, date.max) if type_.name == "date" else (datetime.min, datetime.max)
    earliest, latest = (pa.scalar(bound, target) for bound in bounds)
    return (
        None if _is_any_true(pc.or_(pc.less(cast_column, earliest), pc.greater(cast_column, latest))) else cast_column
    )


def _is_any_true(flags: pa.ChunkedArray) -> bool:
    return bool(pc.any(flags).as_py())
