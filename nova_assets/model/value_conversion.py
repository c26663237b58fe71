"""Conversion rules: which input values become values of a declared type.

A value is converted exactly, or the insert is rejected. ``RULES`` applies to every kind of input. Kinds of input differ
in two points only: whether text may represent a value of another type (``NOTATIONS``), and whether NaN means null.

The reference documentation contains both tables, generated from this module.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any, Literal, TypeAlias

from nova_assets.model.schema import DataType

ValueClass: TypeAlias = Literal[
    "boolean", "whole number", "float", "decimal", "text", "bytes", "date", "local time", "instant", "list", "mapping"
]
Notation: TypeAlias = Literal["none", "json", "csv"]


@dataclass(frozen=True, slots=True)
class InputKind:
    """A kind of input, with the properties that affect conversion.

    Args:
        notation: how text represents values of other types.
        nan_is_null: NaN means a missing value.
        local_is_utc: a local time represents a ``timestamp`` in UTC.
    """

    name: str
    notation: Notation = "none"
    nan_is_null: bool = False
    local_is_utc: bool = True

    @property
    def for_inferred_types(self) -> InputKind:
        """Kind for columns whose types are inferred from their values: no value represents another type."""
        return replace(self, notation="none", local_is_utc=False)


TYPED = InputKind("Arrow, polars, Spark, Parquet, ORC, Avro")
PANDAS = InputKind("pandas", nan_is_null=True)
DICTS = InputKind("dicts", "json")
JSON = InputKind("JSON", "json")
CSV = InputKind("CSV", "csv")
KINDS = (TYPED, PANDAS, DICTS, JSON, CSV)

_WHOLE = "it is whole, and in the range of the type"
_DIGITS = "its digits fit before and after the point"
_TIME = "it is no finer than a microsecond"
_NEAREST = (
    "the nearest float is finite, is 0 only for 0, and differs by less than 1/2 (from a whole number: not at all). "
    "A number with an exponent (`6.022e23`) may differ more, if the float prints the same"
)
_MEMBERS = "each member arrives"
_INTEGERS = {"whole number": "it is in the range of the type", "float": _WHOLE, "decimal": _WHOLE}
_FLOATS = {"whole number": "a float represents it exactly", "float": _NEAREST, "decimal": _NEAREST}

RULES: Mapping[str, Mapping[str, str]] = {
    "boolean": {"boolean": "always"},
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _INTEGERS),
    **dict.fromkeys(("float", "double"), _FLOATS),
    "decimal": {
        "whole number": _DIGITS,
        "float": "its digits, as printed, fit before and after the point",
        "decimal": _DIGITS,
    },
    "string": {"text": "it is valid Unicode, without half of a surrogate pair"},
    "binary": {"bytes": "always"},
    "date": {"date": "always", "local time": "it is midnight"},
    "timestamp": {"instant": _TIME, "local time": f"{_TIME}; nova reads it as UTC"},
    "timestamp_ntz": {"local time": _TIME, "date": "always, as midnight of the date"},
    "array": {"list": _MEMBERS},
    "map": {"mapping": _MEMBERS, "list": f"it contains only pairs, and {_MEMBERS}"},
    "struct": {"mapping": f"{_MEMBERS}, and every name is a field; missing fields become null"},
}
"""Declared type -> class of a value -> condition for accepting it. Other classes are rejected. Null is always
accepted.
"""

_NUMBER_TEXT = "a number: `-1.50`, `2e3`"
_ISO = "ISO 8601: `{}`"
_TEXTS = {
    "decimal": _NUMBER_TEXT,
    "date": _ISO.format("2024-01-31"),
    "timestamp": _ISO.format("2024-01-31T12:00:00+01:00"),
    "timestamp_ntz": _ISO.format("2024-01-31T12:00:00"),
}

NOTATIONS: Mapping[Notation, Mapping[str, str]] = {
    "none": {},
    "json": {**_TEXTS, **dict.fromkeys(("float", "double"), "`NaN`, `Infinity`, `-Infinity`"), "binary": "its UTF-8"},
    "csv": {
        **_TEXTS,
        "boolean": "`true`, `false`, `1`, `0`",
        **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _NUMBER_TEXT),
        **dict.fromkeys(("float", "double"), f"{_NUMBER_TEXT}; `NaN`, `inf`, `Infinity`"),
        "binary": "its UTF-8",
    },
}
"""Notation -> declared type -> text that represents its values. These values then follow ``RULES``."""

INTEGER_BITS: Mapping[str, int] = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_NUMBER_PATTERN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FINER_THAN_MICROSECOND = re.compile(r"[.,]\d{6}\d*[1-9]")  # Python's parser would truncate this silently
_HALF = Decimal("0.5")
_EXACT_CONTEXT = Context(prec=400, Emax=MAX_EMAX, Emin=MIN_EMIN)


def convert_value(value: Any, type_: DataType, kind: InputKind = DICTS) -> Any:
    """Value for ``pyarrow.array(..., type=...)`` that represents the input exactly in the declared type.

    Raises:
        ValueError: the rules reject the value.
    """
    value = to_python_value(value)
    if value is None or (kind.nan_is_null and isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str) and type_.name in NOTATIONS[kind.notation]:
        value = _parse_text(value, type_, kind)
    if class_of_value(value) not in RULES[type_.name]:
        raise _conversion_error(value, type_)
    return _CONVERTERS[type_.name](value, type_, kind)


def class_of_value(value: Any) -> ValueClass | None:
    """Row of the table for a Python value; None for a value that no channel can store."""
    if isinstance(value, datetime):
        return "local time" if value.tzinfo is None else "instant"
    for types, name in _CLASSES:
        if isinstance(value, types):
            return name
    is_list = isinstance(value, Sequence) or (type(value).__module__ == "numpy" and hasattr(value, "tolist"))
    return "list" if is_list else None


_CLASSES: tuple[tuple[tuple[type, ...], ValueClass], ...] = (
    ((bool,), "boolean"),
    ((int,), "whole number"),
    ((float,), "float"),
    ((Decimal,), "decimal"),
    ((str,), "text"),
    ((bytes, bytearray, memoryview), "bytes"),
    ((date,), "date"),
    ((Mapping,), "mapping"),
)


def to_python_value(value: Any) -> Any:
    """NumPy or pandas scalar as a Python value; None for their missing values."""
    module_name = type(value).__module__
    if module_name.startswith("pandas") and type(value).__name__ in ("NaTType", "NAType"):
        return None
    if module_name != "numpy" or getattr(value, "ndim", 1) != 0:
        return value
    if value.dtype.kind != "M":
        return value.item()
    micros = value.astype("datetime64[us]")
    if str(micros) == "NaT":
        return None
    moment = micros.item()
    return moment if micros.astype(value.dtype) == value and isinstance(moment, datetime) else value


def _conversion_error(value: Any, type_: DataType, reason: str = "") -> ValueError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return ValueError(f"{shown} is no {type_}{': ' * bool(reason)}{reason}")


# text


def _parse_text(text: str, type_: DataType, kind: InputKind) -> Any:
    """Value that a text represents in the notation of a kind of input."""
    name, stripped = type_.name, text.strip()
    if name == "binary":
        return _check_unicode(text, type_).encode()
    if name in ("date", "timestamp", "timestamp_ntz"):
        return _parse_date_or_time(text, type_)
    if name == "boolean":
        return _parse_boolean(text, type_)
    if name in ("float", "double"):
        special = stripped.lower() if kind.notation == "csv" else stripped
        if special in _SPECIAL_FLOATS[kind.notation]:
            return float(special)
        if kind.notation == "json":
            raise _conversion_error(text, type_)
    if not _NUMBER_PATTERN.fullmatch(stripped):
        raise _conversion_error(text, type_)
    return Decimal(stripped)


_SPECIAL_FLOATS: Mapping[Notation, frozenset[str]] = {
    "json": frozenset({"NaN", "Infinity", "-Infinity"}),
    "csv": frozenset({"nan", *(s + i for s in ("", "+", "-") for i in ("inf", "infinity"))}),
}


def _parse_boolean(text: str, type_: DataType) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.strip().lower() not in values:
        raise _conversion_error(text, type_)
    return values[text.strip().lower()]


def _parse_date_or_time(text: str, type_: DataType) -> date:
    if _FINER_THAN_MICROSECOND.search(text):
        raise _conversion_error(text, type_, "it is finer than a microsecond")
    try:
        return (date if type_.name == "date" else datetime).fromisoformat(text.strip())
    except ValueError as error:
        raise _conversion_error(text, type_) from error


# converters of the declared types; `RULES` has accepted the class of the value before


def _to_integer(value: Any, type_: DataType, kind: InputKind) -> int:
    number, limit = _to_finite_decimal(value, type_), 2 ** (INTEGER_BITS[type_.name] - 1)
    if not -limit <= number < limit or number != number.to_integral_value():
        raise _conversion_error(value, type_)
    return int(number)


def _to_float(value: Any, type_: DataType, kind: InputKind) -> float:
    if isinstance(value, float) and (type_.name == "double" or not math.isfinite(value)):
        return value
    written_number = _to_finite_decimal(value, type_)
    exact = Decimal(value) if isinstance(value, float) else written_number
    try:
        nearest = float(value)
        nearest = nearest if type_.name == "double" else struct.unpack("<f", struct.pack("<f", nearest))[0]
    except OverflowError as error:
        raise _conversion_error(value, type_, "it is too large") from error
    if math.isinf(nearest) or (nearest == 0 and exact != 0):
        raise _conversion_error(value, type_, "it is too large" if nearest else "it is too small")
    if abs(_EXACT_CONTEXT.subtract(Decimal(nearest), exact)) >= _HALF and not _is_shortest_notation(
        nearest, written_number, type_
    ):
        raise _conversion_error(value, type_, f"the nearest is {Decimal(nearest)}"[:80])
    return nearest


def _is_shortest_notation(nearest: float, written_number: Decimal, type_: DataType) -> bool:
    """Whether a number written with an exponent is one of the shortest notations of a float."""
    digits = range(15, 18) if type_.name == "double" else range(6, 10)
    exponent = written_number.as_tuple().exponent
    return (
        isinstance(exponent, int)
        and exponent > 0
        and any(Decimal(f"{nearest:.{n}g}") == written_number for n in digits)
    )


def _to_decimal(value: Any, type_: DataType, kind: InputKind) -> Decimal:
    number = _to_finite_decimal(value, type_)
    precision, scale = type_.args
    if number:
        _, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
        if number.adjusted() >= precision - scale or exponent + zeros < -scale:
            raise _conversion_error(value, type_)
    return number


def _to_finite_decimal(value: Any, type_: DataType) -> Decimal:
    """Finite number, exactly as written."""
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise _conversion_error(value, type_)
    return number


def _keep_value(value: Any, type_: DataType, kind: InputKind) -> Any:
    return value


def _to_string(value: Any, type_: DataType, kind: InputKind) -> str:
    return _check_unicode(value, type_)


def _check_unicode(text: str, type_: DataType) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _conversion_error(text, type_, "it has half of a surrogate pair, which is no character") from error
    return text


def _to_bytes(value: Any, type_: DataType, kind: InputKind) -> bytes:
    return bytes(value)


def _to_date(value: date, type_: DataType, kind: InputKind) -> date:
    if not isinstance(value, datetime):
        return value
    if value.time() != time.min or _nanosecond_part(value):
        raise _conversion_error(value, type_, "it is not midnight")
    return value.date()


def _to_timestamp(value: Any, type_: DataType, kind: InputKind) -> datetime:
    moment = _check_whole_microseconds(value, type_)
    if moment.tzinfo is None and not kind.local_is_utc:
        raise _conversion_error(value, type_, "it has no zone, and others have one")
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise _conversion_error(value, type_, "it is outside the years 0001 to 9999") from error


def _to_timestamp_ntz(value: Any, type_: DataType, kind: InputKind) -> datetime:
    return _check_whole_microseconds(value, type_) if isinstance(value, datetime) else datetime.combine(value, time.min)


def _check_whole_microseconds(value: datetime, type_: DataType) -> datetime:
    """The moment, if its nanoseconds, which pandas adds to Python's datetime, are 0. Raises ValueError otherwise."""
    if _nanosecond_part(value):
        raise _conversion_error(value, type_, "it is finer than a microsecond")
    return value


def _nanosecond_part(moment: Any) -> int:
    return int(getattr(moment, "nanosecond", 0))


def _to_list(value: Any, type_: DataType, kind: InputKind) -> list[Any]:
    return [convert_value(v, type_.fields[0].type, kind) for v in value]


def _to_map_entries(value: Any, type_: DataType, kind: InputKind) -> list[tuple[Any, Any]]:
    key, item = type_.fields
    entries = []
    for pair in value.items() if isinstance(value, Mapping) else value:
        if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2:
            raise _conversion_error(value, type_, "it is not of pairs")
        name = convert_value(pair[0], key.type, kind)
        if name is None:
            raise _conversion_error(value, type_, "a key is null")
        entries.append((name, convert_value(pair[1], item.type, kind)))
    return entries


def _to_struct_dict(value: Any, type_: DataType, kind: InputKind) -> dict[str, Any]:
    fields = {f.name: f.type for f in type_.fields}
    if not set(value) <= set(fields):
        raise _conversion_error(
            value, type_, f"it has other fields: {', '.join(repr(n) for n in value if n not in fields)}"
        )
    return {name: convert_value(value.get(name), inner, kind) for name, inner in fields.items()}


_CONVERTERS: Mapping[str, Callable[[Any, DataType, InputKind], Any]] = {
    "boolean": _keep_value,
    **dict.fromkeys(INTEGER_BITS, _to_integer),
    "float": _to_float,
    "double": _to_float,
    "decimal": _to_decimal,
    "string": _to_string,
    "binary": _to_bytes,
    "date": _to_date,
    "timestamp": _to_timestamp,
    "timestamp_ntz": _to_timestamp_ntz,
    "array": _to_list,
    "map": _to_map_entries,
    "struct": _to_struct_dict,
}
