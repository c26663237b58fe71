"""Excerpts of histories: of a channel's blocks those that a plan can need, found by indexes, however many there are.

Whatever a plan asks of an excerpt within what it is for, it answers as the whole history would. So of each partition
everything is loaded from a base on that answers the oldest number in question; and where there is none such, since
something was lost, the partition is loaded whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, RowMapping, and_, func, literal_column, select

from nova_assets.catalog.block_rows import read_blocks, with_files
from nova_assets.catalog.database import batched, pairs
from nova_assets.catalog.tables import blocks
from nova_assets.model.block import Block
from nova_assets.model.partitions import partition_name, partition_values, within
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import Track
from nova_assets.plan.history_excerpt import is_compared, is_enough

_AT_ONCE = 500
"""Partitions asked for in one statement."""

_FEW = 10
"""Partitions that are asked for one by one."""

_BASE: ColumnElement[str] = literal_column(
    "'base'"
)  # in the statement itself: as a parameter it does not find the index of bases


@dataclass(frozen=True, slots=True)
class Part:
    """What of a channel is asked for.

    Args:
        columns: the channel's partition columns.
    """

    channel: str
    head: int
    scope: str
    columns: tuple[str, ...]

    @property
    def single(self) -> str | None:
        """The one partition that is in the scope, where it names all dimensions."""
        values = partition_values(self.scope)
        return partition_name(self.columns, values) if values and set(values) == set(self.columns) else None

    @property
    def where(self) -> tuple[ColumnElement[bool], ...]:
        """Conditions that every block meets; one of other dimensions may meet them, too."""
        single = self.single
        there = narrowed(self.scope) if single is None else (blocks.c.partition == single,)
        return (blocks.c.channel == self.channel, blocks.c.hi <= self.head, *there)


@dataclass(slots=True)
class Excerpt:
    """What was loaded.

    Args:
        numbers: partition -> numbers whose blocks are gone: they still are numbers at which it changed.
        floors: partition -> the number of the base from which on it is here.
        earlier: the schema at the number from which on this answers.
    """

    blocks: list[Block] = field(default_factory=list)
    numbers: dict[str, set[int]] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    earlier: Schema | None = None

    def add(self, other: Excerpt) -> None:
        self.blocks += other.blocks
        for partition, numbers in other.numbers.items():
            self.numbers.setdefault(partition, set()).update(numbers)
        self.floors |= other.floors

    def without(self, partitions: Collection[str]) -> Excerpt:
        kept = [b for b in self.blocks if b.partition not in partitions]
        numbers = {p: n for p, n in self.numbers.items() if p not in partitions}
        return Excerpt(kept, numbers, {p: n for p, n in self.floors.items() if p not in partitions})

    def tracks(self) -> Iterator[Track]:
        found: dict[str, list[Block]] = {p: [] for p in self.numbers}
        for block in self.blocks:
            found.setdefault(block.partition, []).append(block)
        for p, some in found.items():
            numbers = {b.hi for b in some} | self.numbers.get(p, set())
            yield Track(p, tuple(some), tuple(sorted(numbers)), self.floors.get(p, 0))


def whole(c: Connection, part: Part) -> Excerpt:
    """Everything."""
    return _above(c, part, 0)


def back_to(c: Connection, part: Part, oldest: int) -> Excerpt:
    """What snapshots and changes from a number on need."""
    found = _reaching(c, part, oldest, None if part.single is None else {part.single})
    if oldest < part.head:
        found.earlier = _schema(c, part, oldest)
    return found


def after(c: Connection, part: Part, since: int) -> Excerpt:
    """What the changes after a number need."""
    found = _above(c, part, since)
    tracks = list(found.tracks())
    dropped = {b.partition for b in found.blocks if b.origin == "drop"}
    compared = {t.partition for t in tracks if is_compared(t, since, part.head)} | dropped
    if compared:
        found = found.without(compared)
        found.add(whole_of(c, part, compared) if dropped else _reaching(c, part, since, compared))
        found.earlier = _schema(c, part, since)
    return found


def newest(c: Connection, part: Part, limit: int | None) -> list[Block]:
    """The newest blocks that are there, newest first; once there are enough, those of the last number are all told."""
    query = select(blocks).where(*part.where, blocks.c.collected_at.is_(None))
    query = query.order_by(blocks.c.hi.desc(), blocks.c.kind.desc(), blocks.c.id.desc())
    found: list[RowMapping] = []
    with c.execute(query.execution_options(yield_per=_AT_ONCE)) as rows:
        for row in rows.mappings():
            if limit is not None and len(found) >= limit and row["hi"] != found[-1]["hi"]:
                break
            if within(row["partition"], part.scope):  # some of other dimensions may have met the conditions
                found.append(row)
    return with_files(c, found)


def _above(c: Connection, part: Part, since: int) -> Excerpt:
    """What came after a number."""
    if since >= part.head:
        return Excerpt()
    later = (*part.where, *((blocks.c.hi > since,) if since else ()))
    there = read_blocks(c, select(blocks).where(*later, blocks.c.collected_at.is_(None)))
    found = Excerpt([b for b in there if within(b.partition, part.scope)])
    gone = select(blocks.c.partition, blocks.c.hi).where(
        *later, blocks.c.collected_at.is_not(None), blocks.c.origin != "compact"
    )
    for partition, hi in c.execute(gone):
        if within(partition, part.scope):
            found.numbers.setdefault(partition, set()).add(hi)
    return found


def _reaching(c: Connection, part: Part, oldest: int, names: Collection[str] | None) -> Excerpt:
    """Of some partitions, or all, what came from the newest base on that is no later than a number."""
    found = Excerpt()
    if names is None:
        found.add(_from(c, part, _floors(part, oldest)))
    else:
        for some in batched(sorted(names), _AT_ONCE):
            found.add(_from(c, part, _floors_of(part, oldest, some)))
        found.add(whole_of(c, part, set(names) - set(found.floors)))
    found.floors = {p: n for p, n in found.floors.items() if n}
    dropped = any(b.origin == "drop" and b.hi > oldest for b in found.blocks)
    astray = {t.partition for t in found.tracks() if t.floor and not is_enough(t, oldest, part.head, dropped)}
    if astray:
        found = found.without(astray)
        found.add(whole_of(c, part, astray))
    return found


def whole_of(c: Connection, part: Part, names: Collection[str]) -> Excerpt:
    """All of some partitions."""
    found = Excerpt()
    for some in batched(sorted(names), _AT_ONCE):
        query = select(blocks).where(
            blocks.c.channel == part.channel, blocks.c.hi <= part.head, blocks.c.partition.in_(some)
        )
        found.add(_excerpt(c, c.execute(query).mappings().all()))
    return found


def _from(c: Connection, part: Part, floors: CTE) -> Excerpt:
    """Of these partitions what came from their floors on."""
    floors_of: dict[str, int] = pairs(c, select(floors.c.name, floors.c.floor))
    wanted = {p: n for p, n in floors_of.items() if within(p, part.scope)}
    found = _each(c, part, wanted) if len(wanted) <= _FEW else _all(c, part, floors)
    found.floors = wanted
    return found


def _each(c: Connection, part: Part, floors: Mapping[str, int]) -> Excerpt:
    """One by one: then no database can think of a way that is longer."""
    found = Excerpt()
    for partition, floor in floors.items():
        query = select(blocks).where(blocks.c.channel == part.channel, blocks.c.partition == partition)
        query = query.where(blocks.c.hi >= floor, blocks.c.hi <= part.head)
        found.add(_excerpt(c, c.execute(query).mappings().all()))
    return found


def _all(c: Connection, part: Part, floors: CTE) -> Excerpt:
    on = and_(
        blocks.c.channel == part.channel,
        blocks.c.partition == floors.c.name,
        blocks.c.hi >= floors.c.floor,
        blocks.c.hi <= part.head,
    )
    # The outer join is for SQLite: it starts with the few.
    query = select(blocks).select_from(floors.join(blocks, on, isouter=True))
    rows = c.execute(query).mappings().all()
    return _excerpt(c, [r for r in rows if r["id"] is not None and within(r["partition"], part.scope)])


def _excerpt(c: Connection, rows: Iterable[RowMapping]) -> Excerpt:
    rows = list(rows)
    found = Excerpt(with_files(c, [r for r in rows if r["collected_at"] is None]))
    for r in rows:
        if r["collected_at"] is not None and r["origin"] != "compact":
            found.numbers.setdefault(r["partition"], set()).add(r["hi"])
    return found


def _floors_of(part: Part, oldest: int, names: Collection[str]) -> CTE:
    """Of these partitions the newest base that is no later than a number; those that have none are left out."""
    query = select(blocks.c.partition.label("name"), func.max(blocks.c.hi).label("floor"))
    query = query.where(*_bases(blocks, part, oldest), blocks.c.partition.in_(names))
    return query.group_by(blocks.c.partition).cte("floors")


def _floors(part: Part, oldest: int) -> CTE:
    """The same of all partitions; 0 where there is none. From one partition the next is looked up in the index, so that
    no more of it is looked at than there are partitions."""
    later, base = blocks.alias("later"), blocks.alias("base")
    names = select(func.min(blocks.c.partition).label("name")).where(blocks.c.channel == part.channel)
    known = names.cte("partitions", recursive=True)
    following = select(func.min(later.c.partition)).where(
        later.c.channel == part.channel, later.c.partition > known.c.name
    )
    known = known.union_all(select(following.scalar_subquery()).where(known.c.name.is_not(None)))
    newest = select(func.max(base.c.hi)).where(*_bases(base, part, oldest), base.c.partition == known.c.name)
    query = select(known.c.name, func.coalesce(newest.scalar_subquery(), 0).label("floor"))
    return query.where(known.c.name.is_not(None), *narrowed(part.scope, known.c.name)).cte("floors")


def _bases(table: Any, part: Part, oldest: int) -> tuple[ColumnElement[bool], ...]:
    of = (table.c.channel == part.channel, table.c.hi <= oldest)
    return (*of, table.c.kind == _BASE, table.c.collected_at.is_(None))


def _schema(c: Connection, part: Part, at: int) -> Schema | None:
    """The schema of that number: as ``modes.schema_at`` finds it in a whole history."""
    there = select(blocks.c.partition, blocks.c.schema).where(
        *part.where, blocks.c.hi <= at, blocks.c.collected_at.is_(None)
    )
    there = there.order_by(blocks.c.hi.desc(), blocks.c.kind, blocks.c.id)
    for query in (there.where(blocks.c.origin != "compact"), there):
        for some in (query.limit(20), query):
            for partition, schema in c.execute(some):
                if within(partition, part.scope):
                    return Schema.from_json(schema).without("_deleted")
    return None


def narrowed(scope: str, partition: Any = blocks.c.partition) -> tuple[ColumnElement[bool], ...]:
    """Conditions that every partition of a scope meets; a partition of other dimensions may meet them, too."""
    return tuple(partition.contains(part, autoescape=True) for part in scope.split("/") if part)
