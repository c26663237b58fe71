"""Upkeep's transactions: what is known of a channel's readers, what is marked as collected, and which files may go."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from nova_assets.catalog.database import Database, batched, pairs
from nova_assets.catalog.history import Histories
from nova_assets.catalog.tables import (
    bindings,
    blocks,
    channels,
    commits,
    cursors,
    editions,
    executions,
    files,
    numbers,
    pins,
    staged,
)
from nova_assets.catalog.timeline_reads import whole_in
from nova_assets.catalog.timeline_steps import put_step
from nova_assets.model.block import Block
from nova_assets.model.maintenance import Collection, Facts, Held, Reader
from nova_assets.plan.garbage_collection import collectable, judge

_MANY = 500


class Upkeep:
    """Collection (R15): metadata first, files second."""

    def __init__(self, database: Database, histories: Histories) -> None:
        self.database = database
        self.histories = histories

    def upkeep(self, channel: str, retain: float = 0.0, partitions: Sequence[str] | None = None) -> Facts:
        """Everything that decides what of a channel is held.

        Args:
            retain: seconds for which old versions are kept for time travel.
            partitions: with the blocks of these alone.

        Raises:
            ChannelNotFound.
        """
        self.histories.definitions.channel(channel)
        return self.database.read(lambda c: self.facts_in(c, channel, retain, partitions))

    def collect(self, channel: str, retain: float = 0.0, partitions: Sequence[str] | None = None) -> Collection:
        """Mark every block that nobody holds: from now on no plan uses it. What is held is judged under the channel's
        lock, so that no base comes in between.

        Args:
            partitions: in these alone; others are not looked at.
        """
        self.histories.definitions.channel(channel)

        def work(c: Connection) -> Collection:
            c.execute(select(channels.c.name).where(channels.c.name == channel).with_for_update()).all()
            found = collectable(judge(self.facts_in(c, channel, retain, partitions)))
            if not found:
                return Collection(channel, ())
            return mark_collected(c, channel, found, {"collected": len(found)}, self.database.clock())

        return self.database.write(work)

    def deletable(self, grace: float) -> list[tuple[str, str]]:
        """(block, path) of files that may be deleted: their block was collected that many seconds ago, neither a block
        that is there nor anything that is staged lists them, too, nobody lives who had pinned the channel before, and
        no table shows an edition from before: these may have been planned with, or listed there."""
        before = self.database.clock() - timedelta(seconds=grace)
        other, of = files.alias("other"), blocks.alias("of")
        shared = exists().where(other.c.path == files.c.path, other.c.block_id == of.c.id, of.c.collected_at.is_(None))
        waiting = exists().where(other.c.path == files.c.path, other.c.block_id == of.c.id, of.c.collected_at >= before)
        planned = exists().where(
            pins.c.channel == blocks.c.channel,
            pins.c.execution_id == executions.c.id,
            executions.c.state == "running",
            executions.c.started_at <= blocks.c.collected_at,
        )
        listed = exists().where(
            other.c.path == files.c.path,  # a file may have been kept from block to block
            other.c.block_id == of.c.id,
            editions.c.channel == of.c.channel,
            editions.c.at <= of.c.collected_at,
        )
        query = select(files.c.block_id, files.c.path).join(blocks, blocks.c.id == files.c.block_id)
        query = query.where(
            blocks.c.collected_at.is_not(None), blocks.c.collected_at < before, ~shared, ~waiting, ~planned, ~listed
        )

        def work(c: Connection) -> list[tuple[str, str]]:
            found = [(block, path) for block, path in c.execute(query.order_by(files.c.path))]
            if not found:
                return []
            kept = {f["path"] for m in c.execute(select(staged.c.manifest)).scalars() if m for f in m["files"]}
            return [(block, path) for block, path in found if path not in kept]

        return self.database.read(work)

    def deleted(self, gone: Iterable[tuple[str, str]]) -> None:
        """These files are gone."""
        paths = sorted({path for _, path in gone})

        def work(c: Connection) -> None:
            collected = select(blocks.c.id).where(blocks.c.collected_at.is_not(None))
            for some in batched(paths, _MANY):
                c.execute(delete(files).where(files.c.path.in_(some), files.c.block_id.in_(collected)))

        if paths:
            self.database.write(work)

    def reads_of_all(self, channel: str) -> int:
        """How many executions have read the channel whole since its newest base came: what a base would have saved
        them (R14)."""

        def work(c: Connection) -> int:
            newest = select(func.max(commits.c.at)).join(blocks, blocks.c.commit_id == commits.c.id)
            since = c.execute(newest.where(blocks.c.channel == channel, blocks.c.kind == "base")).scalar()
            who = [name for name, modes in _modes(c, channel).items() if modes & {"all", "old", "changes", "matching"}]
            query = select(func.count()).select_from(commits).where(commits.c.binding.in_(who))
            if since is not None:
                query = query.where(commits.c.at > since)
            return int(c.execute(query).scalar() or 0)

        return self.database.read(work)

    def facts_in(self, c: Connection, channel: str, retain: float, partitions: Sequence[str] | None = None) -> Facts:
        """The same within a transaction."""
        history = self.histories.history_in(c, channel) if partitions is None else whole_in(c, channel, partitions)
        assert history is not None
        bases = bool(c.execute(select(channels.c.bases).where(channels.c.name == channel)).scalar())
        keep = self._kept_from(c, channel, self.database.clock() - timedelta(seconds=retain)) if retain > 0 else None
        return Facts(history, tuple(_readers(c, channel)), tuple(self._pins(c, channel)), bases, keep)

    def _kept_from(self, c: Connection, channel: str, moment: datetime) -> int:
        """The number that the channel was at then."""
        query = select(func.max(numbers.c.seq)).join(commits, commits.c.id == numbers.c.commit_id)
        return int(c.execute(query.where(numbers.c.channel == channel, commits.c.at <= moment)).scalar() or 0)

    def _pins(self, c: Connection, channel: str) -> Iterable[Held]:
        pinned = (pins.c.head, pins.c.cursor, pins.c.partition, pins.c.has_run)
        live = select(executions.c.id, executions.c.binding, *pinned)
        live = live.join(pins, pins.c.execution_id == executions.c.id).where(pins.c.channel == channel)
        # Also while its lease has run out: until it is aborted, it may be renewed, and commit (decision 0001).
        for row in c.execute(live.where(executions.c.state.in_(["running", "failed"]))).mappings():
            who = f"execution {row['id'][:8]} of {row['binding'] or 'an insert or reader'}"
            yield Held(who, row["head"], row["cursor"], row["partition"], row["has_run"])


def mark_collected(
    c: Connection, channel: str, found: Sequence[Block], details: Mapping[str, int], now: datetime
) -> Collection:
    """Mark blocks as collected, inside a transaction that holds the channel's row."""
    commit = uuid.uuid4().hex
    of = {"heads": {}, "consumed": {}, "details": dict(details)}
    c.execute(insert(commits).values(id=commit, execution_id=commit, binding=None, at=now, **of))
    for some in batched([b.id for b in found], _MANY):
        c.execute(update(blocks).where(blocks.c.id.in_(some)).values(collected_at=now, collected_by=commit))
    put_step(c, channel, "collect", commit, now)
    return Collection(channel, tuple(found), commit)


def _readers(c: Connection, channel: str) -> Iterable[Reader]:
    modes = _modes(c, channel)
    for row in c.execute(select(cursors).where(cursors.c.channel == channel)).mappings():
        binding = row["binding"]
        # Of an asset of somebody's own it is not known what it reads; so it may read what was there before.
        old = binding not in modes or bool(modes[binding] & {"old", "changes"})
        of = f" for {row['partition']}" if row["partition"] else ""
        yield Reader(f"{binding}{of}", row["seq"], row["channel_partition"], old, has_run=True)


def _modes(c: Connection, channel: str) -> dict[str, set[str]]:
    """Registered binding -> the modes in which its tasks read the channel."""
    found: dict[str, set[str]] = {}
    definitions: dict[str, Any] = pairs(c, select(bindings.c.name, bindings.c.definition))
    for name, definition in definitions.items():
        ports = {port for port, bound in definition["channels"].items() if bound == channel}
        found[name] = {e["mode"] for t in definition["tasks"] for e in t["consumes"] if e["port"] in ports}
    return found
