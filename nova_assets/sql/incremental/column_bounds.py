"""Bounds of the values in a column, by which Spark skips files and row groups without such values."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class ColumnBounds(NamedTuple):
    """The least and the greatest value of a column, and whether it has nulls."""

    low: Any
    high: Any
    has_nulls: bool


def column_bounds(rows: pa.Table) -> dict[str, ColumnBounds]:
    """Bounds of the columns whose order is the same here as in Spark, and that have a value."""
    found = {}
    for name in rows.column_names:
        values = rows.column(name)
        if not _has_order_of_spark(values.type):
            continue
        bounds = pc.min_max(values).as_py()
        if bounds["min"] is not None:
            found[name] = ColumnBounds(bounds["min"], bounds["max"], values.null_count > 0)
    return found


def _has_order_of_spark(type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in (pa.types.is_integer, pa.types.is_date, pa.types.is_string))
