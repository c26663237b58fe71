"""Reads of blocks and cursors: channel histories for plans, timelines for people, and consumer positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, case, func, or_, select

from nova_assets.catalog.block_rows import load_blocks_with_files
from nova_assets.catalog.database import Database, batched, query_as_dict
from nova_assets.catalog.definitions import Definitions
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
    cursors,
    executions,
    pins,
    staged_blocks,
    steps,
)
from nova_assets.errors import VersionNotFound
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import Cursor, PartitionState, UnreadData
from nova_assets.model.merge import MergeModel, merge_model_from_json
from nova_assets.model.partitions import WHOLE, is_in_scope, partition_values, scope_for_columns
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, Instant, action_from_origins

_COMMITS_PER_QUERY = 500
"""Maximum number of commits whose blocks one statement loads."""


class Histories:
    """Reads the blocks of channels. Each answer shows the state at one moment."""

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self.database = database
        self.definitions = definitions

    def history(
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
        result = self.database.read(lambda c: self.read_history(c, channel, at, scope, since or 0, back_to or 0))
        if result is None:
            raise self.definitions.channel_not_found_error(channel)
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
            raise self.definitions.channel_not_found_error(channel)
        return result

    def timeline(self, channel: str, limit: int | None = None) -> list[Instant]:
        """Instants of a channel, oldest first; requested instants last.

        Args:
            limit: maximum number of instants, counted from the latest. No more are loaded.

        Raises:
            ChannelNotFound.
        """
        self.definitions.channel(channel)
        instants = self.database.read(
            lambda c: [*self._completed_instants(c, channel, limit), *self._requested_instants(c, channel)]
        )
        return instants if limit is None else instants[max(0, len(instants) - limit) :]

    def cursors(self, binding: str | None = None) -> list[Cursor]:
        """Positions of all bindings, or of one. The head of a cursor on some partitions is their last change."""
        return self.database.read(lambda c: self.read_cursors(c, binding))

    def cursor_positions(self, binding: str, partition: str = WHOLE) -> dict[tuple[str, str], int]:
        """Cursors of one partition of a binding: (channel, partition of the channel) -> sequence number."""
        query = select(cursors.c.channel, cursors.c.channel_partition, cursors.c.seq)
        query = query.where(cursors.c.binding == binding, cursors.c.partition == partition)
        return self.database.read(lambda c: {(r[0], r[1]): r[2] for r in c.execute(query)})

    def lagging_cursors(self, channel: str, head: int) -> list[tuple[int, str]]:
        """Cursors on a channel between 0 and a head, both excluded: (sequence number, partition of the channel)."""
        query = select(cursors.c.seq, cursors.c.channel_partition).distinct()
        query = query.where(cursors.c.channel == channel, cursors.c.seq > 0, cursors.c.seq < head)
        return self.database.read(lambda c: [(r[0], r[1]) for r in c.execute(query.order_by(cursors.c.seq))])

    def has_consumers(self, channel: str) -> bool:
        """Whether a consumer has read changes of the channel, or is about to (R10)."""
        return self.database.read(lambda c: has_active_consumers(c, channel, None))

    def has_drops(self, channel: str) -> bool:
        """Whether retention dropped a partition of the channel and some version still needs that drop (R19)."""
        b = blocks.c
        query = select(b.id).where(b.channel == channel, b.kind == "base", b.collected_at.is_(None), b.origin == "drop")
        return self.database.read(lambda c: c.execute(query.limit(1)).first() is not None)

    def partitions(self, channel: str, scope: str = WHOLE) -> list[PartitionState]:
        """State of each partition of a channel that has or had blocks, by name.

        Raises:
            ChannelNotFound.
        """
        self.definitions.channel(channel)
        updated_number = case((blocks.c.origin.not_in(("compact", "drop")), blocks.c.hi))
        is_live = blocks.c.collected_at.is_(None)
        sizes = (func.sum(case((is_live, n))) for n in (blocks.c.rows, blocks.c.bytes, 1))
        query = select(blocks.c.partition, func.max(blocks.c.hi), func.max(updated_number), *sizes)
        query = query.where(blocks.c.channel == channel, *scope_conditions(scope)).group_by(blocks.c.partition)
        rows = self.database.read(lambda c: c.execute(query).all())
        states = [
            PartitionState(p, seq, int(n or 0), int(size or 0), int(count or 0), int(news or 0))
            for p, seq, news, n, size, count in rows
        ]
        return sorted((p for p in states if is_in_scope(p.partition, scope)), key=lambda p: p.partition)

    def unread(self, channel: str, after: int, scope: str = WHOLE) -> UnreadData:
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

    def read_cursors(
        self, c: Connection, binding: str | None = None, channel_names: Sequence[str] | None = None
    ) -> list[Cursor]:
        """Positions of bindings, within a transaction.

        Args:
            binding: only cursors of this binding.
            channel_names: only cursors on these channels.
        """
        query = select(cursors, channels.c.head).join(channels, channels.c.name == cursors.c.channel)
        query = query.order_by(cursors.c.binding, cursors.c.channel, cursors.c.partition, cursors.c.channel_partition)
        if binding is not None:
            query = query.where(cursors.c.binding == binding)
        if channel_names is not None:
            query = query.where(cursors.c.channel.in_(channel_names))
        rows = c.execute(query).mappings().all()
        dimensions_by_channel: dict[str, set[tuple[str, ...]]] = {}
        for r in rows:
            if r["channel_partition"]:
                dimensions_by_channel.setdefault(r["channel"], set()).add(
                    tuple(partition_values(r["channel_partition"]))
                )
        heads = {channel: _heads_by_scope(c, channel, columns) for channel, columns in dimensions_by_channel.items()}
        result = []
        for r in rows:
            scope, head = r["channel_partition"], r["head"]
            if scope:  # a cursor is set to the channel's head, past the last change of the partition
                head = max(heads[r["channel"]].get(scope, 0), r["seq"])
            result.append(Cursor(r["binding"], r["channel"], r["seq"], head, r["partition"], scope, r["moved_at"]))
        return result

    def read_history(
        self, c: Connection, channel: str, at: int | None = None, scope: str = WHOLE, since: int = 0, oldest: int = 0
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
            numbers={p: tuple(sorted(n)) for p, n in loaded.numbers.items()},
            since=since or min(oldest, head),
            last_merge=newest_merge_model(c, channel, head),
            floors=loaded.floors,
            earlier=loaded.earlier,
        )

    def _completed_instants(self, c: Connection, channel: str, limit: int | None) -> list[Instant]:
        query = select(commits, commit_numbers.c.seq).join(commit_numbers, commit_numbers.c.commit_id == commits.c.id)
        query = query.where(commit_numbers.c.channel == channel).order_by(commit_numbers.c.seq.desc()).limit(limit)
        rows = c.execute(query).mappings().all()
        added = _blocks_by_commit(c, channel, blocks.c.commit_id, [r["id"] for r in rows])
        commit_instants = [
            Instant(
                action_from_origins(b.origin for b in added.get(r["id"], ())),
                "complete",
                r["seq"],
                r["at"],
                r["id"],
                r["binding"],
                tuple(added.get(r["id"], ())),
                r["details"],
            )
            for r in reversed(rows)
        ]
        compaction_instants = self._maintenance_instants(c, channel, "compact", limit)
        collection_instants = self._maintenance_instants(c, channel, "collect", limit)
        return _sort_by_commit_order(c, channel, [*commit_instants, *compaction_instants, *collection_instants])

    def _maintenance_instants(
        self, c: Connection, channel: str, action: Literal["compact", "collect"], limit: int | None
    ) -> list[Instant]:
        """Instants of compactions or collections, whose commits take no number."""
        commit_column = blocks.c.commit_id if action == "compact" else blocks.c.collected_by
        is_action = blocks.c.origin == "compact" if action == "compact" else commit_column.is_not(None)
        query = select(commits).where(
            commits.c.id.in_(select(commit_column).where(blocks.c.channel == channel, is_action))
        )
        rows = c.execute(query.order_by(commits.c.at.desc(), commits.c.id.desc()).limit(limit)).mappings().all()
        blocks_by_commit = _blocks_by_commit(c, channel, commit_column, [r["id"] for r in rows])
        return [
            Instant(action, "complete", max(b.hi for b in some), r["at"], r["id"], None, tuple(some), r["details"])
            for r, some in ((r, blocks_by_commit[r["id"]]) for r in reversed(rows))
        ]

    def _requested_instants(self, c: Connection, channel: str) -> list[Instant]:
        query = select(executions).join(staged_blocks, staged_blocks.c.execution_id == executions.c.id).distinct()
        query = query.where(staged_blocks.c.channel == channel, executions.c.state == "running").order_by(
            executions.c.started_at
        )
        return [
            Instant(r["purpose"], "requested", None, r["started_at"], "", r["binding"])
            for r in c.execute(query).mappings()
        ]


def _sort_by_commit_order(c: Connection, channel: str, instants: list[Instant]) -> list[Instant]:
    """Sort instants by commit order.

    Commit times do not give this order, since processes read the database's clock over connections of different speed.
    Commits without a step, from older versions of the catalog, come first, sorted by time.
    """
    positions: dict[str, int] = {}
    for batch in batched(sorted({i.commit_id for i in instants}), _COMMITS_PER_QUERY):
        query = select(steps.c.commit_id, func.min(steps.c.n)).where(steps.c.channel == channel)
        positions |= query_as_dict(c, query.where(steps.c.commit_id.in_(batch)).group_by(steps.c.commit_id))
    return sorted(instants, key=lambda i: (positions.get(i.commit_id, 0), i.at))


def _blocks_by_commit(
    c: Connection, channel: str, commit_column: ColumnElement[Any], commit_ids: Sequence[str]
) -> dict[str, list[Block]]:
    """Blocks of a channel that each commit added or collected, sorted by number.

    Args:
        commit_column: column that names the commit: ``commit_id`` or ``collected_by``.
    """
    blocks_by_commit: dict[str, list[Block]] = {}
    for batch in batched(commit_ids, _COMMITS_PER_QUERY):
        query = select(blocks, commit_column.label("whose")).where(
            blocks.c.channel == channel, commit_column.in_(batch)
        )
        rows = c.execute(query.order_by(blocks.c.hi, blocks.c.kind, blocks.c.id)).mappings().all()
        for row, block in zip(rows, load_blocks_with_files(c, rows), strict=True):
            blocks_by_commit.setdefault(row["whose"], []).append(block)
    return blocks_by_commit


def _load_excerpt(c: Connection, selection: HistorySelection, since: int, oldest: int) -> HistoryExcerpt:
    if since:
        return load_changes_excerpt(c, selection, since)
    return load_excerpt_back_to(c, selection, oldest) if oldest else load_full_excerpt(c, selection)


def _heads_by_scope(c: Connection, channel: str, dimensions: set[tuple[str, ...]]) -> dict[str, int]:
    """Number of the last change in each scope of the given dimensions."""
    newest_numbers = select(blocks.c.partition, func.max(blocks.c.hi)).where(blocks.c.channel == channel)
    head_by_scope: dict[str, int] = {}
    for partition, hi in c.execute(newest_numbers.group_by(blocks.c.partition)):
        for scope_dimensions in dimensions:
            scope = scope_for_columns(scope_dimensions, partition)
            head_by_scope[scope] = max(head_by_scope.get(scope, 0), hi)
    return head_by_scope


def schema_at_number(c: Connection, channel: str, at: int) -> Schema | None:
    """Schema of a channel at a number (R18): that of the newest block, ignoring deltas of a ``Custom`` model.

    Returns:
        None if no block determines it.
    """
    newest_blocks = select(blocks.c.schema, blocks.c.kind, blocks.c.merge).where(
        blocks.c.channel == channel, blocks.c.hi <= at, blocks.c.origin != "compact"
    )
    newest_blocks = newest_blocks.order_by(blocks.c.hi.desc())
    for query in (newest_blocks.limit(20), newest_blocks):
        for schema, kind, merge in c.execute(query):
            if kind == "base" or merge["kind"] != "custom":
                return Schema.from_json(schema)
    return None


def newest_merge_model(c: Connection, channel: str, head: int) -> MergeModel | None:
    """Merge model of the newest block up to a number that comes from a task, an insert or a restore."""
    is_update = blocks.c.origin.not_in(("compact", "drop"))
    query = select(blocks.c.merge).where(blocks.c.channel == channel, blocks.c.hi <= head, is_update)
    merge_json = c.execute(query.order_by(blocks.c.hi.desc()).limit(1)).scalar()
    return None if merge_json is None else merge_model_from_json(merge_json)


def has_active_consumers(c: Connection, channel: str, excluded_execution_id: str | None) -> bool:
    """Whether a cursor on the channel is above 0, or a live execution is about to move one there.

    Args:
        excluded_execution_id: an execution to ignore.
    """
    moved_cursors = select(cursors.c.binding).where(cursors.c.channel == channel, cursors.c.seq > 0).limit(1)
    if c.execute(moved_cursors).first() is not None:
        return True
    # Starting from live executions keeps the query fast: they are few, while old pins may be many.
    live_executions = select(executions.c.id).where(
        executions.c.binding.is_not(None),  # a reader's pin moves no cursor
        executions.c.state.in_(["running", "failed"]),
    )
    if excluded_execution_id is not None:
        live_executions = live_executions.where(executions.c.id != excluded_execution_id)
    live_pins = select(pins.c.channel).where(pins.c.execution_id.in_(live_executions), pins.c.channel == channel)
    live_pins = live_pins.where(pins.c.cursor.is_not(None), or_(pins.c.cursor > 0, pins.c.head > 0))
    return c.execute(live_pins.limit(1)).first() is not None
