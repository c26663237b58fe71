"""Evaluation rules for arithmetic. A result outside the range of its type is undecided."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import (
    BIGINT,
    DOUBLE,
    EXACT_DECIMAL_CONTEXT,
    INTEGRAL_RANGES,
    check_integral_range,
    is_exact_number,
)
from nova_assets.sql.evaluation.operand import DATA_DEPENDENT, NULL, Operand, Undecided, Value
from nova_assets.sql.evaluation.rule_registry import (
    RuleContext,
    function_rule,
    register_function_syntax,
    syntax_rule,
)
from nova_assets.sql.types.widening import MAX_DIGITS, VOID, arithmetic_type, as_decimal, is_integral, whole_number_type

Compute = Callable[[Any, Any], Any]


def arithmetic_operand(context: RuleContext, symbol: str, calculate: Compute, left: Operand, right: Operand) -> Operand:
    """An arithmetic operation on two numbers. Raises NotUnderstood for types without exact arithmetic."""
    if left.type is None or right.type is None:
        return DATA_DEPENDENT
    if VOID in (left.type, right.type):
        return NULL
    if not (is_exact_number(left.type) and is_exact_number(right.type)):
        raise context.not_understood()
    type_ = arithmetic_type(symbol, left.type, right.type)
    if type_ is None:
        raise context.not_understood()
    if type_.name in INTEGRAL_RANGES:
        return context.null_propagating_operand(
            type_, lambda x, y: check_integral_range(calculate(x, y), type_.name), left, right
        )
    if type_ != DOUBLE and not _has_exact_decimal_result(symbol, left.type, right.type):
        raise context.not_understood()
    convert, exactly = float if type_ == DOUBLE else Decimal, _with_all_digits(calculate)
    return context.null_propagating_operand(type_, lambda x, y: exactly(convert(x), convert(y)), left, right)


def _with_all_digits(compute: Callable[..., Any]) -> Callable[..., Any]:
    """The function, computed with all digits of a decimal. Python rounds to 28 by default."""

    def compute_exactly(*values: Any) -> Any:
        with localcontext(EXACT_DECIMAL_CONTEXT):
            return compute(*values)

    return compute_exactly


def _has_exact_decimal_result(symbol: str, a: DataType, b: DataType) -> bool:
    """Whether the decimal result type has enough digits, so that nothing is rounded."""
    (p, s), (q, t) = as_decimal(a).args, as_decimal(b).args
    digits = {"*": p + q + 1, "+": max(p - s, q - t) + max(s, t) + 1, "%": max(p - s, q - t) + max(s, t)}
    return digits.get({"-": "+"}.get(symbol, symbol), MAX_DIGITS + 1) <= MAX_DIGITS


@syntax_rule(exp.Mul, allowed_arguments="this expression")
def _multiply(context: RuleContext) -> Operand:
    return arithmetic_operand(context, "*", operator.mul, *context.operands("this", "expression"))


@syntax_rule(exp.Div, allowed_arguments="this expression typed safe")
def _divide(context: RuleContext) -> Operand:
    return arithmetic_operand(context, "/", operator.truediv, *context.operands("this", "expression"))


@function_rule("mod", 2)
def _mod(context: RuleContext, left: Operand, right: Operand) -> Operand:
    return arithmetic_operand(context, "%", _signed_remainder, left, right)


register_function_syntax(exp.Mod, "this expression", "mod")


def _signed_remainder(x: Any, y: Any) -> Any:
    """The remainder, with the sign of the dividend."""
    if not y:
        raise Undecided("division by zero")
    rest = abs(x) % abs(y)
    return -rest if x < 0 else rest


@function_rule("pmod", 2)
def _positive_mod(context: RuleContext, left: Operand, right: Operand) -> Operand:
    def positive(x: Any, y: Any) -> Any:
        rest = _signed_remainder(x, y)
        # Spark adds the two in their own type, in which large negative numbers overflow.
        return _signed_remainder(check_integral_range(rest + y, "int") if y < 0 else rest + y, y) if rest < 0 else rest

    return arithmetic_operand(context, "%", positive, left, right)


@syntax_rule(exp.IntDiv, allowed_arguments="this expression")
def _integer_division(context: RuleContext) -> Operand:
    left, right = context.operands("this", "expression")
    if left.type is None or right.type is None:
        return DATA_DEPENDENT
    if not (is_integral(left.type) and is_integral(right.type)):
        raise context.not_understood()
    return context.null_propagating_operand(
        BIGINT, lambda x, y: check_integral_range(_truncated_quotient(x, y), "bigint"), left, right
    )


def _truncated_quotient(x: int, y: int) -> int:
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _register_same_type_function(name: str, compute: Callable[[Any], Value]) -> None:
    """Register a numeric function whose result has the type of its argument."""

    def rule(context: RuleContext, operand: Operand) -> Operand:
        type_ = operand.type
        if type_ is None:
            return DATA_DEPENDENT
        if type_.name in INTEGRAL_RANGES:
            return context.null_propagating_operand(
                type_, lambda value: check_integral_range(compute(value), type_.name), operand
            )
        if type_.name != "decimal" and type_ != DOUBLE:
            raise context.not_understood()
        return context.null_propagating_operand(type_, _with_all_digits(compute), operand)

    function_rule(name, 1)(rule)


_register_same_type_function("negative", operator.neg)
_register_same_type_function("abs", abs)
_register_same_type_function("positive", lambda value: value)
register_function_syntax(exp.Neg, "this", "negative")


@syntax_rule(exp.Ceil, exp.Floor, allowed_arguments="this")
def _round_to_integral(context: RuleContext) -> Operand:
    operand = context.operand()
    if operand.type is None:
        return DATA_DEPENDENT
    if is_integral(operand.type):
        return context.cast_operand(operand, BIGINT)
    if operand.type.name != "decimal":
        raise context.not_understood()
    rounding = ROUND_CEILING if type(context.node) is exp.Ceil else ROUND_FLOOR
    whole = whole_number_type(operand.type)
    return context.null_propagating_operand(whole, lambda value: value.to_integral_value(rounding), operand)
