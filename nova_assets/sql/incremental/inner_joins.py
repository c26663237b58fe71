"""Inner joins with the conditions of WHERE: each condition is applied as soon as its columns are there.

``FROM a, b WHERE a.x = b.x`` is a join with equal keys then, and only rows that fulfil the other conditions are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from nova_assets.sql.incremental.make_operators import make_filter, make_join
from nova_assets.sql.incremental.operators import Join, Operator
from nova_assets.sql.query.resolved_query import conjuncts


def filter_joined_rows(operator: Operator, conditions: Sequence[exp.Expr]) -> Operator:
    """The rows that fulfil all conditions.

    If the rows come from inner joins, the joined sides are put in an order in which each is joined by an equality with
    the sides before, where there is one.

    Args:
        conditions: conditions over the operator's columns, without AND at the top.
    """
    sides, waiting = list(_sides(operator)), [*_join_conditions(operator), *conditions]
    waiting += [c for c in _required_by_or(waiting) if c not in waiting]
    joined = sides.pop(0)
    joined, waiting = _apply(joined, waiting)
    while sides:
        side = next((s for s in sides if any(_connects(c, joined, s) for c in waiting)), sides[0])
        sides.remove(side)
        side, waiting = _apply(side, waiting)
        both = joined.columns.keys() | side.columns.keys()
        on = [c for c in waiting if _column_names(c) <= both]
        waiting = [c for c in waiting if c not in on]
        joined = make_join(joined, side, "inner", exp.and_(*on) if on else None)
    return make_filter(joined, exp.and_(*waiting)) if waiting else joined


def _required_by_or(conditions: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """Conditions that are in each branch of an OR, such as ``a.x = b.x`` in ``a.x = b.x AND c OR a.x = b.x AND d``."""
    for condition in conditions:
        if isinstance(condition, exp.Or):
            first, *others = [list(conjuncts(branch)) for branch in condition.flatten()]
            texts = [{c.sql("spark") for c in branch} for branch in others]
            yield from (c for c in first if all(c.sql("spark") in branch for branch in texts))


def _sides(operator: Operator) -> Iterator[Operator]:
    """The operators that inner joins combine, from left to right."""
    if isinstance(operator, Join) and operator.kind == "inner":
        yield from _sides(operator.left)
        yield from _sides(operator.right)
    else:
        yield operator


def _join_conditions(operator: Operator) -> Iterator[exp.Expr]:
    if isinstance(operator, Join) and operator.kind == "inner":
        yield from _join_conditions(operator.left)
        yield from _join_conditions(operator.right)
        yield from conjuncts(operator.condition)


def _apply(operator: Operator, conditions: list[exp.Expr]) -> tuple[Operator, list[exp.Expr]]:
    """The operator with those conditions that refer to its columns alone, and the other conditions."""
    own = [c for c in conditions if (names := _column_names(c)) and names <= operator.columns.keys()]
    return (make_filter(operator, exp.and_(*own)) if own else operator), [c for c in conditions if c not in own]


def _connects(condition: exp.Expr, joined: Operator, side: Operator) -> bool:
    """Whether a condition is an equality between a column of the joined sides and a column of another side."""
    condition = condition.unnest()
    if not isinstance(condition, exp.EQ):
        return False
    a, b = condition.this, condition.expression
    if not (isinstance(a, exp.Column) and isinstance(b, exp.Column)):
        return False
    return any(x.name in joined.columns and y.name in side.columns for x, y in ((a, b), (b, a)))


def _column_names(condition: exp.Expr) -> set[str]:
    return {column.name for column in condition.find_all(exp.Column)}
