"""What is known of a channel's blocks: histories for plans, timelines for people, cursors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, case, func, or_, select

from nova_assets.catalog.database import Database, pairs
from nova_assets.catalog.definitions import Definitions
from nova_assets.catalog.tables import blocks, channels, commits, cursors, executions, files, numbers, pins, staged
from nova_assets.errors import VersionNotFound
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.layout import Layout, place_from_json
from nova_assets.model.merge import MergeModel, model_from_json
from nova_assets.model.partitions import WHOLE, partition_values, scope_of, within
from nova_assets.model.ports import Cursor, PartitionState, Unread
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import Action, History, Instant

_AT_ONCE = 500
"""Partitions asked for in one statement."""


class Histories:
    """Reads channels' blocks. Every answer is of one moment."""

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self.database = database
        self.definitions = definitions

    def history(self, channel: str, at: int | None = None, scope: str = WHOLE, since: int | None = None) -> History:
        """Blocks up to a number.

        Args:
            scope: the partitions wanted.
            since: leave out what came no later, except in partitions where a plan from there on needs it: those with a
                base, or a delta that begins earlier.

        Raises:
            ChannelNotFound, VersionNotFound.
        """
        found = self.database.read(lambda c: self.history_in(c, channel, at, scope, since or 0))
        if found is None:
            raise self.definitions.not_found(channel)
        return found

    def timeline(self, channel: str) -> list[Instant]:
        """Instants, oldest first; those under way last. Raises ChannelNotFound."""
        self.definitions.channel(channel)
        return self.database.read(lambda c: [*self._completed(c, channel), *self._requested(c, channel)])

    def cursors(self, binding: str | None = None) -> list[Cursor]:
        """How far each binding has read; the head of a cursor of some partitions is where these last changed."""
        return self.database.read(lambda c: self.cursors_in(c, binding))

    def has_consumers(self, channel: str) -> bool:
        """Whether somebody has consumed changes of the channel, or is about to (R10)."""
        return self.database.read(lambda c: consumers(c, channel, None))

    def partitions(self, channel: str, scope: str = WHOLE) -> list[PartitionState]:
        """The partitions of a channel in which there is something, by name."""
        self.definitions.channel(channel)
        given = case((blocks.c.origin.not_in(("compact", "drop")), blocks.c.hi))
        there = blocks.c.collected_at.is_(None)
        sizes = (func.sum(case((there, n))) for n in (blocks.c.rows, blocks.c.bytes, 1))
        query = select(blocks.c.partition, func.max(blocks.c.hi), func.max(given), *sizes)
        query = query.where(blocks.c.channel == channel, *_narrowed(scope)).group_by(blocks.c.partition)
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
            *_narrowed(scope),
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

    def history_in(self, c: Connection, channel: str, at: int | None, scope: str, since: int) -> History | None:
        """The same within a transaction; None where there is no such channel."""
        row = c.execute(select(channels).where(channels.c.name == channel)).mappings().first()
        if row is None:
            return None
        if at is not None and not 0 <= at <= row["head"]:
            raise VersionNotFound.of(channel, at, row["head"])
        head = row["head"] if at is None else at
        found = self._blocks(c, channel, head, scope, since)
        schema = None if row["schema"] is None else Schema.from_json(row["schema"])
        if at is not None and at < row["head"] and schema is not None:
            schema = self._schema_at(c, channel, at) or schema
        merge = Channel.from_json(row["definition"]).merge
        return History(
            channel,
            scope,
            head,
            tuple(found),
            schema,
            merge,
            numbers=self._collected(c, channel, head, scope, since, _whole(found, since)),
            since=since,
            last_merge=self._last_merge(c, channel, head),
        )

    def _blocks(self, c: Connection, channel: str, head: int, scope: str, since: int) -> list[Block]:
        where = (
            blocks.c.channel == channel,
            blocks.c.hi <= head,
            blocks.c.hi > since,
            blocks.c.collected_at.is_(None),
            *_narrowed(scope),
        )
        found = [b for b in read_blocks(c, select(blocks).where(*where)) if within(b.partition, scope)]
        whole = sorted(_whole(found, since))
        for some in (whole[n : n + _AT_ONCE] for n in range(0, len(whole), _AT_ONCE)):
            earlier = (blocks.c.channel == channel, blocks.c.hi <= since, blocks.c.collected_at.is_(None))
            found += read_blocks(c, select(blocks).where(*earlier, blocks.c.partition.in_(some)))
        return sorted(found, key=lambda b: (b.hi, b.kind, b.id))

    def _collected(
        self, c: Connection, channel: str, head: int, scope: str, since: int, whole: set[str]
    ) -> dict[str, tuple[int, ...]]:
        """Partition -> numbers whose blocks are gone: they still are numbers at which it changed.

        Args:
            whole: partitions of which what came before ``since`` was loaded, too.
        """
        query = select(blocks.c.partition, blocks.c.hi).where(
            blocks.c.channel == channel,
            blocks.c.hi <= head,
            blocks.c.collected_at.is_not(None),
            blocks.c.origin != "compact",
            *_narrowed(scope),
        )
        found: dict[str, set[int]] = {}
        for partition, hi in c.execute(query if whole else query.where(blocks.c.hi > since)):
            if within(partition, scope) and (hi > since or partition in whole):
                found.setdefault(partition, set()).add(hi)
        return {p: tuple(sorted(n)) for p, n in found.items()}

    def _schema_at(self, c: Connection, channel: str, at: int) -> Schema | None:
        """The schema of that number (R18): that of the newest block, where a delta tells it."""
        newest = select(blocks.c.schema, blocks.c.kind, blocks.c.merge).where(
            blocks.c.channel == channel, blocks.c.hi <= at, blocks.c.origin != "compact"
        )
        for schema, kind, merge in c.execute(newest.order_by(blocks.c.hi.desc())):
            if kind == "base" or merge["kind"] != "custom":
                return Schema.from_json(schema)
        return None

    def _last_merge(self, c: Connection, channel: str, head: int) -> MergeModel | None:
        given = blocks.c.origin.not_in(("compact", "drop"))
        query = select(blocks.c.merge).where(blocks.c.channel == channel, blocks.c.hi <= head, given)
        found = c.execute(query.order_by(blocks.c.hi.desc()).limit(1)).scalar()
        return None if found is None else model_from_json(found)

    def _completed(self, c: Connection, channel: str) -> list[Instant]:
        query = select(commits, numbers.c.seq).join(numbers, numbers.c.commit_id == commits.c.id)
        rows = c.execute(query.where(numbers.c.channel == channel).order_by(numbers.c.seq)).mappings().all()
        by_commit: dict[str, list[Block]] = {}
        for block in read_blocks(c, select(blocks).where(blocks.c.channel == channel)):
            by_commit.setdefault(block.commit_id, []).append(block)
        given = [
            Instant(
                _action(by_commit.get(r["id"], ())),
                "complete",
                r["seq"],
                r["at"],
                r["id"],
                r["binding"],
                tuple(by_commit.get(r["id"], ())),
            )
            for r in rows
        ]
        return sorted([*given, *self._upkeep(c, channel, by_commit)], key=lambda i: i.at)

    def _upkeep(self, c: Connection, channel: str, by_commit: Mapping[str, list[Block]]) -> list[Instant]:
        """Compactions and collections: commits that took no number."""
        gone: dict[str, list[Block]] = {}
        collected = select(blocks).where(blocks.c.channel == channel, blocks.c.collected_by.is_not(None))
        who = pairs(c, collected.with_only_columns(blocks.c.id, blocks.c.collected_by))
        for block in read_blocks(c, collected):
            gone.setdefault(who[block.id], []).append(block)
        compact = {i: found for i, found in by_commit.items() if found[0].origin == "compact"}
        found = []
        for action, of in (("compact", compact), ("collect", gone)):
            for row in c.execute(select(commits).where(commits.c.id.in_(list(of)))).mappings():
                some = tuple(of[row["id"]])
                seq = max(b.hi for b in some)
                found.append(Instant(action, "complete", seq, row["at"], row["id"], None, some))  # type: ignore[arg-type]
        return found

    def _requested(self, c: Connection, channel: str) -> list[Instant]:
        query = select(executions).join(staged, staged.c.execution_id == executions.c.id).distinct()
        query = query.where(staged.c.channel == channel, executions.c.state == "running").order_by(
            executions.c.started_at
        )
        return [
            Instant("commit", "requested", None, r["started_at"], "", r["binding"]) for r in c.execute(query).mappings()
        ]


def _action(added: Iterable[Block]) -> Action:
    """What a commit did that took a number."""
    origins = {b.origin for b in added}
    return "drop" if origins == {"drop"} else "restore" if "restore" in origins else "commit"


def _whole(found: Iterable[Block], since: int) -> set[str]:
    """Partitions in which what came after a number cannot be told by it alone: a base, or a delta from before."""
    return {b.partition for b in found if b.hi > since > 0 and (b.kind == "base" or b.lo < since)}


def _narrowed(scope: str) -> tuple[Any, ...]:
    """Conditions that every partition of a scope meets; a partition of other dimensions may meet them, too."""
    return tuple(blocks.c.partition.contains(part, autoescape=True) for part in scope.split("/") if part)


def _heads(c: Connection, channel: str, columns: set[tuple[str, ...]]) -> dict[str, int]:
    """Scope -> the number of its last change, for the scopes of these dimensions."""
    newest = select(blocks.c.partition, func.max(blocks.c.hi)).where(blocks.c.channel == channel)
    found: dict[str, int] = {}
    for partition, hi in c.execute(newest.group_by(blocks.c.partition)):
        for some in columns:
            scope = scope_of(some, partition)
            found[scope] = max(found.get(scope, 0), hi)
    return found


def consumers(c: Connection, channel: str, own_execution: str | None) -> bool:
    """Whether a cursor on the channel stands above 0, or a live execution is about to set one."""
    moved = select(cursors.c.binding).where(cursors.c.channel == channel, cursors.c.seq > 0).limit(1)
    if c.execute(moved).first() is not None:
        return True
    live = select(pins.c.channel).join(executions, executions.c.id == pins.c.execution_id)
    live = live.where(
        pins.c.channel == channel,
        pins.c.cursor.is_not(None),
        executions.c.binding.is_not(None),  # a reader's pin moves no cursor
        executions.c.state.in_(["running", "failed"]),
    )
    if own_execution is not None:
        live = live.where(executions.c.id != own_execution)
    return c.execute(live.where(or_(pins.c.cursor > 0, pins.c.head > 0)).limit(1)).first() is not None


def read_blocks(c: Connection, query: Select[Any]) -> list[Block]:
    """Blocks with their files, by (hi, kind); two statements, however many there are."""
    rows = c.execute(query.order_by(blocks.c.hi, blocks.c.kind, blocks.c.id)).mappings().all()
    wanted = query.with_only_columns(blocks.c.id).subquery()
    found = c.execute(
        select(files).join(wanted, wanted.c.id == files.c.block_id).order_by(files.c.block_id, files.c.ordinal)
    )
    by_block: dict[str, list[DataFile]] = {}
    for f in found.mappings():
        ranges = {k: (v[0], v[1]) for k, v in f["ranges"].items()}
        by_block.setdefault(f["block_id"], []).append(
            DataFile(f["path"], f["rows"], f["bytes"], ranges, place_from_json(f["place"]))
        )
    return [_block(r, by_block.get(r["id"], ())) for r in rows]


def _block(row: RowMapping, found: Iterable[DataFile]) -> Block:
    layout = None if row["layout"] is None else Layout.from_json(row["layout"])
    of = (row["deletes"], row["format"], row["keeps_all"], layout)
    manifest = Manifest(tuple(found), Schema.from_json(row["schema"]), *of)
    return Block(
        row["id"],
        row["channel"],
        row["partition"],
        row["kind"],
        row["lo"],
        row["hi"],
        manifest,
        model_from_json(row["merge"]),
        row["origin"],
        row["commit_id"],
    )
