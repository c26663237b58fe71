"""Comparisons, and what is made of them, by Spark's three-valued logic."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import BOOLEAN
from nova_assets.sql.evaluation.comparing import among, common_type, comparison
from nova_assets.sql.evaluation.operand import DATA, Operand, kleene
from nova_assets.sql.evaluation.rules import Application, function, syntax
from nova_assets.sql.evaluation.values import UNKNOWN, Value, Values
from nova_assets.sql.types.widening import VOID

_Sign = Callable[[Any, Any], bool]


def _as_condition(a: Application, operand: Operand) -> Operand:
    """A condition is a boolean. Spark refuses other types."""
    if operand.type not in (None, BOOLEAN, VOID):
        raise a.not_understood()
    return operand


@syntax(exp.And, arguments="this expression")
def _and(a: Application) -> Operand:
    return _combined(a, decisive=False)


@syntax(exp.Or, arguments="this expression")
def _or(a: Application) -> Operand:
    return _combined(a, decisive=True)


def _combined(a: Application, decisive: bool) -> Operand:
    parts = [_as_condition(a, a.evaluate(part)) for part in a.node.flatten()]
    return Operand(BOOLEAN, lambda values: kleene([p.value(values) for p in parts], decisive))


@syntax(exp.Not, arguments="this")
def _not(a: Application) -> Operand:
    return negated(a, _as_condition(a, a.operand()))


def negated(a: Application, operand: Operand) -> Operand:
    return a.computed(BOOLEAN, operator.not_, operand)


def compared(a: Application, sign: _Sign, left: Operand, right: Operand) -> Operand:
    """Two operands, compared as Spark compares their types. Raises NotUnderstood."""
    if left.type is None or right.type is None:
        return Operand(BOOLEAN, _null_or_unknown(left, right))
    casts = comparison(left.type, right.type, a.zone)
    if casts is None:
        raise a.not_understood()
    to_left, to_right = casts
    return a.computed(BOOLEAN, lambda x, y: sign(to_left(x), to_right(y)), left, right)


def _null_or_unknown(*operands: Operand) -> Callable[[Values], Value]:
    return lambda values: None if any(o.value(values) is None for o in operands) else UNKNOWN


def _comparing(sign: _Sign) -> Callable[[Application], Operand]:
    return lambda a: compared(a, sign, a.operand(), a.operand("expression"))


for _kind, _sign in (
    (exp.EQ, operator.eq),
    (exp.NEQ, operator.ne),
    (exp.GT, operator.gt),
    (exp.GTE, operator.ge),
    (exp.LT, operator.lt),
    (exp.LTE, operator.le),
):
    syntax(_kind, arguments="this expression")(_comparing(_sign))


@syntax(exp.NullSafeEQ, arguments="this expression")
def _null_safe_equal(a: Application) -> Operand:
    return equal_or_both_null(a, a.operand(), a.operand("expression"))


@syntax(exp.NullSafeNEQ, arguments="this expression")
def _null_safe_different(a: Application) -> Operand:
    return negated(a, _null_safe_equal(a))


@function("equal_null", 2)
def equal_or_both_null(a: Application, left: Operand, right: Operand) -> Operand:
    if left.type is None or right.type is None:
        return Operand(BOOLEAN, lambda values: UNKNOWN)
    casts = comparison(left.type, right.type, a.zone)
    if casts is None:
        raise a.not_understood()
    to_left, to_right = casts

    def value(values: Values) -> Value:
        x, y = left.value(values), right.value(values)
        if x is UNKNOWN or y is UNKNOWN:
            return UNKNOWN
        return a.decided(lambda: (None if x is None else to_left(x)) == (None if y is None else to_right(y)))

    return Operand(BOOLEAN, value)


@syntax(exp.Between, arguments="this low high")
def _between(a: Application) -> Operand:
    return between(a, a.operand(), a.operand("low"), a.operand("high"))


def between(a: Application, this: Operand, low: Operand, high: Operand) -> Operand:
    bounds = [compared(a, operator.ge, this, low), compared(a, operator.le, this, high)]
    return Operand(BOOLEAN, lambda values: kleene([b.value(values) for b in bounds], decisive=False))


@syntax(exp.In, arguments="this expressions")
def _in(a: Application) -> Operand:
    return one_of(a, a.operand(), a.operands())


def one_of(a: Application, this: Operand, choices: Sequence[Operand]) -> Operand:
    """``this IN (choices)``. The choices have one type, for of several Spark makes a third."""
    types = {c.type for c in choices if c.type is not None} - {VOID}
    if this.type is None or any(c.type is None for c in choices):
        return Operand(BOOLEAN, _null_or_unknown(this))
    if not choices or (len(types) > 1 and (common_type([*types]) is None or common_type([*types, this.type]) is None)):
        raise a.not_understood()
    equal = [_equal_among(a, this, c) for c in choices]
    return Operand(BOOLEAN, lambda values: kleene([e.value(values) for e in equal], decisive=True))


def _equal_among(a: Application, this: Operand, choice: Operand) -> Operand:
    assert this.type is not None and choice.type is not None
    casts = among(this.type, choice.type, a.zone)
    if casts is None:
        raise a.not_understood()
    to_this, to_choice = casts
    return a.computed(BOOLEAN, lambda x, y: to_this(x) == to_choice(y), this, choice)


@syntax(exp.Is, arguments="this expression")
def _is(a: Application) -> Operand:
    what = a.node.expression
    if type(what) is exp.Null:
        return is_null(a, a.operand())
    if type(what) is not exp.Boolean:
        raise a.not_understood()
    operand = _as_condition(a, a.operand())
    return _known(operand, lambda value: value is what.this)


def _known(operand: Operand, test: Callable[[Value], bool]) -> Operand:
    """A test that nulls pass or fail like other values."""

    def value(values: Values) -> Value:
        found = operand.value(values)
        return UNKNOWN if found is UNKNOWN else test(found)

    return Operand(BOOLEAN, value)


@function("isnull", 1)
def is_null(a: Application, operand: Operand) -> Operand:
    return _known(operand, lambda value: value is None)


@function("isnotnull", 1)
def is_not_null(a: Application, operand: Operand) -> Operand:
    return _known(operand, lambda value: value is not None)


# of several values, one


def together(a: Application, operands: Sequence[Operand]) -> tuple[DataType | None, list[Operand]]:
    """Operands that meet in one column, cast to the type that they have there. Raises NotUnderstood."""
    types = [o.type for o in operands]
    if any(t is None for t in types):
        return None, [o if o.type == VOID else DATA for o in operands]
    common = common_type([t for t in types if t is not None])
    if common is None:
        raise a.not_understood()
    return common, [a.as_type(o, common) for o in operands]


@syntax(exp.Case, arguments="this ifs default")
def _case(a: Application) -> Operand:
    branches = a.node.args["ifs"]
    tests = [a.evaluate(b.this) for b in branches]
    if a.node.args.get("this") is not None:
        this = a.operand()
        tests = [compared(a, operator.eq, this, t) for t in tests]
    default = a.node.args.get("default")
    results = [a.evaluate(b.args["true"]) for b in branches]
    return chosen(a, tests, results, a.evaluate(default) if default is not None else NULL)


NULL = Operand(VOID, lambda values: None)


def chosen(a: Application, tests: Sequence[Operand], results: Sequence[Operand], default: Operand) -> Operand:
    """The result of the first test that is true."""
    tests = [_as_condition(a, t) for t in tests]
    type_, (last, *then) = together(a, [default, *results])

    def value(values: Values) -> Value:
        for test, result in zip(tests, then, strict=True):
            passed = test.value(values)
            if passed is UNKNOWN:
                return UNKNOWN
            if passed is True:
                return result.value(values)
        return last.value(values)

    return Operand(type_, value)


@syntax(exp.If, arguments="this true false")
def _if_syntax(a: Application) -> Operand:
    otherwise = a.node.args.get("false")
    return chosen(a, [a.operand()], [a.operand("true")], NULL if otherwise is None else a.evaluate(otherwise))


@function("if", 3)
def _if(a: Application, test: Operand, then: Operand, otherwise: Operand) -> Operand:
    return chosen(a, [test], [then], otherwise)


@function("nvl2", 3)
def _nvl2(a: Application, test: Operand, present: Operand, missing: Operand) -> Operand:
    return chosen(a, [is_null(a, test)], [missing], present)


@function("nullif", 2)
def _nullif(a: Application, this: Operand, other: Operand) -> Operand:
    return chosen(a, [compared(a, operator.eq, this, other)], [NULL], this)


@syntax(exp.Coalesce, arguments="this expressions")
def _coalesce_syntax(a: Application) -> Operand:
    return coalesce(a, a.operand(), *a.operands())


@function("coalesce", 1, None)
def coalesce(a: Application, *operands: Operand) -> Operand:
    type_, parts = together(a, operands)

    def value(values: Values) -> Value:
        return next((v for p in parts if (v := p.value(values)) is not None), None)

    return Operand(type_, value)


@function("ifnull nvl", 2)
def _ifnull(a: Application, this: Operand, other: Operand) -> Operand:
    return coalesce(a, this, other)


@function("greatest", 2, None)
def _greatest(a: Application, *operands: Operand) -> Operand:
    return _extreme(a, operands, max)


@function("least", 2, None)
def _least(a: Application, *operands: Operand) -> Operand:
    return _extreme(a, operands, min)


def _extreme(a: Application, operands: Sequence[Operand], choose: Callable[[list[Value]], Value]) -> Operand:
    """Of values that are not null. Raises NotUnderstood."""
    type_, parts = together(a, operands)
    if type_ is not None and type_ != VOID and comparison(type_, type_, a.zone) is None:
        raise a.not_understood()

    def value(values: Values) -> Value:
        present = [v for p in parts if (v := p.value(values)) is not None]
        return UNKNOWN if UNKNOWN in present else choose(present) if present else None

    return Operand(type_, value)
