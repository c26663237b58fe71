"""What a SELECT says of its rows, and which of the things that it reads lose rows by that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from nova_assets.sql.passing import asked_within, by_whole_groups
from nova_assets.sql.query import conjuncts
from nova_assets.sql.values import Key


@dataclass(frozen=True)
class Condition:
    """A condition, and what may lose rows by it.

    Args:
        against: names of the sources that do.
        optional: names of the sources in whose place there may be nulls when it is put.
        is_last: whether it is put to the rows that all joins have made.
    """

    node: exp.Expr
    against: frozenset[str]
    optional: frozenset[str]
    is_last: bool = False


def conditions(
    node: exp.Select,
    sources: Sequence[str],
    asked: Sequence[exp.Expr] = (),
    source: str = "",
    firm: frozenset[str] = frozenset(),
) -> Iterator[Condition]:
    """All conditions of a SELECT.

    Args:
        sources: the names of what it reads.
        asked: conditions on its output, put by whoever reads it.
        source: what it is called there.
        firm: sources of which rows with nulls in their place are dropped in the end, so that an outer join that makes
            such rows might as well be an inner one.
    """
    if has_nested_joins(node):
        return  # whose rows are kept, and whose may be null, is another question there
    first = node.args.get("from_")
    before: list[str] = [first.this.alias_or_name] if first is not None else []
    optional: set[str] = set()
    for join in node.args.get("joins") or ():
        yield from _of_join(join, before, frozenset(optional), firm)
        optional |= _made_optional(join, before, firm)
        before.append(join.alias_or_name)
    everything, nulls = frozenset(sources), frozenset(optional)
    for part in conjuncts(_inner(node, "where")):
        yield Condition(part, everything, nulls, True)
    for part in conjuncts(_inner(node, "having")):
        if by_whole_groups(node, part):
            yield Condition(part, everything, nulls, True)
    for part in asked_within(node, asked, source):
        yield Condition(part, everything, nulls, True)


def has_nested_joins(node: exp.Select) -> bool:
    """Whether a join is in parentheses: ``a LEFT JOIN (b JOIN c ON ...) ON ...``."""
    first = node.args.get("from_")
    read = [*([first.this] if first is not None else []), *(j.this for j in node.args.get("joins") or ())]
    return any(part.args.get("joins") or isinstance(part, exp.Paren) or _wraps_a_table(part) for part in read)


def _wraps_a_table(part: exp.Expr) -> bool:
    return isinstance(part, exp.Subquery) and isinstance(part.this, exp.Table | exp.Paren | exp.Subquery)


def optional_sources(node: exp.Select, sources: Sequence[str], firm: frozenset[str]) -> frozenset[str]:
    """In whose place there may be nulls when all is joined."""
    if has_nested_joins(node):
        return frozenset(sources)
    first = node.args.get("from_")
    before: list[str] = [first.this.alias_or_name] if first is not None else []
    found: set[str] = set()
    for join in node.args.get("joins") or ():
        found |= _made_optional(join, before, firm)
        before.append(join.alias_or_name)
    return frozenset(found)


def _of_join(
    join: exp.Join, before: Sequence[str], optional: frozenset[str], firm: frozenset[str]
) -> Iterator[Condition]:
    """Each part of a join's condition. Where one side keeps all of its rows, what is said of these counts only together
    with the rest."""
    parts = list(conjuncts(join.args.get("on")))
    losers = _losers(join, before, firm)
    for part in parts:
        yield Condition(part, losers, optional)
    if len(parts) > 1 and losers and not losers >= {join.alias_or_name, *before}:
        yield Condition(exp.and_(*parts), losers, optional)


def _inner(node: exp.Select, clause: str) -> exp.Expr | None:
    found = node.args.get(clause)
    return None if found is None else found.this


def _side(join: exp.Join, before: Sequence[str], firm: frozenset[str]) -> str:
    """Which side's rows come with nulls where the other has none: LEFT, RIGHT, FULL or neither."""
    side = join.side.upper()
    keeps_left = side in ("LEFT", "FULL") and join.alias_or_name not in firm
    keeps_right = side in ("RIGHT", "FULL") and not firm.intersection(before)
    return "FULL" if keeps_left and keeps_right else "LEFT" if keeps_left else "RIGHT" if keeps_right else ""


def _losers(join: exp.Join, before: Sequence[str], firm: frozenset[str]) -> frozenset[str]:
    """Which sources lose rows by the condition of a join."""
    right, left = frozenset({join.alias_or_name}), frozenset(before)
    kind = join.kind.upper()
    if kind == "ANTI":  # a row of the left that matches nothing is what is wanted
        return right
    side = "" if kind == "SEMI" else _side(join, before, firm)
    return {"FULL": frozenset(), "LEFT": right, "RIGHT": left}.get(side, left | right)


def _made_optional(join: exp.Join, before: Sequence[str], firm: frozenset[str]) -> set[str]:
    """In whose place there may be nulls after a join."""
    if join.kind.upper() in ("SEMI", "ANTI"):
        return set()
    right = join.alias_or_name
    side = _side(join, before, firm)
    return {"LEFT": {right}, "RIGHT": set(before), "FULL": {right, *before}}.get(side, set())


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
