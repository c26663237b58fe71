"""Instants of channels: their timelines for people, and short summaries for pages."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, RowMapping, func, insert, select

from nova_assets.catalog.block_rows import load_blocks_with_files
from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.channel_rows import load_channel_state
from nova_assets.catalog.database.transactions import batched, query_as_dict
from nova_assets.catalog.execution_rows import SKIPPED_FOLDER
from nova_assets.catalog.tables import blocks, channels, commit_numbers, commits, executions, staged_blocks, steps
from nova_assets.catalog.timeline_steps import append_step
from nova_assets.model.block import Block, Manifest
from nova_assets.model.timeline import Instant, InstantSummary, RolledBackBlock, action_of_block_origins

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


_COMMITS_PER_QUERY = 500
"""Maximum number of commits whose blocks one statement loads."""


class Instants(CatalogPart):
    """Reads the instants of channels. Each answer shows the state at one moment."""

    def of(self, channel: str, limit: int | None = None) -> list[Instant]:
        """Instants of a channel, oldest first; requested instants last.

        Args:
            limit: maximum number of instants, counted from the latest. No more are loaded.

        Raises:
            ChannelNotFound.
        """
        load_channel_state(self.database, channel)  # raises if the channel is not registered
        instants = self.database.read(
            lambda c: [
                *_completed_instants(c, channel, limit),
                *requested_rollbacks(c, channel),
                *_requested_instants(c, channel),
            ]
        )
        return instants if limit is None else instants[max(0, len(instants) - limit) :]

    def summaries(self, channel: str, after: int, limit: int) -> list[InstantSummary]:
        """Summaries of the first complete instants after a step."""
        query = select(steps).where(steps.c.channel == channel, steps.c.n > after).order_by(steps.c.n).limit(limit)

        def read_summaries(c: Connection) -> list[InstantSummary]:
            rows = c.execute(query).mappings().all()
            numbers_by_commit = _newest_numbers_by_commit(c, channel, [r["commit_id"] for r in rows])
            rolled_back = rolled_back_by_commit(c, [r["commit_id"] for r in rows if r["action"] == "rollback"])
            return [
                InstantSummary(
                    *(r["n"], r["prefix"], r["action"], r["commit_id"], r["at"].isoformat()),
                    max(numbers_by_commit.get(r["commit_id"], {}).values(), default=None),
                    tuple(
                        sorted(
                            {b.partition for b in rolled_back.get(r["commit_id"], ())}
                            | numbers_by_commit.get(r["commit_id"], {}).keys()
                        )
                    ),
                )
                for r in rows
            ]

        return self.database.read(read_summaries)


def _newest_numbers_by_commit(c: Connection, channel: str, commit_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Commit -> partition -> newest number at which the commit added or collected a block."""
    numbers_by_commit: dict[str, dict[str, int]] = {}
    for batch in batched(commit_ids, _COMMITS_PER_QUERY):
        for commit_column in (blocks.c.commit_id, blocks.c.collected_by):
            blocks_query = select(commit_column, blocks.c.partition, blocks.c.hi).where(
                blocks.c.channel == channel, commit_column.in_(batch)
            )
            for commit, partition, hi in c.execute(blocks_query):
                newest_by_partition = numbers_by_commit.setdefault(commit, {})
                newest_by_partition[partition] = max(hi, newest_by_partition.get(partition, 0))
    return numbers_by_commit


def _completed_instants(c: Connection, channel: str, limit: int | None) -> list[Instant]:
    query = select(commits, commit_numbers.c.seq).join(commit_numbers, commit_numbers.c.commit_id == commits.c.id)
    query = query.where(commit_numbers.c.channel == channel).order_by(commit_numbers.c.seq.desc()).limit(limit)
    rows = c.execute(query).mappings().all()
    added = _blocks_by_commit(c, channel, blocks.c.commit_id, [r["id"] for r in rows])
    commit_instants = [
        Instant(
            action_of_block_origins(b.origin for b in added.get(r["id"], ())),
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
    maintenance = [
        *_maintenance_instants(c, channel, "compact", limit),
        *_maintenance_instants(c, channel, "collect", limit),
    ]
    return _sort_by_commit_order(c, channel, [*commit_instants, *maintenance, *rollback_instants(c, channel, limit)])


def _maintenance_instants(
    c: Connection, channel: str, action: Literal["compact", "collect"], limit: int | None
) -> list[Instant]:
    """Instants of compactions or collections, whose commits take no number."""
    commit_column = blocks.c.commit_id if action == "compact" else blocks.c.collected_by
    is_action = blocks.c.origin == "compact" if action == "compact" else commit_column.is_not(None)
    query = select(commits).where(commits.c.id.in_(select(commit_column).where(blocks.c.channel == channel, is_action)))
    rows = c.execute(query.order_by(commits.c.at.desc(), commits.c.id.desc()).limit(limit)).mappings().all()
    blocks_by_commit = _blocks_by_commit(c, channel, commit_column, [r["id"] for r in rows])
    return [
        Instant(action, "complete", max(b.hi for b in some), r["at"], r["id"], None, tuple(some), r["details"])
        for r, some in ((r, blocks_by_commit[r["id"]]) for r in reversed(rows))
    ]


def _requested_instants(c: Connection, channel: str) -> list[Instant]:
    query = select(executions).join(staged_blocks, staged_blocks.c.execution_id == executions.c.id).distinct()
    query = query.where(staged_blocks.c.channel == channel, executions.c.state == "running").order_by(
        executions.c.started_at
    )
    return [
        Instant(r["purpose"], "requested", None, r["started_at"], "", r["binding"]) for r in c.execute(query).mappings()
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
