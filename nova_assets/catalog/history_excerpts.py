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

from nova_assets.catalog.block_rows import load_blocks_with_files, read_blocks
from nova_assets.catalog.database import batched, query_as_dict
from nova_assets.catalog.tables import blocks
from nova_assets.model.block import Block
from nova_assets.model.partitions import is_in_scope, partition_name, partition_values
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import PartitionHistory
from nova_assets.plan.history_excerpt import needs_comparison, needs_no_older_blocks

_PARTITIONS_PER_QUERY = 500
"""Partitions asked for in one statement."""

_MAX_SINGLE_QUERIES = 10
"""Partitions that are asked for one by one."""

_BASE_LITERAL: ColumnElement[str] = literal_column(
    "'base'"
)  # in the statement itself: as a parameter it does not find the index of bases


@dataclass(frozen=True, slots=True)
class HistorySelection:
    """What of a channel is asked for.

    Args:
        columns: the channel's partition columns.
    """

    channel: str
    head: int
    scope: str
    columns: tuple[str, ...]

    @property
    def single_partition(self) -> str | None:
        """The one partition that is in the scope, where it names all dimensions."""
        values = partition_values(self.scope)
        return partition_name(self.columns, values) if values and set(values) == set(self.columns) else None

    @property
    def conditions(self) -> tuple[ColumnElement[bool], ...]:
        """Conditions that every block meets; one of other dimensions may meet them, too."""
        partition = self.single_partition
        scope_filter = scope_conditions(self.scope) if partition is None else (blocks.c.partition == partition,)
        return (blocks.c.channel == self.channel, blocks.c.hi <= self.head, *scope_filter)


@dataclass(slots=True)
class HistoryExcerpt:
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

    def add(self, other: HistoryExcerpt) -> None:
        self.blocks += other.blocks
        for partition, numbers in other.numbers.items():
            self.numbers.setdefault(partition, set()).update(numbers)
        self.floors |= other.floors

    def without_partitions(self, partitions: Collection[str]) -> HistoryExcerpt:
        kept_blocks = [b for b in self.blocks if b.partition not in partitions]
        numbers = {p: n for p, n in self.numbers.items() if p not in partitions}
        return HistoryExcerpt(kept_blocks, numbers, {p: n for p, n in self.floors.items() if p not in partitions})

    def tracks(self) -> Iterator[PartitionHistory]:
        blocks_by_partition: dict[str, list[Block]] = {p: [] for p in self.numbers}
        for block in self.blocks:
            blocks_by_partition.setdefault(block.partition, []).append(block)
        for p, partition_blocks in blocks_by_partition.items():
            numbers = {b.hi for b in partition_blocks} | self.numbers.get(p, set())
            yield PartitionHistory(p, tuple(partition_blocks), tuple(sorted(numbers)), self.floors.get(p, 0))


def load_full_excerpt(c: Connection, selection: HistorySelection) -> HistoryExcerpt:
    """Everything."""
    return _load_newer_than(c, selection, 0)


def load_excerpt_back_to(c: Connection, selection: HistorySelection, oldest: int) -> HistoryExcerpt:
    """What snapshots and changes from a number on need."""
    result = _load_from_newest_base(
        c, selection, oldest, None if selection.single_partition is None else {selection.single_partition}
    )
    if oldest < selection.head:
        result.earlier = _schema_at(c, selection, oldest)
    return result


def load_changes_excerpt(c: Connection, selection: HistorySelection, since: int) -> HistoryExcerpt:
    """What the changes after a number need."""
    result = _load_newer_than(c, selection, since)
    tracks = list(result.tracks())
    dropped = {b.partition for b in result.blocks if b.origin == "drop"}
    compared = {t.partition for t in tracks if needs_comparison(t, since, selection.head)} | dropped
    if compared:
        result = result.without_partitions(compared)
        result.add(
            load_whole_partitions(c, selection, compared)
            if dropped
            else _load_from_newest_base(c, selection, since, compared)
        )
        result.earlier = _schema_at(c, selection, since)
    return result


def load_newest_blocks(c: Connection, selection: HistorySelection, limit: int | None) -> list[Block]:
    """The newest blocks that are there, newest first; once there are enough, those of the last number are all told."""
    query = select(blocks).where(*selection.conditions, blocks.c.collected_at.is_(None))
    query = query.order_by(blocks.c.hi.desc(), blocks.c.kind.desc(), blocks.c.id.desc())
    newest_rows: list[RowMapping] = []
    with c.execute(query.execution_options(yield_per=_PARTITIONS_PER_QUERY)) as rows:
        for row in rows.mappings():
            if limit is not None and len(newest_rows) >= limit and row["hi"] != newest_rows[-1]["hi"]:
                break
            if is_in_scope(row["partition"], selection.scope):  # some of other dimensions may have met the conditions
                newest_rows.append(row)
    return load_blocks_with_files(c, newest_rows)


def _load_newer_than(c: Connection, selection: HistorySelection, since: int) -> HistoryExcerpt:
    """What came after a number."""
    if since >= selection.head:
        return HistoryExcerpt()
    conditions = (*selection.conditions, *((blocks.c.hi > since,) if since else ()))
    live_blocks = read_blocks(c, select(blocks).where(*conditions, blocks.c.collected_at.is_(None)))
    result = HistoryExcerpt([b for b in live_blocks if is_in_scope(b.partition, selection.scope)])
    collected_query = select(blocks.c.partition, blocks.c.hi).where(
        *conditions, blocks.c.collected_at.is_not(None), blocks.c.origin != "compact"
    )
    for partition, hi in c.execute(collected_query):
        if is_in_scope(partition, selection.scope):
            result.numbers.setdefault(partition, set()).add(hi)
    return result


def _load_from_newest_base(
    c: Connection, selection: HistorySelection, oldest: int, partitions: Collection[str] | None
) -> HistoryExcerpt:
    """Of some partitions, or all, what came from the newest base on that is no later than a number."""
    result = HistoryExcerpt()
    if partitions is None:
        result.add(_load_from_floors(c, selection, _floors_of_all_partitions(selection, oldest)))
    else:
        for batch in batched(sorted(partitions), _PARTITIONS_PER_QUERY):
            result.add(_load_from_floors(c, selection, _floors_of_partitions(selection, oldest, batch)))
        result.add(load_whole_partitions(c, selection, set(partitions) - set(result.floors)))
    result.floors = {p: n for p, n in result.floors.items() if n}
    dropped = any(b.origin == "drop" and b.hi > oldest for b in result.blocks)
    incomplete_partitions = {
        t.partition
        for t in result.tracks()
        if t.floor and not needs_no_older_blocks(t, oldest, selection.head, dropped)
    }
    if incomplete_partitions:
        result = result.without_partitions(incomplete_partitions)
        result.add(load_whole_partitions(c, selection, incomplete_partitions))
    return result


def load_whole_partitions(c: Connection, selection: HistorySelection, partitions: Collection[str]) -> HistoryExcerpt:
    """All of some partitions."""
    result = HistoryExcerpt()
    for batch in batched(sorted(partitions), _PARTITIONS_PER_QUERY):
        query = select(blocks).where(
            blocks.c.channel == selection.channel, blocks.c.hi <= selection.head, blocks.c.partition.in_(batch)
        )
        result.add(_excerpt_from_rows(c, c.execute(query).mappings().all()))
    return result


def _load_from_floors(c: Connection, selection: HistorySelection, floors: CTE) -> HistoryExcerpt:
    """Of these partitions what came from their floors on."""
    floor_by_partition: dict[str, int] = query_as_dict(c, select(floors.c.name, floors.c.floor))
    floors_in_scope = {p: n for p, n in floor_by_partition.items() if is_in_scope(p, selection.scope)}
    result = (
        _load_partitions_one_by_one(c, selection, floors_in_scope)
        if len(floors_in_scope) <= _MAX_SINGLE_QUERIES
        else _load_partitions_by_join(c, selection, floors)
    )
    result.floors = floors_in_scope
    return result


def _load_partitions_one_by_one(
    c: Connection, selection: HistorySelection, floor_by_partition: Mapping[str, int]
) -> HistoryExcerpt:
    """One by one: then no database can think of a way that is longer."""
    result = HistoryExcerpt()
    for partition, floor in floor_by_partition.items():
        query = select(blocks).where(blocks.c.channel == selection.channel, blocks.c.partition == partition)
        query = query.where(blocks.c.hi >= floor, blocks.c.hi <= selection.head)
        result.add(_excerpt_from_rows(c, c.execute(query).mappings().all()))
    return result


def _load_partitions_by_join(c: Connection, selection: HistorySelection, floors: CTE) -> HistoryExcerpt:
    on = and_(
        blocks.c.channel == selection.channel,
        blocks.c.partition == floors.c.name,
        blocks.c.hi >= floors.c.floor,
        blocks.c.hi <= selection.head,
    )
    # The outer join is for SQLite: it starts with the few.
    query = select(blocks).select_from(floors.join(blocks, on, isouter=True))
    rows = c.execute(query).mappings().all()
    return _excerpt_from_rows(
        c, [r for r in rows if r["id"] is not None and is_in_scope(r["partition"], selection.scope)]
    )


def _excerpt_from_rows(c: Connection, rows: Iterable[RowMapping]) -> HistoryExcerpt:
    rows = list(rows)
    result = HistoryExcerpt(load_blocks_with_files(c, [r for r in rows if r["collected_at"] is None]))
    for r in rows:
        if r["collected_at"] is not None and r["origin"] != "compact":
            result.numbers.setdefault(r["partition"], set()).add(r["hi"])
    return result


def _floors_of_partitions(selection: HistorySelection, oldest: int, partitions: Collection[str]) -> CTE:
    """Of these partitions the newest base that is no later than a number; those that have none are left out."""
    query = select(blocks.c.partition.label("name"), func.max(blocks.c.hi).label("floor"))
    query = query.where(*_base_conditions(blocks, selection, oldest), blocks.c.partition.in_(partitions))
    return query.group_by(blocks.c.partition).cte("floors")


def _floors_of_all_partitions(selection: HistorySelection, oldest: int) -> CTE:
    """The same of all partitions; 0 where there is none. From one partition the next is looked up in the index, so that
    no more of it is looked at than there are partitions."""
    later, base = blocks.alias("later"), blocks.alias("base")
    names = select(func.min(blocks.c.partition).label("name")).where(blocks.c.channel == selection.channel)
    partition_names = names.cte("partitions", recursive=True)
    following = select(func.min(later.c.partition)).where(
        later.c.channel == selection.channel, later.c.partition > partition_names.c.name
    )
    partition_names = partition_names.union_all(
        select(following.scalar_subquery()).where(partition_names.c.name.is_not(None))
    )
    newest = select(func.max(base.c.hi)).where(
        *_base_conditions(base, selection, oldest), base.c.partition == partition_names.c.name
    )
    query = select(partition_names.c.name, func.coalesce(newest.scalar_subquery(), 0).label("floor"))
    return query.where(
        partition_names.c.name.is_not(None), *scope_conditions(selection.scope, partition_names.c.name)
    ).cte("floors")


def _base_conditions(table: Any, selection: HistorySelection, oldest: int) -> tuple[ColumnElement[bool], ...]:
    conditions = (table.c.channel == selection.channel, table.c.hi <= oldest)
    return (*conditions, table.c.kind == _BASE_LITERAL, table.c.collected_at.is_(None))


def _schema_at(c: Connection, selection: HistorySelection, at: int) -> Schema | None:
    """The schema of that number: as ``modes.schema_at`` finds it in a whole history."""
    live_blocks = select(blocks.c.partition, blocks.c.schema).where(
        *selection.conditions, blocks.c.hi <= at, blocks.c.collected_at.is_(None)
    )
    live_blocks = live_blocks.order_by(blocks.c.hi.desc(), blocks.c.kind, blocks.c.id)
    for query in (live_blocks.where(blocks.c.origin != "compact"), live_blocks):
        for limited_query in (query.limit(20), query):
            for partition, schema in c.execute(limited_query):
                if is_in_scope(partition, selection.scope):
                    return Schema.from_json(schema).without_columns("_deleted")
    return None


def scope_conditions(scope: str, partition_column: Any = blocks.c.partition) -> tuple[ColumnElement[bool], ...]:
    """Conditions that every partition of a scope meets; a partition of other dimensions may meet them, too."""
    return tuple(partition_column.contains(part, autoescape=True) for part in scope.split("/") if part)
