"""Dates and timestamps, as Spark computes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from sqlglot import exp

from nova_assets.sql.evaluation.casting import (
    DATE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    as_text,
    at_midnight,
    text_to_timestamp,
)
from nova_assets.sql.evaluation.logic import NULL
from nova_assets.sql.evaluation.numbers import calculated
from nova_assets.sql.evaluation.operand import DATA, Operand, Undecided
from nova_assets.sql.evaluation.patterns import pattern
from nova_assets.sql.evaluation.rules import Application, function, syntax
from nova_assets.sql.evaluation.texts import count_of, text
from nova_assets.sql.evaluation.values import Value
from nova_assets.sql.types.widening import VOID

EPOCH = date(1970, 1, 1)


def date_of(a: Application, operand: Operand) -> Operand:
    """An argument as a date. Raises NotUnderstood."""
    return a.implicit(operand, DATE, "string", "timestamp", "timestamp_ntz")


def timestamp_of(a: Application, operand: Operand) -> Operand:
    """An argument as a timestamp. Raises NotUnderstood."""
    return a.implicit(operand, TIMESTAMP, "string", "date")


# moved


@dataclass(frozen=True)
class Interval:
    """A literal interval: months, or days and a time of the clock."""

    months: int = 0
    time: timedelta = timedelta()
    is_of_days: bool = True


_MONTHS = {"MONTH": 1, "YEAR": 12, "QUARTER": 3}
_TIMES = {"DAY": 86400, "WEEK": 604800, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}


def _interval(a: Application, node: exp.Expr) -> Interval:
    """A literal interval of one unit. Raises NotUnderstood."""
    amount, unit = node.args.get("this"), node.args.get("unit")
    others = [k for k, v in node.args.items() if k not in ("this", "unit") and v]
    if others or type(amount) is not exp.Literal or type(unit) is not exp.Var or not _is_whole(amount.name):
        raise a.not_understood()
    name, count = unit.name.upper().removesuffix("S"), int(amount.name)
    if name in _MONTHS:
        return Interval(months=count * _MONTHS[name])
    if name not in _TIMES:
        raise a.not_understood()
    return Interval(time=timedelta(seconds=count * _TIMES[name]), is_of_days=name in ("DAY", "WEEK"))


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 8


@syntax(exp.Add, arguments="this expression")
def _plus(a: Application) -> Operand:
    left, right = a.node.this, a.node.expression
    if type(left) is exp.Interval and type(right) is not exp.Interval:
        left, right = right, left
    return _sum(a, left, right, 1)


@syntax(exp.Sub, arguments="this expression")
def _minus(a: Application) -> Operand:
    return _sum(a, a.node.this, a.node.expression, -1)


def _sum(a: Application, left: exp.Expr, right: exp.Expr, sign: int) -> Operand:
    of = a.evaluate(left)
    if type(right) is exp.Interval:
        return DATA if of.type is None else _moved_by(a, of, _interval(a, right), sign)
    by = a.evaluate(right)
    if DATE in (of.type, by.type):
        return _date_and_days(a, of, by, sign)
    return calculated(a, "+" if sign > 0 else "-", lambda x, y: x + sign * y, of, by)


def _date_and_days(a: Application, of: Operand, by: Operand, sign: int) -> Operand:
    if VOID in (of.type, by.type):
        return NULL
    if of.type != DATE and sign > 0:
        of, by = by, of
    if of.type != DATE or by.type is None or by.type.name not in ("tinyint", "smallint", "int"):
        raise a.not_understood()
    return a.computed(DATE, lambda day, n: days_later(day, sign * n), of, by)


def days_later(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError:
        raise Undecided(f"{days} days from {day} is no date") from None


def _moved_by(a: Application, of: Operand, by: Interval, sign: int) -> Operand:
    type_, zone = of.type, a.zone
    if type_ == VOID:
        return NULL
    if type_ == DATE and by.is_of_days:
        return a.computed(DATE, lambda day: days_later(_months_later(day, sign * by.months), sign * by.time.days), of)
    if type_ in (DATE, TIMESTAMP):
        return a.computed(TIMESTAMP, lambda moment: _moved(moment, by, sign, zone), a.as_type(of, TIMESTAMP))
    if type_ == TIMESTAMP_NTZ:
        return a.computed(TIMESTAMP_NTZ, lambda local: _moved_by_the_clock(local, by, sign), of)
    if type_ == STRING:  # which comes back as a text
        return text(a, lambda said: as_text(_moved(text_to_timestamp(said, zone), by, sign, zone)), of)
    raise a.not_understood()


def _moved(moment: datetime, by: Interval, sign: int, zone: tzinfo) -> datetime:
    """Days and months are those of the calendar of the zone. Hours pass whatever its clocks show."""
    local = moment.astimezone(zone)
    if by.is_of_days:
        return _moved_by_the_clock(local.replace(tzinfo=None), by, sign).replace(tzinfo=zone)
    try:
        return (local.astimezone(UTC) + sign * by.time).astimezone(zone)
    except OverflowError:
        raise Undecided(f"{moment} cannot be moved so far") from None


def _moved_by_the_clock(local: datetime, by: Interval, sign: int) -> datetime:
    try:
        return _months_later(local, sign * by.months) + sign * by.time  # type: ignore[no-any-return]
    except OverflowError:
        raise Undecided(f"{local} cannot be moved so far") from None


def _months_later(value: Any, months: int) -> Any:
    """A date or timestamp some months later, or the last day of that month."""
    if not months:
        return value
    year, month = divmod(value.year * 12 + value.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise Undecided(f"{months} months from {value} is no date")
    return value.replace(year=year, month=month + 1, day=min(value.day, days_in(year, month + 1)))


def days_in(year: int, month: int) -> int:
    return 31 if month == 12 else (date(year, month + 1, 1) - timedelta(days=1)).day


@function("date_add dateadd", 2)
def _date_add(a: Application, of: Operand, days: Operand) -> Operand:
    return a.computed(DATE, days_later, date_of(a, of), count_of(a, days))


@function("date_sub", 2)
def _date_sub(a: Application, of: Operand, days: Operand) -> Operand:
    return a.computed(DATE, lambda day, n: days_later(day, -n), date_of(a, of), count_of(a, days))


@function("add_months", 2)
def _add_months(a: Application, of: Operand, months: Operand) -> Operand:
    return a.computed(DATE, _months_later, date_of(a, of), count_of(a, months))


@function("datediff date_diff", 2)
def _date_diff(a: Application, end: Operand, start: Operand) -> Operand:
    return a.computed(INT, lambda x, y: (x - y).days, date_of(a, end), date_of(a, start))


# parts


_OF_DATES: Mapping[str, Callable[[date], int]] = {
    "year": lambda d: d.year,
    "quarter": lambda d: (d.month + 2) // 3,
    "month": lambda d: d.month,
    "day dayofmonth": lambda d: d.day,
    "dayofyear": lambda d: d.timetuple().tm_yday,
    "dayofweek": lambda d: d.isoweekday() % 7 + 1,
    "weekday": lambda d: d.weekday(),
    "weekofyear": lambda d: d.isocalendar().week,
}
_OF_CLOCKS: Mapping[str, Callable[[datetime], int]] = {
    "hour": lambda t: t.hour,
    "minute": lambda t: t.minute,
    "second": lambda t: t.second,
}
_EXTRACTED = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "WEEK": "weekofyear",
    "DAY": "day dayofmonth",
    "DAYOFWEEK": "dayofweek",
    "DOW": "dayofweek",
    "DOY": "dayofyear",
}


def _part_of_date(a: Application, of: Operand, compute: Callable[[date], int]) -> Operand:
    return a.computed(INT, compute, date_of(a, of))


def _part_of_clock(a: Application, of: Operand, compute: Callable[[datetime], int]) -> Operand:
    local = of if of.type == TIMESTAMP_NTZ else timestamp_of(a, of)
    return a.computed(INT, compute, local)


for _names, _of_date in _OF_DATES.items():
    function(_names, 1)(lambda a, of, compute=_of_date: _part_of_date(a, of, compute))
for _names, _of_clock in _OF_CLOCKS.items():
    function(_names, 1)(lambda a, of, compute=_of_clock: _part_of_clock(a, of, compute))


@syntax(exp.Extract, arguments="this expression")
def _extract(a: Application) -> Operand:
    unit = a.node.this.name.upper()
    if unit in ("HOUR", "MINUTE"):
        return _part_of_clock(a, a.operand("expression"), _OF_CLOCKS[unit.lower()])
    if unit not in _EXTRACTED:
        raise a.not_understood()
    return _part_of_date(a, a.operand("expression"), _OF_DATES[_EXTRACTED[unit]])


@function("last_day", 1)
def _last_day(a: Application, of: Operand) -> Operand:
    return a.computed(DATE, lambda d: d.replace(day=days_in(d.year, d.month)), date_of(a, of))


_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


@function("next_day", 2)
def _next_day(a: Application, of: Operand, weekday: Operand) -> Operand:
    if weekday.type not in (None, STRING):
        raise a.not_understood()
    return a.computed(DATE, _next_weekday, date_of(a, of), weekday)


def _next_weekday(day: date, name: str) -> date:
    said = name.upper()
    found = [n for n, w in enumerate(_WEEKDAYS) if said in (w, w[:2], w[:3])]
    if not found:
        raise Undecided(f"{name!r} is no day of the week")
    return days_later(day, (found[0] - day.weekday() - 1) % 7 + 1)


# rounded down


_FIRST_DAYS: Mapping[str, Callable[[date], date]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), lambda d: date(d.year, 1, 1)),
    "QUARTER": lambda d: date(d.year, (d.month - 1) // 3 * 3 + 1, 1),
    **dict.fromkeys(("MONTH", "MM", "MON"), lambda d: date(d.year, d.month, 1)),
    "WEEK": lambda d: days_later(d, -d.weekday()),
}
_CLOCKS: Mapping[str, dict[str, int]] = {
    **{name: {"hour": 0, "minute": 0, "second": 0, "microsecond": 0} for name in ("DAY", "DD")},
    "HOUR": {"minute": 0, "second": 0, "microsecond": 0},
    "MINUTE": {"second": 0, "microsecond": 0},
    "SECOND": {"microsecond": 0},
}


def _unit_of(a: Application, operand: Operand) -> Operand:
    if operand.type not in (None, STRING):
        raise a.not_understood()
    return operand


@function("trunc", 2)
def _trunc(a: Application, of: Operand, unit: Operand) -> Operand:
    """Null for any other unit, as in Spark."""

    def first_day(day: date, name: str) -> date | None:
        find = _FIRST_DAYS.get(name.upper())
        return None if find is None else find(day)

    return a.computed(DATE, first_day, date_of(a, of), _unit_of(a, unit))


@function("date_trunc", 2)
def _date_trunc(a: Application, unit: Operand, of: Operand) -> Operand:
    def begins(name: str, moment: datetime) -> datetime | None:
        said, local = name.upper(), moment.astimezone(a.zone)
        if said in _FIRST_DAYS:
            return at_midnight(_FIRST_DAYS[said](local.date()), a.zone)
        if said in _CLOCKS:
            return local.replace(**_CLOCKS[said])  # type: ignore[arg-type]
        if said in ("MILLISECOND", "MICROSECOND"):
            raise Undecided(f"moments are not rounded to {name}")
        return None

    return a.computed(TIMESTAMP, begins, _unit_of(a, unit), timestamp_of(a, of))


# written and read


@function("date_format", 2)
def _date_format(a: Application, of: Operand, how: Operand) -> Operand:
    return text(a, lambda t, p: pattern(p).format(t.astimezone(a.zone)), timestamp_of(a, of), _unit_of(a, how))


@function("to_date", 1, 2)
def _to_date(a: Application, of: Operand, *how: Operand) -> Operand:
    if not how:
        return date_of(a, of)
    if of.type not in (None, STRING):
        raise a.not_understood()
    return a.computed(DATE, lambda said, p: pattern(p).date(said), of, _unit_of(a, how[0]))


@function("to_timestamp", 1)
def _to_timestamp(a: Application, of: Operand) -> Operand:
    return timestamp_of(a, of)


@function("make_date", 3)
def _make_date(a: Application, year: Operand, month: Operand, day: Operand) -> Operand:
    def made(y: int, m: int, d: int) -> Value:
        try:
            return date(y, m, d)
        except (ValueError, OverflowError):
            raise Undecided(f"{y}-{m}-{d} is no date") from None

    return a.computed(DATE, made, *(count_of(a, n) for n in (year, month, day)))


@function("unix_date", 1)
def _unix_date(a: Application, of: Operand) -> Operand:
    return a.computed(INT, lambda d: (d - EPOCH).days, date_of(a, of))


@function("date_from_unix_date", 1)
def _date_from_unix_date(a: Application, days: Operand) -> Operand:
    return a.computed(DATE, lambda n: days_later(EPOCH, n), count_of(a, days))
