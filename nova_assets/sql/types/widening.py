"""Spark's type rules in ANSI mode: the common type of two types, the result types of arithmetic, and nested types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nova_assets.model.schema import DataType, Field

MAX_DIGITS = 38

_INTEGRAL_TYPES = ("tinyint", "smallint", "int", "bigint")

_DIGITS_BY_TYPE: Mapping[str, int] = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}

VOID = DataType("void")
"""Type of a bare NULL."""


def is_integral(type_: DataType) -> bool:
    return type_.name in _INTEGRAL_TYPES


def is_number(type_: DataType) -> bool:
    return is_integral(type_) or type_.name in ("decimal", "float", "double")


def as_decimal(type_: DataType) -> DataType:
    """The decimal type that holds every value of an integer type."""
    return type_ if type_.name == "decimal" else DataType("decimal", (_DIGITS_BY_TYPE[type_.name], 0))


def decimal_up_to_max(precision: int, scale: int) -> DataType:
    """A decimal type, with precision and scale limited to the maximum."""
    return DataType("decimal", (min(precision, MAX_DIGITS), min(scale, MAX_DIGITS)))


def whole_number_type(type_: DataType) -> DataType:
    """The type of a number without its digits after the point, as of CEIL and FLOOR."""
    if type_.name != "decimal":
        return DataType("bigint")
    return decimal_up_to_max(type_.args[0] - type_.args[1] + 1, 0)


def _decimal_with_reduced_scale(precision: int, scale: int) -> DataType:
    """A decimal type. If the precision exceeds the maximum, digits after the point are dropped, down to six, before
    digits in front of the point.
    """
    if precision <= MAX_DIGITS:
        return DataType("decimal", (precision, scale))
    return DataType("decimal", (MAX_DIGITS, max(MAX_DIGITS - (precision - scale), min(scale, 6))))


def wider_type(a: DataType, b: DataType) -> DataType | None:
    """The common type of two types, as in CASE or UNION. None if there is none."""
    if a == b or b == VOID:
        return a
    if a == VOID:
        return b
    if is_number(a) and is_number(b):
        return _wider_number_type(a, b)
    names = {a.name, b.name}
    if "string" in names:
        return _wider_type_with_text(b if a.name == "string" else a)
    if names <= {"date", "timestamp", "timestamp_ntz"}:
        return DataType("timestamp" if "timestamp" in names else "timestamp_ntz")
    return _wider_nested_type(a, b)


def _wider_number_type(a: DataType, b: DataType) -> DataType:
    if a == b:
        return a
    if is_integral(a) and is_integral(b):
        return max(a, b, key=lambda t: _INTEGRAL_TYPES.index(t.name))
    names = {a.name, b.name}
    if "double" in names or ("float" in names and names != {"float"}):
        return DataType("double")
    (p, s), (q, t) = as_decimal(a).args, as_decimal(b).args
    digits, scale = max(p - s, q - t), max(s, t)
    if digits + scale <= MAX_DIGITS:
        return DataType("decimal", (digits + scale, scale))
    return DataType("decimal", (MAX_DIGITS, max(MAX_DIGITS - digits, 0)))  # keep digits before the point


def _wider_type_with_text(other_type: DataType) -> DataType | None:
    """The common type of string and another type."""
    if is_integral(other_type):
        return DataType("bigint")
    if is_number(other_type):
        return DataType("double")
    return other_type if not other_type.fields else None


def _wider_nested_type(a: DataType, b: DataType) -> DataType | None:
    if a.name != b.name or not a.fields or len(a.fields) != len(b.fields):
        return None
    inner = [wider_type(f.type, g.type) for f, g in zip(a.fields, b.fields, strict=True)]
    if a.name == "struct" and [f.name.lower() for f in a.fields] != [g.name.lower() for g in b.fields]:
        return None
    if any(t is None for t in inner):
        return None
    return replace(a, fields=tuple(replace(f, type=t) for f, t in zip(a.fields, inner, strict=True) if t is not None))


def arithmetic_type(symbol: str, a: DataType, b: DataType) -> DataType | None:
    """Result type of an arithmetic operation (``+ - * / % div``). None if there is none."""
    if "string" in (a.name, b.name):
        other = _wider_type_with_text(b if a.name == "string" else a) if a != b else DataType("double")
        return None if other is None or not is_number(other) else arithmetic_type(symbol, other, other)
    if VOID in (a, b):
        a, b = (b, b) if a == VOID else (a, a)
    if not (is_number(a) and is_number(b)):
        return None
    if symbol == "div":
        return DataType("bigint")
    if a.name in ("float", "double") or b.name in ("float", "double"):
        return DataType("double") if symbol == "/" else _wider_number_type(a, b)
    if is_integral(a) and is_integral(b):
        return DataType("double") if symbol == "/" else _wider_number_type(a, b)
    (p, s), (q, t) = as_decimal(a).args, as_decimal(b).args
    return _DECIMAL_RESULT_BY_SYMBOL[symbol](p, s, q, t)


def _decimal_sum_type(left_precision: int, left_scale: int, right_precision: int, right_scale: int) -> DataType:
    scale = max(left_scale, right_scale)
    return _decimal_with_reduced_scale(
        max(left_precision - left_scale, right_precision - right_scale) + scale + 1, scale
    )


def _decimal_quotient_type(left_precision: int, left_scale: int, right_precision: int, right_scale: int) -> DataType:
    scale = max(6, left_scale + right_precision + 1)
    return _decimal_with_reduced_scale(left_precision - left_scale + right_scale + scale, scale)


_DECIMAL_RESULT_BY_SYMBOL: Mapping[str, Callable[[int, int, int, int], DataType]] = {
    "+": _decimal_sum_type,
    "-": _decimal_sum_type,
    "*": lambda p, s, q, t: _decimal_with_reduced_scale(p + q + 1, s + t),
    "/": _decimal_quotient_type,
    "%": lambda p, s, q, t: _decimal_with_reduced_scale(min(p - s, q - t) + max(s, t), max(s, t)),
}


# nested types, built from the types of their parts and split into them


def array_type(type_: DataType | None) -> DataType | None:
    return None if type_ is None else DataType("array", fields=(Field("element", type_),))


def map_type(key: DataType | None, value: DataType | None) -> DataType | None:
    if key is None or value is None:
        return None
    return DataType("map", fields=(Field("key", key), Field("value", value)))


def struct_type(fields: Sequence[tuple[str, DataType | None]]) -> DataType | None:
    known_fields = [Field(name, type_) for name, type_ in fields if type_ is not None]
    return DataType("struct", fields=tuple(known_fields)) if len(known_fields) == len(fields) and known_fields else None


def element_type(type_: DataType | None) -> DataType | None:
    """Element type of an array, or value type of a map."""
    return type_.fields[-1].type if type_ is not None and type_.name in ("array", "map") else None


def key_type(type_: DataType | None) -> DataType | None:
    return type_.fields[0].type if type_ is not None and type_.name == "map" else None
