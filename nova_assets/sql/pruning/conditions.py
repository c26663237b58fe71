"""The conditions of a SELECT, and the sources whose rows each condition can drop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from nova_assets.sql.evaluation.operand import Key
from nova_assets.sql.pruning.predicate_pushdown import (
    aggregate_filter_condition,
    is_determined_by_group,
    push_down_conditions,
)
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
    join_result = _analyse_joins(node, null_rejecting)
    if join_result is None:
        return  # it is unknown which rows are preserved and which may be null
    yield from join_result.conditions
    all_sources, nullable = frozenset(sources), join_result.nullable
    join_condition_by_source = dict(_full_join_conditions(node, null_rejecting))
    for part in _conditions_after_joins(node, outer_conditions, outer_name):
        yield Condition(part, all_sources, nullable, AFTER_ALL_JOINS)
        for name in join_condition_by_source.keys() & nullable:
            yield Condition(exp.or_(join_condition_by_source[name], part), frozenset({name}), nullable - {name})


def _conditions_after_joins(
    node: exp.Select, outer_conditions: Sequence[exp.Expr], outer_name: str
) -> Iterator[exp.Expr]:
    """The conjuncts that apply to the joined rows."""
    yield from conjuncts(_clause_condition(node, "where"))
    yield from (part for part in conjuncts(_clause_condition(node, "having")) if is_determined_by_group(node, part))
    yield from push_down_conditions(node, outer_conditions, outer_name)
    aggregate_filter = aggregate_filter_condition(node)
    if aggregate_filter is not None:
        yield aggregate_filter


def _full_join_conditions(node: exp.Select, null_rejecting: NullRejecting) -> Iterator[tuple[str, exp.Expr]]:
    """Sources that form one complete side of a FULL JOIN, each with the join's condition.

    A row of such a source matters in two cases. Either the row meets the join condition, because its match then has no
    nulls beside it. Or the row meets the conditions on all rows. Later joins must not preserve rows of their right
    side, because these rows might match, too.
    """
    first, joins = node.args.get("from_"), node.args.get("joins") or ()
    left = frozenset({first.this.alias_or_name}) if first is not None else frozenset[str]()
    for join_index, join in enumerate(joins):
        right = frozenset({join.this.alias_or_name})
        later_sides = [_row_preserving_side(j, left, frozenset(), frozenset()) for j in joins[join_index + 1 :]]
        preserving_side, on = (
            _row_preserving_side(join, left, right, _null_rejected_after(null_rejecting, join_index)),
            join.args.get("on"),
        )
        is_plain = not any(part.args.get("joins") for part in (join.this, *([first.this] if first else [])))
        if (
            preserving_side == "FULL"
            and on is not None
            and is_plain
            and not is_using_or_natural(join)
            and {"RIGHT", "FULL"}.isdisjoint(later_sides)
        ):
            yield from ((name, on) for name in (*right, *(left if join_index == 0 else ())))
        left |= right


@dataclass(frozen=True)
class _JoinResult:
    """The combined effect of some joins.

    Args:
        names: names of the sources.
        nullable: names of the sources that may be replaced by nulls.
        conditions: the conditions of the joins.
        keeps_right: whether one of the joins preserves all rows of its right side.
    """

    names: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()
    conditions: tuple[Condition, ...] = ()
    keeps_right: bool = False


def _analyse_joins(node: exp.Select, null_rejecting: NullRejecting) -> _JoinResult | None:
    """The combined effect of all joins of a SELECT. None if they are not understood."""
    first = node.args.get("from_")
    before = (
        _JoinResult() if first is None else _analyse_join_operand(first.this, _null_rejecting_within(null_rejecting, 0))
    )
    return (
        None if before is None else _apply_joins(before, node.args.get("joins") or (), null_rejecting, is_nested=False)
    )


def _null_rejecting_within(null_rejecting: NullRejecting, join_index: int) -> NullRejecting:
    """The pairs for joins within parentheses at some join index: nulls that are rejected at that join or later."""
    return frozenset(
        (name, AFTER_ALL_JOINS) for name, condition_index in null_rejecting if condition_index >= join_index
    )


def _analyse_join_operand(join_operand: exp.Expr, null_rejecting: NullRejecting) -> _JoinResult | None:
    """The effect of a single source, or of joins in parentheses: ``a LEFT JOIN (b JOIN c ON ...) ON ...``."""
    join_result: _JoinResult | None = _JoinResult(frozenset({join_operand.alias_or_name}))
    if isinstance(join_operand, exp.Paren | exp.Subquery) and isinstance(
        join_operand.this, exp.Table | exp.Paren | exp.Subquery
    ):
        is_transparent = (
            not join_operand.alias and join_operand.args.get("sample") is None
        )  # an alias hides the inner names
        join_result = _analyse_join_operand(join_operand.this, null_rejecting) if is_transparent else None
    joins = join_operand.args.get("joins") or ()
    return None if join_result is None else _apply_joins(join_result, joins, null_rejecting, is_nested=True)


def _apply_joins(
    before: _JoinResult, joins: Sequence[exp.Join], null_rejecting: NullRejecting, *, is_nested: bool
) -> _JoinResult | None:
    """The combined effect after further joins."""
    for join_index, join in enumerate(joins):
        right = _analyse_join_operand(join.this, _null_rejecting_within(null_rejecting, join_index))
        if right is None:
            return None
        null_rejected = _null_rejected_after(null_rejecting, join_index)
        nulls = before.nullable | right.nullable
        keeps_right = before.keeps_right or right.keeps_right
        # USING after RIGHT or FULL refers to the column of either side. The syntax tree does not show this.
        is_ambiguous = keeps_right and is_using_or_natural(join)
        own_conditions = (
            ()
            if is_ambiguous
            else _join_conditions(
                join, before.names, right.names, nulls, null_rejected, None if is_nested else join_index
            )
        )
        before = _JoinResult(
            before.names | right.names,
            nulls | _sources_nulled_by_join(join, before.names, right.names, null_rejected),
            (*before.conditions, *right.conditions, *own_conditions),
            keeps_right or join.side.upper() in ("RIGHT", "FULL"),
        )
    return before


def _null_rejected_after(null_rejecting: NullRejecting, join_index: int) -> frozenset[str]:
    """The sources whose nulls are rejected after a join."""
    return frozenset(name for name, condition_index in null_rejecting if condition_index > join_index)


def sources_not_reaching_result(
    node: exp.Select, empty_sources: frozenset[str], null_rejecting: NullRejecting
) -> frozenset[str]:
    """Sources whose rows do not reach the result because the other side of a join is empty.

    Args:
        empty_sources: names of the sources without rows.
    """
    first = node.args.get("from_")
    if first is None or not empty_sources:
        return frozenset()
    start = _empty_source_effect_on_operand(first.this, empty_sources, _null_rejecting_within(null_rejecting, 0))
    return _empty_source_effect_after_joins(
        start, node.args.get("joins") or (), empty_sources, null_rejecting
    ).without_effect


@dataclass(frozen=True)
class _EmptySourceEffect:
    """The effect of empty sources on some joins.

    Args:
        names: names of all sources.
        is_empty: whether the joined result is empty.
        without_effect: sources whose rows do not reach the joined result.
    """

    names: frozenset[str]
    is_empty: bool
    without_effect: frozenset[str] = frozenset()


def _empty_source_effect_on_operand(
    join_operand: exp.Expr, empty_sources: frozenset[str], null_rejecting: NullRejecting
) -> _EmptySourceEffect:
    """The effect of empty sources on a single source, or on joins in parentheses."""
    join_result = _EmptySourceEffect(
        frozenset({join_operand.alias_or_name}), join_operand.alias_or_name in empty_sources
    )
    if isinstance(join_operand, exp.Paren | exp.Subquery) and isinstance(
        join_operand.this, exp.Table | exp.Paren | exp.Subquery
    ):
        join_result = _empty_source_effect_on_operand(join_operand.this, empty_sources, null_rejecting)
    return _empty_source_effect_after_joins(
        join_result, join_operand.args.get("joins") or (), empty_sources, null_rejecting
    )


def _empty_source_effect_after_joins(
    left: _EmptySourceEffect, joins: Sequence[exp.Join], empty_sources: frozenset[str], null_rejecting: NullRejecting
) -> _EmptySourceEffect:
    """The effect of empty sources after further joins."""
    for join_index, join in enumerate(joins):
        right = _empty_source_effect_on_operand(
            join.this, empty_sources, _null_rejecting_within(null_rejecting, join_index)
        )
        side = _row_preserving_side(join, left.names, right.names, _null_rejected_after(null_rejecting, join_index))
        without_effect = left.without_effect | right.without_effect
        if side == "LEFT":
            is_empty = left.is_empty
        elif side == "RIGHT":
            is_empty = right.is_empty
        elif side == "FULL":
            is_empty = left.is_empty and right.is_empty
        else:
            is_empty = left.is_empty or right.is_empty
        names = left.names | right.names
        left = _EmptySourceEffect(names, is_empty, without_effect | names if is_empty else without_effect)
    return left


def find_nullable_sources(node: exp.Select, sources: Sequence[str], null_rejecting: NullRejecting) -> frozenset[str]:
    """The sources that may be replaced by nulls after all joins."""
    join_result = _analyse_joins(node, null_rejecting)
    return frozenset(sources) if join_result is None else join_result.nullable


def _join_conditions(
    join: exp.Join,
    left: frozenset[str],
    right: frozenset[str],
    nullable: frozenset[str],
    null_rejected: frozenset[str],
    join_index: int | None,
) -> tuple[Condition, ...]:
    """The conjuncts of a join's condition. If one side preserves all its rows, the complete condition is added:
    conjuncts about that side only count together with the rest.
    """
    parts = list(conjuncts(join.args.get("on")))
    filtered_sources = _sources_filtered_by_join(join, left, right, null_rejected)
    conditions = [Condition(part, filtered_sources, nullable, join_index) for part in parts]
    if len(parts) > 1 and filtered_sources and not filtered_sources >= left | right:
        conditions.append(Condition(exp.and_(*parts), filtered_sources, nullable, join_index))
    return tuple(conditions)


def _clause_condition(node: exp.Select, clause: str) -> exp.Expr | None:
    clause_node = node.args.get(clause)
    return None if clause_node is None else clause_node.this


def _row_preserving_side(
    join: exp.Join, left: frozenset[str], right: frozenset[str], null_rejected: frozenset[str]
) -> str:
    """The side that keeps its rows without a match: LEFT, RIGHT, FULL, or empty for neither.

    Args:
        null_rejected: sources whose nulls are rejected afterwards.
    """
    kind, side = join.kind.upper(), join.side.upper()
    if kind in ("SEMI", "ANTI"):
        return "LEFT" if kind == "ANTI" else ""
    keeps_left = side in ("LEFT", "FULL") and not null_rejected & right
    keeps_right = side in ("RIGHT", "FULL") and not null_rejected & left
    return "FULL" if keeps_left and keeps_right else "LEFT" if keeps_left else "RIGHT" if keeps_right else ""


def _sources_filtered_by_join(
    join: exp.Join, left: frozenset[str], right: frozenset[str], null_rejected: frozenset[str]
) -> frozenset[str]:
    """The sources that lose rows by the condition of a join."""
    return {"FULL": frozenset(), "LEFT": right, "RIGHT": left}.get(
        _row_preserving_side(join, left, right, null_rejected), left | right
    )


def _sources_nulled_by_join(
    join: exp.Join, left: frozenset[str], right: frozenset[str], null_rejected: frozenset[str]
) -> frozenset[str]:
    """The sources that a join may replace by nulls."""
    if join.kind.upper() in ("SEMI", "ANTI"):
        return frozenset()
    return {"LEFT": right, "RIGHT": left, "FULL": left | right}.get(
        _row_preserving_side(join, left, right, null_rejected), frozenset()
    )


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
