"""Evaluation rules for dates and timestamps."""

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
    cast_to_text,
    midnight_of,
    parse_timestamp,
)
from nova_assets.sql.evaluation.date_patterns import parse_pattern
from nova_assets.sql.evaluation.logic import NULL
from nova_assets.sql.evaluation.numbers import arithmetic_operand
from nova_assets.sql.evaluation.operand import DATA_DEPENDENT, Operand, Undecided, Value
from nova_assets.sql.evaluation.rule_registry import RuleContext, function_rule, syntax_rule
from nova_assets.sql.evaluation.texts import as_int_operand, text_operand
from nova_assets.sql.types.widening import VOID

EPOCH = date(1970, 1, 1)


def as_date_operand(context: RuleContext, operand: Operand) -> Operand:
    """An argument cast to date. Raises NotUnderstood."""
    return context.implicit_cast(operand, DATE, "string", "timestamp", "timestamp_ntz")


def as_timestamp_operand(context: RuleContext, operand: Operand) -> Operand:
    """An argument cast to timestamp. Raises NotUnderstood."""
    return context.implicit_cast(operand, TIMESTAMP, "string", "date")


# intervals


@dataclass(frozen=True)
class Interval:
    """A literal interval: months, or a duration in days or clock time."""

    months: int = 0
    duration: timedelta = timedelta()
    is_in_days: bool = True


_MONTHS = {"MONTH": 1, "YEAR": 12, "QUARTER": 3}
_SECONDS_BY_UNIT = {"DAY": 86400, "WEEK": 604800, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}


def _parse_interval(context: RuleContext, node: exp.Expr) -> Interval:
    """A literal interval of one unit. Raises NotUnderstood."""
    amount, unit = node.args.get("this"), node.args.get("unit")
    others = [k for k, v in node.args.items() if k not in ("this", "unit") and v]
    if others or type(amount) is not exp.Literal or type(unit) is not exp.Var or not _is_short_integer(amount.name):
        raise context.not_understood()
    name, count = unit.name.upper().removesuffix("S"), int(amount.name)
    if name in _MONTHS:
        return Interval(months=count * _MONTHS[name])
    if name not in _SECONDS_BY_UNIT:
        raise context.not_understood()
    return Interval(duration=timedelta(seconds=count * _SECONDS_BY_UNIT[name]), is_in_days=name in ("DAY", "WEEK"))


def _is_short_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 8


@syntax_rule(exp.Add, allowed_arguments="this expression")
def _add(context: RuleContext) -> Operand:
    left, right = context.node.this, context.node.expression
    if type(left) is exp.Interval and type(right) is not exp.Interval:
        left, right = right, left
    return _add_or_subtract(context, left, right, 1)


@syntax_rule(exp.Sub, allowed_arguments="this expression")
def _subtract(context: RuleContext) -> Operand:
    return _add_or_subtract(context, context.node.this, context.node.expression, -1)


def _add_or_subtract(context: RuleContext, left: exp.Expr, right: exp.Expr, sign: int) -> Operand:
    left_operand = context.compile_part(left)
    if type(right) is exp.Interval:
        return (
            DATA_DEPENDENT
            if left_operand.type is None
            else _add_interval(context, left_operand, _parse_interval(context, right), sign)
        )
    right_operand = context.compile_part(right)
    if DATE in (left_operand.type, right_operand.type):
        return _add_days_to_date(context, left_operand, right_operand, sign)
    return arithmetic_operand(context, "+" if sign > 0 else "-", lambda x, y: x + sign * y, left_operand, right_operand)


def _add_days_to_date(context: RuleContext, date_operand: Operand, days_operand: Operand, sign: int) -> Operand:
    if VOID in (date_operand.type, days_operand.type):
        return NULL
    if date_operand.type != DATE and sign > 0:
        date_operand, days_operand = days_operand, date_operand
    if (
        date_operand.type != DATE
        or days_operand.type is None
        or days_operand.type.name not in ("tinyint", "smallint", "int")
    ):
        raise context.not_understood()
    return context.null_propagating_operand(DATE, lambda day, n: shift_days(day, sign * n), date_operand, days_operand)


def shift_days(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError:
        raise Undecided(f"{days} days from {day} is out of range") from None


def _add_interval(context: RuleContext, operand: Operand, interval: Interval, sign: int) -> Operand:
    type_, zone = operand.type, context.zone
    if type_ == VOID:
        return NULL
    if type_ == DATE and interval.is_in_days:
        months, days = sign * interval.months, sign * interval.duration.days
        return context.null_propagating_operand(DATE, lambda day: shift_days(_shift_months(day, months), days), operand)
    if type_ in (DATE, TIMESTAMP):
        return context.null_propagating_operand(
            TIMESTAMP,
            lambda moment: _shift_timestamp(moment, interval, sign, zone),
            context.cast_operand(operand, TIMESTAMP),
        )
    if type_ == TIMESTAMP_NTZ:
        return context.null_propagating_operand(
            TIMESTAMP_NTZ, lambda local: _shift_local_time(local, interval, sign), operand
        )
    if type_ == STRING:  # Spark returns the result as text
        context.on_zone_used()
        return text_operand(
            context,
            lambda said: cast_to_text(_shift_timestamp(parse_timestamp(said, zone), interval, sign, zone)),
            operand,
        )
    raise context.not_understood()


def _shift_timestamp(moment: datetime, interval: Interval, sign: int, zone: tzinfo) -> datetime:
    """A timestamp plus or minus an interval. Days and months follow the calendar of the zone. Hours and smaller
    units are elapsed time, independent of clock changes.
    """
    local = moment.astimezone(zone)
    if interval.is_in_days:
        return _shift_local_time(local.replace(tzinfo=None), interval, sign).replace(tzinfo=zone)
    try:
        return (local.astimezone(UTC) + sign * interval.duration).astimezone(zone)
    except OverflowError:
        raise Undecided(f"{moment} cannot be moved so far") from None


def _shift_local_time(local: datetime, interval: Interval, sign: int) -> datetime:
    try:
        return _shift_months(local, sign * interval.months) + sign * interval.duration  # type: ignore[no-any-return]
    except OverflowError:
        raise Undecided(f"{local} cannot be moved so far") from None


def _shift_months(value: Any, months: int) -> Any:
    """The same day some months later, or the last day of that month."""
    if not months:
        return value
    year, month = divmod(value.year * 12 + value.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise Undecided(f"{months} months from {value} is not a date")
    return value.replace(year=year, month=month + 1, day=min(value.day, days_in_month(year, month + 1)))


def days_in_month(year: int, month: int) -> int:
    return 31 if month == 12 else (date(year, month + 1, 1) - timedelta(days=1)).day


@function_rule("date_add dateadd", 2)
def _date_add(context: RuleContext, operand: Operand, days: Operand) -> Operand:
    return context.null_propagating_operand(
        DATE, shift_days, as_date_operand(context, operand), as_int_operand(context, days)
    )


@function_rule("date_sub", 2)
def _date_sub(context: RuleContext, operand: Operand, days: Operand) -> Operand:
    return context.null_propagating_operand(
        DATE, lambda day, n: shift_days(day, -n), as_date_operand(context, operand), as_int_operand(context, days)
    )


@function_rule("add_months", 2)
def _add_months(context: RuleContext, operand: Operand, months: Operand) -> Operand:
    return context.null_propagating_operand(
        DATE, _shift_months, as_date_operand(context, operand), as_int_operand(context, months)
    )


@function_rule("datediff date_diff", 2)
def _date_diff(context: RuleContext, end: Operand, start: Operand) -> Operand:
    return context.null_propagating_operand(
        INT, lambda x, y: (x - y).days, as_date_operand(context, end), as_date_operand(context, start)
    )


# fields


_DATE_FIELDS: Mapping[str, Callable[[date], int]] = {
    "year": lambda d: d.year,
    "quarter": lambda d: (d.month + 2) // 3,
    "month": lambda d: d.month,
    "day dayofmonth": lambda d: d.day,
    "dayofyear": lambda d: d.timetuple().tm_yday,
    "dayofweek": lambda d: d.isoweekday() % 7 + 1,
    "weekday": lambda d: d.weekday(),
    "weekofyear": lambda d: d.isocalendar().week,
}
_TIME_FIELDS: Mapping[str, Callable[[datetime], int]] = {
    "hour": lambda t: t.hour,
    "minute": lambda t: t.minute,
    "second": lambda t: t.second,
}
_DATE_FIELD_BY_UNIT = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "WEEK": "weekofyear",
    "DAY": "day dayofmonth",
    "DAYOFWEEK": "dayofweek",
    "DOW": "dayofweek",
    "DOY": "dayofyear",
}


def _date_field(context: RuleContext, operand: Operand, extract_field: Callable[[date], int]) -> Operand:
    return context.null_propagating_operand(INT, extract_field, as_date_operand(context, operand))


def _time_field(context: RuleContext, operand: Operand, extract_field: Callable[[datetime], int]) -> Operand:
    local = operand if operand.type == TIMESTAMP_NTZ else as_timestamp_operand(context, operand)
    return context.null_propagating_operand(INT, extract_field, local)


for _names, _of_date in _DATE_FIELDS.items():
    function_rule(_names, 1)(lambda context, operand, compute=_of_date: _date_field(context, operand, compute))
for _names, _of_clock in _TIME_FIELDS.items():
    function_rule(_names, 1)(lambda context, operand, compute=_of_clock: _time_field(context, operand, compute))


@syntax_rule(exp.Extract, allowed_arguments="this expression")
def _extract(context: RuleContext) -> Operand:
    unit = context.node.this.name.upper()
    if unit in ("HOUR", "MINUTE"):
        return _time_field(context, context.operand("expression"), _TIME_FIELDS[unit.lower()])
    if unit not in _DATE_FIELD_BY_UNIT:
        raise context.not_understood()
    return _date_field(context, context.operand("expression"), _DATE_FIELDS[_DATE_FIELD_BY_UNIT[unit]])


@function_rule("last_day", 1)
def _last_day(context: RuleContext, operand: Operand) -> Operand:
    return context.null_propagating_operand(
        DATE, lambda d: d.replace(day=days_in_month(d.year, d.month)), as_date_operand(context, operand)
    )


_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


@function_rule("next_day", 2)
def _next_day(context: RuleContext, operand: Operand, weekday: Operand) -> Operand:
    if weekday.type not in (None, STRING):
        raise context.not_understood()
    return context.null_propagating_operand(DATE, _next_weekday, as_date_operand(context, operand), weekday)


def _next_weekday(day: date, weekday_name: str) -> date:
    name = weekday_name.upper()
    found = [n for n, w in enumerate(_WEEKDAYS) if name in (w, w[:2], w[:3])]
    if not found:
        raise Undecided(f"{weekday_name!r} is no day of the week")
    return shift_days(day, (found[0] - day.weekday() - 1) % 7 + 1)


# truncation


_FIRST_DAY_BY_UNIT: Mapping[str, Callable[[date], date]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), lambda d: date(d.year, 1, 1)),
    "QUARTER": lambda d: date(d.year, (d.month - 1) // 3 * 3 + 1, 1),
    **dict.fromkeys(("MONTH", "MM", "MON"), lambda d: date(d.year, d.month, 1)),
    "WEEK": lambda d: shift_days(d, -d.weekday()),
}
_ZEROED_FIELDS_BY_UNIT: Mapping[str, dict[str, int]] = {
    **{name: {"hour": 0, "minute": 0, "second": 0, "microsecond": 0} for name in ("DAY", "DD")},
    "HOUR": {"minute": 0, "second": 0, "microsecond": 0},
    "MINUTE": {"second": 0, "microsecond": 0},
    "SECOND": {"microsecond": 0},
}


def _require_text(context: RuleContext, operand: Operand) -> Operand:
    if operand.type not in (None, STRING):
        raise context.not_understood()
    return operand


@function_rule("trunc", 2)
def _trunc(context: RuleContext, operand: Operand, unit: Operand) -> Operand:
    """``TRUNC``. Null for any other unit, as in Spark."""

    def first_day(day: date, name: str) -> date | None:
        find = _FIRST_DAY_BY_UNIT.get(name.upper())
        return None if find is None else find(day)

    return context.null_propagating_operand(
        DATE, first_day, as_date_operand(context, operand), _require_text(context, unit)
    )


@function_rule("date_trunc", 2)
def _date_trunc(context: RuleContext, unit: Operand, operand: Operand) -> Operand:
    def truncated(name: str, moment: datetime) -> datetime | None:
        said, local = name.upper(), moment.astimezone(context.zone)
        if said in _FIRST_DAY_BY_UNIT:
            return midnight_of(_FIRST_DAY_BY_UNIT[said](local.date()), context.zone)
        if said in _ZEROED_FIELDS_BY_UNIT:
            return local.replace(**_ZEROED_FIELDS_BY_UNIT[said])  # type: ignore[arg-type]
        if said in ("MILLISECOND", "MICROSECOND"):
            raise Undecided(f"moments are not rounded to {name}")
        return None

    return context.null_propagating_operand(
        TIMESTAMP, truncated, _require_text(context, unit), as_timestamp_operand(context, operand)
    )


# formatting and parsing


@function_rule("date_format", 2)
def _date_format(context: RuleContext, operand: Operand, format_operand: Operand) -> Operand:
    return text_operand(
        context,
        lambda t, p: parse_pattern(p).format(t.astimezone(context.zone)),
        as_timestamp_operand(context, operand),
        _require_text(context, format_operand),
    )


@function_rule("to_date", 1, 2)
def _to_date(context: RuleContext, operand: Operand, *format_operand: Operand) -> Operand:
    if not format_operand:
        return as_date_operand(context, operand)
    if operand.type not in (None, STRING):
        raise context.not_understood()
    return context.null_propagating_operand(
        DATE,
        lambda text, pattern: parse_pattern(pattern).parse_date(text),
        operand,
        _require_text(context, format_operand[0]),
    )


@function_rule("to_timestamp", 1)
def _to_timestamp(context: RuleContext, operand: Operand) -> Operand:
    return as_timestamp_operand(context, operand)


@function_rule("make_date", 3)
def _make_date(context: RuleContext, year: Operand, month: Operand, day: Operand) -> Operand:
    def make(y: int, m: int, d: int) -> Value:
        try:
            return date(y, m, d)
        except (ValueError, OverflowError):
            raise Undecided(f"{y}-{m}-{d} is not a date") from None

    return context.null_propagating_operand(DATE, make, *(as_int_operand(context, n) for n in (year, month, day)))


@function_rule("unix_date", 1)
def _unix_date(context: RuleContext, operand: Operand) -> Operand:
    return context.null_propagating_operand(INT, lambda d: (d - EPOCH).days, as_date_operand(context, operand))


@function_rule("date_from_unix_date", 1)
def _date_from_unix_date(context: RuleContext, days: Operand) -> Operand:
    return context.null_propagating_operand(DATE, lambda n: shift_days(EPOCH, n), as_int_operand(context, days))
