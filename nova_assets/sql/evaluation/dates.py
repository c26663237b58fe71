"""Evaluation rules for dates and timestamps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

from sqlglot import exp

from nova_assets.sql.evaluation.casting import (
    DATE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    cast_to_text,
    instant_of,
    midnight_of,
    parse_timestamp,
    wall_clock,
)
from nova_assets.sql.evaluation.numbers import arithmetic_operand
from nova_assets.sql.evaluation.operand import DATA_DEPENDENT, NULL, Operand, Undecided
from nova_assets.sql.evaluation.rule_registry import (
    RuleContext,
    apply_function,
    function_rule,
    register_function,
    syntax_rule,
)
from nova_assets.sql.types.widening import VOID

_EPOCH = date(1970, 1, 1)

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
    return context.null_propagating_operand(DATE, lambda day, n: _shift_days(day, sign * n), date_operand, days_operand)


def _shift_days(day: date, days: int) -> date:
    return day + timedelta(days)


def _add_interval(context: RuleContext, operand: Operand, interval: Interval, sign: int) -> Operand:
    type_, zone = operand.type, context.zone
    if type_ == VOID:
        return NULL
    if type_ == DATE and interval.is_in_days:
        months, days = sign * interval.months, sign * interval.duration.days
        return context.null_propagating_operand(
            DATE, lambda day: _shift_days(_shift_months(day, months), days), operand
        )
    if type_ in (DATE, TIMESTAMP):
        return context.null_propagating_operand(
            TIMESTAMP,
            lambda moment: _shift_timestamp(moment, interval, sign, zone),
            context.cast_operand(operand, TIMESTAMP),
        )
    if type_ == TIMESTAMP_NTZ:
        return context.null_propagating_operand(
            TIMESTAMP_NTZ,
            lambda local: _shift_months(local, sign * interval.months) + sign * interval.duration,
            operand,
        )
    if type_ == STRING:  # Spark returns the result as text
        context.on_zone_used()
        return context.null_propagating_operand(
            STRING,
            lambda text: cast_to_text(
                wall_clock(_shift_timestamp(parse_timestamp(text, zone), interval, sign, zone), zone)
            ),
            operand,
        )
    raise context.not_understood()


def _shift_timestamp(instant: datetime, interval: Interval, sign: int, zone: tzinfo) -> datetime:
    """A timestamp plus or minus an interval. Months and each 24 hours follow the calendar of the zone. The rest is
    elapsed time, independent of clock changes.
    """
    duration = sign * interval.duration
    days = timedelta(int(duration / timedelta(days=1)))  # rounded towards 0, as in Spark
    clock = _shift_months(wall_clock(instant, zone), sign * interval.months) + days
    return instant_of(clock, zone, instant.astimezone(zone).utcoffset()) + (duration - days)


def _shift_months(value: Any, months: int) -> Any:
    """The same day some months later, or the last day of that month."""
    if not months:
        return value
    year, month = divmod(value.year * 12 + value.month - 1 + months, 12)
    return value.replace(year=year, month=month + 1, day=min(value.day, _days_in_month(year, month + 1)))


def _days_in_month(year: int, month: int) -> int:
    return 31 if month == 12 else (date(year, month + 1, 1) - timedelta(days=1)).day


register_function("date_add dateadd", "date int", DATE, _shift_days)
register_function("date_sub", "date int", DATE, lambda day, days: _shift_days(day, -days))
register_function("add_months", "date int", DATE, _shift_months)
register_function("datediff date_diff", "date date", INT, lambda end, start: (end - start).days)


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
_FUNCTION_BY_UNIT = {
    **{name.upper(): name for name in ("year", "quarter", "month", "day", "dayofweek", "hour", "minute")},
    "WEEK": "weekofyear",
    "DOW": "dayofweek",
    "DOY": "dayofyear",
}

for _names, _date_field in _DATE_FIELDS.items():
    register_function(_names, "date", INT, _date_field)
for _name, _time_field in _TIME_FIELDS.items():
    register_function(_name, "clock", INT, _time_field)


@syntax_rule(exp.Extract, allowed_arguments="this expression")
def _extract(context: RuleContext) -> Operand:
    function = _FUNCTION_BY_UNIT.get(context.node.this.name.upper())
    if function is None:
        raise context.not_understood()
    return apply_function(context, function, context.operand("expression"))


_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


def _next_day(day: date, weekday_name: str) -> date:
    name = weekday_name.upper()
    found = [n for n, w in enumerate(_WEEKDAYS) if name in (w, w[:2], w[:3])]
    if not found:
        raise Undecided(f"{weekday_name!r} is no day of the week")
    return _shift_days(day, (found[0] - day.weekday() - 1) % 7 + 1)


register_function("last_day", "date", DATE, lambda d: d.replace(day=_days_in_month(d.year, d.month)))
register_function("next_day", "date name", DATE, _next_day)


# truncation


_FIRST_DAY_BY_UNIT: Mapping[str, Callable[[date], date]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), lambda d: date(d.year, 1, 1)),
    "QUARTER": lambda d: date(d.year, (d.month - 1) // 3 * 3 + 1, 1),
    **dict.fromkeys(("MONTH", "MM", "MON"), lambda d: date(d.year, d.month, 1)),
    "WEEK": lambda d: _shift_days(d, -d.weekday()),
}
_ZEROED_FIELDS_BY_UNIT: Mapping[str, dict[str, Any]] = {
    **{name: {"hour": 0, "minute": 0, "second": 0, "microsecond": 0} for name in ("DAY", "DD")},
    "HOUR": {"minute": 0, "second": 0, "microsecond": 0},
    "MINUTE": {"second": 0, "microsecond": 0},
    "SECOND": {"microsecond": 0},
}


def _trunc(day: date, unit: str) -> date | None:
    """``TRUNC``. Null for any other unit, as in Spark."""
    find = _FIRST_DAY_BY_UNIT.get(unit.upper())
    return None if find is None else find(day)


@function_rule("date_trunc", 2)
def _date_trunc(context: RuleContext, unit: Operand, moment: Operand) -> Operand:
    operands = context.cast_argument(unit, "name"), context.cast_argument(moment, "timestamp")
    return context.null_propagating_operand(
        TIMESTAMP, lambda unit, instant: _truncate_timestamp(unit, instant, context.zone), *operands
    )


def _truncate_timestamp(unit: str, instant: datetime, zone: tzinfo) -> datetime | None:
    """``DATE_TRUNC``. Null for an unknown unit, as in Spark."""
    name, local = unit.upper(), instant.astimezone(zone)
    if name in _FIRST_DAY_BY_UNIT:
        return instant_of(midnight_of(_FIRST_DAY_BY_UNIT[name](local.date())), zone)
    if name in _ZEROED_FIELDS_BY_UNIT:
        clock = local.replace(tzinfo=None, fold=0, **_ZEROED_FIELDS_BY_UNIT[name])
        return instant_of(clock, zone, local.utcoffset())
    if name in ("MILLISECOND", "MICROSECOND"):
        raise Undecided(f"moments are not rounded to {unit}")
    return None


register_function("trunc", "date name", DATE, _trunc)


# patterns such as ``yyyy-MM-dd HH:mm``, limited to the letters that all versions of Spark interpret alike


_LETTERS: Mapping[str, tuple[str, Callable[[datetime], str]]] = {
    "yyyy": ("year", lambda t: f"{t.year:04d}"),
    "MM": ("month", lambda t: f"{t.month:02d}"),
    "M": ("", lambda t: str(t.month)),
    "dd": ("day", lambda t: f"{t.day:02d}"),
    "d": ("", lambda t: str(t.day)),
    "HH": ("hour", lambda t: f"{t.hour:02d}"),
    "H": ("", lambda t: str(t.hour)),
    "mm": ("minute", lambda t: f"{t.minute:02d}"),
    "ss": ("second", lambda t: f"{t.second:02d}"),
    "DDD": ("", lambda t: f"{t.timetuple().tm_yday:03d}"),
}
"""Letters -> the datetime field that they parse (empty for none), and their formatter."""

_TOKEN = re.compile(r"''|'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']")
_RESERVED = "[]{}#"


@dataclass(frozen=True)
class _DatePattern:
    """A parsed date pattern.

    Args:
        text: the pattern as written.
        parts: keys of ``_LETTERS``, and literal texts, each as a list of one element.
    """

    text: str
    parts: tuple[str | list[str], ...]

    def format(self, moment: datetime) -> str:
        return "".join(p[0] if isinstance(p, list) else _LETTERS[p][1](moment) for p in self.parts)

    def parse_date(self, text: str) -> date:
        """Parse a date in this pattern. Raises Undecided."""
        match = self._parsing_regex().fullmatch(text)
        if match is None:
            raise Undecided(f"{text!r} is not written as {self.text!r}")
        values_by_field = {name: int(value) for name, value in match.groupdict().items()}
        try:
            return datetime(
                values_by_field["year"], values_by_field.get("month", 1), values_by_field.get("day", 1),
                values_by_field.get("hour", 0), values_by_field.get("minute", 0), values_by_field.get("second", 0),
            ).date()  # fmt: skip
        except (ValueError, KeyError):
            raise Undecided(f"{text!r} is not a date of {self.text!r}") from None

    def _parsing_regex(self) -> re.Pattern[str]:
        names = [_LETTERS[p][0] for p in self.parts if isinstance(p, str)]
        if "" in names or len(set(names)) < len(names):
            raise Undecided(f"dates written as {self.text!r} are not read before a query runs")
        each = (
            re.escape(p[0]) if isinstance(p, list) else f"(?P<{_LETTERS[p][0]}>[0-9]{{{len(p)}}})" for p in self.parts
        )
        return re.compile("".join(each))


@lru_cache(maxsize=256)
def _parse_pattern(text: str) -> _DatePattern:
    """Parse a pattern. Raises Undecided if it has unsupported letters."""
    parts, end = list[str | list[str]](), 0
    for token in _TOKEN.finditer(text):
        found = token[0]
        if token.start() != end or found in _RESERVED:
            break
        end = token.end()
        if found[0] == "'":
            parts.append(["'"] if found == "''" else [found[1:-1].replace("''", "'")])
        elif found[0].isalpha():
            if found not in _LETTERS:
                raise Undecided(f"the letters {found} of the pattern {text!r} are not evaluated on partitions")
            parts.append(found)
        else:
            parts.append([found])
    if end != len(text):
        raise Undecided(f"the pattern {text!r} is not evaluated on partitions")
    return _DatePattern(text, tuple(parts))


# formatting and parsing


@function_rule("to_date", 1, 2)
def _to_date(context: RuleContext, operand: Operand, *pattern: Operand) -> Operand:
    if not pattern:
        return context.cast_argument(operand, "date")
    operands = [context.cast_argument(o, "name") for o in (operand, *pattern)]
    return context.null_propagating_operand(DATE, lambda text, like: _parse_pattern(like).parse_date(text), *operands)


register_function("date_format", "local name", STRING, lambda moment, like: _parse_pattern(like).format(moment))
register_function("to_timestamp", "timestamp", TIMESTAMP, lambda moment: moment)
register_function("make_date", "int int int", DATE, date)
register_function("unix_date", "date", INT, lambda day: (day - _EPOCH).days)
register_function("date_from_unix_date", "int", DATE, lambda days: _shift_days(_EPOCH, days))
