"""JSON shapes of executions, cursors and firings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nova_assets.model.channel_state import Cursor
from nova_assets.model.execution import Execution, ExecutionState, Pin
from nova_assets.model.firing import Firing
from nova_assets.service.http.problems import redact_paths
from nova_assets.service.shapes.shape import Shape


class CursorShape(Shape):
    """Cursor of a binding: the position up to which it has read a channel."""

    binding: str
    channel: str
    seq: int
    head: int
    lag: int
    partition: str
    channel_partition: str
    moved_at: datetime | None

    @staticmethod
    def from_cursor(cursor: Cursor) -> CursorShape:
        return CursorShape(
            binding=cursor.binding,
            channel=cursor.channel,
            seq=cursor.seq,
            head=cursor.head,
            lag=cursor.lag,
            partition=cursor.partition,
            channel_partition=cursor.channel_partition,
            moved_at=cursor.moved_at,
        )

    def to_cursor(self) -> Cursor:
        partitions = (self.partition, self.channel_partition)
        skipped = self.head - self.seq - self.lag
        return Cursor(self.binding, self.channel, self.seq, self.head, *partitions, self.moved_at, skipped)


class PinShape(Shape):
    """Pin of an execution on a channel."""

    channel: str
    head: int
    cursor: int | None
    partition: str
    has_run: bool = False


class ExecutionShape(Shape):
    """An execution. ``purpose`` is the kind of change for an execution without a binding."""

    id: str
    binding: str | None
    partition: str
    state: ExecutionState
    purpose: str
    epoch: int
    pins: list[PinShape]
    started_at: datetime
    lease_until: datetime
    finished_at: datetime | None
    error: str | None
    commit: str | None
    run_id: str | None
    firing: str | None
    version: int | None = None

    @staticmethod
    def from_execution(execution: Execution) -> ExecutionShape:
        pins = [
            PinShape(channel=p.channel, head=p.head, cursor=p.cursor, partition=p.partition, has_run=p.has_run)
            for p in execution.pins.values()
        ]
        return ExecutionShape(
            id=execution.id,
            binding=execution.binding,
            partition=execution.partition,
            state=execution.state,
            purpose=execution.purpose,
            epoch=execution.epoch,
            pins=sorted(pins, key=lambda p: p.channel),
            started_at=execution.started_at,
            lease_until=execution.lease_until,
            finished_at=execution.finished_at,
            error=None if execution.error is None else redact_paths(execution.error),
            commit=execution.commit_id,
            run_id=execution.run_id,
            firing=execution.firing_id,
            version=execution.version,
        )

    def to_execution(self) -> Execution:
        return Execution(
            self.id,
            self.binding,
            self.partition,
            self.state,
            self.epoch,
            {p.channel: Pin(p.channel, p.head, p.cursor, p.partition, p.has_run) for p in self.pins},
            "",
            self.started_at,
            self.lease_until,
            self.finished_at,
            self.error,
            self.commit,
            self.run_id,
            self.firing,
            self.purpose,
            self.version,
        )


class PendingShape(Shape):
    """Executions in progress that will change a channel, with compactions listed separately."""

    channel: str
    compactions: list[ExecutionShape]
    executions: list[ExecutionShape]


class FiringShape(Shape):
    """A firing of a trigger."""

    id: str
    binding: str
    partition: str
    n: int
    attempt: int
    state: str
    at: datetime
    why: str
    positions: dict[str, Any]

    @staticmethod
    def from_firing(firing: Firing) -> FiringShape:
        return FiringShape(
            id=firing.id,
            binding=firing.binding,
            partition=firing.partition,
            n=firing.n,
            attempt=firing.attempt,
            state=firing.state,
            at=firing.at,
            why=firing.why,
            positions=dict(firing.positions),
        )

    def to_firing(self) -> Firing:
        return Firing(
            self.id, self.binding, self.n, self.positions, self.attempt, self.state, self.at, self.partition, self.why
        )
