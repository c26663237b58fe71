"""Excerpts of channel histories, loaded by indexes: the blocks that a plan can need, however long the history is.

Within its purpose, an excerpt answers every question of a plan as the full history would. For each partition it starts
at the newest base that answers the oldest number in question. If blocks were lost and no such base exists, the whole
partition is loaded. ``plan/history_excerpt`` computes the same excerpts from a full history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, RowMapping, and_, func, literal_column, select

from nova_assets.catalog.block_rows import load_blocks_with_files, read_blocks
from nova_assets.catalog.database.transactions import batched, query_as_dict
from nova_assets.catalog.tables import blocks
from nova_assets.model.block import Block
from nova_assets.model.partitions import is_in_scope, partition_name, partition_values
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import PartitionHistory
from nova_assets.plan.history_excerpt import needs_comparison, needs_no_blocks_below_floor

_PARTITIONS_PER_QUERY = 500
"""Maximum number of partitions in one statement."""

_MAX_SINGLE_QUERIES = 10
"""Up to this number of partitions, each one is loaded by its own statement."""

_BASE_LITERAL: ColumnElement[str] = literal_column(
    "'base'"
)  # a literal, since the partial index of bases is not used for a parameter


@dataclass(frozen=True, slots=True)
class HistorySelection:
    """Blocks of a channel to load.

    Args:
        head: newest sequence number to load.
        scope: partitions to load.
        columns: partition columns of the channel.
    """

    channel: str
    head: int
    scope: str
    columns: tuple[str, ...]

    @property
    def single_partition(self) -> str | None:
        """Partition that the scope selects, if it names all dimensions; otherwise None."""
        values = partition_values(self.scope)
        return partition_name(self.columns, values) if values and set(values) == set(self.columns) else None

    @property
    def conditions(self) -> tuple[ColumnElement[bool], ...]:
        """SQL conditions that every selected block meets. Blocks of other partitions may meet them too."""
        partition = self.single_partition
        scope_filter = scope_conditions(self.scope) if partition is None else (blocks.c.partition == partition,)
        return (blocks.c.channel == self.channel, blocks.c.hi <= self.head, *scope_filter)


@dataclass(slots=True)
class HistoryExcerpt:
    """Loaded part of a history.

    Args:
        blocks: existing blocks.
        collected_numbers: partition -> numbers at which it changed and whose blocks were collected.
        base_floors: partition -> number of the base at which its loaded part begins.
        schema_at_first_version: schema at the oldest number that the excerpt answers.
    """

    blocks: list[Block] = field(default_factory=list)
    collected_numbers: dict[str, set[int]] = field(default_factory=dict)
    base_floors: dict[str, int] = field(default_factory=dict)
    schema_at_first_version: Schema | None = None

    def add(self, other: HistoryExcerpt) -> None:
        self.blocks += other.blocks
        for partition, numbers in other.collected_numbers.items():
            self.collected_numbers.setdefault(partition, set()).update(numbers)
        self.base_floors |= other.base_floors

    def without_partitions(self, partitions: Collection[str]) -> HistoryExcerpt:
        kept_blocks = [b for b in self.blocks if b.partition not in partitions]
        numbers = {p: n for p, n in self.collected_numbers.items() if p not in partitions}
        return HistoryExcerpt(kept_blocks, numbers, {p: n for p, n in self.base_floors.items() if p not in partitions})

    def partition_histories(self) -> Iterator[PartitionHistory]:
        blocks_by_partition: dict[str, list[Block]] = {p: [] for p in self.collected_numbers}
        for block in self.blocks:
            blocks_by_partition.setdefault(block.partition, []).append(block)
        for p, partition_blocks in blocks_by_partition.items():
            numbers = {b.hi for b in partition_blocks} | self.collected_numbers.get(p, set())
            yield PartitionHistory(p, tuple(partition_blocks), tuple(sorted(numbers)), self.base_floors.get(p, 0))


def load_full_excerpt(c: Connection, selection: HistorySelection) -> HistoryExcerpt:
    """Load the full history."""
    return _load_newer_than(c, selection, 0)


def load_excerpt_back_to(c: Connection, selection: HistorySelection, oldest: int) -> HistoryExcerpt:
    """Load what snapshots and changes from a number on need."""
    result = _load_from_newest_base(
        c, selection, oldest, None if selection.single_partition is None else {selection.single_partition}
    )
    if oldest < selection.head:
        result.schema_at_first_version = _schema_at(c, selection, oldest)
    return result


def load_changes_excerpt(c: Connection, selection: HistorySelection, since: int) -> HistoryExcerpt:
    """Load what the changes after a number need."""
    result = _load_newer_than(c, selection, since)
    tracks = list(result.partition_histories())
    dropped = {b.partition for b in result.blocks if b.origin == "drop"}
    compared = {t.partition for t in tracks if needs_comparison(t, since, selection.head)} | dropped
    if compared:
        result = result.without_partitions(compared)
        result.add(
            load_whole_partitions(c, selection, compared)
            if dropped
            else _load_from_newest_base(c, selection, since, compared)
        )
        result.schema_at_first_version = _schema_at(c, selection, since)
    return result


def load_newest_blocks(c: Connection, selection: HistorySelection, limit: int | None) -> list[Block]:
    """Newest existing blocks, newest first.

    Args:
        limit: number of blocks after which to stop. All blocks at the last number are included.
    """
    query = select(blocks).where(*selection.conditions, blocks.c.collected_at.is_(None))
    query = query.order_by(blocks.c.hi.desc(), blocks.c.kind.desc(), blocks.c.id.desc())
    newest_rows: list[RowMapping] = []
    with c.execute(query.execution_options(yield_per=_PARTITIONS_PER_QUERY)) as rows:
        for row in rows.mappings():
            if limit is not None and len(newest_rows) >= limit and row["hi"] != newest_rows[-1]["hi"]:
                break
            if is_in_scope(row["partition"], selection.scope):  # the conditions may match other partitions
                newest_rows.append(row)
    return load_blocks_with_files(c, newest_rows)


def _load_newer_than(c: Connection, selection: HistorySelection, since: int) -> HistoryExcerpt:
    """Load the blocks after a number."""
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
            result.collected_numbers.setdefault(partition, set()).add(hi)
    return result


def _load_from_newest_base(
    c: Connection, selection: HistorySelection, oldest: int, partitions: Collection[str] | None
) -> HistoryExcerpt:
    """Load some or all partitions, each from its newest base at or before a number.

    Args:
        partitions: None for all partitions in the scope.
    """
    result = HistoryExcerpt()
    if partitions is None:
        result.add(_load_from_floors(c, selection, _newest_bases_of_all_partitions(selection, oldest)))
    else:
        for batch in batched(sorted(partitions), _PARTITIONS_PER_QUERY):
            result.add(_load_from_floors(c, selection, _newest_bases_at_or_before(selection, oldest, batch)))
        result.add(load_whole_partitions(c, selection, set(partitions) - set(result.base_floors)))
    result.base_floors = {p: n for p, n in result.base_floors.items() if n}
    dropped = any(b.origin == "drop" and b.hi > oldest for b in result.blocks)
    incomplete_partitions = {
        t.partition
        for t in result.partition_histories()
        if t.floor and not needs_no_blocks_below_floor(t, oldest, selection.head, dropped)
    }
    if incomplete_partitions:
        result = result.without_partitions(incomplete_partitions)
        result.add(load_whole_partitions(c, selection, incomplete_partitions))
    return result


def load_whole_partitions(c: Connection, selection: HistorySelection, partitions: Collection[str]) -> HistoryExcerpt:
    """Load all blocks of some partitions."""
    result = HistoryExcerpt()
    for batch in batched(sorted(partitions), _PARTITIONS_PER_QUERY):
        query = select(blocks).where(
            blocks.c.channel == selection.channel, blocks.c.hi <= selection.head, blocks.c.partition.in_(batch)
        )
        result.add(_excerpt_from_rows(c, c.execute(query).mappings().all()))
    return result


def _load_from_floors(c: Connection, selection: HistorySelection, floors: CTE) -> HistoryExcerpt:
    """Load partitions from their floors on."""
    floor_by_partition: dict[str, int] = query_as_dict(c, select(floors.c.name, floors.c.floor))
    floors_in_scope = {p: n for p, n in floor_by_partition.items() if is_in_scope(p, selection.scope)}
    result = (
        _load_partitions_one_by_one(c, selection, floors_in_scope)
        if len(floors_in_scope) <= _MAX_SINGLE_QUERIES
        else _load_partitions_by_join(c, selection, floors)
    )
    result.base_floors = floors_in_scope
    return result


def _load_partitions_one_by_one(
    c: Connection, selection: HistorySelection, floor_by_partition: Mapping[str, int]
) -> HistoryExcerpt:
    """Load each partition by its own statement, so that no database can choose a slower plan."""
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
    # With an outer join, SQLite starts at the floors, which are few.
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
            result.collected_numbers.setdefault(r["partition"], set()).add(r["hi"])
    return result


def _newest_bases_at_or_before(selection: HistorySelection, number: int, partitions: Collection[str]) -> CTE:
    """Newest base of each given partition at or before a number. Partitions without such a base are left out."""
    query = select(blocks.c.partition.label("name"), func.max(blocks.c.hi).label("floor"))
    query = query.where(*_base_conditions(blocks, selection, number), blocks.c.partition.in_(partitions))
    return query.group_by(blocks.c.partition).cte("floors")


def _newest_bases_of_all_partitions(selection: HistorySelection, number: int) -> CTE:
    """Newest base of each partition at or before a number; 0 for a partition without one.

    A recursive query finds each next partition through the index, so it reads only as many rows as there are
    partitions.
    """
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
        *_base_conditions(base, selection, number), base.c.partition == partition_names.c.name
    )
    query = select(partition_names.c.name, func.coalesce(newest.scalar_subquery(), 0).label("floor"))
    return query.where(
        partition_names.c.name.is_not(None), *scope_conditions(selection.scope, partition_names.c.name)
    ).cte("floors")


def _base_conditions(table: Any, selection: HistorySelection, oldest: int) -> tuple[ColumnElement[bool], ...]:
    conditions = (table.c.channel == selection.channel, table.c.hi <= oldest)
    return (*conditions, table.c.kind == _BASE_LITERAL, table.c.collected_at.is_(None))


def _schema_at(c: Connection, selection: HistorySelection, at: int) -> Schema | None:
    """Schema at a number, as ``plan.modes.schema_at_version`` finds it in a full history."""
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
    """SQL conditions that every partition of a scope meets. Other partitions may meet them too."""
    return tuple(partition_column.contains(part, autoescape=True) for part in scope.split("/") if part)
