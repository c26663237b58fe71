"""Expressions over the columns of operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sqlglot import exp

from nova_assets.sql.incremental.operators import NotMaintainable, Operator, column_of
from nova_assets.sql.incremental.repeatability import CLOCK_WORD, function_names

PARAMETER_PREFIX = "nova_"
"""Beginning of the names that stand for parameters of bindings, whose types are not known."""

_TIME_OF_DAY = re.compile(r"\s*T?\d{1,2}:\d{1,2}\b.*", re.IGNORECASE | re.DOTALL)

_TIME_WINDOWS = frozenset({"session_window", "window", "window_time"})
"""Functions of time windows. A window can belong to several groups, or grow when rows are added."""

_FIELDS_CALLED_LIKE_COLUMNS = frozenset({"arrays_zip", "struct"})
"""Functions whose result has fields that are called like the columns in their arguments."""


def flatten_columns(expression: exp.Expr, operator: Operator) -> exp.Expr:
    """The expression over the operator's columns: ``o.amount`` becomes the column called ``o.amount``.

    Raises:
        NotMaintainable: a part of the expression has another meaning there.
    """
    bound_names = {p.name.lower() for f in expression.find_all(exp.Lambda) for p in f.expressions}

    def flatten(node: exp.Expr) -> exp.Expr:
        _check_expression(node)
        if not isinstance(node, exp.Column):
            return node
        if not node.table and node.name.lower() in bound_names:
            return node
        name = flat_name(node)
        if node.args.get("db") or node.table.lower() in bound_names or name not in operator.columns:
            raise NotMaintainable(f"the name {node.sql('spark')}", node)
        return column_of(name)

    return expression.transform(flatten)


def _check_expression(node: exp.Expr) -> None:
    """Raise NotMaintainable for a node that has another meaning over the columns of an operator."""
    if isinstance(node, exp.Subquery | exp.Query | exp.Exists):
        raise NotMaintainable("a subquery in an expression", node)
    is_untyped = isinstance(node, exp.Placeholder) and node.name.startswith(PARAMETER_PREFIX)
    if is_untyped or isinstance(node, exp.Parameter):
        raise NotMaintainable("a parameter", node)
    if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count):
        raise NotMaintainable("* in an expression", node)
    if isinstance(node, exp.Tuple) and not isinstance(node.parent, exp.In | exp.Tuple):
        raise NotMaintainable("a row value", node)
    if isinstance(node, exp.Struct):
        raise NotMaintainable("STRUCT, whose fields are called like columns (NAMED_STRUCT names them)", node)
    if isinstance(node, exp.Literal | exp.RawString) and _TIME_OF_DAY.fullmatch(node.name):
        raise NotMaintainable("a time without a day, which can stand for a time of the current day", node)
    if isinstance(node, exp.Func):
        names = function_names(node)
        if names & _TIME_WINDOWS:
            raise NotMaintainable("a time window", node)
        if names & _FIELDS_CALLED_LIKE_COLUMNS:
            raise NotMaintainable(f"{min(names).upper()}, whose fields are called like columns", node)


def replace_columns(expression: exp.Expr, new: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """The expression with other expressions in place of its columns."""
    return expression.transform(lambda node: new(node) if isinstance(node, exp.Column) else node)


def can_stand_for_current_time(value: object) -> bool:
    """Whether a value is a text that Spark can take for the current day or time."""
    return isinstance(value, str) and bool(CLOCK_WORD.fullmatch(value) or _TIME_OF_DAY.fullmatch(value))


def flat_name(column: exp.Column) -> str:
    """Name of a resolved column among the columns of an operator."""
    return f"{column.table}.{column.name}".lower()


def find_outside_subqueries(expression: exp.Expr, *types: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Nodes of these types that no subquery contains. A subquery itself can be such a node."""
    for node in expression.walk(prune=lambda n: isinstance(n, exp.Query)):
        if isinstance(node, types):
            yield node


def has_aggregate(expression: exp.Expr) -> bool:
    """Whether an expression aggregates rows, apart from its subqueries and window functions."""
    return any(a.find_ancestor(exp.Window) is None for a in find_outside_subqueries(expression, exp.AggFunc))
