"""State of partitions for the scheduler: versions read, backfills, and failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class DirtyPartition:
    """A partition that is marked to be recomputed.

    Args:
        at: time of the mark.
        by: backfill or person that requested it.
        priority: higher values run first. Missing partitions have 0.
    """

    channel: str
    partition: str
    at: datetime
    by: str = ""
    why: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class MaterializedPartition:
    """An existing partition.

    Args:
        seq: newest sequence number that added data.
        read_versions: dataset or channel -> its sequence number when the producing task read it.
        last_non_backfill_seq: newest sequence number that added data other than by a backfill; None if equal to
            ``seq``. A backfill states itself which datasets follow.
    """

    seq: int
    read_versions: Mapping[str, int] = field(default_factory=dict)
    last_non_backfill_seq: int | None = None

    def has_data_after(self, version: int) -> bool:
        """Whether data was added after a sequence number."""
        return self.last_data_seq > version

    @property
    def last_data_seq(self) -> int:
        """Newest sequence number whose data counts as late data for readers of earlier versions."""
        return self.seq if self.last_non_backfill_seq is None else self.last_non_backfill_seq


@dataclass(frozen=True, slots=True)
class RunningTask:
    """Execution of a binding in one partition under a valid lease. Its owner may be dead.

    Args:
        owner: owner of the execution.
        lease_until: end of the lease, if the owner does not renew it.
    """

    owner: str
    lease_until: datetime
    execution_id: str

    def __str__(self) -> str:
        return f"its execution by {self.owner}, whose lease lasts until {self.lease_until:%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True, slots=True)
class TaskFailures:
    """Number of consecutive failures of a task, and the time of the last failure."""

    consecutive: int
    at: datetime


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
