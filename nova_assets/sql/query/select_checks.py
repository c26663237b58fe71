"""Checks of SELECTs that Spark's analyser would refuse: each is told at its place, before anything runs.

The checks refuse only what Spark refuses. Where a rule does not understand a query, Spark decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.sql.text import SqlText

_Violations: TypeAlias = Iterator[tuple[exp.Expr, str, str]]
"""For each violation: the rejected node, the problem, and what is expected."""

_WINDOW_FUNCTIONS = (
    exp.RowNumber,
    exp.Rank,
    exp.DenseRank,
    exp.PercentRank,
    exp.CumeDist,
    exp.Ntile,
    exp.Lag,
    exp.Lead,
    exp.NthValue,
)
"""Functions that need OVER (...)."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)

_WRAPPERS_OF_WINDOW_FUNCTIONS = (exp.IgnoreNulls, exp.RespectNulls, exp.Filter, exp.WithinGroup)

_PLAIN_GROUP_PARTS = {"expressions"}
"""Parts of a GROUP BY that lists columns. Others are ROLLUP, CUBE, GROUPING SETS and ALL."""


def check_select(text: SqlText, scope: Scope) -> None:
    """Check the SELECT of a resolved scope. Raises SqlError."""
    select = scope.expression
    if not isinstance(select, exp.Select):
        return
    for node, what, expected in chain(
        _windows_without_over(select),
        _windows_in_conditions(select),
        _aggregates_of_several_values(select),
        _wide_subqueries(select),
        _ungrouped_columns(scope, select),
    ):
        raise text.error(what, node, expected=expected)


def _nodes(*roots: exp.Expr) -> Iterator[exp.Expr]:
    """Nodes of expressions, without those of the queries in them."""
    for root in roots:
        yield from root.walk(prune=lambda n: isinstance(n, exp.Query))


def _windows_without_over(select: exp.Select) -> _Violations:
    for node in _nodes(*select.expressions):
        parent = node.parent
        while isinstance(parent, _WRAPPERS_OF_WINDOW_FUNCTIONS):
            parent = parent.parent
        if isinstance(node, _WINDOW_FUNCTIONS) and not isinstance(parent, exp.Window):
            name = node.sql_name()
            yield node, f"{name} is a window function without a window", f"{name}(...) OVER (ORDER BY ...)"


def _windows_in_conditions(select: exp.Select) -> _Violations:
    for clause in ("where", "having"):
        for node in _nodes(*filter(None, [select.args.get(clause)])):
            if isinstance(node, exp.Window):
                expected = "QUALIFY, or a condition around a subquery that has the column"
                yield node, f"{clause.upper()} contains a window function", expected


def _aggregates_of_several_values(select: exp.Select) -> _Violations:
    for node in _nodes(*select.expressions, *filter(None, [select.args.get("having")])):
        if isinstance(node, exp.Max | exp.Min) and node.expressions:
            function = "GREATEST" if isinstance(node, exp.Max) else "LEAST"
            yield node, f"{node.sql_name()} takes one value", f"{function}(...) for the values of one row"


def _wide_subqueries(select: exp.Select) -> _Violations:
    for node in _nodes(*select.expressions, *filter(None, [select.args.get("where"), select.args.get("having")])):
        query = node.args.get("query") if isinstance(node, exp.In) else node if _is_value(node) else None
        if isinstance(query, exp.Subquery):
            query = query.unnest()
        if not isinstance(query, exp.Query) or query.is_star:
            continue
        width, left = len(query.selects), node.this if isinstance(node, exp.In) else None
        if width > 1 and isinstance(left, exp.Column | exp.Literal | None):
            place = "after IN" if left is not None else "as a value"
            yield query, f"a subquery {place} has {width} columns", "a subquery of one column"


def _is_value(node: exp.Expr) -> bool:
    """Whether a subquery stands for a value."""
    return isinstance(node, exp.Subquery) and (
        (isinstance(node.parent, exp.Select) and node.arg_key == "expressions")
        or isinstance(node.parent, (exp.Alias, exp.Cast, *_COMPARISONS))
    )


def _ungrouped_columns(scope: Scope, select: exp.Select) -> _Violations:
    """Output columns of the scope's sources that are neither grouped nor aggregated."""
    group = select.args.get("group")
    if group is None and not any(map(_is_aggregate, _nodes(*select.expressions))):
        return
    if group is not None and any(value for part, value in group.args.items() if part not in _PLAIN_GROUP_PARTS):
        return
    keys = [] if group is None else group.expressions
    if not all(isinstance(key, exp.Column) for key in keys):
        return
    grouped = {(key.table.lower(), key.name.lower()) for key in keys}
    aliases = {key.name.lower() for key in keys if not key.table}
    for item in select.expressions:
        column = item.unalias()
        if (
            isinstance(column, exp.Column)
            and not isinstance(column.this, exp.Star)
            and column.table in scope.sources
            and (column.table.lower(), column.name.lower()) not in grouped
            and item.alias_or_name.lower() not in aliases
        ):
            expected = f"{column.name} in GROUP BY, or an aggregate such as MAX({column.name})"
            yield column, f"column {column.name!r} is neither grouped nor aggregated", expected


def _is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate of the rows of a group, not of a window."""
    parent = node.parent
    while isinstance(parent, _WRAPPERS_OF_WINDOW_FUNCTIONS):
        parent = parent.parent
    return isinstance(node, exp.AggFunc) and not isinstance(parent, exp.Window)
