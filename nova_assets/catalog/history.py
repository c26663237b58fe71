"""Histories of channels: their blocks for plans, their partitions, and outlines of many channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, and_, case, func, or_, select

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.channel_rows import channel_not_found_error, load_channel_state, read_lost_numbers
from nova_assets.catalog.cursors import read_cursors
from nova_assets.catalog.history_excerpts import (
    HistoryExcerpt,
    HistorySelection,
    load_changes_excerpt,
    load_excerpt_back_to,
    load_full_excerpt,
    load_newest_blocks,
    scope_conditions,
)
from nova_assets.catalog.tables import (
    blocks,
    channels,
    commit_numbers,
    commits,
    executions,
)
from nova_assets.errors import VersionNotFound
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import BlockSpan, ChannelOutline, Cursor, PartitionState, UnreadData
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import WHOLE, is_in_scope, scopes_overlap
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History


class Histories(CatalogPart):
    """Reads the blocks of channels. Each answer shows the state at one moment."""

    def of(
        self,
        channel: str,
        at: int | None = None,
        scope: str = WHOLE,
        since: int | None = None,
        *,
        back_to: int | None = None,
    ) -> History:
        """History of a channel up to a number: all blocks, or only those that some kind of read needs.

        Args:
            at: sequence number; the head by default.
            scope: partitions to load.
            since: load only the changes after this number.
            back_to: load only what snapshots from this number on, and changes after it, need.

        Raises:
            ChannelNotFound, VersionNotFound.
        """
        result = self.database.read(lambda c: read_history(c, channel, at, scope, since or 0, back_to or 0))
        if result is None:
            raise channel_not_found_error(self.database, channel)
        return result

    def blocks(self, channel: str, at: int | None = None, scope: str = WHOLE, limit: int | None = None) -> list[Block]:
        """Existing blocks up to a number, newest first.

        Args:
            at: sequence number; the head by default.
            scope: partitions to load.
            limit: number of blocks after which to stop. All blocks at the last number are included.

        Raises:
            ChannelNotFound, VersionNotFound.
        """

        def read_newest(c: Connection) -> list[Block] | None:
            row = c.execute(select(channels).where(channels.c.name == channel)).mappings().first()
            if row is None:
                return None
            if at is not None and not 0 <= at <= row["head"]:
                raise VersionNotFound.of(channel, at, row["head"])
            columns = Channel.from_json(row["definition"]).partition_columns
            return load_newest_blocks(
                c, HistorySelection(channel, row["head"] if at is None else at, scope, columns), limit
            )

        result = self.database.read(read_newest)
        if result is None:
            raise channel_not_found_error(self.database, channel)
        return result

    def lost_numbers(self, channel: str) -> list[range]:
        """Sequence numbers that no commit of this catalog has, although the catalog has given them to commits once.

        A catalog that was restored from a backup has lost the commits after the backup. It leaves out their numbers, so
        that a number that a reader knows never means other rows (R1).
        """
        return self.database.read(lambda c: read_lost_numbers(c, channel))

    def has_dropped_partitions(self, channel: str, *, ever: bool = False) -> bool:
        """Whether retention dropped a partition of the channel (R19).

        Args:
            ever: whether drops count that no version needs any more.
        """
        b = blocks.c
        query = select(b.id).where(b.channel == channel, b.kind == "base", b.origin == "drop")
        query = query if ever else query.where(b.collected_at.is_(None))
        return self.database.read(lambda c: c.execute(query.limit(1)).first() is not None)

    def is_written_by_others(self, channel: str, binding: str, partition: str, after: int, up_to: int) -> bool:
        """Whether a commit with a sequence number in ``(after, up_to]`` of the channel is not of the binding.

        An execution writes once after it has read the version ``after``. So a second commit of the same binding and
        partition is of another execution, and counts, too. Executions of the binding for other partitions do not count.
        Executions per partition count for an unpartitioned execution, and the reverse. Drops by retention do not count
        (R19). Compactions take no number.
        """
        number = commit_numbers.c
        drop = select(blocks.c.id).where(
            blocks.c.commit_id == number.commit_id, blocks.c.channel == channel, blocks.c.origin == "drop"
        )
        is_of_another = commits.c.binding.is_distinct_from(binding)
        has_other_form = executions.c.partition != WHOLE if partition == WHOLE else executions.c.partition == WHOLE
        query = (
            select(func.count(), func.sum(case((or_(is_of_another, has_other_form), 1), else_=0)))
            .join(commits, commits.c.id == number.commit_id)
            .join(executions, executions.c.id == commits.c.execution_id, isouter=True)
            .where(
                number.channel == channel,
                number.seq > after,
                number.seq <= up_to,
                or_(is_of_another, has_other_form, executions.c.partition == partition),
                ~drop.exists(),
            )
        )
        commit_count, count_of_others = self.database.read(lambda c: c.execute(query).one())
        return bool(count_of_others) or commit_count > 1

    def partitions(self, channel: str, scope: str = WHOLE) -> list[PartitionState]:
        """State of each partition of a channel that has or had blocks, by name.

        An empty base of a partitioned channel without partitions takes a number (R1), but has no partition.

        Raises:
            ChannelNotFound.
        """
        is_partitioned = bool(load_channel_state(self.database, channel).channel.partitions)
        updated_number = case((blocks.c.origin.not_in(("compact", "drop")), blocks.c.hi))
        is_live = blocks.c.collected_at.is_(None)
        sizes = (func.sum(case((is_live, n))) for n in (blocks.c.rows, blocks.c.bytes, 1))
        query = select(blocks.c.partition, func.max(blocks.c.hi), func.max(updated_number), *sizes)
        query = query.where(blocks.c.channel == channel, *scope_conditions(scope)).group_by(blocks.c.partition)
        rows = self.database.read(lambda c: c.execute(query).all())
        states = [
            PartitionState(p, seq, int(n or 0), int(size or 0), int(count or 0), int(news or 0))
            for p, seq, news, n, size, count in rows
            if p != WHOLE or not is_partitioned
        ]
        return sorted((p for p in states if is_in_scope(p.partition, scope)), key=lambda p: p.partition)

    def unread_data(self, channel: str, after: int, scope: str = WHOLE) -> UnreadData:
        """Size of the new data in a channel after a number, within a scope.

        Neither compaction (R14) nor a drop by retention (R19) counts as new data.
        """
        diff = blocks.alias("diff")
        same_change_delta = select(diff.c.id).where(
            diff.c.channel == blocks.c.channel,
            diff.c.partition == blocks.c.partition,
            diff.c.hi == blocks.c.hi,
            diff.c.kind == "delta",
        )
        query = select(
            blocks.c.partition, func.count(), func.sum(blocks.c.rows), func.sum(blocks.c.bytes), func.min(commits.c.at)
        ).join(commits, commits.c.id == blocks.c.commit_id)
        query = query.where(
            blocks.c.channel == channel,
            blocks.c.hi > after,
            blocks.c.origin.not_in(("compact", "drop")),
            (blocks.c.kind == "delta") | ~same_change_delta.exists(),
            *scope_conditions(scope),
        )
        rows = self.database.read(lambda c: c.execute(query.group_by(blocks.c.partition)).all())
        rows_in_scope = [r for r in rows if is_in_scope(r[0], scope)]
        block_count, rows_in, bytes_in = (sum(int(r[n]) for r in rows_in_scope) for n in (1, 2, 3))
        return UnreadData(block_count, rows_in, bytes_in, min((r[4] for r in rows_in_scope), default=None))

    def outlines(
        self, channel_names: Sequence[str], version_limit: int | None = None, scope: str = WHOLE
    ) -> dict[str, ChannelOutline]:
        """Outline of each channel that is registered, by name.

        Args:
            version_limit: number of newest versions to include; all by default.
            scope: include blocks of these partitions, and cursors of consumers that read any of them.
        """

        def read_outlines(c: Connection) -> dict[str, ChannelOutline]:
            heads, spans = _heads_and_spans_by_channel(c, channel_names, version_limit, scope)
            cursors_by_channel: dict[str, list[Cursor]] = {name: [] for name in heads}
            for cursor in read_cursors(c, channel_names=list(heads)):
                if scopes_overlap(cursor.channel_partition, scope):
                    cursors_by_channel[cursor.channel].append(cursor)
            return {
                n: ChannelOutline(n, head, spans[n], tuple(cursors_by_channel[n]), scope) for n, head in heads.items()
            }

        return self.database.read(read_outlines)


def read_history(
    c: Connection, channel: str, at: int | None = None, scope: str = WHOLE, since: int = 0, oldest: int = 0
) -> History | None:
    """History of a channel, within a transaction; None for an unknown channel.

    Args:
        at: sequence number; the head by default.
        scope: partitions to load.
        since: load only the changes after this number; 0 for all.
        oldest: load only what reads from this number on need; 0 for all.

    Raises:
        VersionNotFound.
    """
    row = c.execute(select(channels).where(channels.c.name == channel)).mappings().first()
    if row is None:
        return None
    if at is not None and not 0 <= at <= row["head"]:
        raise VersionNotFound.of(channel, at, row["head"])
    head = row["head"] if at is None else at
    schema = None if row["schema"] is None else Schema.from_json(row["schema"])
    if at is not None and at < row["head"] and schema is not None:
        schema = schema_at_number(c, channel, at) or schema
    definition = Channel.from_json(row["definition"])
    selection = HistorySelection(channel, head, scope, definition.partition_columns)
    loaded = _load_excerpt(c, selection, since, min(oldest, head))
    return History(
        channel,
        scope,
        head,
        tuple(sorted(loaded.blocks, key=lambda b: (b.hi, b.kind, b.id))),
        schema,
        definition.merge,
        collected_numbers={p: tuple(sorted(n)) for p, n in loaded.collected_numbers.items()},
        first_answerable_version=since or min(oldest, head),
        last_merge=newest_merge_model(c, channel, head),
        base_floors=loaded.base_floors,
        schema_at_first_version=loaded.schema_at_first_version,
        next_schema=None if row["next_schema"] is None else Schema.from_json(row["next_schema"]),
    )


def _load_excerpt(c: Connection, selection: HistorySelection, since: int, oldest: int) -> HistoryExcerpt:
    if since:
        return load_changes_excerpt(c, selection, since)
    return load_excerpt_back_to(c, selection, oldest) if oldest else load_full_excerpt(c, selection)


def schema_at_number(c: Connection, channel: str, at: int) -> Schema | None:
    """Schema of a channel at a number (R18): that of the newest block, ignoring deltas of a ``Custom`` model.

    Returns:
        None if no block determines it.
    """
    newest_blocks = select(blocks.c.schema, blocks.c.kind, blocks.c.merge).where(
        blocks.c.channel == channel, blocks.c.hi <= at, blocks.c.origin != "compact"
    )
    newest_blocks = newest_blocks.order_by(blocks.c.hi.desc(), blocks.c.kind, blocks.c.id)
    for query in (newest_blocks.limit(20), newest_blocks):
        for schema, kind, merge in c.execute(query):
            if kind == "base" or merge["kind"] != "custom":
                return Schema.from_json(schema)
    return None


def newest_merge_model(c: Connection, channel: str, head: int) -> MergeModel | None:
    """Channel's merge model at the newest block up to a number that comes from a task, an insert or a restore."""
    is_update = blocks.c.origin.not_in(("compact", "drop"))
    query = select(blocks.c.merge, blocks.c.channel_merge).where(
        blocks.c.channel == channel, blocks.c.hi <= head, is_update
    )
    row = c.execute(query.order_by(blocks.c.hi.desc(), blocks.c.kind, blocks.c.id).limit(1)).first()
    return None if row is None else MergeModel.from_json(row.channel_merge or row.merge)


def _heads_and_spans_by_channel(
    c: Connection, channel_names: Sequence[str], version_limit: int | None, scope: str
) -> tuple[dict[str, int], dict[str, tuple[BlockSpan, ...]]]:
    """Heads and block spans by channel.

    The database merges equal spans of different partitions, unless a scope is requested.
    """
    newest_only = () if version_limit is None else (blocks.c.hi > channels.c.head - version_limit,)
    span_columns = (blocks.c.kind, blocks.c.lo, blocks.c.hi, blocks.c.origin, blocks.c.collected_at.is_not(None))
    columns = (channels.c.name, channels.c.head, *span_columns, *((blocks.c.partition,) if scope else ()))
    query = select(func.sum(blocks.c.rows), *columns).group_by(*columns)
    query = query.select_from(channels.outerjoin(blocks, and_(blocks.c.channel == channels.c.name, *newest_only)))
    heads: dict[str, int] = {}
    spans_by_channel: dict[str, dict[BlockSpan, int]] = {}
    for rows, name, head, *span in c.execute(query.where(channels.c.name.in_(channel_names))):
        heads[name] = head
        rows_by_span = spans_by_channel.setdefault(name, {})
        if span[0] is not None and (not scope or is_in_scope(span[5], scope)):
            key = BlockSpan(span[0], span[1], span[2], span[3], bool(span[4]))
            rows_by_span[key] = rows_by_span.get(key, 0) + int(rows)
    sorted_spans = {
        n: sorted((replace(s, rows=r) for s, r in spans.items()), key=lambda s: (s.hi, s.lo, s.kind, s.origin))
        for n, spans in spans_by_channel.items()
    }
    return heads, {n: tuple(spans) for n, spans in sorted_spans.items()}
