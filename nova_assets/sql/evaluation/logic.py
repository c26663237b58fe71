"""Evaluation rules for comparisons and conditional expressions, by Spark's three-valued logic."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import BOOLEAN
from nova_assets.sql.evaluation.implicit_casts import common_type, comparison_casts, in_list_casts
from nova_assets.sql.evaluation.operand import DATA_DEPENDENT, Operand, kleene_and_or
from nova_assets.sql.evaluation.rule_registry import Application, function_rule, syntax_rule
from nova_assets.sql.evaluation.values import UNKNOWN, Value, Values
from nova_assets.sql.types.widening import VOID

_Comparator = Callable[[Any, Any], bool]


def _require_boolean(a: Application, operand: Operand) -> Operand:
    """The operand. Raises NotUnderstood for a type other than boolean, which Spark rejects as a condition."""
    if operand.type not in (None, BOOLEAN, VOID):
        raise a.not_understood()
    return operand


@syntax_rule(exp.And, allowed_arguments="this expression")
def _and(a: Application) -> Operand:
    return _combine_conditions(a, decisive=False)


@syntax_rule(exp.Or, allowed_arguments="this expression")
def _or(a: Application) -> Operand:
    return _combine_conditions(a, decisive=True)


def _combine_conditions(a: Application, decisive: bool) -> Operand:
    parts = [_require_boolean(a, a.evaluate(part)) for part in a.node.flatten()]
    return Operand(BOOLEAN, lambda values: kleene_and_or([p.value(values) for p in parts], decisive))


@syntax_rule(exp.Not, allowed_arguments="this")
def _not(a: Application) -> Operand:
    return negate(a, _require_boolean(a, a.operand()))


def negate(a: Application, operand: Operand) -> Operand:
    return a.null_propagating(BOOLEAN, operator.not_, operand)


def compare(a: Application, comparator: _Comparator, left: Operand, right: Operand) -> Operand:
    """A comparison with Spark's implicit casts. Raises NotUnderstood."""
    if left.type is None or right.type is None:
        return Operand(BOOLEAN, _make_null_or_unknown(left, right))
    casts = comparison_casts(left.type, right.type, a.zone)
    if casts is None:
        raise a.not_understood()
    to_left, to_right = casts
    return a.null_propagating(BOOLEAN, lambda x, y: comparator(to_left(x), to_right(y)), left, right)


def _make_null_or_unknown(*operands: Operand) -> Callable[[Values], Value]:
    return lambda values: None if any(o.value(values) is None for o in operands) else UNKNOWN


def _make_comparison_rule(comparator: _Comparator) -> Callable[[Application], Operand]:
    return lambda a: compare(a, comparator, a.operand(), a.operand("expression"))


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
def _null_safe_equal(a: Application) -> Operand:
    return equal_or_both_null(a, a.operand(), a.operand("expression"))


@syntax_rule(exp.NullSafeNEQ, allowed_arguments="this expression")
def _null_safe_different(a: Application) -> Operand:
    return negate(a, _null_safe_equal(a))


@function_rule("equal_null", 2)
def equal_or_both_null(a: Application, left: Operand, right: Operand) -> Operand:
    if left.type is None or right.type is None:
        return Operand(BOOLEAN, lambda values: UNKNOWN)
    casts = comparison_casts(left.type, right.type, a.zone)
    if casts is None:
        raise a.not_understood()
    to_left, to_right = casts

    def value(values: Values) -> Value:
        x, y = left.value(values), right.value(values)
        if x is UNKNOWN or y is UNKNOWN:
            return UNKNOWN
        return a.call_catching_undecided(
            lambda: (None if x is None else to_left(x)) == (None if y is None else to_right(y))
        )

    return Operand(BOOLEAN, value)


@syntax_rule(exp.Between, allowed_arguments="this low high")
def _between(a: Application) -> Operand:
    return between(a, a.operand(), a.operand("low"), a.operand("high"))


def between(a: Application, operand: Operand, low: Operand, high: Operand) -> Operand:
    bounds = [compare(a, operator.ge, operand, low), compare(a, operator.le, operand, high)]
    return Operand(BOOLEAN, lambda values: kleene_and_or([b.value(values) for b in bounds], decisive=False))


@syntax_rule(exp.In, allowed_arguments="this expressions")
def _in(a: Application) -> Operand:
    return in_list(a, a.operand(), a.operands())


def in_list(a: Application, operand: Operand, choices: Sequence[Operand]) -> Operand:
    """``this IN (choices)``. The choices must have one common type, because Spark casts different types to a third."""
    types = {c.type for c in choices if c.type is not None} - {VOID}
    if operand.type is None or any(c.type is None for c in choices):
        return Operand(BOOLEAN, _make_null_or_unknown(operand))
    if not choices or (
        len(types) > 1 and (common_type([*types]) is None or common_type([*types, operand.type]) is None)
    ):
        raise a.not_understood()
    equal = [_equals_choice(a, operand, c) for c in choices]
    return Operand(BOOLEAN, lambda values: kleene_and_or([e.value(values) for e in equal], decisive=True))


def _equals_choice(a: Application, operand: Operand, choice: Operand) -> Operand:
    assert operand.type is not None and choice.type is not None
    casts = in_list_casts(operand.type, choice.type, a.zone)
    if casts is None:
        raise a.not_understood()
    to_this, to_choice = casts
    return a.null_propagating(BOOLEAN, lambda x, y: to_this(x) == to_choice(y), operand, choice)


@syntax_rule(exp.Is, allowed_arguments="this expression")
def _is(a: Application) -> Operand:
    tested_literal = a.node.expression
    if type(tested_literal) is exp.Null:
        return is_null(a, a.operand())
    if type(tested_literal) is not exp.Boolean:
        raise a.not_understood()
    operand = _require_boolean(a, a.operand())
    return _test_including_null(operand, lambda value: value is tested_literal.this)


def _test_including_null(operand: Operand, test: Callable[[Value], bool]) -> Operand:
    """A test that also accepts null as a value."""

    def value(values: Values) -> Value:
        found = operand.value(values)
        return UNKNOWN if found is UNKNOWN else test(found)

    return Operand(BOOLEAN, value)


@function_rule("isnull", 1)
def is_null(a: Application, operand: Operand) -> Operand:
    return _test_including_null(operand, lambda value: value is None)


@function_rule("isnotnull", 1)
def is_not_null(a: Application, operand: Operand) -> Operand:
    return _test_including_null(operand, lambda value: value is not None)


# conditional expressions


def cast_to_common_type(a: Application, operands: Sequence[Operand]) -> tuple[DataType | None, list[Operand]]:
    """Operands cast to their common type. Raises NotUnderstood."""
    types = [o.type for o in operands]
    if any(t is None for t in types):
        return None, [o if o.type == VOID else DATA_DEPENDENT for o in operands]
    common = common_type([t for t in types if t is not None])
    if common is None:
        raise a.not_understood()
    return common, [a.cast_operand(o, common) for o in operands]


@syntax_rule(exp.Case, allowed_arguments="this ifs default")
def _case(a: Application) -> Operand:
    branches = a.node.args["ifs"]
    tests = [a.evaluate(b.this) for b in branches]
    if a.node.args.get("this") is not None:
        this = a.operand()
        tests = [compare(a, operator.eq, this, t) for t in tests]
    default = a.node.args.get("default")
    results = [a.evaluate(b.args["true"]) for b in branches]
    return case_when(a, tests, results, a.evaluate(default) if default is not None else NULL)


NULL = Operand(VOID, lambda values: None)


def case_when(a: Application, tests: Sequence[Operand], results: Sequence[Operand], default: Operand) -> Operand:
    """The result of the first test that is true."""
    tests = [_require_boolean(a, t) for t in tests]
    type_, (last, *then) = cast_to_common_type(a, [default, *results])

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
def _if_syntax(a: Application) -> Operand:
    otherwise = a.node.args.get("false")
    return case_when(a, [a.operand()], [a.operand("true")], NULL if otherwise is None else a.evaluate(otherwise))


@function_rule("if", 3)
def _if(a: Application, test: Operand, then: Operand, otherwise: Operand) -> Operand:
    return case_when(a, [test], [then], otherwise)


@function_rule("nvl2", 3)
def _nvl2(a: Application, test: Operand, present: Operand, missing: Operand) -> Operand:
    return case_when(a, [is_null(a, test)], [missing], present)


@function_rule("nullif", 2)
def _nullif(a: Application, this: Operand, other: Operand) -> Operand:
    return case_when(a, [compare(a, operator.eq, this, other)], [NULL], this)


@syntax_rule(exp.Coalesce, allowed_arguments="this expressions")
def _coalesce_syntax(a: Application) -> Operand:
    return coalesce(a, a.operand(), *a.operands())


@function_rule("coalesce", 1, None)
def coalesce(a: Application, *operands: Operand) -> Operand:
    type_, parts = cast_to_common_type(a, operands)

    def value(values: Values) -> Value:
        return next((v for p in parts if (v := p.value(values)) is not None), None)

    return Operand(type_, value)


@function_rule("ifnull nvl", 2)
def _ifnull(a: Application, this: Operand, other: Operand) -> Operand:
    return coalesce(a, this, other)


@function_rule("greatest", 2, None)
def _greatest(a: Application, *operands: Operand) -> Operand:
    return _greatest_or_least(a, operands, max)


@function_rule("least", 2, None)
def _least(a: Application, *operands: Operand) -> Operand:
    return _greatest_or_least(a, operands, min)


def _greatest_or_least(a: Application, operands: Sequence[Operand], pick: Callable[[list[Value]], Value]) -> Operand:
    """The greatest or least non-null value. Raises NotUnderstood."""
    type_, parts = cast_to_common_type(a, operands)
    if type_ is not None and type_ != VOID and comparison_casts(type_, type_, a.zone) is None:
        raise a.not_understood()

    def value(values: Values) -> Value:
        present = [v for p in parts if (v := p.value(values)) is not None]
        return UNKNOWN if UNKNOWN in present else pick(present) if present else None

    return Operand(type_, value)
