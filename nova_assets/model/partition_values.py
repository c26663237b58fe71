"""Values of partition columns as people write them, in the form that names of partitions contain."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from nova_assets.errors import PartitionError
from nova_assets.model.schema import DataType, Schema

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def value_text(column: str, value: object, schema: Schema | None) -> str | None:
    """Text of a value in the name of a partition, which is that of Spark: ``7``, ``true``, ``2024-01-05``.

    Args:
        schema: columns of the channel, of which the type of the value follows; None if they are unknown.

    Raises:
        PartitionError: the column cannot have the value, or the value does not say which value of the column it is.
    """
    if value is None:
        return None
    type_name = schema.field(column).type.name if schema is not None and column in schema else ""
    text = _FORMATS.get(type_name, _text_of_any)(value)
    if text is None:
        raise PartitionError(
            f"partitions of {column!r} have no {value!r}",
            found=repr(value),
            expected=_EXPECTED.get(type_name, "a text"),
            column=column,
        )
    return text


def _text_of_any(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def _text_of_string(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _text_of_boolean(value: object) -> str | None:
    text = str(value).lower() if isinstance(value, bool | str) else ""
    return text if text in ("true", "false") else None


def _text_of_whole_number(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return str(int(value)) if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) else None


def _text_of_date(value: object) -> str | None:
    if isinstance(value, datetime):
        is_day = value.tzinfo is None and value.time() == time()
        return value.date().isoformat() if is_day else None
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        return None


_FORMATS = {
    "string": _text_of_string,
    "boolean": _text_of_boolean,
    "date": _text_of_date,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _text_of_whole_number),
}

_EXPECTED = {
    "boolean": "true or false",
    "date": "a date, YYYY-MM-DD",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "a whole number, such as 7"),
}


FLOATS = frozenset({"float", "double"})


def canonical_value(value: Any) -> Any:
    """Canonical form of a Python value. Two values are equal if the ``repr`` of their canonical forms is equal."""
    # Spark, Arrow and Python disagree on zeros: 0.0 and -0.0 would be two live rows of one key (R11).
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {name: canonical_value(v) for name, v in value.items()}
    if isinstance(value, list):
        found = [canonical_value(v) for v in value]
        return sorted(found, key=repr) if found and all(isinstance(v, tuple) for v in found) else found
    if isinstance(value, tuple):  # map entries are tuples
        return tuple(canonical_value(v) for v in value)
    return value


def has_unequal_representations(type_: DataType) -> bool:
    """Whether values of a type can be equal without being identical."""
    return type_.name in FLOATS or any(has_unequal_representations(f.type) for f in type_.fields)


def can_be_key(type_: DataType) -> bool:
    """Whether a type can be part of a key: Spark cannot group by maps, at any depth."""
    return type_.name != "map" and all(can_be_key(f.type) for f in type_.fields)


def spark_sort_key(value: Any) -> tuple[int, Any]:
    """Sort key of a value of an ``order_by`` column: nulls first, NaN last, as in Spark."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)


_HOUR = timedelta(hours=1)


def start_of_clock_hour(moment: datetime, zone: ZoneInfo) -> datetime:
    """Start, in the zone, of the clock hour that contains a moment."""
    hour_start = moment.astimezone(zone)
    while past_full_hour := _time_since_full_hour(hour_start):
        hour_start = (hour_start.astimezone(UTC) - past_full_hour).astimezone(zone)
    return hour_start


def start_of_next_clock_hour(hour_start: datetime, zone: ZoneInfo) -> datetime:
    """Start, in the zone, of the clock hour after the one that starts at ``hour_start``."""
    following = (hour_start.astimezone(UTC) + _HOUR).astimezone(zone)
    while past_full_hour := _time_since_full_hour(following):
        following = (following.astimezone(UTC) + (_HOUR - past_full_hour)).astimezone(zone)
    return following


def starts_of_clock_hours(first: datetime, last: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Starts, in the zone, of all clock hours from the one that contains ``first`` up to ``last``."""
    hour, end = start_of_clock_hour(first, zone), last.astimezone(UTC)
    while hour.astimezone(UTC) <= end:
        yield hour
        hour = start_of_next_clock_hour(hour, zone)


def _time_since_full_hour(local: datetime) -> timedelta:
    return timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
