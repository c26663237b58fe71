"""Evaluation rules for arithmetic. A result outside the range of its type is undecided."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import (
    BIGINT,
    DOUBLE,
    EXACT_DECIMAL_CONTEXT,
    INTEGRAL_RANGES,
    check_integral_range,
)
from nova_assets.sql.evaluation.logic import NULL
from nova_assets.sql.evaluation.operand import DATA_DEPENDENT, Operand, Undecided, Value
from nova_assets.sql.evaluation.rule_registry import RuleContext, function_rule, syntax_rule
from nova_assets.sql.types.widening import MAX_DIGITS, VOID, arithmetic_type, as_decimal, decimal_up_to_max, is_integral

Compute = Callable[[Any, Any], Any]


def arithmetic_operand(context: RuleContext, symbol: str, calculate: Compute, left: Operand, right: Operand) -> Operand:
    """An arithmetic operation on two numbers. Raises NotUnderstood for types without exact arithmetic."""
    if left.type is None or right.type is None:
        return DATA_DEPENDENT
    if VOID in (left.type, right.type):
        return NULL
    if not (_is_exact_number(left.type) and _is_exact_number(right.type)):
        raise context.not_understood()
    type_ = arithmetic_type(symbol, left.type, right.type)
    if type_ is None:
        raise context.not_understood()
    if type_ == DOUBLE:
        return context.null_propagating_operand(type_, lambda x, y: calculate(float(x), float(y)), left, right)
    if type_.name in INTEGRAL_RANGES:
        return context.null_propagating_operand(
            type_, lambda x, y: check_integral_range(calculate(x, y), type_.name), left, right
        )
    if not _has_exact_decimal_result(symbol, left.type, right.type):
        raise context.not_understood()
    return context.null_propagating_operand(type_, lambda x, y: calculate(Decimal(x), Decimal(y)), left, right)


def _is_exact_number(type_: DataType) -> bool:
    return is_integral(type_) or type_.name == "decimal"


def _has_exact_decimal_result(symbol: str, a: DataType, b: DataType) -> bool:
    """Whether the decimal result type has enough digits, so that nothing is rounded."""
    (p, s), (q, t) = as_decimal(a).args, as_decimal(b).args
    digits = {"*": p + q + 1, "+": max(p - s, q - t) + max(s, t) + 1, "%": max(p - s, q - t) + max(s, t)}
    return digits.get({"-": "+"}.get(symbol, symbol), MAX_DIGITS + 1) <= MAX_DIGITS


@syntax_rule(exp.Mul, allowed_arguments="this expression")
def _multiply(context: RuleContext) -> Operand:
    return arithmetic_operand(context, "*", _product, context.operand(), context.operand("expression"))


def _product(x: Any, y: Any) -> Any:
    return EXACT_DECIMAL_CONTEXT.multiply(x, y) if isinstance(x, Decimal) else x * y


@syntax_rule(exp.Div, allowed_arguments="this expression typed safe")
def _divide(context: RuleContext) -> Operand:
    return arithmetic_operand(context, "/", _quotient, context.operand(), context.operand("expression"))


def _quotient(x: float, y: float) -> float:
    if not y:
        raise Undecided("division by zero")
    return x / y


@syntax_rule(exp.Mod, allowed_arguments="this expression")
def _remainder_syntax(context: RuleContext) -> Operand:
    return _mod(context, context.operand(), context.operand("expression"))


@function_rule("mod", 2)
def _mod(context: RuleContext, left: Operand, right: Operand) -> Operand:
    return arithmetic_operand(context, "%", signed_remainder, left, right)


def signed_remainder(x: Any, y: Any) -> Any:
    """The remainder, with the sign of the dividend."""
    if not y:
        raise Undecided("division by zero")
    rest = abs(x) % abs(y)
    return -rest if x < 0 else rest


@function_rule("pmod", 2)
def _positive_mod(context: RuleContext, left: Operand, right: Operand) -> Operand:
    def positive(x: Any, y: Any) -> Any:
        rest = signed_remainder(x, y)
        # Spark adds the two in their own type, in which large negative numbers overflow.
        return signed_remainder(check_integral_range(rest + y, "int") if y < 0 else rest + y, y) if rest < 0 else rest

    return arithmetic_operand(context, "%", positive, left, right)


@syntax_rule(exp.IntDiv, allowed_arguments="this expression")
def _integer_division(context: RuleContext) -> Operand:
    left, right = context.operand(), context.operand("expression")
    if left.type is None or right.type is None:
        return DATA_DEPENDENT
    if not (is_integral(left.type) and is_integral(right.type)):
        raise context.not_understood()
    return context.null_propagating_operand(
        BIGINT, lambda x, y: check_integral_range(_truncated_quotient(x, y), "bigint"), left, right
    )


def _truncated_quotient(x: int, y: int) -> int:
    if not y:
        raise Undecided("division by zero")
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


@syntax_rule(exp.Neg, allowed_arguments="this")
def _negate(context: RuleContext) -> Operand:
    return _negative(context, context.operand())


@function_rule("negative", 1)
def _negative(context: RuleContext, operand: Operand) -> Operand:
    return _same_type_operand(context, operand, operator.neg)


@function_rule("abs", 1)
def _abs(context: RuleContext, operand: Operand) -> Operand:
    return _same_type_operand(context, operand, abs)


@function_rule("positive", 1)
def _positive(context: RuleContext, operand: Operand) -> Operand:
    return _same_type_operand(context, operand, lambda value: value)


def _same_type_operand(context: RuleContext, operand: Operand, compute: Callable[[Any], Value]) -> Operand:
    """A numeric function whose result has the type of its argument."""
    type_ = operand.type
    if type_ is None:
        return DATA_DEPENDENT
    if type_.name in INTEGRAL_RANGES:
        return context.null_propagating_operand(
            type_, lambda value: check_integral_range(compute(value), type_.name), operand
        )
    if type_.name != "decimal" and type_ != DOUBLE:
        raise context.not_understood()
    return context.null_propagating_operand(type_, compute, operand)


@syntax_rule(exp.Ceil, allowed_arguments="this")
def _ceiling(context: RuleContext) -> Operand:
    return _round_to_integral(context, context.operand(), ROUND_CEILING)


@syntax_rule(exp.Floor, allowed_arguments="this")
def _floor(context: RuleContext) -> Operand:
    return _round_to_integral(context, context.operand(), ROUND_FLOOR)


def _round_to_integral(context: RuleContext, operand: Operand, rounding: str) -> Operand:
    if operand.type is None:
        return DATA_DEPENDENT
    if is_integral(operand.type):
        return context.cast_operand(operand, BIGINT)
    if operand.type.name != "decimal":
        raise context.not_understood()
    precision, scale = operand.type.args
    whole = decimal_up_to_max(precision - scale + 1, 0)
    return context.null_propagating_operand(whole, lambda value: value.to_integral_value(rounding), operand)
