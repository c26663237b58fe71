"""Clauses of a query: those for which nova has rules, and those that stand for others."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from nova_assets.sql.incremental.expressions import column_of
from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets.sql.incremental.repeatability import is_generator
from nova_assets.sql.query.resolved_query import is_merged_column, is_using_or_natural

_SELECT_CLAUSES = frozenset(
    "kind expressions from_ joins laterals where group having qualify distinct order with_ operation_modifiers".split()
)


def check_select_clauses(select: exp.Select) -> None:
    """Check that nova has rules for the clauses of a SELECT. Raises NotMaintainable."""
    if extra := used_clauses(select) - _SELECT_CLAUSES:
        name = sorted(extra)[0]
        node = select.args[name]
        raise NotMaintainable(f"{name.upper()} in a SELECT", node if isinstance(node, exp.Expr) else select)
    for name in ("kind", "operation_modifiers"):
        if select.args.get(name):
            raise NotMaintainable(f"{name} of a SELECT", select)
    check_order(select)
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise NotMaintainable("DISTINCT ON", distinct)


def check_order(query: exp.Query) -> None:
    """Check that ORDER BY only orders the rows. Then it is ignored, because the rows of a result have no order."""
    order = query.args.get("order")
    if order is None:
        return
    if order.find(exp.Query, exp.Window) or is_generator(order):
        raise NotMaintainable("ORDER BY with a subquery, a window function or a generator", order)
    if order.find(exp.AggFunc) and query.args.get("group") is None:
        raise NotMaintainable("ORDER BY with an aggregate, without GROUP BY", order)


def used_clauses(node: exp.Expr) -> set[str]:
    """Names of the arguments that a node of the syntax tree has."""
    return {name for name, value in node.args.items() if value not in (None, False, [], "")}


_OUTPUT = "nova_qualify_"


def split_qualify(
    clause: exp.Expr, output_by_name: Mapping[str, exp.Expr]
) -> tuple[list[tuple[str, exp.Expr]], exp.Expr]:
    """The outputs that the condition of a clause needs, with their names; and the condition over these outputs.

    Args:
        output_by_name: output column of the SELECT -> its expression. The condition can refer to output columns.

    Raises:
        NotMaintainable: the condition has a subquery.
    """
    if subquery := clause.find(exp.Query):
        raise NotMaintainable("a subquery in QUALIFY", subquery)
    added: dict[str, tuple[str, exp.Expr]] = {}

    def insert(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Window | exp.AggFunc | exp.Filter | exp.Column):
            return node
        is_output = isinstance(node, exp.Column) and not node.table and node.name.lower() in output_by_name
        needed = output_by_name[node.name.lower()] if is_output else node
        name, _ = added.setdefault(needed.sql("spark"), (f"{_OUTPUT}{len(added)}", needed.copy()))
        return column_of(name)

    condition = clause.this.copy().transform(insert)
    return list(added.values()), condition


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
