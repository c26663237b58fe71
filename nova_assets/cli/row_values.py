"""Values of rows as JSON and as text: exact, and legible to other programs."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def to_json_value(value: Any) -> Any:
    """A value as JSON has it.

    Moments are ISO 8601, decimals text (JSON numbers would round them), bytes Base64, maps lists of [key, value], and
    the floats that JSON lacks are the texts NaN, Infinity and -Infinity, as Spark writes them.
    """
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _format_non_finite(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(k): to_json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(v) for v in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    return str(value)


def format_cell(value: Any) -> str:
    """A value in a table: null is ``null``, text stays as it is, and what is nested is JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    json_value = to_json_value(value)
    return json_value if isinstance(json_value, str) else json.dumps(json_value, ensure_ascii=False)


def _format_non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
