"""Backfills: requests to recompute partitions, and the result for each partition. Records are never deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Connection, and_, func, insert, select, update

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.scheduler_state import upsert_backfill_requests, withdraw_backfill
from nova_assets.catalog.tables import backfill_parts, backfills, blocks, executions
from nova_assets.model.scheduler_state import (
    PRIORITIES,
    Backfill,
    BackfillPartition,
    BackfillPartitionState,
    ExecutionCost,
)
from nova_assets.nova_error import NovaError

_PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}


class Backfills(CatalogPart):
    """Records backfills and their progress."""

    def start(self, request: Backfill, dataset_partitions: Sequence[tuple[str, str]]) -> Backfill:
        """Record a backfill, and mark its partitions to be recomputed.

        Args:
            dataset_partitions: (dataset, partition), in the order in which they are recomputed.
        """
        now = self.database.clock()

        def insert_backfill(c: Connection) -> None:
            values = {"id": request.id, "dataset": request.dataset, "at": now, "by": request.by, "why": request.why}
            more_values = {"priority": PRIORITIES[request.priority], "downstream": list(request.downstream)}
            c.execute(insert(backfills).values(**values, **more_values))
            rows = [
                {"backfill": request.id, "n": n, "channel": d, "partition": p, "state": "waiting"}
                for n, (d, p) in enumerate(dataset_partitions)
            ]
            c.execute(insert(backfill_parts), rows)
            partitions_by_dataset: dict[str, list[str]] = {}
            for dataset, partition in dataset_partitions:
                partitions_by_dataset.setdefault(dataset, []).append(partition)
            for dataset, partitions in sorted(partitions_by_dataset.items()):  # in lock order
                upsert_backfill_requests(
                    c, dataset, partitions, request.id, request.why, PRIORITIES[request.priority], now
                )

        self.database.write(insert_backfill)
        return self.get(request.id)

    def get(self, backfill_id: str) -> Backfill:
        """Backfill with an id. Raises NovaError if it does not exist."""
        matches = self.database.read(lambda c: _read_backfills(c, [backfills.c.id == backfill_id], 1))
        if not matches:
            raise NovaError(f"there is no backfill {backfill_id!r}", next="nova backfills", backfill=backfill_id)
        return matches[0]

    def find(self, limit: int = 100) -> list[Backfill]:
        """Latest backfills, newest first."""
        return self.database.read(lambda c: _read_backfills(c, [], limit))

    def parts(self, backfill_id: str) -> list[BackfillPartition]:
        """Partitions of a backfill, in the order in which they are recomputed."""
        query = select(backfill_parts).where(backfill_parts.c.backfill == backfill_id).order_by(backfill_parts.c.n)
        rows = self.database.read(lambda c: c.execute(query).mappings().all())
        return [
            BackfillPartition(r["channel"], r["partition"], r["state"], r["ended_at"], r["seq"], r["execution_id"])
            for r in rows
        ]

    def cancel(self, backfill_id: str) -> int:
        """Cancel a backfill: remove the marks of the partitions that are not recomputed yet.

        Returns:
            Number of partitions that stay as they are.

        Raises:
            NovaError: the backfill does not exist.
        """
        now = self.database.clock()

        def cancel(c: Connection) -> int:
            cancelled_count = withdraw_backfill(c, backfill_id, now)
            if cancelled_count:
                c.execute(update(backfills).where(backfills.c.id == backfill_id).values(cancelled_at=now))
            return cancelled_count

        self.get(backfill_id)
        return self.database.write(cancel)

    def last_execution_costs(self, bindings: Iterable[str]) -> dict[tuple[str, str], ExecutionCost]:
        """Cost of the latest successful execution, by (binding, partition)."""
        names = list(bindings)
        latest = (
            select(executions.c.binding, executions.c.partition, func.max(executions.c.started_at).label("started_at"))
            .where(executions.c.binding.in_(names), executions.c.state == "committed")
            .group_by(executions.c.binding, executions.c.partition)
            .subquery()
        )
        is_latest = [executions.c[n] == latest.c[n] for n in ("binding", "partition", "started_at")]
        times = (executions.c.started_at, executions.c.finished_at)
        written = (func.coalesce(func.sum(blocks.c.rows), 0), func.coalesce(func.sum(blocks.c.bytes), 0))
        query = (
            select(executions.c.binding, executions.c.partition, *times, *written)
            .join(latest, and_(*is_latest))
            .outerjoin(blocks, blocks.c.commit_id == executions.c.commit_id)
            .where(executions.c.finished_at.is_not(None))
            .group_by(executions.c.binding, executions.c.partition, *times)
        )
        rows = self.database.read(lambda c: c.execute(query).all())
        return {(b, p): ExecutionCost((end - begin).total_seconds(), int(r), int(n)) for b, p, begin, end, r, n in rows}


def _read_backfills(c: Connection, conditions: Sequence[Any], limit: int) -> list[Backfill]:
    query = select(backfills).where(*conditions).order_by(backfills.c.at.desc(), backfills.c.id).limit(limit)
    rows = c.execute(query).mappings().all()
    counts: dict[str, dict[BackfillPartitionState, int]] = {}
    of_backfills = backfill_parts.c.backfill.in_([r["id"] for r in rows])
    counts_query = select(backfill_parts.c.backfill, backfill_parts.c.state, func.count()).where(of_backfills)
    for name, state, n in c.execute(counts_query.group_by(backfill_parts.c.backfill, backfill_parts.c.state)):
        counts.setdefault(name, {})[cast(BackfillPartitionState, state)] = n
    return [_backfill_from_row(r, counts.get(r["id"], {})) for r in rows]


def _backfill_from_row(row: Mapping[Any, Any], part_counts: Mapping[BackfillPartitionState, int]) -> Backfill:
    return Backfill(
        row["id"],
        row["dataset"],
        row["at"],
        row["by"],
        row["why"],
        _PRIORITY_NAMES[row["priority"]],
        tuple(row["downstream"]),
        row["cancelled_at"],
        part_counts,
    )
