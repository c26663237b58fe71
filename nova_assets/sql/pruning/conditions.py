"""What a SELECT says of its rows, and which of the things that it reads lose rows by that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from nova_assets.sql.evaluation.values import Key
from nova_assets.sql.pruning.predicate_pushdown import asked_within, by_whole_groups, what_aggregates_take
from nova_assets.sql.query.query import conjuncts, is_by_name

LAST = 10**6
"""The place of conditions that are put to the rows that all joins have made."""

NullRejecting: TypeAlias = frozenset[tuple[str, int]]
"""(source, place): by a condition at that place, rows with nulls in place of the source are dropped. So an outer join
before that place, which makes such rows, might as well be an inner one."""


@dataclass(frozen=True)
class Condition:
    """A condition, and what may lose rows by it.

    Args:
        against: names of the sources that do.
        optional: names of the sources in whose place there may be nulls when it is put.
        place: the join of the SELECT that puts it, counted from 0; LAST behind all joins; None within parentheses.
    """

    node: exp.Expr
    against: frozenset[str]
    optional: frozenset[str]
    place: int | None = None


def conditions(
    node: exp.Select,
    sources: Sequence[str],
    asked: Sequence[exp.Expr] = (),
    source: str = "",
    rejecting: NullRejecting = frozenset(),
) -> Iterator[Condition]:
    """All conditions of a SELECT.

    Args:
        sources: the names of what it reads.
        asked: conditions on its output, put by whoever reads it.
        source: what it is called there.
    """
    joined = _joined(node, rejecting)
    if joined is None:
        return  # whose rows are kept, and whose may be null, is not known
    yield from joined.conditions
    everything, nulls = frozenset(sources), joined.optional
    matches = dict(_matches_of_full_joins(node, rejecting))
    for part in _last_parts(node, asked, source):
        yield Condition(part, everything, nulls, LAST)
        for name in matches.keys() & nulls:
            yield Condition(exp.or_(matches[name], part), frozenset({name}), nulls - {name})


def _last_parts(node: exp.Select, asked: Sequence[exp.Expr], source: str) -> Iterator[exp.Expr]:
    """The parts of conditions that are put to the rows that all joins have made."""
    yield from conjuncts(_inner(node, "where"))
    yield from (part for part in conjuncts(_inner(node, "having")) if by_whole_groups(node, part))
    yield from asked_within(node, asked, source)
    taken = what_aggregates_take(node)
    if taken is not None:
        yield taken


def _matches_of_full_joins(node: exp.Select, rejecting: NullRejecting) -> Iterator[tuple[str, exp.Expr]]:
    """Sources that are a whole side of a FULL JOIN, and its condition.

    A row of such a source matters where it meets the condition of the join, since the row that it matches has no nulls
    beside it then; or where it meets what is asked of all rows. Later joins must not keep rows of their right side, for
    it might match these, too.
    """
    first, joins = node.args.get("from_"), node.args.get("joins") or ()
    left = frozenset({first.this.alias_or_name}) if first is not None else frozenset[str]()
    for place, join in enumerate(joins):
        right = frozenset({join.this.alias_or_name})
        later = [_side(j, left, frozenset(), frozenset()) for j in joins[place + 1 :]]
        side, on = _side(join, left, right, _after_place(rejecting, place)), join.args.get("on")
        is_plain = not any(part.args.get("joins") for part in (join.this, *([first.this] if first else [])))
        if (
            side == "FULL"
            and on is not None
            and is_plain
            and not is_by_name(join)
            and {"RIGHT", "FULL"}.isdisjoint(later)
        ):
            yield from ((name, on) for name in (*right, *(left if place == 0 else ())))
        left |= right


@dataclass(frozen=True)
class _Joined:
    """What comes of some joins.

    Args:
        names: of the sources.
        optional: those in whose place there may be nulls.
        conditions: of the joins.
        keeps_right: whether one of the joins keeps all rows of its right side.
    """

    names: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    conditions: tuple[Condition, ...] = ()
    keeps_right: bool = False


def _joined(node: exp.Select, rejecting: NullRejecting) -> _Joined | None:
    """What comes of all joins of a SELECT; None where that is not understood."""
    first = node.args.get("from_")
    before = _Joined() if first is None else _part(first.this, _within(rejecting, 0))
    return None if before is None else _after(before, node.args.get("joins") or (), rejecting, is_nested=False)


def _within(rejecting: NullRejecting, place: int) -> NullRejecting:
    """For joins in parentheses, which stand in some place: those that are rejected there, or later."""
    return frozenset((name, LAST) for name, at in rejecting if at >= place)


def _part(part: exp.Expr, rejecting: NullRejecting) -> _Joined | None:
    """One thing that is read, or joins in parentheses: ``a LEFT JOIN (b JOIN c ON ...) ON ...``."""
    found: _Joined | None = _Joined(frozenset({part.alias_or_name}))
    if isinstance(part, exp.Paren | exp.Subquery) and isinstance(part.this, exp.Table | exp.Paren | exp.Subquery):
        known = not part.alias and part.args.get("sample") is None  # else all of it has another name
        found = _part(part.this, rejecting) if known else None
    joins = part.args.get("joins") or ()
    return None if found is None else _after(found, joins, rejecting, is_nested=True)


def _after(before: _Joined, joins: Sequence[exp.Join], rejecting: NullRejecting, *, is_nested: bool) -> _Joined | None:
    """What comes of further joins."""
    for place, join in enumerate(joins):
        right = _part(join.this, _within(rejecting, place))
        if right is None:
            return None
        firm = _after_place(rejecting, place)
        nulls = before.optional | right.optional
        keeps_right = before.keeps_right or right.keeps_right
        # USING after RIGHT or FULL means the column of either side, which the parser does not tell.
        unknown = keeps_right and is_by_name(join)
        own = () if unknown else _of_join(join, before.names, right.names, nulls, firm, None if is_nested else place)
        before = _Joined(
            before.names | right.names,
            nulls | _made_optional(join, before.names, right.names, firm),
            (*before.conditions, *right.conditions, *own),
            keeps_right or join.side.upper() in ("RIGHT", "FULL"),
        )
    return before


def _after_place(rejecting: NullRejecting, place: int) -> frozenset[str]:
    """The sources whose nulls are rejected after a join."""
    return frozenset(name for name, at in rejecting if at > place)


def sources_without_effect(node: exp.Select, empty: frozenset[str], rejecting: NullRejecting) -> frozenset[str]:
    """Sources whose rows reach no row of the result, since the other side of a join has none.

    Args:
        empty: sources that have no row.
    """
    first = node.args.get("from_")
    if first is None or not empty:
        return frozenset()
    start = _emptied_part(first.this, empty, _within(rejecting, 0))
    return _emptied_after(start, node.args.get("joins") or (), empty, rejecting).lost


@dataclass(frozen=True)
class _Emptied:
    """What some joins make of sources without rows.

    Args:
        names: of all sources.
        is_empty: whether the joins give no row.
        lost: sources whose rows reach none of the rows that the joins give.
    """

    names: frozenset[str]
    is_empty: bool
    lost: frozenset[str] = frozenset()


def _emptied_part(part: exp.Expr, empty: frozenset[str], rejecting: NullRejecting) -> _Emptied:
    """One thing that is read, or joins in parentheses."""
    found = _Emptied(frozenset({part.alias_or_name}), part.alias_or_name in empty)
    if isinstance(part, exp.Paren | exp.Subquery) and isinstance(part.this, exp.Table | exp.Paren | exp.Subquery):
        found = _emptied_part(part.this, empty, rejecting)
    return _emptied_after(found, part.args.get("joins") or (), empty, rejecting)


def _emptied_after(
    left: _Emptied, joins: Sequence[exp.Join], empty: frozenset[str], rejecting: NullRejecting
) -> _Emptied:
    """What further joins make of sources without rows."""
    for place, join in enumerate(joins):
        right = _emptied_part(join.this, empty, _within(rejecting, place))
        side = _side(join, left.names, right.names, _after_place(rejecting, place))
        lost = left.lost | right.lost
        if side == "LEFT":
            is_empty = left.is_empty
        elif side == "RIGHT":
            is_empty = right.is_empty
        elif side == "FULL":
            is_empty = left.is_empty and right.is_empty
        else:
            is_empty = left.is_empty or right.is_empty
        names = left.names | right.names
        left = _Emptied(names, is_empty, lost | names if is_empty else lost)
    return left


def optional_sources(node: exp.Select, sources: Sequence[str], rejecting: NullRejecting) -> frozenset[str]:
    """In whose place there may be nulls when all is joined."""
    joined = _joined(node, rejecting)
    return frozenset(sources) if joined is None else joined.optional


def _of_join(
    join: exp.Join,
    left: frozenset[str],
    right: frozenset[str],
    optional: frozenset[str],
    firm: frozenset[str],
    place: int | None,
) -> tuple[Condition, ...]:
    """Each part of a join's condition. Where one side keeps all of its rows, what is said of these counts only together
    with the rest."""
    parts = list(conjuncts(join.args.get("on")))
    losers = _losers(join, left, right, firm)
    found = [Condition(part, losers, optional, place) for part in parts]
    if len(parts) > 1 and losers and not losers >= left | right:
        found.append(Condition(exp.and_(*parts), losers, optional, place))
    return tuple(found)


def _inner(node: exp.Select, clause: str) -> exp.Expr | None:
    found = node.args.get(clause)
    return None if found is None else found.this


def _side(join: exp.Join, left: frozenset[str], right: frozenset[str], firm: frozenset[str]) -> str:
    """Which side keeps its rows where the other has none for them: LEFT, RIGHT, FULL or neither.

    Args:
        firm: sources whose nulls are rejected afterwards.
    """
    kind, side = join.kind.upper(), join.side.upper()
    if kind in ("SEMI", "ANTI"):
        return "LEFT" if kind == "ANTI" else ""
    keeps_left = side in ("LEFT", "FULL") and not firm & right
    keeps_right = side in ("RIGHT", "FULL") and not firm & left
    return "FULL" if keeps_left and keeps_right else "LEFT" if keeps_left else "RIGHT" if keeps_right else ""


def _losers(join: exp.Join, left: frozenset[str], right: frozenset[str], firm: frozenset[str]) -> frozenset[str]:
    """Which sources lose rows by the condition of a join."""
    return {"FULL": frozenset(), "LEFT": right, "RIGHT": left}.get(_side(join, left, right, firm), left | right)


def _made_optional(join: exp.Join, left: frozenset[str], right: frozenset[str], firm: frozenset[str]) -> frozenset[str]:
    """In whose place there may be nulls after a join."""
    if join.kind.upper() in ("SEMI", "ANTI"):
        return frozenset()
    return {"LEFT": right, "RIGHT": left, "FULL": left | right}.get(_side(join, left, right, firm), frozenset())


def without_source(node: exp.Expr, name: str) -> exp.Expr | None:
    """A condition with nulls in place of a source's columns; None where it has none, or a query hides some."""
    if node.find(exp.Query) or not any(c.table == name for c in node.find_all(exp.Column)):
        return None
    found = node.copy()
    for column in list(found.find_all(exp.Column)):
        if column.table == name:
            column.replace(exp.null())
    return found


def said_apart(node: exp.Expr, name: str, mark: str) -> tuple[exp.Expr | None, dict[Key, Key]]:
    """A condition as it is put to one source: columns of others under names that mean nothing inside it, and which they
    are. None where it is not about the source."""
    if not any(c.table == name for c in node.find_all(exp.Column)) or node.find(exp.Query, exp.Subquery):
        return None, {}
    found, named = node.copy(), dict[Key, Key]()
    for column in found.find_all(exp.Column):
        if column.table != name:
            apart = f"{column.table}{mark}"
            named[apart, column.name.lower()] = (column.table, column.name.lower())
            column.set("table", exp.to_identifier(apart))
    return found, named
