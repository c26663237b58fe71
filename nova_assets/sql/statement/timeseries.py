"""``TIMESERIES(...)``: the days or hours for which a dataset has partitions, as of now.

TIMESERIES(start => '2022-01-01')                       every day from then on, today's too
TIMESERIES(last => 2)                                   today and yesterday
TIMESERIES('2022-01-01', '2022-03-31', every => '1 hour', tz => 'Europe/Paris')
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

from nova_assets.model.partition_values import start_of_clock_hour, starts_of_clock_hours
from nova_assets.sql.text import SqlText

Period = Literal["day", "hour"]

_PERIOD_BY_TEXT: dict[str, Period] = {"1 day": "day", "day": "day", "1 hour": "hour", "hour": "hour"}

_NAMES = ("start", "end", "every", "last", "lag", "tz")


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """A series of moments one period apart: the starts of days or of hours.

    Args:
        name: name of the variable.
        every: the period.
        start: the first moment. None if only ``last`` bounds the series.
        end: the last moment. None means the current period.
        last: number of newest moments in the series. Older moments leave the series, and their partitions expire. None
            for all.
        lag: number of newest moments to leave out. With 1, a day is included once it is over.
        tz: time zone of the days.
    """

    name: str
    every: Period = "day"
    start: datetime | None = None
    end: datetime | None = None
    last: int | None = None
    lag: int = 0
    tz: str = "UTC"

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.tz)

    def moments(self, now: datetime) -> list[datetime]:
        """All moments of the series as of now, oldest first."""
        return self.moments_between(*self.bounds(now))

    def bounds(self, now: datetime) -> tuple[datetime, datetime]:
        """The first and the last moment as of now. The first is later than the last if the series is empty."""
        newest = self.subtract_periods(self._period_start(now), self.lag)
        if self.end is not None:
            newest = min(newest, self.end)
        oldest = self.start
        if self.last is not None:
            floor = self.subtract_periods(newest, self.last - 1)
            oldest = floor if oldest is None else max(oldest, floor)
        assert oldest is not None
        return oldest, newest

    def _period_start(self, moment: datetime) -> datetime:
        if self.every == "hour":
            return start_of_clock_hour(moment, self.zone)
        return moment.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)

    def subtract_periods(self, moment: datetime, periods: int) -> datetime:
        """The moment a number of periods earlier."""
        if self.every == "day":
            return moment - timedelta(days=periods)  # wall-clock arithmetic: some days have 23 hours
        return start_of_clock_hour(moment.astimezone(UTC) - timedelta(hours=periods), self.zone)

    def moments_between(self, oldest: datetime, newest: datetime) -> list[datetime]:
        """All moments between two moments, inclusive."""
        if self.every == "day":
            days = (newest.date() - oldest.date()).days
            return [oldest + timedelta(days=n) for n in range(days + 1)]
        return list(starts_of_clock_hours(oldest, newest, self.zone))


def parse_timeseries(text: SqlText, name: str, call: exp.Expr) -> TimeSeries:
    """The series that a ``TIMESERIES(...)`` call declares.

    Raises:
        SqlError: an argument is unknown or invalid, or the series has no beginning.
    """
    arguments = _arguments_by_name(text, call)
    zone = _parse_zone(text, arguments.get("tz"))
    every = _parse_period(text, arguments.get("every"))
    start, end = (_parse_moment(text, arguments.get(n), zone, every) for n in ("start", "end"))
    last = _parse_count(text, arguments.get("last"), 1)
    lag = _parse_count(text, arguments.get("lag"), 0)
    if start is None and last is None:
        raise text.error(
            "TIMESERIES has no start",
            call,
            expected="start => '2024-01-01', or last => 90",
            next="give the first day with data, or the number of days to keep",
        )
    if start is not None and end is not None and end < start:
        raise text.error("TIMESERIES ends before it starts", call, expected="end after start")
    return TimeSeries(name, every, start, end, last, lag or 0, zone.key)


def _arguments_by_name(text: SqlText, call: exp.Expr) -> dict[str, exp.Expr]:
    argument_by_name: dict[str, exp.Expr] = {}
    for n, argument in enumerate(call.expressions):
        named = isinstance(argument, exp.Kwarg | exp.PropertyEQ)
        name = argument.this.name.lower() if named else _NAMES[n] if n < len(_NAMES) else ""
        if name not in _NAMES or name in argument_by_name:
            raise text.error("TIMESERIES has no such argument", argument, expected=", ".join(_NAMES))
        argument_by_name[name] = argument.expression if named else argument
    return argument_by_name


def _literal_value(text: SqlText, argument: exp.Expr, expected: str) -> Any:
    inner = argument.this if isinstance(argument, exp.Cast) else argument
    if not isinstance(inner, exp.Literal):
        raise text.error("TIMESERIES takes constants", argument, expected=expected)
    return inner.name


def _parse_zone(text: SqlText, argument: exp.Expr | None) -> ZoneInfo:
    name = "UTC" if argument is None else _literal_value(text, argument, "'Europe/Paris'")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise text.error(f"there is no time zone {name!r}", argument, expected="'UTC', 'Europe/Paris', ...") from None


def _parse_period(text: SqlText, argument: exp.Expr | None) -> Period:
    if argument is None:
        return "day"
    period_sql = (
        argument.sql("spark").upper()
        if isinstance(argument, exp.Interval)
        else _literal_value(text, argument, "'1 day'")
    )
    plain = " ".join(period_sql.replace("INTERVAL", "").replace("'", "").split()).lower()
    if plain not in _PERIOD_BY_TEXT:
        raise text.error(f"TIMESERIES does not support the step {plain}", argument, expected="'1 day' or '1 hour'")
    return _PERIOD_BY_TEXT[plain]


def _parse_moment(text: SqlText, argument: exp.Expr | None, zone: ZoneInfo, period: Period) -> datetime | None:
    if argument is None:
        return None
    expected = "'2024-01-01'" if period == "day" else "'2024-01-01 00:00'"
    try:
        moment = datetime.fromisoformat(_literal_value(text, argument, expected))
    except ValueError:
        raise text.error("a bound of TIMESERIES is not a date or timestamp", argument, expected=expected) from None
    local = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment.astimezone(zone)
    hour_start = local.replace(minute=0, second=0, microsecond=0)
    if local != (hour_start.replace(hour=0) if period == "day" else hour_start):
        raise text.error(f"a bound of TIMESERIES is in the middle of a {period}", argument, expected=expected)
    return local


def _parse_count(text: SqlText, argument: exp.Expr | None, minimum: int) -> int | None:
    if argument is None:
        return None
    count_text = _literal_value(text, argument, "a whole number")
    if not str(count_text).isdigit() or int(count_text) < minimum:
        raise text.error("TIMESERIES counts in whole numbers", argument, expected=f"a whole number, at least {minimum}")
    return int(count_text)
