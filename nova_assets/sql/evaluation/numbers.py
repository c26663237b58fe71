"""Numbers, as Spark computes with them. A result that is too large for its type is undecided."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import BIGINT, DOUBLE, EXACT, RANGES, in_range
from nova_assets.sql.evaluation.logic import NULL
from nova_assets.sql.evaluation.operand import DATA, Operand, Undecided
from nova_assets.sql.evaluation.rules import Application, function, syntax
from nova_assets.sql.evaluation.values import Value
from nova_assets.sql.types.widening import MOST_DIGITS, VOID, arithmetic, as_decimal, bounded, is_whole

Compute = Callable[[Any, Any], Any]


def calculated(a: Application, sign: str, compute: Compute, left: Operand, right: Operand) -> Operand:
    """Two numbers, computed with. Raises NotUnderstood where a type is no number that is computed exactly."""
    if left.type is None or right.type is None:
        return DATA
    if VOID in (left.type, right.type):
        return NULL
    if not (_is_exact(left.type) and _is_exact(right.type)):
        raise a.not_understood()
    type_ = arithmetic(sign, left.type, right.type)
    if type_ is None:
        raise a.not_understood()
    if type_ == DOUBLE:
        return a.computed(type_, lambda x, y: compute(float(x), float(y)), left, right)
    if type_.name in RANGES:
        return a.computed(type_, lambda x, y: in_range(compute(x, y), type_.name), left, right)
    if not _is_computed_exactly(sign, left.type, right.type):
        raise a.not_understood()
    return a.computed(type_, lambda x, y: compute(Decimal(x), Decimal(y)), left, right)


def _is_exact(type_: DataType) -> bool:
    return is_whole(type_) or type_.name == "decimal"


def _is_computed_exactly(sign: str, a: DataType, b: DataType) -> bool:
    """Whether a decimal result has digits enough, so that none are rounded off."""
    (p, s), (q, t) = as_decimal(a).args, as_decimal(b).args
    digits = {"*": p + q + 1, "+": max(p - s, q - t) + max(s, t) + 1, "%": max(p - s, q - t) + max(s, t)}
    return digits.get({"-": "+"}.get(sign, sign), MOST_DIGITS + 1) <= MOST_DIGITS


@syntax(exp.Mul, arguments="this expression")
def _times(a: Application) -> Operand:
    return calculated(a, "*", _product, a.operand(), a.operand("expression"))


def _product(x: Any, y: Any) -> Any:
    return EXACT.multiply(x, y) if isinstance(x, Decimal) else x * y


@syntax(exp.Div, arguments="this expression typed safe")
def _divided(a: Application) -> Operand:
    return calculated(a, "/", _quotient, a.operand(), a.operand("expression"))


def _quotient(x: float, y: float) -> float:
    if not y:
        raise Undecided("division by zero")
    return x / y


@syntax(exp.Mod, arguments="this expression")
def _remainder_syntax(a: Application) -> Operand:
    return _mod(a, a.operand(), a.operand("expression"))


@function("mod", 2)
def _mod(a: Application, left: Operand, right: Operand) -> Operand:
    return calculated(a, "%", remainder, left, right)


def remainder(x: Any, y: Any) -> Any:
    """With the sign of the first."""
    if not y:
        raise Undecided("division by zero")
    rest = abs(x) % abs(y)
    return -rest if x < 0 else rest


@function("pmod", 2)
def _positive_mod(a: Application, left: Operand, right: Operand) -> Operand:
    def positive(x: Any, y: Any) -> Any:
        rest = remainder(x, y)
        # Spark adds the two in their own type, where large negative ones overflow.
        return remainder(in_range(rest + y, "int") if y < 0 else rest + y, y) if rest < 0 else rest

    return calculated(a, "%", positive, left, right)


@syntax(exp.IntDiv, arguments="this expression")
def _whole_quotient(a: Application) -> Operand:
    left, right = a.operand(), a.operand("expression")
    if left.type is None or right.type is None:
        return DATA
    if not (is_whole(left.type) and is_whole(right.type)):
        raise a.not_understood()
    return a.computed(BIGINT, lambda x, y: in_range(_div(x, y), "bigint"), left, right)


def _div(x: int, y: int) -> int:
    if not y:
        raise Undecided("division by zero")
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


@syntax(exp.Neg, arguments="this")
def _minus(a: Application) -> Operand:
    return _negative(a, a.operand())


@function("negative", 1)
def _negative(a: Application, operand: Operand) -> Operand:
    return _of_number(a, operand, operator.neg)


@function("abs", 1)
def _abs(a: Application, operand: Operand) -> Operand:
    return _of_number(a, operand, abs)


@function("positive", 1)
def _positive(a: Application, operand: Operand) -> Operand:
    return _of_number(a, operand, lambda value: value)


def _of_number(a: Application, operand: Operand, compute: Callable[[Any], Value]) -> Operand:
    """A function of a number that gives another of its type."""
    type_ = operand.type
    if type_ is None:
        return DATA
    if type_.name in RANGES:
        return a.computed(type_, lambda value: in_range(compute(value), type_.name), operand)
    if type_.name != "decimal" and type_ != DOUBLE:
        raise a.not_understood()
    return a.computed(type_, compute, operand)


@syntax(exp.Ceil, arguments="this")
def _ceiling(a: Application) -> Operand:
    return _to_whole(a, a.operand(), ROUND_CEILING)


@syntax(exp.Floor, arguments="this")
def _floor(a: Application) -> Operand:
    return _to_whole(a, a.operand(), ROUND_FLOOR)


def _to_whole(a: Application, operand: Operand, rounding: str) -> Operand:
    if operand.type is None:
        return DATA
    if is_whole(operand.type):
        return a.as_type(operand, BIGINT)
    if operand.type.name != "decimal":
        raise a.not_understood()
    precision, scale = operand.type.args
    whole = bounded(precision - scale + 1, 0)
    return a.computed(whole, lambda value: value.to_integral_value(rounding), operand)
