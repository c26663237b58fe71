"""Columns of text converted to declared types.

``model.conversion.convert`` defines what a text means. Arrow's own casts do the work where they cannot come to another
result; a column of which that is not certain is converted value by value.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.conversion import InputKind, convert
from nova_assets.model.schema import DataType

TIMES = ("date", "timestamp", "timestamp_ntz")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_EXACT = {"double": 2.0**53, "float": 2.0**24}
"""Below this, the nearest float is less than 1/2 off."""


def convert_text(
    column: pa.ChunkedArray, type_: DataType, kind: InputKind
) -> tuple[pa.ChunkedArray, Mapping[int, str]]:
    """A column of text in a declared type, and the rows whose text stands for no such value, each with the reason. They
    are null in the column."""
    cast = cast_text(column, type_)
    if cast is not None:
        return cast, {}
    values, refused = [], {}
    for row, text in enumerate(column.to_pylist()):
        try:
            values.append(convert(text, type_, kind))
        except (ValueError, ArithmeticError) as error:
            values.append(None)
            refused[row] = str(error) or type(error).__name__
    return pa.chunked_array([pa.array(values, arrow_type(type_))]), refused


def cast_text(column: pa.ChunkedArray, type_: DataType) -> pa.ChunkedArray | None:
    """A column of text, cast by Arrow; None where ``convert`` may come to another result."""
    try:
        if type_.name == "string":
            return column.cast(pa.string())
        if type_.name in TIMES:
            return _times(column, type_)
        if type_.name in _WHOLE:
            return None if _any(pc.match_substring(column, "x", ignore_case=True)) else column.cast(arrow_type(type_))
        if type_.name in _EXACT:
            return _floats(column, type_)
        if type_.name == "decimal" and _any(pc.match_substring(column, "e", ignore_case=True)):
            return None  # Arrow takes a large exponent for another number
        return column.cast(arrow_type(type_)) if type_.name in ("boolean", "decimal") else None
    except pa.ArrowException:
        return None


def _floats(column: pa.ChunkedArray, type_: DataType) -> pa.ChunkedArray | None:
    """Floats of which none is near the limits of what the type can hold. (Arrow reads what is too large or too small as
    infinity and as 0.)"""
    doubles = column.cast(pa.float64())
    floats = doubles.cast(arrow_type(type_), safe=False)
    is_large = pc.greater_equal(pc.abs(doubles), _EXACT[type_.name])
    is_lost = pc.and_(pc.equal(floats, 0.0), pc.match_substring_regex(column, "[1-9]"))
    return None if _any(pc.or_(is_large, is_lost)) else floats


def _times(column: pa.ChunkedArray, type_: DataType) -> pa.ChunkedArray | None:
    """Times in the years that Python has; those of a ``timestamp`` without a zone are UTC."""
    target = arrow_type(type_)
    if type_.name == "timestamp":
        try:
            cast = column.cast(pa.timestamp("us")).cast(target)
        except pa.ArrowInvalid:
            cast = column.cast(target)  # each has a zone
        bounds: tuple[date, date] = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    else:
        cast = column.cast(target)
        bounds = (date.min, date.max) if type_.name == "date" else (datetime.min, datetime.max)
    least, most = (pa.scalar(bound, target) for bound in bounds)
    return None if _any(pc.or_(pc.less(cast, least), pc.greater(cast, most))) else cast


def _any(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(column).as_py())
