"""Partition dimensions of a channel (R13), and how a partition is written as text.

A partition is named ``dt=2024-01-01/action=login``: the dimensions in the channel's order, values escaped so that the
name is safe as a path. An unpartitioned channel has the one partition ``""``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nova_assets.errors import DefinitionError

WHOLE = ""
"""The partition of a channel or binding that has none."""

_NULL = "__null__"


@dataclass(frozen=True, slots=True)
class Dimension:
    """One partition column.

    Args:
        column: its name; belongs to the key of a keyed channel.
        kind: ``daily`` and ``hourly`` follow the calendar from ``start`` in zone ``tz``; ``static`` has fixed
        ``values``;
            ``dynamic`` takes whatever the data brings.
    """

    column: str
    kind: Literal["daily", "hourly", "static", "dynamic"]
    start: str | None = None
    tz: str | None = None
    values: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "kind": self.kind,
            "start": self.start,
            "tz": self.tz,
            "values": list(self.values),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Dimension:
        return Dimension(data["column"], data["kind"], data["start"], data["tz"], tuple(data["values"]))


def daily(column: str, start: str | date, tz: str = "UTC") -> Dimension:
    """A partition for every day from ``start`` (``YYYY-MM-DD``) on, in zone ``tz``."""
    return Dimension(column, "daily", _start(column, start), _zone(column, tz))


def hourly(column: str, start: str | datetime, tz: str = "UTC") -> Dimension:
    """A partition for every hour from ``start`` (``YYYY-MM-DD`` or ``YYYY-MM-DDTHH:MM``) on, in zone ``tz``."""
    return Dimension(column, "hourly", _start(column, start), _zone(column, tz))


def static(column: str, values: list[str] | tuple[str, ...]) -> Dimension:
    """A partition for each of these values and no other."""
    if not values or len(set(values)) != len(values):
        raise DefinitionError(
            f"static partitions of {column!r} need one value or several different ones", found=repr(values)
        )
    return Dimension(column, "static", values=tuple(values))


def dynamic(column: str) -> Dimension:
    """A partition for each value that turns up in the data."""
    return Dimension(column, "dynamic")


def partition_name(columns: tuple[str, ...], values: Mapping[str, object]) -> str:
    """``dt=2024-01-01/action=a%2Fb``. Raises KeyError for a missing column."""
    return "/".join(
        f"{quote(c, safe='')}={_NULL if values[c] is None else quote(str(values[c]), safe='')}" for c in columns
    )


def partition_values(name: str) -> dict[str, str | None]:
    """The values in a partition's name."""
    pairs = (part.split("=", 1) for part in name.split("/") if part)
    return {unquote(c): None if v == _NULL else unquote(v) for c, v in pairs}


def _start(column: str, start: str | date) -> str:
    text = start if isinstance(start, str) else start.isoformat()
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise DefinitionError(
            f"partitions of {column!r} start at no date", found=repr(start), expected="YYYY-MM-DD"
        ) from error
    return text


def _zone(column: str, tz: str) -> str:
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise DefinitionError(
            f"partitions of {column!r} have an unknown zone",
            found=tz,
            expected='a name such as "UTC" or "Europe/Paris"',
        ) from error
    return tz
