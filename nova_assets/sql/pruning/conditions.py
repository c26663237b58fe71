"""What a SELECT says of its rows, and which of the things that it reads lose rows by that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from nova_assets.sql.evaluation.values import Key
from nova_assets.sql.pruning.predicate_pushdown import (
    aggregate_filter_condition,
    is_determined_by_group,
    push_down_conditions,
)
from nova_assets.sql.query.query import conjuncts, is_using_or_natural

AFTER_ALL_JOINS = 10**6
"""The place of conditions that are put to the rows that all joins have made."""

NullRejecting: TypeAlias = frozenset[tuple[str, int]]
"""(source, place): by a condition at that place, rows with nulls in place of the source are dropped. So an outer join
before that place, which makes such rows, might as well be an inner one."""


@dataclass(frozen=True)
class Condition:
    """A condition, and what may lose rows by it.

    Args:
        filtered_sources: names of the sources that do.
        nullable_sources: names of the sources in whose place there may be nulls when it is put.
        join_index: the join of the SELECT that puts it, counted from 0; LAST behind all joins; None within parentheses.
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
    """All conditions of a SELECT.

    Args:
        sources: the names of what it reads.
        outer_conditions: conditions on its output, put by whoever reads it.
        outer_name: what it is called there.
    """
    join_result = _analyse_joins(node, null_rejecting)
    if join_result is None:
        return  # whose rows are kept, and whose may be null, is not known
    yield from join_result.conditions
    everything, nulls = frozenset(sources), join_result.nullable
    matches = dict(_full_join_conditions(node, null_rejecting))
    for part in _conditions_after_joins(node, outer_conditions, outer_name):
        yield Condition(part, everything, nulls, AFTER_ALL_JOINS)
        for name in matches.keys() & nulls:
            yield Condition(exp.or_(matches[name], part), frozenset({name}), nulls - {name})


def _conditions_after_joins(
    node: exp.Select, outer_conditions: Sequence[exp.Expr], outer_name: str
) -> Iterator[exp.Expr]:
    """The parts of conditions that are put to the rows that all joins have made."""
    yield from conjuncts(_clause_condition(node, "where"))
    yield from (part for part in conjuncts(_clause_condition(node, "having")) if is_determined_by_group(node, part))
    yield from push_down_conditions(node, outer_conditions, outer_name)
    aggregate_filter = aggregate_filter_condition(node)
    if aggregate_filter is not None:
        yield aggregate_filter


def _full_join_conditions(node: exp.Select, null_rejecting: NullRejecting) -> Iterator[tuple[str, exp.Expr]]:
    """Sources that are a whole side of a FULL JOIN, and its condition.

    A row of such a source matters where it meets the condition of the join, since the row that it matches has no nulls
    beside it then; or where it meets what is asked of all rows. Later joins must not keep rows of their right side, for
    it might match these, too.
    """
    first, joins = node.args.get("from_"), node.args.get("joins") or ()
    left = frozenset({first.this.alias_or_name}) if first is not None else frozenset[str]()
    for join_index, join in enumerate(joins):
        right = frozenset({join.this.alias_or_name})
        later = [_row_preserving_side(j, left, frozenset(), frozenset()) for j in joins[join_index + 1 :]]
        side, on = (
            _row_preserving_side(join, left, right, _null_rejected_after(null_rejecting, join_index)),
            join.args.get("on"),
        )
        is_plain = not any(part.args.get("joins") for part in (join.this, *([first.this] if first else [])))
        if (
            side == "FULL"
            and on is not None
            and is_plain
            and not is_using_or_natural(join)
            and {"RIGHT", "FULL"}.isdisjoint(later)
        ):
            yield from ((name, on) for name in (*right, *(left if join_index == 0 else ())))
        left |= right


@dataclass(frozen=True)
class _JoinResult:
    """What comes of some joins.

    Args:
        names: of the sources.
        nullable: those in whose place there may be nulls.
        conditions: of the joins.
        keeps_right: whether one of the joins keeps all rows of its right side.
    """

    names: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()
    conditions: tuple[Condition, ...] = ()
    keeps_right: bool = False


def _analyse_joins(node: exp.Select, null_rejecting: NullRejecting) -> _JoinResult | None:
    """What comes of all joins of a SELECT; None where that is not understood."""
    first = node.args.get("from_")
    before = (
        _JoinResult() if first is None else _analyse_join_operand(first.this, _null_rejecting_within(null_rejecting, 0))
    )
    return (
        None if before is None else _apply_joins(before, node.args.get("joins") or (), null_rejecting, is_nested=False)
    )


def _null_rejecting_within(null_rejecting: NullRejecting, join_index: int) -> NullRejecting:
    """For joins in parentheses, which stand in some place: those that are rejected there, or later."""
    return frozenset(
        (name, AFTER_ALL_JOINS) for name, condition_index in null_rejecting if condition_index >= join_index
    )


def _analyse_join_operand(join_operand: exp.Expr, null_rejecting: NullRejecting) -> _JoinResult | None:
    """One thing that is read, or joins in parentheses: ``a LEFT JOIN (b JOIN c ON ...) ON ...``."""
    found: _JoinResult | None = _JoinResult(frozenset({join_operand.alias_or_name}))
    if isinstance(join_operand, exp.Paren | exp.Subquery) and isinstance(
        join_operand.this, exp.Table | exp.Paren | exp.Subquery
    ):
        known = not join_operand.alias and join_operand.args.get("sample") is None  # else all of it has another name
        found = _analyse_join_operand(join_operand.this, null_rejecting) if known else None
    joins = join_operand.args.get("joins") or ()
    return None if found is None else _apply_joins(found, joins, null_rejecting, is_nested=True)


def _apply_joins(
    before: _JoinResult, joins: Sequence[exp.Join], null_rejecting: NullRejecting, *, is_nested: bool
) -> _JoinResult | None:
    """What comes of further joins."""
    for join_index, join in enumerate(joins):
        right = _analyse_join_operand(join.this, _null_rejecting_within(null_rejecting, join_index))
        if right is None:
            return None
        null_rejected = _null_rejected_after(null_rejecting, join_index)
        nulls = before.nullable | right.nullable
        keeps_right = before.keeps_right or right.keeps_right
        # USING after RIGHT or FULL means the column of either side, which the parser does not tell.
        unknown = keeps_right and is_using_or_natural(join)
        own = (
            ()
            if unknown
            else _join_conditions(
                join, before.names, right.names, nulls, null_rejected, None if is_nested else join_index
            )
        )
        before = _JoinResult(
            before.names | right.names,
            nulls | _sources_nulled_by_join(join, before.names, right.names, null_rejected),
            (*before.conditions, *right.conditions, *own),
            keeps_right or join.side.upper() in ("RIGHT", "FULL"),
        )
    return before


def _null_rejected_after(null_rejecting: NullRejecting, join_index: int) -> frozenset[str]:
    """The sources whose nulls are rejected after a join."""
    return frozenset(name for name, condition_index in null_rejecting if condition_index > join_index)


def sources_not_reaching_result(
    node: exp.Select, empty_sources: frozenset[str], null_rejecting: NullRejecting
) -> frozenset[str]:
    """Sources whose rows reach no row of the result, since the other side of a join has none.

    Args:
        empty_sources: sources that have no row.
    """
    first = node.args.get("from_")
    if first is None or not empty_sources:
        return frozenset()
    start = _analyse_empty_operand(first.this, empty_sources, _null_rejecting_within(null_rejecting, 0))
    return _apply_empty_joins(start, node.args.get("joins") or (), empty_sources, null_rejecting).without_effect


@dataclass(frozen=True)
class _EmptyJoinResult:
    """What some joins make of sources without rows.

    Args:
        names: of all sources.
        is_empty: whether the joins give no row.
        without_effect: sources whose rows reach none of the rows that the joins give.
    """

    names: frozenset[str]
    is_empty: bool
    without_effect: frozenset[str] = frozenset()


def _analyse_empty_operand(
    join_operand: exp.Expr, empty_sources: frozenset[str], null_rejecting: NullRejecting
) -> _EmptyJoinResult:
    """One thing that is read, or joins in parentheses."""
    found = _EmptyJoinResult(frozenset({join_operand.alias_or_name}), join_operand.alias_or_name in empty_sources)
    if isinstance(join_operand, exp.Paren | exp.Subquery) and isinstance(
        join_operand.this, exp.Table | exp.Paren | exp.Subquery
    ):
        found = _analyse_empty_operand(join_operand.this, empty_sources, null_rejecting)
    return _apply_empty_joins(found, join_operand.args.get("joins") or (), empty_sources, null_rejecting)


def _apply_empty_joins(
    left: _EmptyJoinResult, joins: Sequence[exp.Join], empty_sources: frozenset[str], null_rejecting: NullRejecting
) -> _EmptyJoinResult:
    """What further joins make of sources without rows."""
    for join_index, join in enumerate(joins):
        right = _analyse_empty_operand(join.this, empty_sources, _null_rejecting_within(null_rejecting, join_index))
        side = _row_preserving_side(join, left.names, right.names, _null_rejected_after(null_rejecting, join_index))
        lost = left.without_effect | right.without_effect
        if side == "LEFT":
            is_empty = left.is_empty
        elif side == "RIGHT":
            is_empty = right.is_empty
        elif side == "FULL":
            is_empty = left.is_empty and right.is_empty
        else:
            is_empty = left.is_empty or right.is_empty
        names = left.names | right.names
        left = _EmptyJoinResult(names, is_empty, lost | names if is_empty else lost)
    return left


def find_nullable_sources(node: exp.Select, sources: Sequence[str], null_rejecting: NullRejecting) -> frozenset[str]:
    """In whose place there may be nulls when all is joined."""
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
    """Each part of a join's condition. Where one side keeps all of its rows, what is said of these counts only together
    with the rest."""
    parts = list(conjuncts(join.args.get("on")))
    filtered_sources = _sources_filtered_by_join(join, left, right, null_rejected)
    found = [Condition(part, filtered_sources, nullable, join_index) for part in parts]
    if len(parts) > 1 and filtered_sources and not filtered_sources >= left | right:
        found.append(Condition(exp.and_(*parts), filtered_sources, nullable, join_index))
    return tuple(found)


def _clause_condition(node: exp.Select, clause: str) -> exp.Expr | None:
    found = node.args.get(clause)
    return None if found is None else found.this


def _row_preserving_side(
    join: exp.Join, left: frozenset[str], right: frozenset[str], null_rejected: frozenset[str]
) -> str:
    """Which side keeps its rows where the other has none for them: LEFT, RIGHT, FULL or neither.

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
    """Which sources lose rows by the condition of a join."""
    return {"FULL": frozenset(), "LEFT": right, "RIGHT": left}.get(
        _row_preserving_side(join, left, right, null_rejected), left | right
    )


def _sources_nulled_by_join(
    join: exp.Join, left: frozenset[str], right: frozenset[str], null_rejected: frozenset[str]
) -> frozenset[str]:
    """In whose place there may be nulls after a join."""
    if join.kind.upper() in ("SEMI", "ANTI"):
        return frozenset()
    return {"LEFT": right, "RIGHT": left, "FULL": left | right}.get(
        _row_preserving_side(join, left, right, null_rejected), frozenset()
    )


def with_source_nulled(condition: exp.Expr, source: str) -> exp.Expr | None:
    """A condition with nulls in place of a source's columns; None where it has none, or a query hides some."""
    if condition.find(exp.Query) or not any(c.table == source for c in condition.find_all(exp.Column)):
        return None
    found = condition.copy()
    for column in list(found.find_all(exp.Column)):
        if column.table == source:
            column.replace(exp.null())
    return found


def rename_other_sources(condition: exp.Expr, source: str, name_suffix: str) -> tuple[exp.Expr | None, dict[Key, Key]]:
    """A condition as it is put to one source: columns of others under names that mean nothing inside it, and which they
    are. None where it is not about the source."""
    if not any(c.table == source for c in condition.find_all(exp.Column)) or condition.find(exp.Query, exp.Subquery):
        return None, {}
    found, original_by_alias = condition.copy(), dict[Key, Key]()
    for column in found.find_all(exp.Column):
        if column.table != source:
            alias = f"{column.table}{name_suffix}"
            original_by_alias[alias, column.name.lower()] = (column.table, column.name.lower())
            column.set("table", exp.to_identifier(alias))
    return found, original_by_alias
