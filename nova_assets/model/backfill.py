"""Backfills: partitions that somebody wants to be made again, and how far that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

Priority: TypeAlias = Literal["low", "normal", "high"]

PRIORITIES: Mapping[Priority, int] = {"low": -1, "normal": 0, "high": 1}
"""Of what is ready, the higher is run first. What is missing, or stale, is of normal priority."""

PartState: TypeAlias = Literal["waiting", "made", "cancelled", "dropped"]


@dataclass(frozen=True, slots=True)
class Backfill:
    """What somebody wanted, when and why; and what has become of it.

    Args:
        id: its name.
        dataset: whose partitions were at fault.
        at: when it was asked for.
        by: who asked for it.
        downstream: the datasets that follow; what else is made of these partitions is left as it is.
        cancelled_at: None where nobody cancelled it.
        parts: state -> how many of its partitions are in it.
    """

    id: str
    dataset: str
    at: datetime
    by: str = ""
    why: str = ""
    priority: Priority = "low"
    downstream: tuple[str, ...] = ()
    cancelled_at: datetime | None = None
    parts: Mapping[PartState, int] = field(default_factory=dict)

    @property
    def state(self) -> Literal["running", "done", "cancelled"]:
        if self.cancelled_at is not None:
            return "cancelled"
        return "running" if self.parts.get("waiting") else "done"

    @property
    def size(self) -> int:
        """How many partitions it has."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class ExecutionCost:
    """What an execution cost.

    Args:
        seconds: that it took.
        rows, bytes: that it wrote.
    """

    seconds: float
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class BackfillPart:
    """A partition of a backfill.

    Args:
        state: ``waiting`` until it is made; ``dropped`` where the partition is gone.
        seq: the number at which it was made.
        execution_id: that made it.
    """

    dataset: str
    partition: str
    state: PartState = "waiting"
    ended_at: datetime | None = None
    seq: int | None = None
    execution_id: str | None = None
