"""Garbage collection: retention state of a channel, marks of collected blocks, and deletable files (R15)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.channel_rows import load_channel_state
from nova_assets.catalog.database.transactions import Database, batched, query_as_dict
from nova_assets.catalog.history import read_history
from nova_assets.catalog.tables import (
    backups,
    bindings,
    blocks,
    channels,
    commit_numbers,
    commits,
    cursors,
    executions,
    files,
    pins,
    published_versions,
    staged_blocks,
)
from nova_assets.catalog.timeline_steps import append_step
from nova_assets.catalog.timelines import read_history_of_partitions
from nova_assets.model.block import Block
from nova_assets.model.channel_state import CollectedGarbage, ConsumerPosition, PinnedRead, RetentionState
from nova_assets.plan.garbage_collection import blocks_to_collect, retention_verdicts

_ITEMS_PER_QUERY = 500

_CLOCK_TOLERANCE = timedelta(minutes=1)
"""Processes of one catalog may differ by this much in their times. A backup also holds what they collected so shortly
before it.
"""


class GarbageCollection(CatalogPart):
    """Marks blocks as collected, and finds the files to delete later (R15)."""

    def retention_state(
        self, channel: str, retain_seconds: float = 0.0, partitions: Sequence[str] | None = None
    ) -> RetentionState:
        """Everything that determines which blocks of a channel are retained.

        Args:
            retain_seconds: seconds for which old versions are kept for time travel.
            partitions: load only the blocks of these partitions.

        Raises:
            ChannelNotFound.
        """
        load_channel_state(self.database, channel)  # raises if the channel is not registered
        return self.database.read(lambda c: read_retention_state(c, self.database, channel, retain_seconds, partitions))

    def collect(
        self, channel: str, retain_seconds: float = 0.0, partitions: Sequence[str] | None = None
    ) -> CollectedGarbage:
        """Mark as collected every block that is not retained. No later plan uses these blocks.

        Decided under the channel's lock, so that no base is committed in between.

        Args:
            retain_seconds: seconds for which old versions are kept for time travel.
            partitions: collect only in these partitions.

        Raises:
            ChannelNotFound.
        """
        load_channel_state(self.database, channel)  # raises if the channel is not registered

        def collect_blocks(c: Connection) -> CollectedGarbage:
            c.execute(select(channels.c.name).where(channels.c.name == channel).with_for_update()).all()
            # An execution that pins an older head now gets BlockCollected and never a wrong answer, because the numbers
            # of collected blocks stay known.
            collectable_blocks = blocks_to_collect(
                retention_verdicts(read_retention_state(c, self.database, channel, retain_seconds, partitions))
            )
            if not collectable_blocks:
                return CollectedGarbage(channel, ())
            return mark_collected(
                c, channel, collectable_blocks, {"collected": len(collectable_blocks)}, self.database.clock()
            )

        return self.database.write(collect_blocks)

    def deletable_files(self, deletion_delay: float) -> list[tuple[str, str]]:
        """Files that may be deleted, as (block, path).

        All blocks that list the file were collected longer ago than the delay. No staged block lists it. No running
        execution that had pinned the channel before the collection remains, since its plan may contain the file. No
        published version lists it. No backup from before the collection holds it.

        Args:
            deletion_delay: seconds after the collection.
        """
        now = self.database.clock()

        def read_deletable(c: Connection) -> list[tuple[str, str]]:
            held_from = c.execute(select(func.min(backups.c.made_at)).where(backups.c.held_until > now)).scalar()
            collected_before = now - timedelta(seconds=deletion_delay)
            if held_from is not None:
                collected_before = min(collected_before, held_from - _CLOCK_TOLERANCE)
            return _read_deletable(c, collected_before)

        return self.database.read(read_deletable)

    def delete_file_records(self, deleted_files: Iterable[tuple[str, str]]) -> None:
        """Delete the records of files that were deleted."""
        paths = sorted({path for _, path in deleted_files})

        def delete_rows(c: Connection) -> None:
            collected = select(blocks.c.id).where(blocks.c.collected_at.is_not(None))
            for batch in batched(paths, _ITEMS_PER_QUERY):
                c.execute(delete(files).where(files.c.path.in_(batch), files.c.block_id.in_(collected)))

        if paths:
            self.database.write(delete_rows)

    def newest_commit_time(self) -> datetime | None:
        """Time of the newest commit on any channel. Without a later commit, no channel was read."""
        return self.database.read(lambda c: c.execute(select(func.max(commits.c.at))).scalar())

    def count_full_reads(self, channel: str) -> int:
        """Number of executions that have read the channel as a whole since its newest base.

        A new base would have saved these reads the merge, so the number indicates the benefit of compaction (R14).
        """

        def count_full_reads(c: Connection) -> int:
            newest = select(func.max(commits.c.at)).join(blocks, blocks.c.commit_id == commits.c.id)
            base_committed_at = c.execute(newest.where(blocks.c.channel == channel, blocks.c.kind == "base")).scalar()
            reading_bindings = [
                name
                for name, modes in _read_modes_by_binding(c, channel).items()
                if modes & {"all", "old", "changes", "matching"}
            ]
            query = select(func.count()).select_from(commits).where(commits.c.binding.in_(reading_bindings))
            if base_committed_at is not None:
                query = query.where(commits.c.at > base_committed_at)
            return int(c.execute(query).scalar() or 0)

        return self.database.read(count_full_reads)


def _read_deletable(c: Connection, collected_before: datetime) -> list[tuple[str, str]]:
    """Files that may be deleted, as (block, path). All blocks that list a file were collected before a time."""
    other_files, other_blocks = files.alias("other"), blocks.alias("of")
    # A compacted base of an append-only channel lists large files of older blocks as they are.
    in_live_block = exists().where(
        other_files.c.path == files.c.path,
        other_files.c.block_id == other_blocks.c.id,
        other_blocks.c.collected_at.is_(None),
    )
    recently_collected = exists().where(
        other_files.c.path == files.c.path,
        other_files.c.block_id == other_blocks.c.id,
        other_blocks.c.collected_at >= collected_before,
    )
    in_running_plan = exists().where(
        pins.c.channel == blocks.c.channel,
        pins.c.execution_id == executions.c.id,
        executions.c.state == "running",
        executions.c.started_at <= blocks.c.collected_at,
    )
    in_older_version = exists().where(  # of a package that did not record the blocks of a published version
        other_files.c.path == files.c.path,
        other_files.c.block_id == other_blocks.c.id,
        published_versions.c.blocks.is_(None),
        published_versions.c.channel == other_blocks.c.channel,
        published_versions.c.at <= other_blocks.c.collected_at,
    )
    query = select(files.c.block_id, files.c.path).join(blocks, blocks.c.id == files.c.block_id)
    query = query.where(
        blocks.c.collected_at.is_not(None),
        blocks.c.collected_at < collected_before,
        ~in_live_block,
        ~recently_collected,
        ~in_running_plan,
        ~in_older_version,
    )
    candidates = [(block, path) for block, path in c.execute(query.order_by(files.c.path))]
    if not candidates:
        return []
    retained_paths = {f["path"] for m in c.execute(select(staged_blocks.c.manifest)).scalars() if m for f in m["files"]}
    retained_paths |= _paths_in_published_versions(c, {path for _, path in candidates})
    return [(block, path) for block, path in candidates if path not in retained_paths]


def _paths_in_published_versions(c: Connection, paths: Collection[str]) -> set[str]:
    """Those of the paths that a published version lists, by any of its blocks: several blocks may list one file."""
    recorded = c.execute(select(published_versions.c.blocks).where(published_versions.c.blocks.is_not(None))).scalars()
    listed_blocks = {block for ids in recorded for block in ids}
    if not listed_blocks:
        return set()
    query = select(files.c.path, files.c.block_id)
    return {
        path
        for batch in batched(sorted(paths), _ITEMS_PER_QUERY)
        for path, block in c.execute(query.where(files.c.path.in_(batch)))
        if block in listed_blocks
    }


def read_retention_state(
    c: Connection, database: Database, channel: str, retain_seconds: float, partitions: Sequence[str] | None = None
) -> RetentionState:
    """Retention state of a channel, within a transaction."""
    history = read_history(c, channel) if partitions is None else read_history_of_partitions(c, channel, partitions)
    assert history is not None
    bases = bool(c.execute(select(channels.c.bases).where(channels.c.name == channel)).scalar())
    keep_from = (
        _number_at_time(c, channel, database.clock() - timedelta(seconds=retain_seconds))
        if retain_seconds > 0
        else None
    )
    return RetentionState(
        history, tuple(_read_channel_readers(c, channel)), tuple(_active_pins(c, channel)), bases, keep_from
    )


def _number_at_time(c: Connection, channel: str, moment: datetime) -> int:
    """Head of the channel at a time."""
    query = select(func.max(commit_numbers.c.seq)).join(commits, commits.c.id == commit_numbers.c.commit_id)
    return int(c.execute(query.where(commit_numbers.c.channel == channel, commits.c.at <= moment)).scalar() or 0)


def _active_pins(c: Connection, channel: str) -> Iterable[PinnedRead]:
    pin_columns = (pins.c.head, pins.c.cursor, pins.c.partition, pins.c.has_run)
    live = select(executions.c.id, executions.c.binding, *pin_columns)
    live = live.join(pins, pins.c.execution_id == executions.c.id).where(pins.c.channel == channel)
    # A lapsed execution counts, too. Until it is aborted, it may be renewed and commit.
    for row in c.execute(live.where(executions.c.state.in_(["running", "failed"]))).mappings():
        holder = f"execution {row['id'][:8]} of {row['binding'] or 'an insert or reader'}"
        yield PinnedRead(holder, row["head"], row["cursor"], row["partition"], row["has_run"])


def mark_collected(
    c: Connection, channel: str, collected_blocks: Sequence[Block], details: Mapping[str, int], now: datetime
) -> CollectedGarbage:
    """Mark blocks as collected, inside a transaction that holds the channel's row."""
    commit = uuid.uuid4().hex
    commit_fields = {"heads": {}, "consumed": {}, "details": dict(details)}
    c.execute(insert(commits).values(id=commit, execution_id=commit, binding=None, at=now, **commit_fields))
    for batch in batched([b.id for b in collected_blocks], _ITEMS_PER_QUERY):
        c.execute(update(blocks).where(blocks.c.id.in_(batch)).values(collected_at=now, collected_by=commit))
    append_step(c, channel, "collect", commit, now)
    return CollectedGarbage(channel, tuple(collected_blocks), commit)


def _read_channel_readers(c: Connection, channel: str) -> Iterable[ConsumerPosition]:
    modes_by_binding = _read_modes_by_binding(c, channel)
    for row in c.execute(select(cursors).where(cursors.c.channel == channel)).mappings():
        binding = row["binding"]
        # The modes of a plain Dagster asset are unknown, so it may read ``old``.
        reads_old = binding not in modes_by_binding or bool(modes_by_binding[binding] & {"old", "changes"})
        partition_text = f" for {row['partition']}" if row["partition"] else ""
        yield ConsumerPosition(
            f"{binding}{partition_text}", row["seq"], row["channel_partition"], reads_old, has_run=True
        )


def _read_modes_by_binding(c: Connection, channel: str) -> dict[str, set[str]]:
    """Modes in which the tasks of each registered binding read the channel."""
    modes_by_binding: dict[str, set[str]] = {}
    definitions: dict[str, Any] = query_as_dict(c, select(bindings.c.name, bindings.c.definition))
    for name, definition in definitions.items():
        ports = {port for port, bound in definition["channels"].items() if bound == channel}
        modes_by_binding[name] = {e["mode"] for t in definition["tasks"] for e in t["consumes"] if e["port"] in ports}
    return modes_by_binding
