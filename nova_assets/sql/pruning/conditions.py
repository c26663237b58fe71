"""The conditions of a SELECT, and the sources whose rows each condition can drop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from nova_assets.sql.evaluation.operand import Key
from nova_assets.sql.query.resolved_query import conjuncts, is_using_or_natural

AFTER_ALL_JOINS = 10**6
"""Join index of conditions that apply after all joins."""

NullRejecting: TypeAlias = frozenset[tuple[str, int]]
"""Pairs (source, join index): a condition at that join drops rows with nulls in place of the source. An outer join
before that index, which would produce such rows, then acts like an inner join.
"""


@dataclass(frozen=True)
class Condition:
    """A condition, and the sources whose rows it can drop.

    Args:
        filtered_sources: names of the sources whose rows the condition can drop.
        nullable_sources: names of the sources that may be replaced by nulls when the condition is evaluated.
        join_index: index of the SELECT's join that has the condition, from 0. ``AFTER_ALL_JOINS`` after all joins. None
            for a join within parentheses.
    """

    node: exp.Expr
    filtered_sources: frozenset[str]
    nullable_sources: frozenset[str]
    join_index: int | None = None


def select_conditions(
    node: exp.Select,
    sources: Sequence[str],
    outer_conditions: Sequence[exp.Expr] = (),
    outer_name: str = "",
    null_rejecting: NullRejecting = frozenset(),
) -> Iterator[Condition]:
    """All conditions of a SELECT. Yields nothing if the joins are not understood.

    Args:
        sources: names of the SELECT's sources.
        outer_conditions: conditions that the surrounding query puts on the output.
        outer_name: name of the SELECT in the surrounding query.
    """
    joined = _analyse_joins(node, null_rejecting)
    if joined is None:
        return  # it is unknown which rows are preserved and which may be null
    yield from joined.conditions
    after_joins = [
        *conjuncts(_clause_condition(node, "where")),
        *(part for part in conjuncts(_clause_condition(node, "having")) if _is_determined_by_group(node, part)),
        *_push_down_conditions(node, outer_conditions, outer_name),
    ]
    for part in after_joins:
        yield Condition(part, frozenset(sources), joined.nullable, AFTER_ALL_JOINS)


def _clause_condition(node: exp.Select, clause: str) -> exp.Expr | None:
    clause_node = node.args.get(clause)
    return None if clause_node is None else clause_node.this


def find_nullable_sources(node: exp.Select, sources: Sequence[str], null_rejecting: NullRejecting) -> frozenset[str]:
    """The sources that may be replaced by nulls after all joins."""
    joined = _analyse_joins(node, null_rejecting)
    return frozenset(sources) if joined is None else joined.nullable


def sources_not_reaching_result(
    node: exp.Select, empty_sources: frozenset[str], null_rejecting: NullRejecting
) -> frozenset[str]:
    """Sources whose rows do not reach the result because the other side of a join is empty.

    Args:
        empty_sources: names of the sources without rows.
    """
    joined = _analyse_joins(node, null_rejecting, empty_sources)
    return frozenset() if joined is None else joined.without_effect


# joins


@dataclass(frozen=True)
class _Joined:
    """The combined effect of some joins.

    Args:
        names: names of the sources.
        nullable: names of the sources that may be replaced by nulls.
        conditions: the conditions of the joins.
        keeps_right: whether one of the joins preserves all rows of its right side.
        is_empty: whether the joined result is empty.
        without_effect: sources whose rows do not reach the joined result.
    """

    names: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()
    conditions: tuple[Condition, ...] = ()
    keeps_right: bool = False
    is_empty: bool = False
    without_effect: frozenset[str] = frozenset()


def _analyse_joins(
    node: exp.Select, null_rejecting: NullRejecting, empty_sources: frozenset[str] = frozenset()
) -> _Joined | None:
    """The combined effect of all joins of a SELECT. None if they are not understood."""
    first = node.args.get("from_")
    left: _Joined | None = _Joined()
    if first is not None:
        left = _analyse_join_operand(first.this, _null_rejecting_within(null_rejecting, 0), empty_sources)
    if left is None:
        return None
    return _apply_joins(left, node.args.get("joins") or (), null_rejecting, empty_sources, is_nested=False)


def _null_rejecting_within(null_rejecting: NullRejecting, join_index: int) -> NullRejecting:
    """The pairs for joins within parentheses at some join index: nulls that are rejected at that join or later."""
    return frozenset(
        (name, AFTER_ALL_JOINS) for name, condition_index in null_rejecting if condition_index >= join_index
    )


def _analyse_join_operand(
    join_operand: exp.Expr, null_rejecting: NullRejecting, empty_sources: frozenset[str]
) -> _Joined | None:
    """The effect of a single source, or of joins in parentheses: ``a LEFT JOIN (b JOIN c ON ...) ON ...``."""
    name = join_operand.alias_or_name
    joined: _Joined | None = _Joined(frozenset({name}), is_empty=name in empty_sources)
    if isinstance(join_operand, exp.Paren | exp.Subquery) and isinstance(
        join_operand.this, exp.Table | exp.Paren | exp.Subquery
    ):
        if join_operand.alias or join_operand.args.get("sample") is not None:
            return None  # an alias hides the inner names
        joined = _analyse_join_operand(join_operand.this, null_rejecting, empty_sources)
    joins = join_operand.args.get("joins") or ()
    return None if joined is None else _apply_joins(joined, joins, null_rejecting, empty_sources, is_nested=True)


def _apply_joins(
    left: _Joined,
    joins: Sequence[exp.Join],
    null_rejecting: NullRejecting,
    empty_sources: frozenset[str],
    *,
    is_nested: bool,
) -> _Joined | None:
    """The combined effect after further joins."""
    for join_index, join in enumerate(joins):
        right = _analyse_join_operand(join.this, _null_rejecting_within(null_rejecting, join_index), empty_sources)
        if right is None:
            return None
        # An outer join whose nulls are rejected afterwards acts like an inner join.
        null_rejected = {name for name, condition_index in null_rejecting if condition_index > join_index}
        kind, side = join.kind.upper(), join.side.upper()
        is_filter = kind in ("SEMI", "ANTI")
        preserves_left = kind == "ANTI" if is_filter else side in ("LEFT", "FULL") and not null_rejected & right.names
        preserves_right = not is_filter and side in ("RIGHT", "FULL") and not null_rejected & left.names
        names, nullable = left.names | right.names, left.nullable | right.nullable
        filtered = names - (left.names if preserves_left else set()) - (right.names if preserves_right else set())
        keeps_right = left.keeps_right or right.keeps_right
        # USING after RIGHT or FULL refers to the column of either side. The syntax tree does not show this.
        is_ambiguous = keeps_right and is_using_or_natural(join)
        own_conditions = (
            () if is_ambiguous else _join_conditions(join, names, filtered, nullable, None if is_nested else join_index)
        )
        if preserves_left and not is_filter:
            nullable |= right.names
        if preserves_right:
            nullable |= left.names
        is_empty = (
            (left.is_empty or right.is_empty)
            and (left.is_empty or not preserves_left)
            and (right.is_empty or not preserves_right)
        )
        left = _Joined(
            names,
            nullable,
            (*left.conditions, *right.conditions, *own_conditions),
            keeps_right or side in ("RIGHT", "FULL"),
            is_empty,
            left.without_effect | right.without_effect | (names if is_empty else frozenset()),
        )
    return left


def _join_conditions(
    join: exp.Join,
    names: frozenset[str],
    filtered: frozenset[str],
    nullable: frozenset[str],
    join_index: int | None,
) -> tuple[Condition, ...]:
    """The conjuncts of a join's condition. If one side preserves all its rows, the complete condition is added:
    conjuncts about that side only count together with the rest.
    """
    parts = list(conjuncts(join.args.get("on")))
    if len(parts) > 1 and filtered and filtered != names:
        parts.append(exp.and_(*parts))
    return tuple(Condition(part, filtered, nullable, join_index) for part in parts)


# conditions of other queries


def with_source_nulled(condition: exp.Expr, source: str) -> exp.Expr | None:
    """The condition with nulls in place of a source's columns. None if the condition does not use the source or
    contains a subquery.
    """
    if condition.find(exp.Query) or not any(c.table == source for c in condition.find_all(exp.Column)):
        return None
    with_nulls = condition.copy()
    for column in list(with_nulls.find_all(exp.Column)):
        if column.table == source:
            column.replace(exp.null())
    return with_nulls


def rename_other_sources(condition: exp.Expr, source: str, name_suffix: str) -> tuple[exp.Expr | None, dict[Key, Key]]:
    """A condition as an outer condition for one source: columns of other sources get unique names, returned with the
    original columns. None if the condition does not use the source or contains a subquery.
    """
    if not any(c.table == source for c in condition.find_all(exp.Column)) or condition.find(exp.Query, exp.Subquery):
        return None, {}
    renamed, original_by_alias = condition.copy(), dict[Key, Key]()
    for column in renamed.find_all(exp.Column):
        if column.table != source:
            alias = f"{column.table}{name_suffix}"
            original_by_alias[alias, column.name.lower()] = (column.table, column.name.lower())
            column.set("table", exp.to_identifier(alias))
    return renamed, original_by_alias


# predicate pushdown: when a condition on the output of a SELECT may be applied to its input rows

_MULTI_ROW_NODES = (exp.AggFunc, exp.Query, exp.Subquery, exp.UDTF, exp.Explode, exp.Window)


def _push_down_conditions(
    node: exp.Select, outer_conditions: Sequence[exp.Expr], outer_name: str
) -> Iterator[exp.Expr]:
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
    if expression.find(*_MULTI_ROW_NODES):
        return False
    if not all(
        _is_computed_from(expression, w.args.get("partition_by") or []) for w in _own_nodes_of_kind(node, exp.Window)
    ):
        return False
    return not _is_aggregated(node) or _is_determined_by_group(node, expression)


def _is_determined_by_group(node: exp.Select, expression: exp.Expr) -> bool:
    """Whether an expression has the same value for all rows of each group, so that a condition on it drops whole
    groups.
    """
    group = node.args.get("group")
    if group is None:
        return not any(True for _ in expression.find_all(exp.Column, exp.AggFunc))
    if has_grouping_sets(node) or any(group.args.get(k) for k in ("totals", "all")):
        return False
    return _is_computed_from(expression, group.expressions)


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
