"""Backfills: requests to recompute partitions, and their progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

Priority: TypeAlias = Literal["low", "normal", "high"]

PRIORITIES: Mapping[Priority, int] = {"low": -1, "normal": 0, "high": 1}
"""Numeric priority. Among ready partitions, the highest runs first. Missing and stale partitions have normal
priority.
"""

BackfillPartitionState: TypeAlias = Literal["waiting", "made", "cancelled", "dropped"]


@dataclass(frozen=True, slots=True)
class Backfill:
    """Request to recompute partitions of a dataset, with its progress.

    Args:
        id: id of the backfill.
        dataset: dataset whose partitions were wrong.
        at: time of the request.
        by: who requested it.
        downstream: datasets that are recomputed too. Other datasets that depend on these partitions stay unchanged.
        cancelled_at: None if the backfill was not cancelled.
        partition_counts: state -> number of partitions in that state.
    """

    id: str
    dataset: str
    at: datetime
    by: str = ""
    why: str = ""
    priority: Priority = "low"
    downstream: tuple[str, ...] = ()
    cancelled_at: datetime | None = None
    partition_counts: Mapping[BackfillPartitionState, int] = field(default_factory=dict)

    @property
    def state(self) -> Literal["running", "done", "cancelled"]:
        if self.cancelled_at is not None:
            return "cancelled"
        return "running" if self.partition_counts.get("waiting") else "done"

    @property
    def partition_count(self) -> int:
        """Total number of partitions."""
        return sum(self.partition_counts.values())


@dataclass(frozen=True, slots=True)
class ExecutionCost:
    """Cost of an execution.

    Args:
        seconds: duration.
        rows, bytes: size of the output.
    """

    seconds: float
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class BackfillPartition:
    """One partition of a backfill.

    Args:
        state: ``waiting`` until it is recomputed; ``dropped`` if the partition no longer exists.
        seq: sequence number of the recomputed partition.
        execution_id: execution that recomputed it.
    """

    dataset: str
    partition: str
    state: BackfillPartitionState = "waiting"
    ended_at: datetime | None = None
    seq: int | None = None
    execution_id: str | None = None
