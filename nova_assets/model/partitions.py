"""Partition dimensions of a channel (R13), and how a partition is written as text.

A partition is named ``dt=2024-01-01/action=login``: the dimensions in the channel's order, with ``% / = \\`` and
whatever cannot be printed written as ``%XX``. Some of the dimensions alone name a *scope*: all partitions that agree
with it. An unpartitioned channel has the one partition ``""``, which is also the scope of everything.

Names are never part of a path: the files of a block lie in a folder of the block's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nova_assets.errors import DefinitionError, PartitionError
from nova_assets.model.local_hours import next_clock_hour
from nova_assets.model.period import EXPECTED, seconds_of
from nova_assets.model.schema import DataType, Schema
from nova_assets.model.type_checks import typed
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean

WHOLE = ""
"""The partition of a channel or binding that has none."""

LONGEST_NAME = 2000
"""In bytes: PostgreSQL indexes no more than about 2,700."""

_NULL = "__null__"

_NEVER = datetime(9990, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Dimension:
    """One partition column.

    Args:
        column: its name; belongs to the key of a keyed channel.
        kind: ``daily`` and ``hourly`` follow the calendar from ``start`` in zone ``tz``; ``static`` has fixed
            ``values``; ``dynamic`` takes whatever the data brings.
        of: of a calendar: the column with the moment from which the partition follows, where rows do not say it.
        keep: of a calendar: for how long after its end a partition is kept, such as ``"90d"``; then it is dropped
            (R19). It is no part of the definition: it may change from one day to the next.
        end, lag, last: of a calendar that tasks fill: the last partition that one does, how many of the newest none
            does yet, and how many there are at once. No part of the definition either: they say what to expect, and
            forbid nothing.
    """

    __repr__ = short_repr

    column: str
    kind: Literal["daily", "hourly", "static", "dynamic"]
    start: str | None = None
    tz: str | None = None
    values: tuple[str, ...] = ()
    of: str | None = None
    keep: str | None = field(default=None, compare=False)
    end: str | None = field(default=None, compare=False)
    lag: int = field(default=0, compare=False)
    last: int | None = field(default=None, compare=False)

    @property
    def types(self) -> tuple[str, ...]:
        """The types that the column may have."""
        if self.kind == "daily":
            return ("date", "string")
        if self.kind == "hourly":
            return ("timestamp", "timestamp_ntz", "string")
        return ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date")

    def derived_type(self, schema: Schema | None) -> DataType:
        """The type of the column where it follows from another: as declared, or as the calendar has it."""
        if schema is not None and self.column in schema:
            return schema.field(self.column).type
        return DataType("date" if self.kind == "daily" else "timestamp")

    def cannot_derive(self, found: Sequence[str]) -> PartitionError:
        """The error for rows from which the partition does not follow."""
        return PartitionError(
            f"partition column {self.column!r} follows from {self.of!r}, which is not there as a moment",
            found=f"columns {', '.join(found)}",
            expected=f"{self.of} timestamp, or {self.column} itself",
            column=self.column,
        )

    def parse(self, value: str | None) -> str | None:
        """A value as a person writes it, in the one way in which this dimension writes it.

        Raises:
            PartitionError: the dimension has no such value.
        """
        if self.kind == "dynamic":
            return value
        if value is None:
            raise self._no_value(value, "a value: only dynamic partitions have one for null")
        if self.kind == "static":
            if value not in self.values:
                raise self._no_value(value, f"one of {_some(self.values)}", did_you_mean(value, self.values))
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise self._no_value(value, f"{self._pattern}, from {self.start} on") from None
        return self.of_moment(moment, value)

    def of_moment(self, moment: datetime, written: str | None = None) -> str:
        """The calendar partition that *is* this moment (not: that holds it).

        Args:
            moment: with a zone, or on the dimension's own clock.
            written: how a person wrote it, for the error.

        Raises:
            PartitionError: it lies before the start, or between two partitions.
        """
        zone = ZoneInfo(self.tz or "UTC")
        local = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment.astimezone(zone)
        hour = 0 if self.kind == "daily" else local.hour
        whole = local.replace(hour=hour, minute=0, second=0, microsecond=0)
        begins = datetime.fromisoformat(self.start or "0001-01-01")
        if local != whole or local < (begins.replace(tzinfo=zone) if begins.tzinfo is None else begins):
            raise self._no_value(
                written or moment.isoformat(), f"{self._pattern}, from {self.start} on, in zone {zone.key}"
            )
        if self.kind == "daily":
            return local.date().isoformat()
        plain = local.strftime("%Y-%m-%dT%H:00")
        # An hour that a change of clocks repeats has two partitions; the second says its offset, as in Dagster.
        return plain + local.strftime("%z") if local.fold else plain

    def ends(self, value: str | None) -> datetime | None:
        """When a partition of the calendar is over; None where nothing says."""
        if self.kind not in ("daily", "hourly") or value is None:
            return None
        local = datetime.fromisoformat(value)
        zone = ZoneInfo(self.tz or "UTC")
        try:
            if self.kind == "daily":  # by its own clock: some days have 23 hours
                return (local + timedelta(days=1)).replace(tzinfo=zone)
            begins = local if local.tzinfo is not None else local.replace(tzinfo=zone)
            return next_clock_hour(begins, zone).astimezone(UTC)
        except OverflowError:  # the last day of all, which some write for "never"
            return _NEVER

    @property
    def _pattern(self) -> str:
        return "YYYY-MM-DD" if self.kind == "daily" else "YYYY-MM-DDTHH:00"

    def _no_value(self, value: object, expected: str, meant: str = "") -> PartitionError:
        said = "rows without a value" if value is None else _shown(value)
        return PartitionError(
            f"{self.kind} partitions of {self.column!r} have no {said}{meant}",
            found="null" if value is None else said,
            expected=expected,
            next=f"give each row its {self.column}, or name the partition that all are of" if value is None else None,
            column=self.column,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "kind": self.kind,
            "start": self.start,
            "tz": self.tz,
            "values": list(self.values),
            **({"of": self.of} if self.of is not None else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Dimension:
        return Dimension(data["column"], data["kind"], data["start"], data["tz"], tuple(data["values"]), data.get("of"))


@typed("nova.daily")
def daily(
    column: str, start: str | date, tz: str = "UTC", *, of: str | None = None, keep: str | None = None
) -> Dimension:
    """A partition for every day from ``start`` (``YYYY-MM-DD``) on, in zone ``tz``.

    Args:
        of: a column of moments from which the day follows, for data that has no column of days.
        keep: ``"90d"``: for how long after its end a day is kept; then upkeep drops it (R19).
    """
    return Dimension(column, "daily", _start(column, start), _zone(column, tz), of=of, keep=_keep(column, keep))


@typed("nova.hourly")
def hourly(
    column: str, start: str | datetime, tz: str = "UTC", *, of: str | None = None, keep: str | None = None
) -> Dimension:
    """A partition for every hour from ``start`` (``YYYY-MM-DD`` or ``YYYY-MM-DDTHH:MM``) on, in zone ``tz``.

    Args:
        of: a column of moments from which the hour follows, for data that has no column of hours.
        keep: ``"7d"``: for how long after its end an hour is kept; then upkeep drops it (R19).
    """
    return Dimension(column, "hourly", _start(column, start), _zone(column, tz), of=of, keep=_keep(column, keep))


@typed("nova.static")
def static(column: str, values: list[str] | tuple[str, ...]) -> Dimension:
    """A partition for each of these values and no other."""
    if not values or len(set(values)) != len(values):
        raise DefinitionError(
            f"static partitions of {column!r} need one value or several different ones", found=repr(values)
        )
    return Dimension(column, "static", values=tuple(values))


@typed("nova.dynamic")
def dynamic(column: str) -> Dimension:
    """A partition for each value that turns up in the data."""
    return Dimension(column, "dynamic")


def partition_name(columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """``dt=2024-01-01/action=a%2Fb``: the partition (or, of some of the columns, the scope) with these values.

    Raises:
        PartitionError: the name would be longer than a catalog can index.
    """
    name = "/".join(f"{_escape(c)}={value_as_text(values[c])}" for c in columns)
    if len(name.encode()) > LONGEST_NAME:
        raise PartitionError(
            f"a partition's name is {len(name.encode())} bytes long",
            found=name[:80] + "...",
            expected=f"at most {LONGEST_NAME} bytes for all its values together",
            next="partition by a shorter column, such as a hash of this one",
        )
    return name


def partition_values(name: str) -> dict[str, str | None]:
    """The values in a partition's or scope's name.

    Raises:
        PartitionError: it is no such name.
    """
    found: dict[str, str | None] = {}
    for part in filter(None, name.split("/")):
        column, equals, value = part.partition("=")
        if not equals:
            raise PartitionError(f"{part!r} names no partition", found=name, expected="COLUMN=VALUE, joined by /")
        if unquote(column) in found:
            raise PartitionError(f"{unquote(column)!r} is said twice", found=name, expected="each dimension once")
        found[unquote(column)] = text_as_value(value)
    return found


def value_as_text(value: str | None) -> str:
    """A value as a name has it; ``text_as_value`` gives it back."""
    return _NULL if value is None else "%5F" + value[1:] if value == _NULL else _escape(value)


def text_as_value(text: str) -> str | None:
    return None if text == _NULL else unquote(text)


def within(partition: str, scope: str) -> bool:
    """Whether a partition lies in a scope: the name of a partition, or of some of its dimensions; ``""`` is all."""
    return not scope or partition == scope or set(scope.split("/")) <= set(partition.split("/"))


def agree(scope: str, other: str) -> bool:
    """Whether two scopes have partitions in common: no dimension has one value here and another there."""
    values = partition_values(other)
    return all(values.get(column, value) == value for column, value in partition_values(scope).items())


def scope_of(columns: Sequence[str], partition: str) -> str:
    """What a partition says of these columns: the scope in which a channel with such dimensions is read."""
    values = partition_values(partition)
    return partition_name([c for c in columns if c in values], values)


def single_in(columns: Sequence[str], scope: str) -> str | None:
    """The one partition that is in a scope, where it names all of a channel's dimensions: ``""`` where there are
    none."""
    values = partition_values(scope)
    return partition_name(columns, values) if set(values) == set(columns) else None


def parse_partition(dimensions: Sequence[Dimension], given: str | Mapping[str, object], *, partly: bool = False) -> str:
    """The name of the partition that a person means.

    Args:
        dimensions: of the channel or binding.
        given: ``dt=2024-01-01/action=login`` with the dimensions in any order; where there is but one, its bare value
            will do, unless it has a ``=``; or a mapping.
        partly: some of the dimensions are enough.

    Raises:
        PartitionError: it is none of these, or a value is none that a dimension has.
    """
    columns = [d.column for d in dimensions]
    shape = "/".join(f"{c}=..." for c in columns) or "no partition: there are no dimensions"
    values: dict[str, str | None]
    if isinstance(given, Mapping):
        values = {str(c): None if v is None else str(v) for c, v in given.items()}
    elif len(columns) == 1 and "=" not in given:
        values = {columns[0]: given}
    else:
        values = partition_values(given) if "=" in given else {}
    if not columns and given:
        raise PartitionError(f"{_shown(given)} names no partition", found=_shown(given), expected=shape)
    lacking = [] if partly and values and columns else [c for c in columns if c not in values]
    if lacking or set(values) - set(columns):
        meant = "".join(did_you_mean(c, lacking or columns) for c in sorted(set(values) - set(columns))[:1])
        raise PartitionError(f"{_shown(given)} names no partition{meant}", found=_shown(given), expected=shape)
    for d in dimensions:
        if d.column in values:
            values[d.column] = d.parse(values[d.column])
    return partition_name([c for c in columns if c in values], values)


def _shown(given: object) -> str:
    text = str(given)
    return repr(text if len(text) <= 100 else text[:97] + "...")


def _escape(text: str) -> str:
    """Whatever could be taken for a part of the name's own syntax, or hides on a screen, as ``%XX``."""
    return "".join(c if c.isprintable() and c not in "%/=\\" else quote(c, safe="") for c in text)


def _some(values: Sequence[str]) -> str:
    return ", ".join(values[:10]) + (f" and {len(values) - 10} more" if len(values) > 10 else "")


def _start(column: str, start: str | date) -> str:
    text = start if isinstance(start, str) else start.isoformat()
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise DefinitionError(
            f"partitions of {column!r} start at no date", found=repr(start), expected="YYYY-MM-DD"
        ) from error
    return text


def _keep(column: str, keep: str | None) -> str | None:
    if keep is not None and seconds_of(keep) is None:
        raise DefinitionError(
            f"partitions of {column!r} are kept for an unreadable period", found=repr(keep), expected=EXPECTED
        )
    return keep


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
