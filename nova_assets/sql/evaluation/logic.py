"""Evaluation rules for comparisons and conditional expressions, by Spark's three-valued logic."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import BOOLEAN, common_type, comparison_casts, in_list_casts
from nova_assets.sql.evaluation.operand import DATA_DEPENDENT, UNKNOWN, Operand, Value, Values, kleene_and_or
from nova_assets.sql.evaluation.rule_registry import RuleContext, function_rule, syntax_rule
from nova_assets.sql.types.widening import VOID

_Comparator = Callable[[Any, Any], bool]


def _require_boolean(context: RuleContext, operand: Operand) -> Operand:
    """The operand. Raises NotUnderstood for a type other than boolean, which Spark rejects as a condition."""
    if operand.type not in (None, BOOLEAN, VOID):
        raise context.not_understood()
    return operand


@syntax_rule(exp.And, allowed_arguments="this expression")
def _and(context: RuleContext) -> Operand:
    return _combine_conditions(context, decisive=False)


@syntax_rule(exp.Or, allowed_arguments="this expression")
def _or(context: RuleContext) -> Operand:
    return _combine_conditions(context, decisive=True)


def _combine_conditions(context: RuleContext, decisive: bool) -> Operand:
    parts = [_require_boolean(context, context.compile_part(part)) for part in context.node.flatten()]
    return Operand(BOOLEAN, lambda values: kleene_and_or([p.value(values) for p in parts], decisive))


@syntax_rule(exp.Not, allowed_arguments="this")
def _not(context: RuleContext) -> Operand:
    return negate(context, _require_boolean(context, context.operand()))


def negate(context: RuleContext, operand: Operand) -> Operand:
    return context.null_propagating_operand(BOOLEAN, operator.not_, operand)


def compare(context: RuleContext, comparator: _Comparator, left: Operand, right: Operand) -> Operand:
    """A comparison with Spark's implicit casts. Raises NotUnderstood."""
    if left.type is None or right.type is None:
        return Operand(BOOLEAN, _make_null_or_unknown_function(left, right))
    casts = comparison_casts(left.type, right.type, context.zone)
    if casts is None:
        raise context.not_understood()
    to_left, to_right = casts
    return context.null_propagating_operand(BOOLEAN, lambda x, y: comparator(to_left(x), to_right(y)), left, right)


def _make_null_or_unknown_function(*operands: Operand) -> Callable[[Values], Value]:
    return lambda values: None if any(o.value(values) is None for o in operands) else UNKNOWN


def _make_comparison_rule(comparator: _Comparator) -> Callable[[RuleContext], Operand]:
    return lambda context: compare(context, comparator, context.operand(), context.operand("expression"))


for _kind, _sign in (
    (exp.EQ, operator.eq),
    (exp.NEQ, operator.ne),
    (exp.GT, operator.gt),
    (exp.GTE, operator.ge),
    (exp.LT, operator.lt),
    (exp.LTE, operator.le),
):
    syntax_rule(_kind, allowed_arguments="this expression")(_make_comparison_rule(_sign))


@syntax_rule(exp.NullSafeEQ, allowed_arguments="this expression")
def _null_safe_equal(context: RuleContext) -> Operand:
    return equal_or_both_null(context, context.operand(), context.operand("expression"))


@syntax_rule(exp.NullSafeNEQ, allowed_arguments="this expression")
def _null_safe_different(context: RuleContext) -> Operand:
    return negate(context, _null_safe_equal(context))


@function_rule("equal_null", 2)
def equal_or_both_null(context: RuleContext, left: Operand, right: Operand) -> Operand:
    if left.type is None or right.type is None:
        return Operand(BOOLEAN, lambda values: UNKNOWN)
    casts = comparison_casts(left.type, right.type, context.zone)
    if casts is None:
        raise context.not_understood()
    to_left, to_right = casts

    def value(values: Values) -> Value:
        x, y = left.value(values), right.value(values)
        if x is UNKNOWN or y is UNKNOWN:
            return UNKNOWN
        return context.call_catching_undecided(
            lambda: (None if x is None else to_left(x)) == (None if y is None else to_right(y))
        )

    return Operand(BOOLEAN, value)


@syntax_rule(exp.Between, allowed_arguments="this low high")
def _between(context: RuleContext) -> Operand:
    return between(context, context.operand(), context.operand("low"), context.operand("high"))


def between(context: RuleContext, operand: Operand, low: Operand, high: Operand) -> Operand:
    bounds = [compare(context, operator.ge, operand, low), compare(context, operator.le, operand, high)]
    return Operand(BOOLEAN, lambda values: kleene_and_or([b.value(values) for b in bounds], decisive=False))


@syntax_rule(exp.In, allowed_arguments="this expressions")
def _in(context: RuleContext) -> Operand:
    return in_list(context, context.operand(), context.operands())


def in_list(context: RuleContext, operand: Operand, choices: Sequence[Operand]) -> Operand:
    """``this IN (choices)``. The choices must have one common type, because Spark casts different types to a third."""
    types = {c.type for c in choices if c.type is not None} - {VOID}
    if operand.type is None or any(c.type is None for c in choices):
        return Operand(BOOLEAN, _make_null_or_unknown_function(operand))
    if not choices or (
        len(types) > 1 and (common_type([*types]) is None or common_type([*types, operand.type]) is None)
    ):
        raise context.not_understood()
    equal = [_equals_choice(context, operand, c) for c in choices]
    return Operand(BOOLEAN, lambda values: kleene_and_or([e.value(values) for e in equal], decisive=True))


def _equals_choice(context: RuleContext, operand: Operand, choice: Operand) -> Operand:
    assert operand.type is not None and choice.type is not None
    casts = in_list_casts(operand.type, choice.type, context.zone)
    if casts is None:
        raise context.not_understood()
    to_this, to_choice = casts
    return context.null_propagating_operand(BOOLEAN, lambda x, y: to_this(x) == to_choice(y), operand, choice)


@syntax_rule(exp.Is, allowed_arguments="this expression")
def _is(context: RuleContext) -> Operand:
    tested_literal = context.node.expression
    if type(tested_literal) is exp.Null:
        return is_null(context, context.operand())
    if type(tested_literal) is not exp.Boolean:
        raise context.not_understood()
    operand = _require_boolean(context, context.operand())
    return _test_including_null(operand, lambda value: value is tested_literal.this)


def _test_including_null(operand: Operand, test: Callable[[Value], bool]) -> Operand:
    """A test that also accepts null as a value."""

    def value(values: Values) -> Value:
        found = operand.value(values)
        return UNKNOWN if found is UNKNOWN else test(found)

    return Operand(BOOLEAN, value)


@function_rule("isnull", 1)
def is_null(context: RuleContext, operand: Operand) -> Operand:
    return _test_including_null(operand, lambda value: value is None)


@function_rule("isnotnull", 1)
def is_not_null(context: RuleContext, operand: Operand) -> Operand:
    return _test_including_null(operand, lambda value: value is not None)


# conditional expressions


def cast_to_common_type(context: RuleContext, operands: Sequence[Operand]) -> tuple[DataType | None, list[Operand]]:
    """Operands cast to their common type. Raises NotUnderstood."""
    types = [o.type for o in operands]
    if any(t is None for t in types):
        return None, [o if o.type == VOID else DATA_DEPENDENT for o in operands]
    common = common_type([t for t in types if t is not None])
    if common is None:
        raise context.not_understood()
    return common, [context.cast_operand(o, common) for o in operands]


@syntax_rule(exp.Case, allowed_arguments="this ifs default")
def _case(context: RuleContext) -> Operand:
    branches = context.node.args["ifs"]
    tests = [context.compile_part(b.this) for b in branches]
    if context.node.args.get("this") is not None:
        this = context.operand()
        tests = [compare(context, operator.eq, this, t) for t in tests]
    default = context.node.args.get("default")
    results = [context.compile_part(b.args["true"]) for b in branches]
    return case_operand(context, tests, results, context.compile_part(default) if default is not None else NULL)


NULL = Operand(VOID, lambda values: None)


def case_operand(
    context: RuleContext, tests: Sequence[Operand], results: Sequence[Operand], default: Operand
) -> Operand:
    """The result of the first test that is true."""
    tests = [_require_boolean(context, t) for t in tests]
    type_, (last, *then) = cast_to_common_type(context, [default, *results])

    def value(values: Values) -> Value:
        for test, result in zip(tests, then, strict=True):
            passed = test.value(values)
            if passed is UNKNOWN:
                return UNKNOWN
            if passed is True:
                return result.value(values)
        return last.value(values)

    return Operand(type_, value)


@syntax_rule(exp.If, allowed_arguments="this true false")
def _if_syntax(context: RuleContext) -> Operand:
    otherwise = context.node.args.get("false")
    return case_operand(
        context,
        [context.operand()],
        [context.operand("true")],
        NULL if otherwise is None else context.compile_part(otherwise),
    )


@function_rule("if", 3)
def _if(context: RuleContext, test: Operand, then: Operand, otherwise: Operand) -> Operand:
    return case_operand(context, [test], [then], otherwise)


@function_rule("nvl2", 3)
def _nvl2(context: RuleContext, test: Operand, present: Operand, missing: Operand) -> Operand:
    return case_operand(context, [is_null(context, test)], [missing], present)


@function_rule("nullif", 2)
def _nullif(context: RuleContext, this: Operand, other: Operand) -> Operand:
    return case_operand(context, [compare(context, operator.eq, this, other)], [NULL], this)


@syntax_rule(exp.Coalesce, allowed_arguments="this expressions")
def _coalesce_syntax(context: RuleContext) -> Operand:
    return coalesce(context, context.operand(), *context.operands())


@function_rule("coalesce", 1, None)
def coalesce(context: RuleContext, *operands: Operand) -> Operand:
    type_, parts = cast_to_common_type(context, operands)

    def value(values: Values) -> Value:
        return next((v for p in parts if (v := p.value(values)) is not None), None)

    return Operand(type_, value)


@function_rule("ifnull nvl", 2)
def _ifnull(context: RuleContext, this: Operand, other: Operand) -> Operand:
    return coalesce(context, this, other)


@function_rule("greatest", 2, None)
def _greatest(context: RuleContext, *operands: Operand) -> Operand:
    return _greatest_or_least(context, operands, max)


@function_rule("least", 2, None)
def _least(context: RuleContext, *operands: Operand) -> Operand:
    return _greatest_or_least(context, operands, min)


def _greatest_or_least(
    context: RuleContext, operands: Sequence[Operand], pick: Callable[[list[Value]], Value]
) -> Operand:
    """The greatest or least non-null value. Raises NotUnderstood."""
    type_, parts = cast_to_common_type(context, operands)
    if type_ is not None and type_ != VOID and comparison_casts(type_, type_, context.zone) is None:
        raise context.not_understood()

    def value(values: Values) -> Value:
        present = [v for p in parts if (v := p.value(values)) is not None]
        return UNKNOWN if UNKNOWN in present else pick(present) if present else None

    return Operand(type_, value)
