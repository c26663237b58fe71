"""Values in the order that Spark gives them."""

from __future__ import annotations

import math
from typing import Any


def spark_sort_key(value: Any) -> tuple[int, Any]:
    """Where a value of an ``order_by`` column stands: nulls least, NaN greatest, as Spark has it."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)
