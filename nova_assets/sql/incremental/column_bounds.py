"""Bounds of the values in a column, by which Spark skips files and row groups without such values."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_FIRST_YEAR, _LAST_YEAR, _ONE_DAY = 1600, 9000, timedelta(days=1)
"""Spark passes bounds to the reader of Parquet files as ``java.sql.Date``, which is another day before the Gregorian
calendar, and for a day that the time zone left out. So such years have no bounds, and other bounds are a day wider.
"""


class ColumnBounds(NamedTuple):
    """Bounds of a column's values, and whether it has nulls. Dates are texts such as ``2024-01-31``."""

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
            if low.year < _FIRST_YEAR or high.year > _LAST_YEAR:
                continue
            low, high = (low - _ONE_DAY).isoformat(), (high + _ONE_DAY).isoformat()
        found[name] = ColumnBounds(low, high, values.null_count > 0, pa.types.is_date(values.type))
    return found


def columns_with_true(rows: pa.Table) -> frozenset[str]:
    """Names of the columns with at least one value that is true."""
    flags = [f.name for f in rows.schema if pa.types.is_boolean(f.type)]
    return frozenset(name for name in flags if pc.any(rows.column(name)).as_py())


def _has_order_of_spark(type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in (pa.types.is_integer, pa.types.is_date, pa.types.is_string))
