"""Sort order of values, as in Spark."""

from __future__ import annotations

import math
from typing import Any


def spark_sort_key(value: Any) -> tuple[int, Any]:
    """Sort key of a value of an ``order_by`` column: nulls first, NaN last, as in Spark."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)
