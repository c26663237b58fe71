"""Values of partition columns and of a scope's variables, and how Spark makes two of them alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

Value: TypeAlias = Any
"""A str, int, Decimal, float, bool, date, datetime (with its zone), None; or ``UNKNOWN``."""

Key: TypeAlias = tuple[str, str]
"""A column: its source in the query, and its name. A variable's source is ``""``."""

Values: TypeAlias = Mapping[Key, Value]

Function: TypeAlias = Callable[[Values], Value]


class _Unknown:
    """A value that only data can tell."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


def is_true_or_unknown(value: Value) -> bool:
    """Whether a row may pass a condition of this value."""
    return value is True or value is UNKNOWN


_NUMBERS = (int, Decimal, float)


def alike(a: Value, b: Value, zone: tzinfo) -> tuple[Value, Value]:
    """Two values in a type that both have: a text beside something else becomes what the other is."""
    if type(a) is type(b):
        return a, b
    for one, other, swap in ((a, b, False), (b, a, True)):
        made = _like_other(one, other, zone)
        if made is not None:
            return (other, made) if swap else (made, other)
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) and not isinstance(a, bool) and not isinstance(b, bool):
        return (float(a), float(b)) if isinstance(a, float) or isinstance(b, float) else (a, b)
    raise TypeError(f"{a!r} cannot be compared with {b!r}")


def _like_other(one: Value, other: Value, zone: tzinfo) -> Value | None:
    """A text, or a date beside a moment, as the other's type has it; None where it is neither."""
    if isinstance(one, date) and not isinstance(one, datetime) and isinstance(other, datetime):
        return moment(one, zone)
    if not isinstance(one, str):
        return None
    if isinstance(other, datetime):
        return moment(one, zone)
    if isinstance(other, date):
        return day(one, zone)
    if isinstance(other, bool):
        return boolean(one)
    return number(one) if isinstance(other, _NUMBERS) else None


def same(a: Value, b: Value) -> bool:
    return bool(a == b)


def at_least(a: Value, b: Value) -> bool:
    return bool(a >= b)


def of_one_type(values: Iterable[Value]) -> None:
    """Refuse values of several types: which of them Spark would make of all does not follow from the values.

    Raises:
        TypeError.
    """
    kinds = {type(v) for v in values if v is not None and v is not UNKNOWN}
    if len(kinds) > 1 and not kinds <= {int, Decimal, float}:
        raise TypeError(f"its parts are of several types ({', '.join(sorted(k.__name__ for k in kinds))}); CAST them")


def number(value: Value) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal | float):
        raise TypeError(f"{value!r} is no number")
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{value!r} is no number") from None


def boolean(value: Value) -> bool:
    """A value as true or false."""
    if isinstance(value, bool | int | Decimal | float):
        return bool(value)
    found = {"true": True, "t": True, "yes": True, "y": True, "1": True}.get(str(value).strip().lower())
    if found is None and str(value).strip().lower() not in ("false", "f", "no", "n", "0"):
        raise ValueError(f"{value!r} is neither true nor false")
    return bool(found)


def day(value: Value, zone: tzinfo) -> date:
    """A value as a date."""
    if isinstance(value, datetime):
        return value.astimezone(zone).date()
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        found = re.match(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*$", value)
        if found:
            year, month, of_month = (int(g or 1) for g in found.groups())
            return date(year, month, of_month)
    raise ValueError(f"{value!r} is no date")


def moment(value: Value, zone: tzinfo) -> datetime:
    """A value as a moment, in the zone."""
    if isinstance(value, datetime):
        return value.astimezone(zone)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=zone)
    if isinstance(value, str):
        if re.match(r"\s*\d{4}(-\d{1,2}){0,2}\s*$", value):
            return moment(day(value, zone), zone)
        found = datetime.fromisoformat(value.strip())
        return found.replace(tzinfo=zone) if found.tzinfo is None else found.astimezone(zone)
    raise ValueError(f"{value!r} is no moment")


def value_of_text(text: str | None, type_: str, tz: str | None = None) -> Value:
    """What a partition's name says, as a value of its column's type.

    Raises:
        ValueError: it is none.
    """
    if text is None:
        return None
    zone = ZoneInfo(tz or "UTC")
    if type_ == "date":
        return day(text, zone)
    if type_ in ("timestamp", "timestamp_ntz"):
        return moment(text, zone)
    if type_ == "boolean":
        return boolean(text)
    return int(text) if type_ in ("tinyint", "smallint", "int", "bigint") else text


def as_text(value: Value) -> str:
    """A value as Spark casts it to a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S") + (f".{value:%f}".rstrip("0") if value.microsecond else "")
    return value.isoformat() if isinstance(value, date) else str(value)


def _whole(value: Value, zone: tzinfo) -> int:
    if isinstance(value, bool):
        return int(value)
    found = number(value)
    if isinstance(value, str) and not isinstance(found, int):
        raise ValueError(f"{value!r} is no whole number")
    return int(found)


_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")

CASTS: Mapping[str, Callable[[Value, tzinfo], Value]] = {
    **dict.fromkeys(_WHOLE, _whole),
    "DATE": day,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"), moment),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), lambda v, zone: as_text(v)),
    "BOOLEAN": lambda v, zone: boolean(v),
}
