"""Existing partitions of channels, and the versions that were read for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Subquery, and_, bindparam, func, select

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import batched
from nova_assets.catalog.tables import backfill_parts, blocks, commits, executions
from nova_assets.model.scheduler_state import MaterializedPartition

_PARTITIONS_PER_QUERY = 300


class MaterializedPartitions(CatalogPart):
    """Reads the existing partitions of channels, and the versions that were read for them."""

    def updated_since(self, channel: str, after_number: int) -> list[str]:
        """Partitions of a channel that got data or were dropped after a number."""
        parameters = {"channel": channel, "number": after_number}
        return sorted(self.database.read(lambda c: c.execute(_UPDATED_SINCE_QUERY, parameters).scalars().all()))

    def oldest_data_time(self, channel: str, after_number: int, partitions: Collection[str]) -> datetime | None:
        """Time of the oldest commit after a number that changed one of these partitions; None if there is none."""

        def read(c: Connection) -> datetime | None:
            times: list[datetime] = []
            for batch in batched(sorted(partitions), _PARTITIONS_PER_QUERY):
                parameters = {"channel": channel, "number": after_number, "among": list(batch)}
                times += c.execute(_OLDEST_DATA_QUERY, parameters).scalars().all()
            return min(times, default=None)

        return self.database.read(read)

    def materialized(self, channel: str, partitions: Iterable[str] | None = None) -> dict[str, MaterializedPartition]:
        """Existing partitions of a channel, with their newest number and the versions that were read for it.

        Args:
            partitions: only these partitions; None for all.
        """

        def read_states(c: Connection) -> dict[str, MaterializedPartition]:
            if partitions is None:
                return _read_partition_states(c, channel)
            states: dict[str, MaterializedPartition] = {}
            for batch in batched(sorted(partitions), _PARTITIONS_PER_QUERY):
                states |= _read_partition_states(c, channel, batch)
            return states

        return self.database.read(read_states)

    def read_versions_without_change(
        self, binding: str, partitions: Iterable[str] | None = None
    ) -> dict[str, dict[str, int]]:
        """Partition -> the versions that the newest of those executions read that changed no channel.

        Args:
            partitions: only these partitions; None for all.
        """
        newest = func.max(executions.c.started_at).label("started_at")
        without_blocks = (
            select(executions.c.partition, newest)
            .join(commits, commits.c.execution_id == executions.c.id)
            .where(
                executions.c.binding == binding,
                executions.c.state == "committed",
                ~select(blocks.c.id).where(blocks.c.commit_id == commits.c.id).exists(),
            )
            .group_by(executions.c.partition)
        )

        def read_versions(c: Connection) -> dict[str, dict[str, int]]:
            if partitions is None:
                return _read_consumed_versions(c, binding, without_blocks.subquery())
            versions: dict[str, dict[str, int]] = {}
            for batch in batched(sorted(partitions), _PARTITIONS_PER_QUERY):
                of_batch = without_blocks.where(executions.c.partition.in_(batch)).subquery()
                versions |= _read_consumed_versions(c, binding, of_batch)
            return versions

        return self.database.read(read_versions)


def _read_partition_states(
    c: Connection, channel: str, partitions: Sequence[str] | None = None
) -> dict[str, MaterializedPartition]:
    """Existing partitions with the versions read for them, within a transaction.

    Args:
        partitions: only these partitions; None for all.
    """
    parameters: dict[str, Any] = {"channel": channel, **({} if partitions is None else {"among": partitions})}
    arrived_numbers = _last_non_backfill_numbers(c, parameters)
    return {
        p: MaterializedPartition(hi, {n: v[1] for n, v in read.items()}, arrived_numbers.get(p))
        for p, hi, origin, read in c.execute(_newest_block_query(partitions is not None), parameters)
        if origin != "drop"
    }


def _read_consumed_versions(c: Connection, binding: str, newest: Subquery) -> dict[str, dict[str, int]]:
    """Partition -> the versions that an execution read.

    Args:
        newest: the execution of each partition, as its partition and its start.
    """
    query = (
        select(executions.c.partition, commits.c.consumed)
        .join(commits, commits.c.execution_id == executions.c.id)
        .join(
            newest,
            and_(executions.c.partition == newest.c.partition, executions.c.started_at == newest.c.started_at),
        )
        .where(executions.c.binding == binding)
    )
    return {partition: {n: v[1] for n, v in consumed.items()} for partition, consumed in c.execute(query)}


def _last_non_backfill_numbers(c: Connection, parameters: dict[str, Any]) -> dict[str, int]:
    """Backfilled partition -> newest number at which something other than a backfill wrote it."""
    # The first data of a partition counts as new data, even if a backfill wrote it.
    numbers_by_partition = {p: seq for p, seq in c.execute(_FIRST_BACKFILLED_QUERY, {"channel": parameters["channel"]})}
    if numbers_by_partition:
        numbers_by_partition |= {
            p: hi
            for p, hi in c.execute(_newest_not_backfilled_query("among" in parameters), parameters)
            if p in numbers_by_partition
        }
    return numbers_by_partition


# The scheduler runs these statements at every tick, for many channels, so each is built once.


def _channel_block_conditions(by_partition: bool) -> list[ColumnElement[bool]]:
    """SQL conditions for the blocks of a channel, without compactions."""
    conditions: list[ColumnElement[bool]] = [blocks.c.channel == bindparam("channel"), blocks.c.origin != "compact"]
    return [*conditions, blocks.c.partition.in_(bindparam("among", expanding=True))] if by_partition else conditions


@cache
def _newest_block_query(by_partition: bool) -> Select[Any]:
    """Query for the newest block of each partition, and the versions that its commit read."""
    newest_query = select(blocks.c.partition, func.max(blocks.c.hi).label("hi")).where(
        *_channel_block_conditions(by_partition)
    )
    newest_numbers = newest_query.group_by(blocks.c.partition).subquery()
    return (
        select(blocks.c.partition, blocks.c.hi, blocks.c.origin, commits.c.consumed)
        .join(
            newest_numbers, and_(blocks.c.partition == newest_numbers.c.partition, blocks.c.hi == newest_numbers.c.hi)
        )
        .join(commits, commits.c.id == blocks.c.commit_id)
        .where(*_channel_block_conditions(by_partition))
    )


@cache
def _newest_not_backfilled_query(by_partition: bool) -> Select[Any]:
    """Query for the newest number of each partition that no backfill wrote."""
    is_backfilled = and_(
        backfill_parts.c.channel == blocks.c.channel,
        backfill_parts.c.partition == blocks.c.partition,
        backfill_parts.c.seq == blocks.c.hi,
    )
    query = select(blocks.c.partition, func.max(blocks.c.hi))
    query = query.where(
        *_channel_block_conditions(by_partition), ~select(backfill_parts.c.n).where(is_backfilled).exists()
    )
    return query.group_by(blocks.c.partition)


_FIRST_BACKFILLED_QUERY = (
    select(backfill_parts.c.partition, func.min(backfill_parts.c.seq))
    .where(backfill_parts.c.channel == bindparam("channel"), backfill_parts.c.state == "made")
    .group_by(backfill_parts.c.partition)
)

_UPDATED_SINCE_QUERY = (
    select(blocks.c.partition).where(*_channel_block_conditions(False), blocks.c.hi > bindparam("number")).distinct()
)

_OLDEST_DATA_QUERY = (
    select(commits.c.at)
    .join(blocks, blocks.c.commit_id == commits.c.id)
    .where(*_channel_block_conditions(True), blocks.c.hi > bindparam("number"), blocks.c.origin != "drop")
    .order_by(blocks.c.hi)
    .limit(1)
)
