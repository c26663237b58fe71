"""Executions, cursors and firings, as the service tells of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nova_assets.model.channel_state import Cursor
from nova_assets.model.execution import Execution, Pin, State
from nova_assets.model.firing import Firing
from nova_assets.service.http.problems import without_paths
from nova_assets.service.shapes.shape import Shape


class CursorShape(Shape):
    """How far a binding has read a channel."""

    binding: str
    channel: str
    seq: int
    head: int
    lag: int
    partition: str
    channel_partition: str
    moved_at: datetime | None

    @staticmethod
    def of(c: Cursor) -> CursorShape:
        return CursorShape(
            binding=c.binding,
            channel=c.channel,
            seq=c.seq,
            head=c.head,
            lag=c.lag,
            partition=c.partition,
            channel_partition=c.channel_partition,
            moved_at=c.moved_at,
        )

    def back(self) -> Cursor:
        where = (self.partition, self.channel_partition)
        return Cursor(self.binding, self.channel, self.seq, self.head, *where, self.moved_at)


class PinShape(Shape):
    """What an execution reads of a channel."""

    channel: str
    head: int
    cursor: int | None
    partition: str
    has_run: bool = False


class ExecutionShape(Shape):
    """An execution; ``purpose`` is what it does to a channel, where it does not execute a binding."""

    id: str
    binding: str | None
    partition: str
    state: State
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

    @staticmethod
    def of(e: Execution) -> ExecutionShape:
        pins = [
            PinShape(channel=p.channel, head=p.head, cursor=p.cursor, partition=p.partition, has_run=p.has_run)
            for p in e.pins.values()
        ]
        return ExecutionShape(
            id=e.id,
            binding=e.binding,
            partition=e.partition,
            state=e.state,
            purpose=e.purpose,
            epoch=e.epoch,
            pins=sorted(pins, key=lambda p: p.channel),
            started_at=e.started_at,
            lease_until=e.lease_until,
            finished_at=e.finished_at,
            error=None if e.error is None else without_paths(e.error),
            commit=e.commit_id,
            run_id=e.run_id,
            firing=e.firing_id,
        )

    def back(self) -> Execution:
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
        )


class PendingShape(Shape):
    """What is under way on a channel: compactions apart from whatever else will change it."""

    channel: str
    compactions: list[ExecutionShape]
    executions: list[ExecutionShape]


class FiringShape(Shape):
    """A trigger that has fired."""

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
    def of(f: Firing) -> FiringShape:
        return FiringShape(
            id=f.id,
            binding=f.binding,
            partition=f.partition,
            n=f.n,
            attempt=f.attempt,
            state=f.state,
            at=f.at,
            why=f.why,
            positions=dict(f.positions),
        )

    def back(self) -> Firing:
        return Firing(
            self.id, self.binding, self.n, self.positions, self.attempt, self.state, self.at, self.partition, self.why
        )
