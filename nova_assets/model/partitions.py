r"""Partition dimensions of a channel (R13), and the text form of a partition.

A partition is named ``dt=2024-01-01/action=login``: the dimensions in the channel's order. The characters ``% / = \``
and all unprintable characters are escaped as ``%XX``. A subset of the dimensions names a *scope*: all partitions with
these values. An unpartitioned channel has the single partition ``""``, which is also the scope of everything.

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
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.json_form import NOT_IN_JSON, JsonForm, json_key
from nova_assets.model.partition_values import start_of_next_clock_hour, value_text
from nova_assets.model.period import check_keep_period
from nova_assets.model.schema import DataType, Schema
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean

WHOLE = ""
"""Partition of an unpartitioned channel or binding."""

MAX_NAME_BYTES = 2000
"""Longest name of a partition, in bytes: PostgreSQL indexes no more than about 2,700."""

_NULL_TEXT = "__null__"

_LATEST_MOMENT = datetime(9990, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Dimension(JsonForm):
    """One partition column.

    Args:
        column: name of the column; belongs to the key of a keyed channel.
        kind: ``daily`` and ``hourly`` follow the calendar from ``start`` in zone ``tz``; ``static`` has fixed
            ``values``; ``dynamic`` accepts every value in the data.
        of: for a calendar: the timestamp column from which the partition is derived, if rows lack the partition column.
        keep: for a calendar: how long a partition is kept after its end, such as ``"90d"``. After that it is dropped
            (R19). Not part of the definition, so it may change at any time.
        end, lag, last: for a calendar that tasks fill: the last partition to fill, the number of newest partitions to
            leave out, and the number of partitions that exist at once. Not part of the definition either: these values
            describe expectations and forbid nothing.
    """

    __repr__ = short_repr

    column: str
    kind: Literal["daily", "hourly", "static", "dynamic"]
    start: str | None = None
    tz: str | None = None
    values: tuple[str, ...] = ()
    of: str | None = field(default=None, metadata=json_key(omit_default=True))
    keep: str | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    end: str | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    lag: int = field(default=0, compare=False, metadata=NOT_IN_JSON)
    last: int | None = field(default=None, compare=False, metadata=NOT_IN_JSON)

    @property
    def allowed_column_types(self) -> tuple[str, ...]:
        """Types that the column may have."""
        if self.kind == "daily":
            return ("date", "string")
        if self.kind == "hourly":
            return ("timestamp", "timestamp_ntz", "string")
        return ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date")

    def derived_type(self, schema: Schema | None) -> DataType:
        """Type of a derived column: as declared in the schema, or by default the type of the calendar."""
        if schema is not None and self.column in schema:
            return schema.field(self.column).type
        return DataType("date" if self.kind == "daily" else "timestamp")

    def derivation_error(self, column_names: Sequence[str]) -> PartitionError:
        """Error for rows without the timestamp from which the partition is derived."""
        return PartitionError(
            f"partition column {self.column!r} is derived from {self.of!r}, which is missing or no timestamp",
            found=f"columns {', '.join(column_names)}",
            expected=f"{self.of} timestamp, or {self.column} itself",
            column=self.column,
        )

    def parse(self, value: str | None) -> str | None:
        """Canonical form of a value that a person wrote.

        Raises:
            PartitionError: the dimension has no such value.
        """
        if self.kind == "dynamic":
            return value
        if value is None:
            raise self._invalid_value_error(value, "a value: only dynamic partitions have one for null")
        if self.kind == "static":
            if value not in self.values:
                raise self._invalid_value_error(
                    value, f"one of {_format_some_values(self.values)}", did_you_mean(value, self.values)
                )
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise self._invalid_value_error(value, f"{self._value_pattern}, from {self.start} on") from None
        return self.partition_starting_at(moment, value)

    def partition_starting_at(self, moment: datetime, written_text: str | None = None) -> str:
        """Calendar partition that starts exactly at this moment.

        Args:
            moment: with a zone, or in the local time of the dimension.
            written_text: the person's spelling, for the error.

        Raises:
            PartitionError: the moment lies before the start of the calendar, or inside a partition.
        """
        zone = ZoneInfo(self.tz or "UTC")
        local = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment.astimezone(zone)
        hour = 0 if self.kind == "daily" else local.hour
        partition_start = local.replace(hour=hour, minute=0, second=0, microsecond=0)
        if local != partition_start or local < self.first_moment:
            raise self._invalid_value_error(
                written_text or moment.isoformat(), f"{self._value_pattern}, from {self.start} on, in zone {zone.key}"
            )
        if self.kind == "daily":
            return local.date().isoformat()
        start_text = local.strftime("%Y-%m-%dT%H:00")
        # An hour that a clock change repeats has two partitions. The second carries its offset, as in Dagster.
        return start_text + local.strftime("%z") if local.fold else start_text

    def partition_end(self, value: str | None) -> datetime | None:
        """End of a calendar partition; None for other kinds and for null."""
        if self.kind not in ("daily", "hourly") or value is None:
            return None
        local = datetime.fromisoformat(value)
        zone = ZoneInfo(self.tz or "UTC")
        try:
            if self.kind == "daily":  # in local time: some days have 23 hours
                return (local + timedelta(days=1)).replace(tzinfo=zone)
            begins = local if local.tzinfo is not None else local.replace(tzinfo=zone)
            return start_of_next_clock_hour(begins, zone).astimezone(UTC)
        except OverflowError:  # 9999-12-31, which some data uses for "never"
            return _LATEST_MOMENT

    @property
    def first_moment(self) -> datetime:
        """Moment at which the first partition of a calendar starts."""
        start = datetime.fromisoformat(self.start or "0001-01-01")
        return start if start.tzinfo is not None else start.replace(tzinfo=ZoneInfo(self.tz or "UTC"))

    @property
    def _value_pattern(self) -> str:
        return "YYYY-MM-DD" if self.kind == "daily" else "YYYY-MM-DDTHH:00"

    def _invalid_value_error(self, value: object, expected: str, suggestion: str = "") -> PartitionError:
        value_text = "rows without a value" if value is None else _format_value(value)
        return PartitionError(
            f"{self.kind} partitions of {self.column!r} have no {value_text}{suggestion}",
            found="null" if value is None else value_text,
            expected=expected,
            next=f"fill {self.column} in every row, or name the partition of all rows" if value is None else None,
            column=self.column,
        )


@check_argument_types("nova.daily")
def daily(
    column: str, start: str | date, tz: str = "UTC", *, of: str | None = None, keep: str | None = None
) -> Dimension:
    """One partition for each day from ``start`` (``YYYY-MM-DD``) on, in the time zone ``tz``.

    Args:
        column: name of the partition column.
        start: the first day.
        tz: name of the time zone.
        of: timestamp column from which the day is derived, for data without a column of days.
        keep: period for which a day is kept after its end, such as ``"90d"``. Then maintenance drops the day (R19).
    """
    return Dimension(
        column,
        "daily",
        _parse_start(column, start),
        _check_zone(column, tz),
        of=of,
        keep=check_keep_period(column, keep),
    )


@check_argument_types("nova.hourly")
def hourly(
    column: str, start: str | datetime, tz: str = "UTC", *, of: str | None = None, keep: str | None = None
) -> Dimension:
    """One partition for each hour from ``start`` (``YYYY-MM-DD`` or ``YYYY-MM-DDTHH:MM``) on, in the time zone ``tz``.

    Args:
        column: name of the partition column.
        start: the first hour.
        tz: name of the time zone.
        of: timestamp column from which the hour is derived, for data without a column of hours.
        keep: period for which an hour is kept after its end, such as ``"7d"``. Then maintenance drops the hour (R19).
    """
    return Dimension(
        column,
        "hourly",
        _parse_start(column, start),
        _check_zone(column, tz),
        of=of,
        keep=check_keep_period(column, keep),
    )


@check_argument_types("nova.static")
def static(column: str, values: list[str] | tuple[str, ...]) -> Dimension:
    """One partition for each of these values. Other values are rejected."""
    if not values or len(set(values)) != len(values):
        raise DefinitionError(
            f"static partitions of {column!r} need one value or several different ones", found=repr(values)
        )
    return Dimension(column, "static", values=tuple(values))


@check_argument_types("nova.dynamic")
def dynamic(column: str) -> Dimension:
    """One partition for each value that occurs in the data."""
    return Dimension(column, "dynamic")


def partition_name(columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """``dt=2024-01-01/action=a%2Fb``: name of the partition with these values; of a scope, given some of the columns.

    Raises:
        PartitionError: the name would be longer than a catalog can index.
    """
    name = "/".join(f"{_escape_text(c)}={format_value_text(values[c])}" for c in columns)
    if len(name.encode()) > MAX_NAME_BYTES:
        raise PartitionError(
            f"a partition's name is {len(name.encode())} bytes long",
            found=name[:80] + "...",
            expected=f"at most {MAX_NAME_BYTES} bytes for all its values together",
            next="partition by a shorter column, such as a hash of this one",
        )
    return name


def partition_values(name: str) -> dict[str, str | None]:
    """Column -> value, parsed from the name of a partition or scope.

    Raises:
        PartitionError: the text is not such a name.
    """
    value_by_column: dict[str, str | None] = {}
    for part in filter(None, name.split("/")):
        column, equals, value = part.partition("=")
        if not equals:
            raise PartitionError(f"{part!r} names no partition", found=name, expected="COLUMN=VALUE, joined by /")
        if unquote(column) in value_by_column:
            raise PartitionError(f"{unquote(column)!r} occurs twice", found=name, expected="each dimension once")
        value_by_column[unquote(column)] = parse_value_text(value)
    return value_by_column


def format_value_text(value: str | None) -> str:
    """Value as escaped in a partition name; ``parse_value_text`` is the inverse."""
    return _NULL_TEXT if value is None else "%5F" + value[1:] if value == _NULL_TEXT else _escape_text(value)


def parse_value_text(text: str) -> str | None:
    return None if text == _NULL_TEXT else unquote(text)


def is_in_scope(partition: str, scope: str) -> bool:
    """Whether a partition lies in a scope: a partition name, or some of its dimensions; ``""`` means all partitions."""
    return not scope or partition == scope or set(scope.split("/")) <= set(partition.split("/"))


def scopes_overlap(scope: str, other_scope: str) -> bool:
    """Whether two scopes share partitions, that is, no dimension has different values in the two scopes."""
    values = partition_values(other_scope)
    return all(values.get(column, value) == value for column, value in partition_values(scope).items())


def scope_for_columns(columns: Sequence[str], partition: str) -> str:
    """Scope of a channel with these partition columns that matches a partition of another channel or binding."""
    values = partition_values(partition)
    return partition_name([c for c in columns if c in values], values)


def single_partition_in_scope(columns: Sequence[str], scope: str) -> str | None:
    """The only partition in a scope that names all dimensions of a channel, else None; ``""`` for an unpartitioned
    channel.
    """
    values = partition_values(scope)
    return partition_name(columns, values) if set(values) == set(columns) else None


def parse_partition(
    dimensions: Sequence[Dimension],
    name_or_values: str | Mapping[str, object],
    *,
    allow_scope: bool = False,
    schema: Schema | None = None,
) -> str:
    """Canonical name of the partition that a person wrote.

    Args:
        dimensions: dimensions of the channel or binding.
        name_or_values: ``dt=2024-01-01/action=login`` with the dimensions in any order, or a mapping. For a single
            dimension the bare value suffices, unless it contains ``=``.
        allow_scope: accept a subset of the dimensions.
        schema: columns of the channel. By their types, ``07`` and ``7`` are one value of a dynamic dimension.

    Raises:
        PartitionError: the input has another form, or a value that its dimension does not have.
    """
    columns = [d.column for d in dimensions]
    expected_form = "/".join(f"{c}=..." for c in columns) or "no partition: there are no dimensions"
    values: dict[str, Any]
    if isinstance(name_or_values, Mapping):
        values = {str(c): v for c, v in name_or_values.items()}
    elif len(columns) == 1 and "=" not in name_or_values:
        values = {columns[0]: name_or_values}
    else:
        values = partition_values(name_or_values) if "=" in name_or_values else {}
    missing_columns = [] if allow_scope and values and columns else [c for c in columns if c not in values]
    unknown_columns = sorted(set(values) - set(columns))
    if missing_columns or unknown_columns or (name_or_values and not columns):
        suggestion = "".join(did_you_mean(c, missing_columns or columns) for c in unknown_columns[:1])
        raise PartitionError(
            f"{_format_value(name_or_values)} names no partition{suggestion}",
            found=_format_value(name_or_values),
            expected=expected_form,
        )
    for d in dimensions:
        if d.column in values:
            by_type = schema if d.kind == "dynamic" else None
            values[d.column] = d.parse(value_text(d.column, values[d.column], by_type))
    return partition_name([c for c in columns if c in values], values)


def _format_value(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 100 else text[:97] + "...")


def _escape_text(text: str) -> str:
    """Text with ``%XX`` for characters of the name syntax and for unprintable characters."""
    return "".join(c if c.isprintable() and c not in "%/=\\" else quote(c, safe="") for c in text)


def _format_some_values(values: Sequence[str]) -> str:
    return ", ".join(values[:10]) + (f" and {len(values) - 10} more" if len(values) > 10 else "")


def _parse_start(column: str, start: str | date) -> str:
    text = start if isinstance(start, str) else start.isoformat()
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise DefinitionError(
            f"the start of the partitions of {column!r} is not a date", found=repr(start), expected="YYYY-MM-DD"
        ) from error
    return text


def _check_zone(column: str, tz: str) -> str:
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise DefinitionError(
            f"partitions of {column!r} have an unknown zone",
            found=tz,
            expected='a name such as "UTC" or "Europe/Paris"',
        ) from error
    return tz
