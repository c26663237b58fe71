"""When a condition on what a SELECT gives may be put to the rows that it is made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from nova_assets.sql.parse import spark_functions

_NOT_BY_ROW = (exp.AggFunc, exp.Query, exp.Subquery, exp.UDTF, exp.Explode, exp.Rand, exp.Randn, exp.Uuid)


def asked_within(node: exp.Select, asked: Sequence[exp.Expr], source: str) -> Iterator[exp.Expr]:
    """Conditions on the output, said by the columns that it is made of; those alone that drop the same rows here.

    Args:
        source: under which name the output's columns are in the conditions.
    """
    if is_cut_off(node):
        return
    made = {s.alias_or_name.lower(): s.unalias() for s in node.selects}
    for condition in asked:
        names = {c.name.lower() for c in condition.find_all(exp.Column) if c.table == source}
        if all(n in made and _is_of_rows(node, made[n]) for n in names):
            yield _said(condition, source, made)


def is_cut_off(node: exp.Expr) -> bool:
    """Whether only some rows of what a query gives are taken, so that which ones they are hangs on all."""
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


def is_spread(node: exp.Select) -> bool:
    """Whether rows are grouped in several ways, so that nulls stand for columns that are not grouped by."""
    group = node.args.get("group")
    return group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None


def _said(condition: exp.Expr, source: str, made: dict[str, exp.Expr]) -> exp.Expr:
    def said(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and part.table == source:
            return exp.paren(made[part.name.lower()].copy(), copy=False)
        return part

    return condition.copy().transform(said, copy=False)


def _is_of_rows(node: exp.Select, made: exp.Expr) -> bool:
    """Whether an output column is the same for all rows that are grouped, or seen by a window, together."""
    if made.find(*_NOT_BY_ROW) or made.find(exp.Window):
        return False
    if not all(_is_made_of(made, w.args.get("partition_by") or []) for w in _of_kind(node, exp.Window)):
        return False
    return not _is_grouped(node) or by_whole_groups(node, made)


def by_whole_groups(node: exp.Select, condition: exp.Expr) -> bool:
    """Whether an expression is the same for all rows of each group, so that groups are dropped whole."""
    group = node.args.get("group")
    if group is None:
        return not any(True for _ in condition.find_all(exp.Column, exp.AggFunc))
    if is_spread(node) or any(group.args.get(k) for k in ("totals", "all")):
        return False
    return _is_made_of(condition, group.expressions)


def what_aggregates_take(node: exp.Select) -> exp.Expr | None:
    """Of a SELECT that aggregates all rows, each time with ``FILTER (WHERE ...)``: the condition that a row meets which
    one of the aggregates takes. None where others might take more."""
    if node.args.get("group") is not None or node.args.get("laterals") or node.find(exp.Window):
        return None
    filters: list[exp.Expr] = []
    for part in (*node.selects, *(p for c in ("having", "order") if (p := node.args.get(c)) is not None)):
        for inner in part.walk(prune=lambda n: isinstance(n, exp.Filter)):
            if isinstance(inner, exp.Filter):
                filters.append(inner.expression.this)
            elif not _takes_no_rows(inner):
                return None
    return exp.or_(*filters) if filters else None


def _takes_no_rows(part: exp.Expr) -> bool:
    """Whether a part of an expression, without what is inside it, is the same whatever rows there are."""
    if isinstance(part, exp.Anonymous):
        return part.name.lower() in spark_functions.SCALARS
    return not isinstance(part, exp.Column | exp.AggFunc | exp.Query | exp.Subquery | exp.Explode | exp.UDTF)


def _is_grouped(node: exp.Select) -> bool:
    windowed = {id(w.this) for w in _of_kind(node, exp.Window)}
    return node.args.get("group") is not None or any(id(a) not in windowed for a in _of_kind(node, exp.AggFunc))


def _is_made_of(node: exp.Expr, keys: Sequence[exp.Expr]) -> bool:
    """Whether an expression follows from some others."""
    if any(node == key for key in keys):
        return True
    if isinstance(node, exp.Column | exp.AggFunc | exp.Query | exp.Subquery | exp.Window):
        return False
    return all(_is_made_of(child, keys) for child in node.iter_expressions())


def _of_kind(node: exp.Select, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Parts of a SELECT itself, not of what is inside it."""
    for select in (
        *node.selects,
        *(a for c in ("having", "order", "where", "qualify") if (a := node.args.get(c)) is not None),
    ):
        for part in select.walk(prune=lambda n: isinstance(n, exp.Query | exp.Subquery)):
            if isinstance(part, kind):
                yield part
