"""Rollbacks: instants that tell which staged files of aborted executions were removed (R3).

A rollback takes no sequence number, because staged files were never part of an answer. If nothing was removed, there is
no rollback. So an insert whose rows are rejected leaves none.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select

from nova_assets.catalog.database.transactions import batched, query_as_dict
from nova_assets.catalog.execution_rows import SKIPPED_FOLDER
from nova_assets.catalog.tables import channels, commits, executions, staged_blocks, steps
from nova_assets.catalog.timeline_steps import append_step
from nova_assets.model.block import Manifest
from nova_assets.model.timeline import Instant, RolledBackBlock

_IDS_PER_QUERY = 500

_NOT_SWEPT = (
    executions.c.state == "aborted",
    staged_blocks.c.swept_at.is_(None),
    staged_blocks.c.folder != SKIPPED_FOLDER,
)


def record_rollbacks(c: Connection, removed_files: Mapping[str, Sequence[str]], now: datetime) -> None:
    """Append a rollback to the channels of staged blocks whose files were removed for the first time.

    Only blocks of aborted executions count. There is one instant for each execution and channel.

    Args:
        removed_files: block -> its files that were removed.
    """
    blocks_by_rollback: dict[tuple[str, str], list[RolledBackBlock]] = {}
    bindings: dict[str, str | None] = {}
    for batch in batched(list(removed_files), _IDS_PER_QUERY):
        query = select(staged_blocks, executions.c.binding).join(executions).where(*_NOT_SWEPT)
        query = query.where(staged_blocks.c.id.in_(batch), staged_blocks.c.channel.is_not(None))
        query = query.order_by(staged_blocks.c.id).with_for_update(of=staged_blocks)
        for row in c.execute(query).mappings():
            if removed := _rolled_back_partitions(row, removed_files[row["id"]]):
                blocks_by_rollback.setdefault((row["channel"], row["execution_id"]), []).extend(removed)
                bindings[row["execution_id"]] = row["binding"]
    names = sorted({channel for channel, _ in blocks_by_rollback})
    locked = select(channels.c.name).where(channels.c.name.in_(names)).order_by(channels.c.name).with_for_update()
    registered = set(c.execute(locked).scalars()) if names else set()
    for (channel, execution_id), removed in sorted(blocks_by_rollback.items()):
        if channel in registered:
            details = {
                "execution": execution_id,
                "binding": bindings[execution_id],
                "rolled_back": [b.as_json() for b in removed],
            }
            commit = uuid.uuid4().hex
            fields = {"heads": {}, "consumed": {}, "details": details}
            c.execute(insert(commits).values(id=commit, execution_id=commit, binding=None, at=now, **fields))
            append_step(c, channel, "rollback", commit, now)


def _rolled_back_partitions(staged: RowMapping, removed_files: Sequence[str]) -> list[RolledBackBlock]:
    """Removed files of a staged block, by partition. If its writing was cut off, all have the scope of the write.

    A process that was killed after it had removed the files recorded nothing, so the files of the manifest count, too.
    """
    files = () if staged["manifest"] is None else Manifest.from_json(staged["manifest"]).files
    partition_by_file = {f.path: f.partition for f in files if f.path.startswith(f"{staged['folder']}/")}
    files_by_partition: dict[str, list[str]] = {}
    for path in sorted({*removed_files, *partition_by_file}):
        files_by_partition.setdefault(partition_by_file.get(path, staged["partition"]), []).append(path)
    return [
        RolledBackBlock(staged["id"], partition, staged["folder"], tuple(paths))
        for partition, paths in sorted(files_by_partition.items())
    ]


def rolled_back_by_commit(c: Connection, commit_ids: Sequence[str]) -> dict[str, tuple[RolledBackBlock, ...]]:
    """Commit of a rollback -> the blocks whose files it removed."""
    result: dict[str, tuple[RolledBackBlock, ...]] = {}
    for batch in batched(commit_ids, _IDS_PER_QUERY):
        details_by_commit = query_as_dict(c, select(commits.c.id, commits.c.details).where(commits.c.id.in_(batch)))
        result |= {commit: _rolled_back_blocks(details) for commit, details in details_by_commit.items()}
    return result


def rollback_instants(c: Connection, channel: str, limit: int | None) -> list[Instant]:
    """Complete rollbacks of a channel among its latest instants, oldest first.

    Args:
        limit: number of latest instants; None for all.
    """
    query = select(commits).join(steps, steps.c.commit_id == commits.c.id)
    query = query.where(steps.c.channel == channel, steps.c.action == "rollback").order_by(steps.c.n)
    if limit is not None:
        last_step = select(channels.c.step).where(channels.c.name == channel).scalar_subquery()
        query = query.where(steps.c.n > last_step - limit)
    return [
        Instant(
            *("rollback", "complete", None, r["at"], r["id"], r["details"]["binding"]),
            details=r["details"],
            rolled_back=_rolled_back_blocks(r["details"]),
        )
        for r in c.execute(query).mappings()
    ]


def requested_rollbacks(c: Connection, channel: str) -> list[Instant]:
    """Aborted executions whose staged files were not removed yet."""
    query = select(executions).join(staged_blocks, staged_blocks.c.execution_id == executions.c.id).distinct()
    query = query.where(staged_blocks.c.channel == channel, *_NOT_SWEPT).order_by(executions.c.finished_at)
    return [
        Instant("rollback", "requested", None, r["finished_at"], "", r["binding"]) for r in c.execute(query).mappings()
    ]


def _rolled_back_blocks(details: Mapping[str, Any]) -> tuple[RolledBackBlock, ...]:
    return tuple(RolledBackBlock.from_json(b) for b in details["rolled_back"])
