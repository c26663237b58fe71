"""Types of expressions that compute a value from columns: arithmetic, CASE, CAST and plain aggregates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.types.expression_type import type_of_expression

_VALUES = (
    *(exp.Column, exp.Literal, exp.Null, exp.Boolean, exp.Star),
    *(exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Abs),
    *(exp.Case, exp.If, exp.Coalesce, exp.Cast, exp.DataType, exp.DataTypeParam),
    *(exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count, exp.Distinct),
)
"""Kinds of expressions whose types are derived. For other expressions, a wrong type could lead to wrong rows."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def value_type(expression: exp.Expr, columns: Mapping[str, DataType | None]) -> DataType | None:
    """Type that Spark gives to an expression; None if it does not follow without a doubt.

    Args:
        columns: column -> its type; None if the type is not known.
    """
    if isinstance(expression, exp.Column):
        return columns.get(expression.name)
    if isinstance(expression, _COMPARISONS):
        return DataType("boolean")
    values = expression.copy()
    for branch in list(values.find_all(exp.If)):  # its condition does not matter for the type
        branch.set("this", exp.true())
    if not all(map(_is_value, _nodes(values))):
        return None
    return type_of_expression(values, columns)


def _nodes(expression: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression, without the names within a column."""
    yield expression
    if not isinstance(expression, exp.Column):
        for part in expression.iter_expressions():
            yield from _nodes(part)


def _is_value(node: exp.Expr) -> bool:
    is_simple_case = isinstance(node, exp.Case) and node.this is not None  # CASE x WHEN 1 ...
    return isinstance(node, _VALUES) and not is_simple_case and not isinstance(node, exp.TryCast)
