"""Spark's rules of types: what two have in common, and what arithmetic makes of them (ANSI mode)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from nova_assets.model.schema import DataType

MOST_DIGITS = 38

_WHOLE = ("tinyint", "smallint", "int", "bigint")

_DIGITS: Mapping[str, int] = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}

VOID = DataType("void")
"""Of a bare NULL."""


def is_whole(type_: DataType) -> bool:
    return type_.name in _WHOLE


def is_number(type_: DataType) -> bool:
    return is_whole(type_) or type_.name in ("decimal", "float", "double")


def as_decimal(type_: DataType) -> DataType:
    """The decimal that holds every value of a whole number's type."""
    return type_ if type_.name == "decimal" else DataType("decimal", (_DIGITS[type_.name], 0))


def bounded(precision: int, scale: int) -> DataType:
    """A decimal with as many digits as there can be."""
    return DataType("decimal", (min(precision, MOST_DIGITS), min(scale, MOST_DIGITS)))


def _adjusted(precision: int, scale: int) -> DataType:
    """A decimal that gives up digits after the point, down to six, rather than digits before it."""
    if precision <= MOST_DIGITS:
        return DataType("decimal", (precision, scale))
    return DataType("decimal", (MOST_DIGITS, max(MOST_DIGITS - (precision - scale), min(scale, 6))))


def wider(a: DataType, b: DataType) -> DataType | None:
    """The type that values of both become where they meet, as in CASE or UNION; None where there is none."""
    if a == b or b == VOID:
        return a
    if a == VOID:
        return b
    if is_number(a) and is_number(b):
        return _wider_number(a, b)
    names = {a.name, b.name}
    if "string" in names:
        return _wider_than_text(b if a.name == "string" else a)
    if names <= {"date", "timestamp", "timestamp_ntz"}:
        return DataType("timestamp" if "timestamp" in names else "timestamp_ntz")
    return _wider_nested(a, b)


def _wider_number(a: DataType, b: DataType) -> DataType:
    if is_whole(a) and is_whole(b):
        return max(a, b, key=lambda t: _WHOLE.index(t.name))
    names = {a.name, b.name}
    if "double" in names or ("float" in names and names != {"float"}):
        return DataType("double")
    (p, s), (q, t) = as_decimal(a).args, as_decimal(b).args
    digits, scale = max(p - s, q - t), max(s, t)
    if digits + scale <= MOST_DIGITS:
        return DataType("decimal", (digits + scale, scale))
    return DataType("decimal", (MOST_DIGITS, max(MOST_DIGITS - digits, 0)))  # digits before the point come first


def _wider_than_text(other: DataType) -> DataType | None:
    """What a text beside another type becomes."""
    if is_whole(other):
        return DataType("bigint")
    if is_number(other):
        return DataType("double")
    return other if not other.fields else None


def _wider_nested(a: DataType, b: DataType) -> DataType | None:
    if a.name != b.name or not a.fields or len(a.fields) != len(b.fields):
        return None
    inner = [wider(f.type, g.type) for f, g in zip(a.fields, b.fields, strict=True)]
    if a.name == "struct" and [f.name.lower() for f in a.fields] != [g.name.lower() for g in b.fields]:
        return None
    if any(t is None for t in inner):
        return None
    return replace(a, fields=tuple(replace(f, type=t) for f, t in zip(a.fields, inner, strict=True) if t is not None))


def arithmetic(sign: str, a: DataType, b: DataType) -> DataType | None:
    """The type of a sum, difference, product, quotient (``+ - * / % div``); None where there is none."""
    if "string" in (a.name, b.name):
        other = _wider_than_text(b if a.name == "string" else a) if a != b else DataType("double")
        return None if other is None or not is_number(other) else arithmetic(sign, other, other)
    if VOID in (a, b):
        a, b = (b, b) if a == VOID else (a, a)
    if not (is_number(a) and is_number(b)):
        return None
    if sign == "div":
        return DataType("bigint")
    if a.name in ("float", "double") or b.name in ("float", "double"):
        return DataType("double") if sign == "/" else _wider_number(a, b)
    if is_whole(a) and is_whole(b):
        return DataType("double") if sign == "/" else _wider_number(a, b)
    (p, s), (q, t) = as_decimal(a).args, as_decimal(b).args
    return _DECIMAL[sign](p, s, q, t)


def _sum(p: int, s: int, q: int, t: int) -> DataType:
    scale = max(s, t)
    return _adjusted(max(p - s, q - t) + scale + 1, scale)


def _quotient(p: int, s: int, q: int, t: int) -> DataType:
    scale = max(6, s + q + 1)
    return _adjusted(p - s + t + scale, scale)


_DECIMAL: Mapping[str, Callable[[int, int, int, int], DataType]] = {
    "+": _sum,
    "-": _sum,
    "*": lambda p, s, q, t: _adjusted(p + q + 1, s + t),
    "/": _quotient,
    "%": lambda p, s, q, t: _adjusted(min(p - s, q - t) + max(s, t), max(s, t)),
}
