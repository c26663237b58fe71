"""State of partitions for the scheduler: versions they were computed from, marks, running and failing executions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, case, delete, func, insert, select, update

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import batched, query_as_dict
from nova_assets.catalog.leases import live_condition
from nova_assets.catalog.tables import backfill_parts, backfill_requests, bindings, channels, executions
from nova_assets.model.commit import CommitRequest
from nova_assets.model.partitions import WHOLE
from nova_assets.model.scheduler_state import BackfillPartitionState, DirtyPartition, RunningTask, TaskFailures
from nova_assets.plan.required_base import channels_of_other_queries, maintained_channels

_PARTITIONS_PER_QUERY = 300


class SchedulerState(CatalogPart):
    """State of partitions for the scheduler, and marks for recomputation."""

    def heads(self) -> dict[str, int]:
        """Head of each channel."""
        return self.database.read(lambda c: query_as_dict(c, select(channels.c.name, channels.c.head)))

    def mark_dirty(
        self, channel: str, partitions: Iterable[str], by: str = "", why: str = "", priority: int = 0
    ) -> int:
        """Mark partitions to be recomputed.

        Args:
            by: the backfill or person that requests it.
            priority: higher values run first. Missing partitions have 0.

        Returns:
            Number of partitions that were not marked before.
        """
        now, unique_partitions = self.database.clock(), list(dict.fromkeys(partitions))
        return self.database.write(
            lambda c: upsert_backfill_requests(c, channel, unique_partitions, by, why, priority, now)
        )

    def clear_dirty(self, channel: str | None = None, partitions: Sequence[str] | None = None) -> int:
        """Remove marks: all, those of a channel, or those of some of its partitions.

        Returns:
            Number of removed marks.
        """
        return self.database.write(lambda c: delete_backfill_requests(c, self.database.clock(), channel, partitions))

    def dirty_partitions(self) -> list[DirtyPartition]:
        """All marked partitions, oldest mark first."""
        query = select(backfill_requests).order_by(
            backfill_requests.c.at, backfill_requests.c.channel, backfill_requests.c.partition
        )
        rows = self.database.read(lambda c: c.execute(query).mappings().all())
        return [DirtyPartition(r["channel"], r["partition"], r["at"], r["by"], r["why"], r["priority"]) for r in rows]

    def running_partitions(self) -> dict[tuple[str, str], RunningTask]:
        """Running executions with a valid lease, by (binding, partition)."""
        task = (executions.c.binding, executions.c.partition)
        columns = (*task, executions.c.owner, executions.c.lease_until, executions.c.id)
        query = select(*columns).where(executions.c.binding.is_not(None), live_condition(self.database.clock()))
        rows = self.database.read(lambda c: c.execute(query).all())
        return {(binding, partition): RunningTask(*running) for binding, partition, *running in rows}

    def failing_partitions(self) -> dict[tuple[str, str], TaskFailures]:
        """Failures since the last success, by (binding, partition)."""
        later_success = executions.alias("done")
        succeeded_since = select(later_success.c.id).where(
            later_success.c.binding == executions.c.binding,
            later_success.c.partition == executions.c.partition,
            later_success.c.state == "committed",
            later_success.c.started_at >= executions.c.started_at,
        )
        ended = case((executions.c.finished_at.is_not(None), executions.c.finished_at), else_=executions.c.started_at)
        query = (
            select(executions.c.binding, executions.c.partition, func.sum(executions.c.failures), func.max(ended))
            .where(executions.c.binding.is_not(None), executions.c.failures > 0, ~succeeded_since.exists())
            .group_by(executions.c.binding, executions.c.partition)
        )
        rows = self.database.read(lambda c: c.execute(query).all())
        return {(b, p): TaskFailures(int(n), at) for b, p, n, at in rows}


def upsert_backfill_requests(
    c: Connection, channel: str, partitions: Sequence[str], by: str, why: str, priority: int, now: datetime
) -> int:
    """Mark partitions to be recomputed.

    On a partition that is already marked, this request takes over the mark and keeps the higher priority. A mark that
    no backfill has set stays anonymous, so that a cancelled backfill does not remove it.

    Returns:
        Number of partitions that were not marked before.
    """
    _lock_channels(c, [channel])
    existing_priorities = {
        p: n
        for p, n in c.execute(
            select(backfill_requests.c.partition, backfill_requests.c.priority).where(
                backfill_requests.c.channel == channel
            )
        )
    }
    request_values = {"at": now, "by": by, "why": why}
    is_anonymous = backfill_requests.c.by == ""
    kept_values = {
        "by": case((is_anonymous, ""), else_=by),
        "why": case((is_anonymous, backfill_requests.c.why), else_=why),
    }
    for batch in batched([p for p in partitions if p in existing_priorities], _PARTITIONS_PER_QUERY):
        where = (backfill_requests.c.channel == channel, backfill_requests.c.partition.in_(batch))
        highest_priority = case((backfill_requests.c.priority > priority, backfill_requests.c.priority), else_=priority)
        c.execute(update(backfill_requests).where(*where).values(**kept_values, at=now, priority=highest_priority))
    rows = [
        {**request_values, "priority": priority, "channel": channel, "partition": p}
        for p in partitions
        if p not in existing_priorities
    ]
    if rows:
        c.execute(insert(backfill_requests), rows)
    return len(rows)


def delete_backfill_requests(
    c: Connection,
    now: datetime,
    channel: str | None = None,
    partitions: Sequence[str] | None = None,
) -> int:
    """Remove marks, whoever set them.

    Returns:
        Number of removed marks.
    """
    where: list[Any] = [] if channel is None else [backfill_requests.c.channel == channel]
    where += [] if partitions is None else [backfill_requests.c.partition.in_(list(partitions))]
    partitions_by_channel = _partitions_by_channel(
        c.execute(select(backfill_requests.c.channel, backfill_requests.c.partition).where(*where))
    )
    _lock_channels(c, partitions_by_channel)
    for name, partition_names in partitions_by_channel.items():
        for batch in batched(partition_names, _PARTITIONS_PER_QUERY):
            c.execute(
                delete(backfill_requests).where(
                    backfill_requests.c.channel == name, backfill_requests.c.partition.in_(batch)
                )
            )
            _end_backfill_parts(c, name, batch, "cancelled", now)
    return sum(map(len, partitions_by_channel.values()))


def withdraw_backfill(c: Connection, backfill_id: str, now: datetime) -> int:
    """Cancel the waiting partitions of a backfill.

    A partition that another backfill also waits for passes to that backfill.

    Returns:
        Number of partitions that this backfill no longer recomputes.
    """
    is_waiting = (backfill_parts.c.backfill == backfill_id, backfill_parts.c.state == "waiting")
    partitions_by_channel = _partitions_by_channel(
        c.execute(select(backfill_parts.c.channel, backfill_parts.c.partition).where(*is_waiting))
    )
    _lock_channels(c, partitions_by_channel)
    c.execute(update(backfill_parts).where(*is_waiting).values(state="cancelled", ended_at=now))
    for channel, partition_names in partitions_by_channel.items():
        for batch in batched(partition_names, _PARTITIONS_PER_QUERY):
            others = select(backfill_parts.c.partition, func.max(backfill_parts.c.backfill)).where(
                backfill_parts.c.channel == channel,
                backfill_parts.c.partition.in_(batch),
                backfill_parts.c.state == "waiting",
            )
            other_backfill_by_partition = {p: by for p, by in c.execute(others.group_by(backfill_parts.c.partition))}
            unwanted = [p for p in batch if p not in other_backfill_by_partition]
            is_own_request = (backfill_requests.c.channel == channel, backfill_requests.c.by == backfill_id)
            c.execute(delete(backfill_requests).where(*is_own_request, backfill_requests.c.partition.in_(unwanted)))
            for partition, by in other_backfill_by_partition.items():
                c.execute(
                    update(backfill_requests)
                    .where(*is_own_request, backfill_requests.c.partition == partition)
                    .values(by=by)
                )
    return sum(map(len, partitions_by_channel.values()))


def delete_fulfilled_requests(
    c: Connection,
    request: CommitRequest,
    new_numbers: Mapping[str, int],
    execution_started_at: datetime | None,
    now: datetime,
) -> None:
    """Part of a commit: remove the marks of the recomputed partitions, and record the result in their backfills.

    Marks set after the execution began stay. All marks stay if ``request.keeps_dirty_marks``. Marks of dropped
    partitions are always removed. The transaction holds the locks of the channels.

    Args:
        new_numbers: channel -> number that the commit takes; without channels that were recomputed without a change.
        execution_started_at: start of the execution. If it is None, only marks of dropped partitions are removed.
    """
    partitions_by_change: dict[tuple[str, bool], list[str]] = {}
    for p in request.added_blocks:
        if p.takes_sequence_number:
            partitions_by_change.setdefault((p.channel, p.origin == "drop"), []).append(p.partition)
    for channel, partition in request.recomputed_without_change:
        partitions_by_change.setdefault((channel, False), []).append(partition)
    for (channel, is_drop), partitions in partitions_by_change.items():
        if not is_drop and (execution_started_at is None or request.keeps_dirty_marks):
            continue
        for batch in batched(partitions, _PARTITIONS_PER_QUERY):
            where = [backfill_requests.c.channel == channel, backfill_requests.c.partition.in_(batch)]
            where += [] if is_drop else [backfill_requests.c.at <= execution_started_at]
            requested = list(c.execute(select(backfill_requests.c.partition).where(*where)).scalars())
            if requested:
                c.execute(delete(backfill_requests).where(*where))
            made_by = {} if is_drop else {"seq": new_numbers.get(channel), "execution_id": request.execution_id}
            _end_backfill_parts(c, channel, requested, "dropped" if is_drop else "made", now, **made_by)
            if not is_drop:  # a backfill cancelled during the execution gets the result, too
                is_cancelled_late = (
                    backfill_parts.c.state == "cancelled",
                    backfill_parts.c.ended_at >= execution_started_at,
                )
                is_of_batch = (backfill_parts.c.channel == channel, backfill_parts.c.partition.in_(batch))
                c.execute(
                    update(backfill_parts)
                    .where(*is_of_batch, *is_cancelled_late)
                    .values(state="made", ended_at=now, **made_by)
                )


def _end_backfill_parts(
    c: Connection, channel: str, partitions: Sequence[str], state: BackfillPartitionState, now: datetime, **columns: Any
) -> None:
    if partitions:
        is_of_partitions = (backfill_parts.c.channel == channel, backfill_parts.c.partition.in_(partitions))
        change = update(backfill_parts).where(*is_of_partitions, backfill_parts.c.state == "waiting")
        c.execute(change.values(state=state, ended_at=now, **columns))


def _lock_channels(c: Connection, channel_names: Iterable[str]) -> None:
    """Lock channels in the order that commits use. Marks change only under these locks."""
    query = select(channels.c.name).where(channels.c.name.in_(sorted(channel_names))).order_by(channels.c.name)
    c.execute(query.with_for_update()).all()


def _partitions_by_channel(rows: Iterable[Any]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for channel, partition in rows:
        result.setdefault(channel, []).append(partition)
    return result


def mark_redefined_outputs(c: Connection, binding: str, definition: Mapping[str, Any], now: datetime) -> None:
    """Mark the outputs of a binding if its new definition computes them by another query than before.

    The transaction has not stored the new definition yet.
    """
    earlier = c.execute(select(bindings.c.definition).where(bindings.c.name == binding)).scalar()
    for channel in channels_of_other_queries(earlier, definition) if earlier is not None else ():
        upsert_backfill_requests(c, channel, [WHOLE], "", "its query has changed", 0, now)


def mark_outputs_of_other_writers(c: Connection, request: CommitRequest, now: datetime) -> None:
    """Part of a commit: mark the channels of maintained datasets to which something other than their task writes."""
    written = {b.channel for b in request.added_blocks if b.takes_sequence_number} - {request.binding}
    if not written:
        return
    query = select(bindings.c.name, bindings.c.definition).where(bindings.c.name.in_(sorted(written)))
    for name, definition in c.execute(query).all():  # the binding of a dataset has the name of its channel
        if name in maintained_channels(definition):
            upsert_backfill_requests(c, name, [WHOLE], "", "another writer has changed its rows", 0, now)
