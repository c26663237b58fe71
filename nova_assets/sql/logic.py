"""Comparisons, and what is made of them; null and unknown apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import tzinfo
from functools import reduce
from typing import Any

from sqlglot import exp

from nova_assets.sql.computing import CannotCompute, Make, Special, called, kleene, strict
from nova_assets.sql.values import UNKNOWN, Function, Value, Values, alike, at_least, of_one_type, same


def _and(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    parts = [make(p) for p in node.flatten()]
    return lambda values: kleene([p(values) for p in parts], decisive=False)


def _or(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    parts = [make(p) for p in node.flatten()]
    return lambda values: kleene([p(values) for p in parts], decisive=True)


def _not(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    return strict(lambda v: not v, make(node.this))


def _compared(sign: Callable[[Any, Any], bool]) -> Special:
    def made(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
        return strict(lambda a, b: sign(*alike(a, b, zone)), make(node.this), make(node.expression))

    return made


def _null_safe(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    left, right = make(node.this), make(node.expression)

    def computed(values: Values) -> Value:
        a, b = left(values), right(values)
        if a is UNKNOWN or b is UNKNOWN:
            return UNKNOWN
        return a is b if a is None or b is None else same(*alike(a, b, zone))

    return computed


def _in(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    if node.args.get("query") is not None or node.args.get("unnest") is not None:
        raise CannotCompute(node, "what a subquery gives cannot be computed from partitions")
    this, among = make(node.this), [make(e) for e in node.expressions]
    each = [strict(lambda a, b: same(*alike(a, b, zone)), this, one) for one in among]

    def computed(values: Values) -> Value:
        of_one_type(one(values) for one in among)
        return kleene([e(values) for e in each], decisive=True)

    return computed


def _between(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    this, low, high = make(node.this), make(node.args["low"]), make(node.args["high"])
    above = strict(lambda a, b: at_least(*alike(a, b, zone)), this, low)
    below = strict(lambda a, b: at_least(*alike(b, a, zone)), this, high)
    return lambda values: kleene([above(values), below(values)], decisive=False)


def _is(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    this, what = make(node.this), node.expression
    wanted = None if isinstance(what, exp.Null) else what.this if isinstance(what, exp.Boolean) else UNKNOWN
    if wanted is UNKNOWN:
        raise CannotCompute(node, f"{called(node)} cannot be computed from partitions")

    def held(values: Values) -> Value:
        found = this(values)
        return UNKNOWN if found is UNKNOWN else found is wanted

    return held


def _case(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    of = node.this if isinstance(node, exp.Case) else None
    branches = node.args["ifs"] if isinstance(node, exp.Case) else [node]
    tests = [exp.EQ(this=of.copy(), expression=b.this.copy()) if of is not None else b.this for b in branches]
    pairs = [(make(t), make(b.args["true"])) for t, b in zip(tests, branches, strict=True)]
    otherwise = node.args.get("default" if isinstance(node, exp.Case) else "false")
    last = make(otherwise) if otherwise is not None else lambda values: None

    def chosen(values: Values) -> Value:
        of_one_type([last(values), *(then(values) for _, then in pairs)])
        for test, then in pairs:
            found = test(values)
            if found is UNKNOWN:
                return UNKNOWN
            if found is True:
                return then(values)
        return last(values)

    return chosen


def _coalesce(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    parts = [make(p) for p in (node.this, *node.expressions)]

    def first(values: Values) -> Value:
        found = [part(values) for part in parts]
        of_one_type(found)
        return next((v for v in found if v is not None), None)

    return first


def _extreme(choose: Callable[[Any, Any], bool]) -> Special:
    """``greatest`` and ``least``, which pass over nulls."""

    def made(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
        parts = [make(p) for p in (node.this, *node.expressions)]

        def chosen(values: Values) -> Value:
            found = [v for part in parts if (v := part(values)) is not None]
            if UNKNOWN in found or not found:
                return UNKNOWN if found else None
            return reduce(lambda a, b: a if choose(*alike(a, b, zone)) else b, found)

        return chosen

    return made


LOGIC: Mapping[type[exp.Expr], Special] = {
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.EQ: _compared(same),
    exp.NEQ: _compared(lambda a, b: not same(a, b)),
    exp.GT: _compared(lambda a, b: bool(a > b)),
    exp.GTE: _compared(at_least),
    exp.LT: _compared(lambda a, b: bool(a < b)),
    exp.LTE: _compared(lambda a, b: bool(a <= b)),
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: lambda node, make, zone: strict(lambda v: not v, _null_safe(node, make, zone)),
    exp.In: _in,
    exp.Between: _between,
    exp.Is: _is,
    exp.Case: _case,
    exp.If: _case,
    exp.Coalesce: _coalesce,
    exp.Greatest: _extreme(lambda a, b: bool(a >= b)),
    exp.Least: _extreme(lambda a, b: bool(a <= b)),
}
