"""Dates and moments, as Spark computes with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from sqlglot import exp

from nova_assets.sql.computing import CannotCompute, Make, Special, called, strict
from nova_assets.sql.values import Function, Value, day, moment, number


def _plus(sign: int) -> Special:
    """Sums of numbers; and a date or moment with days or an interval."""

    def made(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
        left, right = node.this, node.expression
        if sign > 0 and isinstance(left, exp.Interval):
            left, right = right, left
        if isinstance(right, exp.Interval):
            step = _interval(right, make)
            return strict(lambda v, by: _moved(v, by, sign, zone), make(left), step)
        return strict(lambda a, b: _added(a, b, sign), make(left), make(right))

    return made


def _added(a: Value, b: Value, sign: int) -> Value:
    if isinstance(a, date) and not isinstance(a, datetime):
        if isinstance(b, date):
            raise TypeError("the time between two dates is not computed here")
        return a + sign * timedelta(days=int(number(b)))
    if isinstance(a, datetime):
        raise TypeError("a moment is moved by an INTERVAL")
    return number(a) + sign * number(b)


_UNITS = {"DAY": 1.0, "HOUR": 1 / 24, "MINUTE": 1 / 1440, "SECOND": 1 / 86400, "WEEK": 7.0}


def _interval(node: exp.Interval, make: Make) -> Function:
    """(months, time) of an interval."""
    unit = (node.args.get("unit") or exp.var("")).name.upper().removesuffix("S")
    months = {"MONTH": 1, "YEAR": 12, "QUARTER": 3}.get(unit)
    if node.this is None or (months is None and unit not in _UNITS):
        raise CannotCompute(node, f"{called(node)} cannot be computed from partitions")
    amount = make(node.this)
    if months is not None:
        return strict(lambda n: (int(number(n)) * months, timedelta()), amount)
    return strict(lambda n: (0, timedelta(days=float(number(n)) * _UNITS[unit])), amount)


def _moved(value: Value, by: tuple[int, timedelta], sign: int, zone: tzinfo) -> Value:
    months, time = by
    if isinstance(value, str):
        value = moment(value, zone)
    whole = time.seconds == 0 and time.microseconds == 0
    if isinstance(value, datetime):
        local = _add_months(value.astimezone(zone), sign * months)
        if whole:  # days are days of the calendar, whatever the clocks do
            plain = local.replace(tzinfo=None) + sign * timedelta(days=time.days)
            return plain.replace(tzinfo=zone)
        return (local.astimezone(UTC) + sign * time).astimezone(zone)
    if isinstance(value, date):
        if whole:
            return _add_months(value, sign * months) + sign * timedelta(days=time.days)
        return _moved(moment(value, zone), by, sign, zone)
    raise TypeError(f"{value!r} is no date")


def _add_months(value: Any, months: int) -> Any:
    if not months:
        return value
    index = value.year * 12 + value.month - 1 + months
    year, month = divmod(index, 12)
    return value.replace(year=year, month=month + 1, day=min(value.day, _days_in(year, month + 1)))


def _days_in(year: int, month: int) -> int:
    return (date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)).day


def _of_date(function: Callable[[date], Value]) -> Special:
    def made(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
        return strict(lambda v: function(day(v, zone)), make(node.this))

    return made


def _hour(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    return strict(lambda v: moment(v, zone).hour, make(node.this))


def _days_added(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    """``date_add`` and ``date_sub``."""
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() not in ("DAY", "DAYS"):
        raise CannotCompute(node, f"{called(node)} cannot be computed from partitions")
    add = lambda v, n: day(v, zone) + timedelta(days=int(number(n)))  # noqa: E731
    return strict(add, make(node.this), make(node.expression))


def _months_added(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    return strict(lambda v, n: _add_months(day(v, zone), int(number(n))), make(node.this), make(node.expression))


def _date_diff(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    if node.args.get("unit") is not None:
        raise CannotCompute(node, f"{called(node)} cannot be computed from partitions")
    return strict(lambda a, b: (day(a, zone) - day(b, zone)).days, make(node.this), make(node.expression))


_FIRST_OF: Mapping[str, Callable[[date], date]] = {
    "YEAR": lambda d: d.replace(month=1, day=1),
    "YYYY": lambda d: d.replace(month=1, day=1),
    "YY": lambda d: d.replace(month=1, day=1),
    "QUARTER": lambda d: d.replace(month=(d.month - 1) // 3 * 3 + 1, day=1),
    "MONTH": lambda d: d.replace(day=1),
    "MM": lambda d: d.replace(day=1),
    "MON": lambda d: d.replace(day=1),
    "WEEK": lambda d: d - timedelta(days=d.weekday()),
    "DAY": lambda d: d,
    "DD": lambda d: d,
}


def _unit(node: exp.Expr) -> str:
    return str(getattr(node.args.get("unit"), "name", "")).upper()


def _trunc(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    """``trunc(date, unit)``, which gives a date."""
    unit = _unit(node)
    if unit not in _FIRST_OF or unit in ("DAY", "DD"):
        raise CannotCompute(node, f"{called(node)} cannot be computed from partitions")
    return strict(lambda v: _FIRST_OF[unit](day(v, zone)), make(node.this))


def _date_trunc(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    """``date_trunc(unit, moment)``, which gives a moment."""
    unit = _unit(node)
    if unit == "HOUR":
        return strict(lambda v: moment(v, zone).replace(minute=0, second=0, microsecond=0), make(node.this))
    if unit not in _FIRST_OF:
        raise CannotCompute(node, f"{called(node)} cannot be computed from partitions")
    return strict(lambda v: moment(_FIRST_OF[unit](moment(v, zone).date()), zone), make(node.this))


_PATTERNS = {
    "%Y": "%Y",
    "%mstrict": "%m",
    "%dstrict": "%d",
    "%Hstrict": "%H",
    "%Mstrict": "%M",
    "%Sstrict": "%S",
    "%j": "%j",
}


def _pattern(node: exp.Expr, given: exp.Expr | None) -> str:
    """A pattern of dates, as Python has it: digits of fixed width, and text in quotes."""
    if not isinstance(given, exp.Literal):
        raise CannotCompute(node, f"{called(node)} has no fixed pattern")
    found = _unquoted(given.name)
    if found is None:
        raise CannotCompute(node, f"the pattern of {called(node)} cannot be computed; it knows yyyy MM dd HH mm ss")
    return found


def _unquoted(pattern: str) -> str | None:
    """A pattern without its quotes; None where it has something else than digits of fixed width, and text."""
    made, quoted = "", False
    for token in re.findall(r"%-?[A-Za-z](?:strict)?|''|.", pattern, re.DOTALL):
        if token == "'":
            quoted = not quoted
        elif token == "''":
            made += "'"
        elif token[0] == "%" and not quoted and token in _PATTERNS:
            made += _PATTERNS[token]
        elif token[0] == "%" or (token.isalpha() and not quoted):
            return None
        else:
            made += token
    return None if quoted else made


def _date_format(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    pattern = _pattern(node, node.args.get("format"))
    return strict(lambda v: _formatted(moment(v, zone), pattern), make(node.this))


def _formatted(value: datetime, pattern: str) -> str:
    return value.strftime(pattern.replace("%Y", f"{value.year:04d}"))


def _to_date(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    if node.args.get("format") is not None:
        pattern = _pattern(node, node.args["format"])
        return strict(lambda v: datetime.strptime(str(v), pattern).date(), make(node.this))
    return strict(lambda v: day(v, zone), make(node.this))


def _to_moment(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    return strict(lambda v: moment(v, zone), make(node.this))


DATES: Mapping[type[exp.Expr], Special] = {
    exp.Add: _plus(1),
    exp.Sub: _plus(-1),
    exp.Year: _of_date(lambda d: d.year),
    exp.Quarter: _of_date(lambda d: (d.month + 2) // 3),
    exp.Month: _of_date(lambda d: d.month),
    exp.Day: _of_date(lambda d: d.day),
    exp.DayOfMonth: _of_date(lambda d: d.day),
    exp.DayOfYear: _of_date(lambda d: d.timetuple().tm_yday),
    exp.DayOfWeek: _of_date(lambda d: d.isoweekday() % 7 + 1),
    exp.WeekOfYear: _of_date(lambda d: d.isocalendar().week),
    exp.LastDay: _of_date(lambda d: d.replace(day=_days_in(d.year, d.month))),
    exp.Hour: _hour,
    exp.TsOrDsAdd: _days_added,
    exp.AddMonths: _months_added,
    exp.DateDiff: _date_diff,
    exp.DateTrunc: _trunc,
    exp.TimestampTrunc: _date_trunc,
    exp.TimeToStr: _date_format,
    exp.TsOrDsToDate: _to_date,
    exp.TimeStrToTime: _to_moment,
    exp.Date: _to_date,
}
