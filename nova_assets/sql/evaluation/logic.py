"""Evaluation rules for literals, casts, comparisons and conditional expressions, by Spark's three-valued logic."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGRAL_RANGES,
    STRING,
    TIMESTAMP,
    Cast,
    common_type,
    comparison_casts,
    in_list_casts,
)
from nova_assets.sql.evaluation.operand import (
    DATA_DEPENDENT,
    NULL,
    UNKNOWN,
    Operand,
    Value,
    Values,
    kleene_and_or,
)
from nova_assets.sql.evaluation.rule_registry import (
    RuleContext,
    apply_function,
    function_rule,
    register_function_syntax,
    syntax_rule,
)
from nova_assets.sql.types.node_types import literal_type
from nova_assets.sql.types.type_nodes import data_type_of_node
from nova_assets.sql.types.widening import MAX_DIGITS, VOID

# literals and casts

_NUMBER_LITERAL = re.compile(r"[0-9]+|[0-9]*\.[0-9]*|[0-9]*\.?[0-9]*[eE][+-]?[0-9]{1,2}")


@syntax_rule(exp.Literal, allowed_arguments="this is_string")
def _literal(context: RuleContext) -> Operand:
    text = str(context.node.name)
    if context.node.is_string:
        return _constant(STRING, text)
    if not _NUMBER_LITERAL.fullmatch(text) or len(text) > MAX_DIGITS:
        raise context.not_understood()
    type_ = literal_type(context.node)
    return _constant(type_, {"decimal": Decimal, "double": float}.get(type_.name, int)(text))


def _constant(type_: DataType, value: Value) -> Operand:
    return Operand(type_, lambda values: value)


@syntax_rule(exp.Boolean, allowed_arguments="this")
def _boolean(context: RuleContext) -> Operand:
    return _constant(BOOLEAN, bool(context.node.this))


@syntax_rule(exp.Null, allowed_arguments="")
def _null(context: RuleContext) -> Operand:
    return NULL


@syntax_rule(exp.Paren, allowed_arguments="this")
@syntax_rule(exp.Alias, allowed_arguments="this alias")
def _same_value(context: RuleContext) -> Operand:
    return context.operand()


@syntax_rule(exp.Cast, exp.TryCast, allowed_arguments="this to safe")
def _cast(context: RuleContext) -> Operand:
    target = data_type_of_node(context.node.args["to"])
    if target is None:
        raise context.not_understood()
    return context.cast_operand(context.operand(), target)


_CAST_FUNCTIONS = {
    type_.name: type_
    for type_ in (
        STRING,
        BOOLEAN,
        DATE,
        TIMESTAMP,
        DOUBLE,
        DataType("decimal", (10, 0)),
        *map(DataType, INTEGRAL_RANGES),
    )
}


@function_rule(" ".join(_CAST_FUNCTIONS), 1)
def _cast_function(context: RuleContext, operand: Operand) -> Operand:
    return context.cast_operand(operand, _CAST_FUNCTIONS[context.node.name.lower()])


# logic


@syntax_rule(exp.And, exp.Or, allowed_arguments="this expression")
def _and_or(context: RuleContext) -> Operand:
    parts = [_require_boolean(context, context.compile_part(part)) for part in context.node.flatten()]
    return _combine(parts, decisive=type(context.node) is exp.Or)


def _require_boolean(context: RuleContext, operand: Operand) -> Operand:
    """The operand. Raises NotUnderstood for a type other than boolean, which Spark rejects as a condition."""
    if operand.type not in (None, BOOLEAN, VOID):
        raise context.not_understood()
    return operand


def _combine(parts: Sequence[Operand], *, decisive: bool) -> Operand:
    """The parts, combined by AND (``decisive`` is False) or OR (True)."""
    return Operand(BOOLEAN, lambda values: kleene_and_or([p.value(values) for p in parts], decisive))


@syntax_rule(exp.Not, allowed_arguments="this")
def _not(context: RuleContext) -> Operand:
    return negate(context, _require_boolean(context, context.operand()))


def negate(context: RuleContext, operand: Operand) -> Operand:
    return context.null_propagating_operand(BOOLEAN, operator.not_, operand)


# comparisons


def _compare(
    context: RuleContext,
    comparator: Callable[[Any, Any], bool],
    left: Operand,
    right: Operand,
    *,
    find_casts: Callable[..., tuple[Cast, Cast] | None] = comparison_casts,
) -> Operand:
    """A comparison with Spark's implicit casts. Raises NotUnderstood."""
    if left.type is None or right.type is None:
        return context.null_propagating_operand(BOOLEAN, comparator, left, right)  # null or unknown
    to_left, to_right = _require_casts(context, find_casts(left.type, right.type, context.zone))
    return context.null_propagating_operand(BOOLEAN, lambda x, y: comparator(to_left(x), to_right(y)), left, right)


def _require_casts(context: RuleContext, casts: tuple[Cast, Cast] | None) -> tuple[Cast, Cast]:
    if casts is None:
        raise context.not_understood()
    return casts


_COMPARATOR_BY_NODE_CLASS: Mapping[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
}


@syntax_rule(*_COMPARATOR_BY_NODE_CLASS, allowed_arguments="this expression")
def _comparison(context: RuleContext) -> Operand:
    comparator = _COMPARATOR_BY_NODE_CLASS[type(context.node)]
    return _compare(context, comparator, *context.operands("this", "expression"))


@function_rule("equal_null", 2)
def _equal_or_both_null(context: RuleContext, left: Operand, right: Operand) -> Operand:
    if left.type is None or right.type is None:
        return Operand(BOOLEAN, DATA_DEPENDENT.value)
    to_left, to_right = _require_casts(context, comparison_casts(left.type, right.type, context.zone))

    def value(values: Values) -> Value:
        x, y = left.value(values), right.value(values)
        if x is UNKNOWN or y is UNKNOWN:
            return UNKNOWN
        return context.call_catching_undecided(
            lambda: (None if x is None else to_left(x)) == (None if y is None else to_right(y))
        )

    return Operand(BOOLEAN, value)


register_function_syntax(exp.NullSafeEQ, "this expression", "equal_null")


@syntax_rule(exp.NullSafeNEQ, allowed_arguments="this expression")
def _null_safe_different(context: RuleContext) -> Operand:
    return negate(context, _equal_or_both_null(context, *context.operands("this", "expression")))


@syntax_rule(exp.Between, allowed_arguments="this low high")
def _between(context: RuleContext) -> Operand:
    operand, low, high = context.operands("this", "low", "high")
    bounds = [_compare(context, operator.ge, operand, low), _compare(context, operator.le, operand, high)]
    return _combine(bounds, decisive=False)


@syntax_rule(exp.In, allowed_arguments="this expressions")
def _in(context: RuleContext) -> Operand:
    """``this IN (choices)``. The choices must have one common type, because Spark casts different types to a third."""
    operand, *choices = context.operands("this", "expressions")
    types = {c.type for c in choices if c.type is not None} - {VOID}
    if operand.type is None or any(c.type is None for c in choices):
        return context.null_propagating_operand(BOOLEAN, operator.eq, operand, DATA_DEPENDENT)  # null or unknown
    if not choices or (len(types) > 1 and None in (common_type([*types]), common_type([*types, operand.type]))):
        raise context.not_understood()
    return _combine(
        [_compare(context, operator.eq, operand, c, find_casts=in_list_casts) for c in choices], decisive=True
    )


@syntax_rule(exp.Is, allowed_arguments="this expression")
def _is(context: RuleContext) -> Operand:
    tested_literal = context.node.expression
    if type(tested_literal) is exp.Null:
        return apply_function(context, "isnull", context.operand())
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
def _is_null(context: RuleContext, operand: Operand) -> Operand:
    return _test_including_null(operand, lambda value: value is None)


@function_rule("isnotnull", 1)
def _is_not_null(context: RuleContext, operand: Operand) -> Operand:
    return _test_including_null(operand, lambda value: value is not None)


# conditional expressions


def _cast_to_common_type(context: RuleContext, operands: Sequence[Operand]) -> tuple[DataType | None, list[Operand]]:
    """Operands cast to their common type. Raises NotUnderstood."""
    types = [o.type for o in operands if o.type is not None]
    if len(types) < len(operands):
        return None, [o if o.type == VOID else DATA_DEPENDENT for o in operands]
    common = common_type(types)
    if common is None:
        raise context.not_understood()
    return common, [context.cast_operand(o, common) for o in operands]


@syntax_rule(exp.Case, allowed_arguments="this ifs default")
def _case(context: RuleContext) -> Operand:
    branches = context.node.args["ifs"]
    tests = [context.compile_part(b.this) for b in branches]
    for this in context.operands("this"):
        tests = [_compare(context, operator.eq, this, t) for t in tests]
    results = [context.compile_part(b.args["true"]) for b in branches]
    return _choose(context, tests, results, *context.operands("default"))


def _choose(
    context: RuleContext, tests: Sequence[Operand], results: Sequence[Operand], default: Operand = NULL
) -> Operand:
    """The result of the first test that is true."""
    tests = [_require_boolean(context, t) for t in tests]
    type_, (last, *then) = _cast_to_common_type(context, [default, *results])

    def value(values: Values) -> Value:
        for test, result in zip(tests, then, strict=True):
            passed = test.value(values)
            if passed is UNKNOWN:
                return UNKNOWN
            if passed is True:
                return result.value(values)
        return last.value(values)

    return Operand(type_, value)


@function_rule("if", 3)
def _if(context: RuleContext, test: Operand, then: Operand, otherwise: Operand) -> Operand:
    return _choose(context, [test], [then], otherwise)


@function_rule("nvl2", 3)
def _nvl2(context: RuleContext, test: Operand, present: Operand, missing: Operand) -> Operand:
    return _choose(context, [_is_null(context, test)], [missing], present)


@function_rule("nullif", 2)
def _nullif(context: RuleContext, this: Operand, other: Operand) -> Operand:
    return _choose(context, [_compare(context, operator.eq, this, other)], [NULL], this)


@function_rule("coalesce", 1, None)
def _coalesce(context: RuleContext, *operands: Operand) -> Operand:
    type_, parts = _cast_to_common_type(context, operands)
    return Operand(type_, lambda values: next((v for p in parts if (v := p.value(values)) is not None), None))


function_rule("ifnull nvl", 2)(_coalesce)
register_function_syntax(exp.Coalesce, "this expressions", "coalesce")


def _register_extreme(name: str, pick: Callable[[list[Value]], Value]) -> None:
    """Register a function that returns the greatest or the least of its non-null arguments."""

    def rule(context: RuleContext, *operands: Operand) -> Operand:
        type_, parts = _cast_to_common_type(context, operands)
        if type_ is not None and type_ != VOID and comparison_casts(type_, type_, context.zone) is None:
            raise context.not_understood()

        def value(values: Values) -> Value:
            present = [v for p in parts if (v := p.value(values)) is not None]
            return UNKNOWN if UNKNOWN in present else pick(present) if present else None

        return Operand(type_, value)

    function_rule(name, 2, None)(rule)


_register_extreme("greatest", max)
_register_extreme("least", min)
