"""Bounds of the values in a column, by which Spark skips files and row groups without such values."""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class ColumnBounds(NamedTuple):
    """The least and the greatest value of a column, and whether it has nulls.

    Dates are texts such as ``2024-01-31``: Spark converts a date of Python to another day, if it is long ago.
    """

    low: Any
    high: Any
    has_nulls: bool
    is_date: bool = False


def column_bounds(rows: pa.Table) -> dict[str, ColumnBounds]:
    """Bounds of the columns whose order is the same here as in Spark, and that have a value."""
    found = {}
    for name in rows.column_names:
        values = rows.column(name)
        if not _has_order_of_spark(values.type):
            continue
        try:
            bounds = pc.min_max(values).as_py()
        except (ValueError, OverflowError):  # a date that Python does not have, or a text that is not UTF-8
            continue
        low, high = bounds["min"], bounds["max"]
        if low is None:
            continue
        if isinstance(low, date):
            low, high = low.isoformat(), high.isoformat()
        found[name] = ColumnBounds(low, high, values.null_count > 0, pa.types.is_date(values.type))
    return found


def _has_order_of_spark(type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in (pa.types.is_integer, pa.types.is_date, pa.types.is_string))
