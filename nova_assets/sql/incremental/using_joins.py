"""Columns that ``JOIN ... USING`` merges."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets.sql.query.resolved_query import is_merged_column, is_using_or_natural

_MergedColumns = Mapping[str, exp.Expr]
"""Name of a column that USING merges -> the expression that it stands for."""


def name_merged_columns(tree: exp.Query) -> exp.Query:
    """The query with an expression over the joined sources in place of each column that USING merges, as in Spark.

    The merged column is that of the left side. After a RIGHT JOIN, it is that of the right side. After a FULL JOIN, it
    is that of the left side, and where it is null, that of the right side.

    Raises:
        NotMaintainable: a merged column does not belong to a join of its SELECT.
    """
    tree = tree.copy()
    merged_of = {id(select): _merge_columns(select) for select in tree.find_all(exp.Select)}
    for node in list(tree.find_all(exp.Coalesce)):
        if is_merged_column(node):
            select = node.find_ancestor(exp.Select)
            column = None if select is None else merged_of[id(select)].get(node.this.name.lower())
            if column is None:
                raise NotMaintainable("a column that USING merges, in this place", node)
            node.replace(column.copy())
    return tree


def _merge_columns(select: exp.Select) -> _MergedColumns:
    """The merged columns of a SELECT. Conditions of its joins then refer to the columns that earlier joins merge."""
    merged: dict[str, exp.Expr] = {}
    for join in filter(is_using_or_natural, select.args.get("joins") or ()):
        on = join.args.get("on")
        for equality in on.flatten() if isinstance(on, exp.And) else [on]:
            if not isinstance(equality, exp.EQ) or not isinstance(equality.expression, exp.Column):
                raise NotMaintainable("this form of USING or NATURAL", join)
            right = equality.expression
            left = merged.get(right.name.lower(), equality.this).copy()
            equality.set("this", left)
            merged[right.name.lower()] = _merged_column(join.side.upper(), left, right)
    return merged


def _merged_column(side: str, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    if side == "RIGHT":
        return right
    return exp.Coalesce(this=left.copy(), expressions=[right.copy()]) if side == "FULL" else left
