"""Values of partition columns and scope variables, parsed from partition names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, tzinfo
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

Value: TypeAlias = Any
"""A str, int, Decimal, float, bool, date, datetime (with its time zone), None, or ``UNKNOWN``."""

Key: TypeAlias = tuple[str, str]
"""A column: its source in the query, and its name. A variable has the source ``""``."""

Values: TypeAlias = Mapping[Key, Value]

ValueFunction: TypeAlias = Callable[[Values], Value]


class _Unknown:
    """A value that depends on data."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


def is_true_or_unknown(value: Value) -> bool:
    """Whether a row may pass a condition with this value."""
    return value is True or value is UNKNOWN


TYPES_READ_FROM_NAMES = frozenset("string date timestamp timestamp_ntz boolean tinyint smallint int bigint".split())
"""Spark types whose values can be parsed from partition names."""


def parse_partition_value(text: str | None, type_: str, tz: str | None = None) -> Value:
    """The value of a partition column, parsed from the partition's name.

    Args:
        type_: the column's Spark type.
        tz: the time zone of timestamps without a zone.

    Raises:
        ValueError: the text is no value of the type.
    """
    if text is None:
        return None
    if type_ == "date":
        return _parse_date(text)
    if type_ in ("timestamp", "timestamp_ntz"):
        return _parse_timestamp(text, ZoneInfo(tz or "UTC"))
    if type_ == "boolean":
        return _parse_boolean(text)
    return int(text) if type_ in ("tinyint", "smallint", "int", "bigint") else text


def _parse_date(text: str) -> date:
    match = re.fullmatch(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a date")
    year, month, day = (int(g or 1) for g in match.groups())
    return date(year, month, day)


def _parse_timestamp(text: str, zone: tzinfo) -> datetime:
    if re.fullmatch(r"\s*\d{4}(-\d{1,2}){0,2}\s*", text):
        day = _parse_date(text)
        return datetime(day.year, day.month, day.day, tzinfo=zone)
    moment = datetime.fromisoformat(text.strip())
    return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment.astimezone(zone)


def _parse_boolean(text: str) -> bool:
    lower_text = text.strip().lower()
    if lower_text not in ("true", "t", "yes", "y", "1", "false", "f", "no", "n", "0"):
        raise ValueError(f"{text!r} is neither true nor false")
    return lower_text in ("true", "t", "yes", "y", "1")
