"""Predicate pushdown: when a condition on the output of a SELECT may be applied to its input rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from nova_assets.sql.parse import spark_functions

_MULTI_ROW_NODES = (exp.AggFunc, exp.Query, exp.Subquery, exp.UDTF, exp.Explode, exp.Rand, exp.Randn, exp.Uuid)


def push_down_conditions(node: exp.Select, outer_conditions: Sequence[exp.Expr], outer_name: str) -> Iterator[exp.Expr]:
    """The conditions on the output, rewritten in terms of the input columns. Conditions that would drop other rows
    there are left out.

    Args:
        outer_name: the table name of output columns in the conditions.
    """
    if keeps_only_some_rows(node):
        return
    expression_by_column = {s.alias_or_name.lower(): s.unalias() for s in node.selects}
    for condition in outer_conditions:
        names = {c.name.lower() for c in condition.find_all(exp.Column) if c.table == outer_name}
        if all(n in expression_by_column and _is_same_within_group(node, expression_by_column[n]) for n in names):
            yield _substitute_columns(condition, outer_name, expression_by_column)


def keeps_only_some_rows(node: exp.Expr) -> bool:
    """Whether LIMIT, OFFSET or TABLESAMPLE keeps only part of the output rows. The rows kept then depend on all
    rows.
    """
    while True:
        if (
            node.args.get("limit") is not None
            or node.args.get("offset") is not None
            or node.args.get("sample") is not None
        ):
            return True
        if not isinstance(node.parent, exp.Subquery | exp.Paren):
            return False
        node = node.parent


def has_grouping_sets(node: exp.Select) -> bool:
    """Whether the SELECT has grouping sets, ROLLUP or CUBE, which put nulls in columns that are not grouped by."""
    group = node.args.get("group")
    return group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None


def _substitute_columns(condition: exp.Expr, outer_name: str, expression_by_column: dict[str, exp.Expr]) -> exp.Expr:
    def substitute(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and part.table == outer_name:
            return exp.paren(expression_by_column[part.name.lower()].copy(), copy=False)
        return part

    return condition.copy().transform(substitute, copy=False)


def _is_same_within_group(node: exp.Select, expression: exp.Expr) -> bool:
    """Whether an output column has the same value for all rows of a group, and for all rows of a window partition."""
    if expression.find(*_MULTI_ROW_NODES) or expression.find(exp.Window):
        return False
    if not all(
        _is_computed_from(expression, w.args.get("partition_by") or []) for w in _own_nodes_of_kind(node, exp.Window)
    ):
        return False
    return not _is_aggregated(node) or is_determined_by_group(node, expression)


def is_determined_by_group(node: exp.Select, expression: exp.Expr) -> bool:
    """Whether an expression has the same value for all rows of each group, so that a condition on it drops whole
    groups.
    """
    group = node.args.get("group")
    if group is None:
        return not any(True for _ in expression.find_all(exp.Column, exp.AggFunc))
    if has_grouping_sets(node) or any(group.args.get(k) for k in ("totals", "all")):
        return False
    return _is_computed_from(expression, group.expressions)


def aggregate_filter_condition(node: exp.Select) -> exp.Expr | None:
    """For a SELECT that aggregates all rows, always with ``FILTER (WHERE ...)``: the disjunction of the filters,
    which every row that counts meets. None if an aggregate might use other rows.
    """
    if node.args.get("group") is not None or node.args.get("laterals") or node.find(exp.Window):
        return None
    filters: list[exp.Expr] = []
    for part in (*node.selects, *(p for c in ("having", "order") if (p := node.args.get(c)) is not None)):
        for inner in part.walk(prune=lambda n: isinstance(n, exp.Filter)):
            if isinstance(inner, exp.Filter):
                filters.append(inner.expression.this)
            elif not _is_independent_of_rows(inner):
                return None
    return exp.or_(*filters) if filters else None


def _is_independent_of_rows(part: exp.Expr) -> bool:
    """Whether a node, without its children, has the same value whatever rows exist."""
    if isinstance(part, exp.Anonymous):
        return part.name.lower() in spark_functions.SCALAR_FUNCTIONS
    return not isinstance(part, exp.Column | exp.AggFunc | exp.Query | exp.Subquery | exp.Explode | exp.UDTF)


def _is_aggregated(node: exp.Select) -> bool:
    windowed = {id(w.this) for w in _own_nodes_of_kind(node, exp.Window)}
    return node.args.get("group") is not None or any(
        id(a) not in windowed for a in _own_nodes_of_kind(node, exp.AggFunc)
    )


def _is_computed_from(node: exp.Expr, source_expressions: Sequence[exp.Expr]) -> bool:
    """Whether an expression can be computed from some other expressions."""
    if any(node == key for key in source_expressions):
        return True
    if isinstance(node, exp.Column | exp.AggFunc | exp.Query | exp.Subquery | exp.Window):
        return False
    return all(_is_computed_from(child, source_expressions) for child in node.iter_expressions())


def _own_nodes_of_kind(node: exp.Select, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Nodes of a class in a SELECT, excluding its subqueries."""
    for select in (
        *node.selects,
        *(a for c in ("having", "order", "where", "qualify") if (a := node.args.get(c)) is not None),
    ):
        for part in select.walk(prune=lambda n: isinstance(n, exp.Query | exp.Subquery)):
            if isinstance(part, kind):
                yield part
