"""``CAST`` between Spark types, where all versions and settings of Spark agree.

A ``TIMESTAMP`` is an instant, held in UTC, so that equality and order are those of instants. A ``TIMESTAMP_NTZ`` is a
wall clock without a zone.

A text is cast if it has the usual format of the target type. Any other text is undecided: Spark raises an error with
``spark.sql.ansi.enabled`` and returns null without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal
from zoneinfo import ZoneInfo

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.operand import Undecided, Value
from nova_assets.sql.types.widening import MAX_DIGITS, VOID, as_decimal, is_integral, wider_type

Cast = Callable[[Value], Value]

STRING = DataType("string")
BOOLEAN = DataType("boolean")
INT = DataType("int")
BIGINT = DataType("bigint")
DOUBLE = DataType("double")
DATE = DataType("date")
TIMESTAMP = DataType("timestamp")
TIMESTAMP_NTZ = DataType("timestamp_ntz")

INTEGRAL_RANGES: Mapping[str, tuple[int, int]] = {
    name: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for name, bits in (("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64))
}
"""Least and greatest value of each integer type."""

MAX_TEXT_LENGTH = 10_000
"""Length of the longest text that is evaluated, in characters."""

EXACT_DECIMAL_CONTEXT = Context(prec=120)
"""Decimal context with enough digits for every product and quotient."""

_TYPES_CAST_TO_TEXT = frozenset("tinyint smallint int bigint boolean date timestamp timestamp_ntz decimal".split())

_WHOLE_NUMBER = re.compile(r"[ \t\n\r]*([+-]?[0-9]+)[ \t\n\r]*")
_NUMBER = re.compile(r"[ \t\n\r]*([+-]?[0-9]+(?:\.[0-9]+)?)[ \t\n\r]*")
_DATE = re.compile(r"[ \t\n\r]*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?[ \t\n\r]*", re.DOTALL)
_TIMESTAMP = re.compile(
    r"[ \t\n\r]*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T](?P<hour>[0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,6}))?)?"
    r"(?P<offset>Z|[+-][0-9]{2}:[0-9]{2})?[ \t\n\r]*"
)
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def make_cast(source: DataType, target: DataType, zone: tzinfo) -> Cast | None:
    """A function that casts values of one type to another. None if the cast is not supported.

    Args:
        zone: time zone in which timestamps are converted to days.
    """
    if source in (target, VOID):
        return lambda value: value
    if target == STRING and source.name not in _TYPES_CAST_TO_TEXT:
        return None
    casts: Mapping[tuple[str, str], Cast] = {
        ("string", "integral"): lambda value: check_integral_range(_parse_integer(value), target.name),
        ("boolean", "integral"): int,
        ("integral", "integral"): lambda value: check_integral_range(value, target.name),
        ("decimal", "integral"): lambda value: check_integral_range(int(value), target.name),
        ("string", "decimal"): lambda value: _round_to_decimal(_parse_decimal(value), target),
        ("integral", "decimal"): lambda value: _round_to_decimal(Decimal(value), target),
        ("decimal", "decimal"): lambda value: _round_to_decimal(value, target),
        ("integral", "double"): float,
        ("decimal", "double"): float,
        ("string", "boolean"): _parse_boolean,
        ("integral", "boolean"): bool,
        ("string", "date"): parse_date,
        ("timestamp", "string"): lambda value: cast_to_text(wall_clock(value, zone)),
        ("timestamp", "date"): lambda value: wall_clock(value, zone).date(),
        ("timestamp_ntz", "date"): lambda value: value.date(),
        ("string", "timestamp"): lambda value: parse_timestamp(value, zone),
        ("date", "timestamp"): lambda value: instant_of(midnight_of(value), zone),
        ("timestamp_ntz", "timestamp"): lambda value: instant_of(value, zone),
        ("date", "timestamp_ntz"): midnight_of,
        ("timestamp", "timestamp_ntz"): lambda value: wall_clock(value, zone),
    }
    return casts.get((_kind_of_type(source), _kind_of_type(target)), cast_to_text if target == STRING else None)


def _kind_of_type(type_: DataType) -> str:
    return "integral" if is_integral(type_) else type_.name


def cast_to_text(value: Value) -> str:
    """A value as Spark casts it to string."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
        return f"{value.year:04d}-{value:%m-%d %H:%M:%S}{fraction}"
    if isinstance(value, Decimal):
        return _plain_decimal_text(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def _plain_decimal_text(value: Decimal) -> str:
    """The decimal without an exponent. Raises Undecided for a small value, which some versions of Spark write with
    an exponent, as Java does.
    """
    if value.adjusted() < -6:
        raise Undecided(f"{value} is written with an exponent by some versions of Spark")
    return format(value, "f")


def _parse_integer(text: str) -> int:
    match = _WHOLE_NUMBER.fullmatch(text)
    if match is None or len(match[1]) > 20:
        raise Undecided(f"{text!r} is not a whole number")
    return int(match[1])


def check_integral_range(value: int, type_name: str) -> int:
    """The value, if it fits the integer type. Raises Undecided if it does not."""
    least, greatest = INTEGRAL_RANGES[type_name]
    if not least <= value <= greatest:
        raise Undecided(f"{value} does not fit {type_name}")
    return value


def _parse_decimal(text: str) -> Decimal:
    match = _NUMBER.fullmatch(text)
    if match is None or len(match[1]) > 40:
        raise Undecided(f"{text!r} is not a number")
    return Decimal(match[1])


def _round_to_decimal(value: Decimal, type_: DataType) -> Decimal:
    """The value rounded half up to the scale of a type. Raises Undecided if it has too many digits before the point."""
    precision, scale = type_.args
    with_scale = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, context=EXACT_DECIMAL_CONTEXT)
    if with_scale and with_scale.adjusted() + 1 > precision - scale:
        raise Undecided(f"{value} does not fit {type_}")
    return with_scale


def _parse_boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip(" \t\n\r").lower())
    if value is None:
        raise Undecided(f"{text!r} is neither true nor false")
    return value


def parse_date(text: str) -> date:
    """Parse a date. Raises ValueError for other texts."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise Undecided(f"{text!r} is not a date")
    return date(int(match[1]), int(match[2] or 1), int(match[3] or 1))


def midnight_of(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)


def wall_clock(instant: datetime, zone: tzinfo) -> datetime:
    """What a clock in a zone shows at an instant."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def instant_of(clock: datetime, zone: tzinfo, offset: timedelta | None = None) -> datetime:
    """The instant at which a clock in a zone shows a time, as Spark resolves it.

    Args:
        offset: offset from UTC that the instant has if the time occurs twice. By default, the earlier instant is meant.
            A time that a change of the clock skips is later by the length of the gap.
    """
    first, second = (clock.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    return (second if offset == second.utcoffset() and occurs_twice(clock, zone) else first).astimezone(UTC)


def occurs_twice(clock: datetime, zone: tzinfo) -> bool:
    """Whether a clock in a zone shows a time twice, because it is set back."""
    first, second = (zone.utcoffset(clock.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    return first is not None and second is not None and first > second


def parse_timestamp(text: str, zone: tzinfo) -> datetime:
    """Parse a timestamp, which is in the zone unless the text has an offset. Raises ValueError for other texts."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise Undecided(f"{text!r} is not a timestamp")
    *numbers, fraction, _ = match.groups(default="0")
    year, month, day, hour, minute, second = map(int, numbers)
    local = datetime(year, month, day, hour, minute, second, int(fraction.ljust(6, "0")))
    offset = match["offset"]
    if offset is None:
        return instant_of(local, zone)
    if match["hour"] is None:
        raise Undecided(f"{text!r} has a time zone and no time")
    return datetime.fromisoformat(f"{local.isoformat()}{offset}").astimezone(UTC)


# implicit casts, where two types meet: in comparisons, IN lists, CASE, COALESCE and similar


_ORDERED_TYPES = frozenset(
    "string boolean date timestamp timestamp_ntz tinyint smallint int bigint decimal double".split()
)


def comparison_casts(a: DataType, b: DataType, zone: tzinfo) -> tuple[Cast, Cast] | None:
    """Casts that make values of two types comparable, one per side. None if the types cannot be compared.

    ``=`` and ``<`` on the cast values agree with Spark's.
    """
    both = _comparison_type(a, b)
    if both is None:
        return None
    left, right = (_unchanged, _unchanged) if both == VOID else (make_cast(a, both, zone), make_cast(b, both, zone))
    return None if left is None or right is None else (left, right)


def _unchanged(value: Value) -> Value:
    return value


def _comparison_type(a: DataType, b: DataType) -> DataType | None:
    if VOID in (a, b):
        return VOID
    if a == b:
        return a if a.name in _ORDERED_TYPES else None
    if is_exact_number(a) and is_exact_number(b):
        return VOID if _common_digits(a, b) <= MAX_DIGITS else None  # Python compares exact numbers without a cast
    if DOUBLE in (a, b):
        return DOUBLE if all(t == DOUBLE or is_exact_number(t) for t in (a, b)) else None
    if STRING in (a, b):
        return _text_comparison_type(a if b == STRING else b)
    return TIMESTAMP if {a, b} == {DATE, TIMESTAMP} else None


def _text_comparison_type(other_type: DataType) -> DataType | None:
    """The type to which a text is cast when it is compared with another type; None if such values are not compared.

    Beside a small integer type, some settings of Spark cast the text to a larger integer type. So a text that exceeds
    the small type is undecided.
    """
    return other_type if is_integral(other_type) or other_type in (DATE, TIMESTAMP, BOOLEAN) else None


def is_exact_number(type_: DataType) -> bool:
    return is_integral(type_) or type_.name == "decimal"


def _common_digits(a: DataType, b: DataType) -> int:
    (p, s), (q, t) = as_decimal(a).args, as_decimal(b).args
    return max(p - s, q - t) + max(s, t)


def in_list_casts(a: DataType, b: DataType, zone: tzinfo) -> tuple[Cast, Cast] | None:
    """As ``comparison_casts``, for ``a IN (b, ...)``.

    Some settings of Spark compare a date among texts as text. Therefore only texts in Spark's own date format are
    decided.
    """
    if a != b and STRING in (a, b) and VOID not in (a, b):
        other_type = a if b == STRING else b
        casts = comparison_casts(a, b, zone) if other_type in (DATE, TIMESTAMP) else None
        if casts is None:
            return None
        return (
            (casts[0], _require_canonical_text(casts[1], zone))
            if b == STRING
            else (_require_canonical_text(casts[0], zone), casts[1])
        )
    return comparison_casts(a, b, zone)


def _require_canonical_text(cast_text: Cast, zone: tzinfo) -> Cast:
    def canonical(text: Value) -> Value:
        value = cast_text(text)
        clock = wall_clock(value, zone) if isinstance(value, datetime) else value
        is_ambiguous = isinstance(value, datetime) and occurs_twice(clock, zone)
        if is_ambiguous or cast_to_text(clock) != text:
            raise Undecided(f"{text!r} is compared as text in some settings of Spark")
        return value

    return canonical


def common_type(types: Sequence[DataType]) -> DataType | None:
    """The common type of several values. None if there is none that all settings of Spark share.

    Beside another type, some settings of Spark cast text to the other type, and others cast the other type to text.
    """
    if any(t == STRING for t in types) and not all(t in (STRING, VOID) for t in types):
        return None
    common: DataType | None = types[0] if types else None
    for type_ in types[1:]:
        common = _wider_exact_type(common, type_)
    return common


def _wider_exact_type(a: DataType | None, b: DataType) -> DataType | None:
    if a is None:
        return None
    if is_exact_number(a) and is_exact_number(b) and _common_digits(a, b) > MAX_DIGITS and a != b:
        return None
    return wider_type(a, b)


# partition names


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
        return parse_date(text)
    if type_ == "timestamp":
        return _parse_partition_timestamp(text, ZoneInfo(tz or "UTC"))
    if type_ == "timestamp_ntz":
        return _parse_partition_timestamp(text, None)
    if type_ == "boolean":
        return _parse_boolean(text)
    return int(text) if type_ in ("tinyint", "smallint", "int", "bigint") else text


def _parse_partition_timestamp(text: str, zone: tzinfo | None) -> datetime:
    """A timestamp in a zone, or without a zone the wall clock as it is written before any offset."""
    is_day = re.fullmatch(r"\s*\d{4}(-\d{1,2}){0,2}\s*", text) is not None
    moment = midnight_of(parse_date(text)) if is_day else datetime.fromisoformat(text.strip())
    if zone is None or moment.tzinfo is None:
        return moment.replace(tzinfo=zone)
    return moment.astimezone(zone)
