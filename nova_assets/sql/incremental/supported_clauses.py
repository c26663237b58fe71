"""Clauses of a query for which nova has rules."""

from __future__ import annotations

from sqlglot import exp

from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets.sql.incremental.repeatability import is_generator

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
