"""Types of expressions that compute a value from columns: arithmetic, CASE, CAST and plain aggregates."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.types.query_schema import type_of_expression

_VALUES = (
    *(exp.Column, exp.Literal, exp.Null, exp.Boolean, exp.Star),
    *(exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div),
    *(exp.Case, exp.If, exp.Cast, exp.DataType, exp.DataTypeParam),
    *(exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count, exp.Distinct),
)
"""Kinds of expressions whose types are derived. For other expressions, a wrong type could lead to wrong rows."""

_FUNCTIONS = frozenset({"abs", "coalesce", "if"})
_ARITHMETIC = (exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Sum, exp.Avg)
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "decimal", "float", "double"})
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
    if _joins_texts(expression, columns):
        return DataType("string")
    values = expression.copy()
    for branch in list(values.find_all(exp.If)):  # its condition does not matter for the type
        branch.set("this", exp.true())
    for call in values.find_all(exp.Anonymous):
        if call.name.lower() == "if" and call.expressions:
            call.expressions[0].replace(exp.true())
    nodes = list(values.walk(prune=lambda n: isinstance(n, exp.Column)))  # without the names within a column
    if not all(map(_is_value, nodes)):
        return None
    if _mixes_texts(values, columns):
        return None  # their common type depends on the session
    is_arithmetic = any(
        isinstance(n, _ARITHMETIC) or (isinstance(n, exp.Anonymous) and n.name.lower() == "abs") for n in nodes
    )
    if is_arithmetic and not _has_only_numbers(values, columns):
        return None  # the type of '1' + 1 depends on the session
    return type_of_expression(values, columns)


def _joins_texts(expression: exp.Expr, columns: Mapping[str, DataType | None]) -> bool:
    """Whether an expression is ``CONCAT`` or ``||`` of texts. Of binaries or arrays, they give no text."""
    if isinstance(expression, exp.DPipe):
        parts = [expression.left, expression.right]
    elif isinstance(expression, exp.Anonymous) and expression.name.lower() == "concat":
        parts = expression.expressions
    else:
        return False
    return bool(parts) and all(value_type(part, columns) == DataType("string") for part in parts)


def _is_value(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _FUNCTIONS
    is_simple_case = isinstance(node, exp.Case) and node.this is not None  # CASE x WHEN 1 ...
    return isinstance(node, _VALUES) and not is_simple_case


def _mixes_texts(values: exp.Expr, columns: Mapping[str, DataType | None]) -> bool:
    """Whether texts are mixed with values of other types."""
    types = [columns.get(c.name) for c in values.find_all(exp.Column)]
    are_texts = {type_ is not None and type_.name == "string" for type_ in types}
    return len(are_texts | {literal.is_string for literal in values.find_all(exp.Literal)}) > 1


def _has_only_numbers(values: exp.Expr, columns: Mapping[str, DataType | None]) -> bool:
    types = [columns.get(c.name) for c in values.find_all(exp.Column)]
    has_texts = any(literal.is_string for literal in values.find_all(exp.Literal))
    return not has_texts and all(type_ is not None and type_.name in _NUMBERS for type_ in types)
