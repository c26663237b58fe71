"""What is known of a channel's blocks: histories for plans, timelines for people, cursors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, case, func, or_, select

from nova_assets.catalog.block_rows import with_files
from nova_assets.catalog.database import Database, batched, pairs
from nova_assets.catalog.definitions import Definitions
from nova_assets.catalog.history_excerpts import Excerpt, Part, after, back_to, narrowed, newest, whole
from nova_assets.catalog.tables import blocks, channels, commits, cursors, executions, numbers, pins, staged, steps
from nova_assets.errors import VersionNotFound
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import Cursor, PartitionState, Unread
from nova_assets.model.merge import MergeModel, model_from_json
from nova_assets.model.partitions import WHOLE, partition_values, scope_of, within
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, Instant, action_of

_AT_ONCE = 500
"""Commits whose blocks are asked for in one statement."""


class Histories:
    """Reads channels' blocks. Every answer is of one moment."""

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
        """Blocks up to a number; all of them, unless it is said what for.

        Args:
            scope: the partitions wanted.
            since: only the changes after this number are asked for.
            back_to: only snapshots at this number and later, and changes after it, are asked for.

        Raises:
            ChannelNotFound, VersionNotFound.
        """
        found = self.database.read(lambda c: self.history_in(c, channel, at, scope, since or 0, back_to or 0))
        if found is None:
            raise self.definitions.not_found(channel)
        return found

    def blocks(self, channel: str, at: int | None = None, scope: str = WHOLE, limit: int | None = None) -> list[Block]:
        """The blocks that are there up to a number, newest first.

        Args:
            scope: the partitions wanted.
            limit: so many are enough; those of their last number are all told.

        Raises:
            ChannelNotFound, VersionNotFound.
        """

        def work(c: Connection) -> list[Block] | None:
            row = c.execute(select(channels).where(channels.c.name == channel)).mappings().first()
            if row is None:
                return None
            if at is not None and not 0 <= at <= row["head"]:
                raise VersionNotFound.of(channel, at, row["head"])
            columns = Channel.from_json(row["definition"]).partition_columns
            return newest(c, Part(channel, row["head"] if at is None else at, scope, columns), limit)

        found = self.database.read(work)
        if found is None:
            raise self.definitions.not_found(channel)
        return found

    def timeline(self, channel: str, limit: int | None = None) -> list[Instant]:
        """Instants, oldest first; those under way last.

        Args:
            limit: the latest of them, no more than these; no more is loaded.

        Raises:
            ChannelNotFound.
        """
        self.definitions.channel(channel)
        found = self.database.read(lambda c: [*self._completed(c, channel, limit), *self._requested(c, channel)])
        return found if limit is None else found[max(0, len(found) - limit) :]

    def cursors(self, binding: str | None = None) -> list[Cursor]:
        """How far each binding has read; the head of a cursor of some partitions is where these last changed."""
        return self.database.read(lambda c: self.cursors_in(c, binding))

    def positions(self, binding: str, partition: str = WHOLE) -> dict[tuple[str, str], int]:
        """(channel, its partition) -> how far a binding has read it in a partition of its own."""
        query = select(cursors.c.channel, cursors.c.channel_partition, cursors.c.seq)
        query = query.where(cursors.c.binding == binding, cursors.c.partition == partition)
        return self.database.read(lambda c: {(r[0], r[1]): r[2] for r in c.execute(query)})

    def lagging(self, channel: str, head: int) -> list[tuple[int, str]]:
        """The cursors on a channel that stand between 0 and a number: each with its partition of the channel."""
        query = select(cursors.c.seq, cursors.c.channel_partition).distinct()
        query = query.where(cursors.c.channel == channel, cursors.c.seq > 0, cursors.c.seq < head)
        return self.database.read(lambda c: [(r[0], r[1]) for r in c.execute(query.order_by(cursors.c.seq))])

    def has_consumers(self, channel: str) -> bool:
        """Whether somebody has consumed changes of the channel, or is about to (R10)."""
        return self.database.read(lambda c: consumers(c, channel, None))

    def has_drops(self, channel: str) -> bool:
        """Whether a partition of the channel was dropped that some version still needs (R19)."""
        b = blocks.c
        query = select(b.id).where(b.channel == channel, b.kind == "base", b.collected_at.is_(None), b.origin == "drop")
        return self.database.read(lambda c: c.execute(query.limit(1)).first() is not None)

    def partitions(self, channel: str, scope: str = WHOLE) -> list[PartitionState]:
        """The partitions of a channel in which there is something, by name."""
        self.definitions.channel(channel)
        given = case((blocks.c.origin.not_in(("compact", "drop")), blocks.c.hi))
        there = blocks.c.collected_at.is_(None)
        sizes = (func.sum(case((there, n))) for n in (blocks.c.rows, blocks.c.bytes, 1))
        query = select(blocks.c.partition, func.max(blocks.c.hi), func.max(given), *sizes)
        query = query.where(blocks.c.channel == channel, *narrowed(scope)).group_by(blocks.c.partition)
        rows = self.database.read(lambda c: c.execute(query).all())
        found = [
            PartitionState(p, seq, int(n or 0), int(size or 0), int(count or 0), int(news or 0))
            for p, seq, news, n, size, count in rows
        ]
        return sorted((p for p in found if within(p.partition, scope)), key=lambda p: p.partition)

    def unread(self, channel: str, after: int, scope: str = WHOLE) -> Unread:
        """What came to a channel's partitions within a scope after a number; neither compaction is news (R14), nor that
        retention has dropped something (R19)."""
        diff = blocks.alias("diff")
        with_diff = select(diff.c.id).where(
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
            (blocks.c.kind == "delta") | ~with_diff.exists(),
            *narrowed(scope),
        )
        rows = self.database.read(lambda c: c.execute(query.group_by(blocks.c.partition)).all())
        found = [r for r in rows if within(r[0], scope)]
        counted, rows_in, bytes_in = (sum(int(r[n]) for r in found) for n in (1, 2, 3))
        return Unread(counted, rows_in, bytes_in, min((r[4] for r in found), default=None))

    def cursors_in(self, c: Connection, binding: str | None = None, of: Sequence[str] | None = None) -> list[Cursor]:
        """The same within a transaction; those on some channels alone, where ``of`` names them."""
        query = select(cursors, channels.c.head).join(channels, channels.c.name == cursors.c.channel)
        query = query.order_by(cursors.c.binding, cursors.c.channel, cursors.c.partition, cursors.c.channel_partition)
        if binding is not None:
            query = query.where(cursors.c.binding == binding)
        if of is not None:
            query = query.where(cursors.c.channel.in_(of))
        rows = c.execute(query).mappings().all()
        scoped: dict[str, set[tuple[str, ...]]] = {}
        for r in rows:
            if r["channel_partition"]:
                scoped.setdefault(r["channel"], set()).add(tuple(partition_values(r["channel_partition"])))
        heads = {channel: _heads(c, channel, columns) for channel, columns in scoped.items()}
        found = []
        for r in rows:
            scope, head = r["channel_partition"], r["head"]
            if scope:  # a cursor stands at the channel's head of its time, past the partition's own last change
                head = max(heads[r["channel"]].get(scope, 0), r["seq"])
            found.append(Cursor(r["binding"], r["channel"], r["seq"], head, r["partition"], scope, r["moved_at"]))
        return found

    def history_in(
        self, c: Connection, channel: str, at: int | None = None, scope: str = WHOLE, since: int = 0, oldest: int = 0
    ) -> History | None:
        """The same within a transaction; None where there is no such channel."""
        row = c.execute(select(channels).where(channels.c.name == channel)).mappings().first()
        if row is None:
            return None
        if at is not None and not 0 <= at <= row["head"]:
            raise VersionNotFound.of(channel, at, row["head"])
        head = row["head"] if at is None else at
        schema = None if row["schema"] is None else Schema.from_json(row["schema"])
        if at is not None and at < row["head"] and schema is not None:
            schema = schema_told(c, channel, at) or schema
        definition = Channel.from_json(row["definition"])
        part = Part(channel, head, scope, definition.partition_columns)
        found = _excerpt(c, part, since, min(oldest, head))
        return History(
            channel,
            scope,
            head,
            tuple(sorted(found.blocks, key=lambda b: (b.hi, b.kind, b.id))),
            schema,
            definition.merge,
            numbers={p: tuple(sorted(n)) for p, n in found.numbers.items()},
            since=since or min(oldest, head),
            last_merge=last_merge(c, channel, head),
            floors=found.floors,
            earlier=found.earlier,
        )

    def _completed(self, c: Connection, channel: str, limit: int | None) -> list[Instant]:
        query = select(commits, numbers.c.seq).join(numbers, numbers.c.commit_id == commits.c.id)
        query = query.where(numbers.c.channel == channel).order_by(numbers.c.seq.desc()).limit(limit)
        rows = c.execute(query).mappings().all()
        added = _blocks_by(c, channel, blocks.c.commit_id, [r["id"] for r in rows])
        given = [
            Instant(
                action_of(b.origin for b in added.get(r["id"], ())),
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
        compact = self._upkeep(c, channel, "compact", limit)
        collect = self._upkeep(c, channel, "collect", limit)
        return _in_order(c, channel, [*given, *compact, *collect])

    def _upkeep(
        self, c: Connection, channel: str, action: Literal["compact", "collect"], limit: int | None
    ) -> list[Instant]:
        """Compactions or collections: commits that took no number."""
        by = blocks.c.commit_id if action == "compact" else blocks.c.collected_by
        such = blocks.c.origin == "compact" if action == "compact" else by.is_not(None)
        query = select(commits).where(commits.c.id.in_(select(by).where(blocks.c.channel == channel, such)))
        rows = c.execute(query.order_by(commits.c.at.desc(), commits.c.id.desc()).limit(limit)).mappings().all()
        touched = _blocks_by(c, channel, by, [r["id"] for r in rows])
        return [
            Instant(action, "complete", max(b.hi for b in some), r["at"], r["id"], None, tuple(some), r["details"])
            for r, some in ((r, touched[r["id"]]) for r in reversed(rows))
        ]

    def _requested(self, c: Connection, channel: str) -> list[Instant]:
        query = select(executions).join(staged, staged.c.execution_id == executions.c.id).distinct()
        query = query.where(staged.c.channel == channel, executions.c.state == "running").order_by(
            executions.c.started_at
        )
        return [
            Instant(r["purpose"], "requested", None, r["started_at"], "", r["binding"])
            for r in c.execute(query).mappings()
        ]


def _in_order(c: Connection, channel: str, instants: list[Instant]) -> list[Instant]:
    """Instants in the order in which they were committed.

    Their times do not tell it: two processes read the database's clock over connections of different speed. Commits of
    catalogs that did not count steps yet come first, by their times.
    """
    positions: dict[str, int] = {}
    for some in batched(sorted({i.commit_id for i in instants}), _AT_ONCE):
        query = select(steps.c.commit_id, func.min(steps.c.n)).where(steps.c.channel == channel)
        positions |= pairs(c, query.where(steps.c.commit_id.in_(some)).group_by(steps.c.commit_id))
    return sorted(instants, key=lambda i: (positions.get(i.commit_id, 0), i.at))


def _blocks_by(c: Connection, channel: str, by: ColumnElement[Any], of: Sequence[str]) -> dict[str, list[Block]]:
    """Commit -> the blocks of a channel that it added, or collected; by number.

    Args:
        by: the column that says so.
    """
    found: dict[str, list[Block]] = {}
    for some in batched(of, _AT_ONCE):
        query = select(blocks, by.label("whose")).where(blocks.c.channel == channel, by.in_(some))
        rows = c.execute(query.order_by(blocks.c.hi, blocks.c.kind, blocks.c.id)).mappings().all()
        for row, block in zip(rows, with_files(c, rows), strict=True):
            found.setdefault(row["whose"], []).append(block)
    return found


def _excerpt(c: Connection, part: Part, since: int, oldest: int) -> Excerpt:
    if since:
        return after(c, part, since)
    return back_to(c, part, oldest) if oldest else whole(c, part)


def _heads(c: Connection, channel: str, columns: set[tuple[str, ...]]) -> dict[str, int]:
    """Scope -> the number of its last change, for the scopes of these dimensions."""
    newest = select(blocks.c.partition, func.max(blocks.c.hi)).where(blocks.c.channel == channel)
    found: dict[str, int] = {}
    for partition, hi in c.execute(newest.group_by(blocks.c.partition)):
        for some in columns:
            scope = scope_of(some, partition)
            found[scope] = max(found.get(scope, 0), hi)
    return found


def schema_told(c: Connection, channel: str, at: int) -> Schema | None:
    """The schema of a number (R18): that of the newest block up to it, where a delta tells one."""
    newest = select(blocks.c.schema, blocks.c.kind, blocks.c.merge).where(
        blocks.c.channel == channel, blocks.c.hi <= at, blocks.c.origin != "compact"
    )
    newest = newest.order_by(blocks.c.hi.desc())
    for some in (newest.limit(20), newest):
        for schema, kind, merge in c.execute(some):
            if kind == "base" or merge["kind"] != "custom":
                return Schema.from_json(schema)
    return None


def last_merge(c: Connection, channel: str, head: int) -> MergeModel | None:
    """The model of the newest block that was given up to a number."""
    given = blocks.c.origin.not_in(("compact", "drop"))
    query = select(blocks.c.merge).where(blocks.c.channel == channel, blocks.c.hi <= head, given)
    found = c.execute(query.order_by(blocks.c.hi.desc()).limit(1)).scalar()
    return None if found is None else model_from_json(found)


def consumers(c: Connection, channel: str, own_execution: str | None) -> bool:
    """Whether a cursor on the channel stands above 0, or a live execution is about to set one."""
    moved = select(cursors.c.binding).where(cursors.c.channel == channel, cursors.c.seq > 0).limit(1)
    if c.execute(moved).first() is not None:
        return True
    # Those that live are few, whatever was pinned in former times.
    alive = select(executions.c.id).where(
        executions.c.binding.is_not(None),  # a reader's pin moves no cursor
        executions.c.state.in_(["running", "failed"]),
    )
    if own_execution is not None:
        alive = alive.where(executions.c.id != own_execution)
    live = select(pins.c.channel).where(pins.c.execution_id.in_(alive), pins.c.channel == channel)
    live = live.where(pins.c.cursor.is_not(None), or_(pins.c.cursor > 0, pins.c.head > 0))
    return c.execute(live.limit(1)).first() is not None
