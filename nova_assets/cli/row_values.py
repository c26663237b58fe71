"""Exact conversion of row values to JSON and to text that other programs can parse."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def to_json_value(value: Any) -> Any:
    """Convert a row value to a JSON value.

    Dates and times become ISO 8601 text. Decimals become text, because JSON numbers would round them. Bytes become
    Base64, and maps become lists of [key, value]. Non-finite floats become the texts NaN, Infinity and -Infinity, as in
    Spark.
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
    """Text of a value in a table. Null is ``null``, text stays unchanged, and nested values are JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    json_value = to_json_value(value)
    return json_value if isinstance(json_value, str) else json.dumps(json_value, ensure_ascii=False)


def _format_non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
