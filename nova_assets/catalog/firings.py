"""Outbox of triggers: a firing is recorded before its run is requested. Also what else triggers are decided from."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update
from sqlalchemy.exc import IntegrityError

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import query_as_dict
from nova_assets.catalog.leases import live_condition
from nova_assets.catalog.notification_outbox import notify_abandoned
from nova_assets.catalog.tables import bindings, channels, executions, firings
from nova_assets.model.execution import Firing, FiringRun, FiringRunState
from nova_assets.model.partitions import WHOLE
from nova_assets.model.scheduler_state import RunningTask


class Firings(CatalogPart):
    """Firings of bindings, numbered from 1 and added by compare-and-set."""

    def get(self, firing_id: str) -> Firing | None:
        """Firing with an id; None if it does not exist."""
        query = select(firings).where(firings.c.id == firing_id)
        row = self.database.read(lambda c: c.execute(query).mappings().first())
        return None if row is None else _firing_from_row(row)

    def find(
        self, binding: str | None = None, limit: int = 100, *, among_bindings: Sequence[str] | None = None
    ) -> list[Firing]:
        """Firings, latest first.

        Args:
            binding: only firings of this binding.
            among_bindings: only firings of these bindings.
        """
        query = select(firings).order_by(firings.c.at.desc(), firings.c.id).limit(limit)
        if binding is not None:
            query = query.where(firings.c.binding == binding)
        if among_bindings is not None:
            query = query.where(firings.c.binding.in_(among_bindings))
        return [_firing_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def last(self, binding: str, partition: str = WHOLE) -> Firing | None:
        """Latest firing of a binding, in one of its partitions."""
        return self.database.read(lambda c: _latest_firing(c, binding, partition))

    def executions_of(self, firing: Firing) -> tuple[FiringRun, ...]:
        """Executions that a firing has requested."""
        query = select(executions).where(
            executions.c.binding == firing.binding,
            executions.c.partition == firing.partition,
            executions.c.firing_id == firing.id,
        )
        return tuple(_firing_run_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all()))

    def running_partition(self, binding: str, partition: str) -> RunningTask | None:
        """Execution of a binding in a partition under a valid lease; None if there is none."""
        query = select(executions.c.owner, executions.c.lease_until, executions.c.id).where(
            executions.c.binding == binding,
            executions.c.partition == partition,
            live_condition(self.database.clock()),
        )
        row = self.database.read(lambda c: c.execute(query).first())
        return None if row is None else RunningTask(*row)

    def registered_at(self, binding: str) -> datetime | None:
        """Registration time of a binding, from which its schedules count. None if it is not registered."""
        query = select(bindings.c.registered_at).where(bindings.c.name == binding)
        return self.database.read(lambda c: c.execute(query).scalar())

    def data_heads(self, channel_names: Collection[str]) -> dict[str, int]:
        """Newest sequence number that added data, of each of these channels. A dropped partition adds none (R19)."""
        query = select(channels.c.name, channels.c.news).where(channels.c.name.in_(sorted(channel_names)))
        return self.database.read(lambda c: query_as_dict(c, query))

    def partitions_with_open_firing(self, binding: str) -> frozenset[str]:
        """Partitions of a binding with a firing that has not ended."""
        query = select(firings.c.partition).where(firings.c.binding == binding, firings.c.state == "requested")
        return frozenset(self.database.read(lambda c: c.execute(query).scalars().all()))

    def record(
        self, binding: str, after_n: int, positions: Mapping[str, Any], partition: str = WHOLE, why: str = ""
    ) -> Firing | None:
        """Record the firing after number ``after_n``.

        Args:
            positions: trigger leaf -> position up to which it has fired.

        Returns:
            None if another process recorded it first, or if the previous firing has not ended.
        """

        def insert_firing(c: Connection) -> Firing | None:
            last = _latest_firing(c, binding, partition)
            if (last.n if last is not None else 0) != after_n or (last is not None and last.state == "requested"):
                return None
            values = {
                "binding": binding,
                "partition": partition,
                "n": after_n + 1,
                "positions": dict(positions),
                "attempt": 1,
                "state": "requested",
                "why": why,
            }
            c.execute(insert(firings).values(id=uuid.uuid4().hex, at=self.database.clock(), **values))
            return _latest_firing(c, binding, partition)

        try:
            return self.database.write(lambda c: _raise_if_raced(insert_firing, c))
        except _ConcurrentFiring:
            return None

    def retry(self, firing_id: str, attempt: int) -> Firing | None:
        """Start the next attempt of a firing after attempt ``attempt`` failed.

        Returns:
            None if another process did so first, or if the firing has ended.
        """

        def increment_attempt(c: Connection) -> Firing | None:
            conditions = (firings.c.id == firing_id, firings.c.attempt == attempt, firings.c.state == "requested")
            if not c.execute(update(firings).where(*conditions).values(attempt=attempt + 1)).rowcount:
                return None
            return _firing_from_row(c.execute(select(firings).where(firings.c.id == firing_id)).mappings().one())

        return self.database.write(increment_attempt)

    def end(self, firing_id: str, state: str, why: str = "") -> None:
        """Mark a firing as committed or abandoned. A firing that has ended stays unchanged."""
        conditions = (firings.c.id == firing_id, firings.c.state == "requested")
        values = {"state": state, **({"why": why} if why else {})}

        def end(c: Connection) -> None:
            ended = c.execute(update(firings).where(*conditions).values(**values)).rowcount
            if ended and state == "abandoned":
                row = c.execute(select(firings).where(firings.c.id == firing_id)).mappings().one()
                notify_abandoned(c, self.database.clock(), _firing_from_row(row))

        self.database.write(end)


class _ConcurrentFiring(Exception):
    """Another process has recorded the same firing."""


def _raise_if_raced(callback: Any, c: Connection) -> Firing | None:
    try:
        firing: Firing | None = callback(c)
        return firing
    except IntegrityError as error:
        raise _ConcurrentFiring from error


def _latest_firing(c: Connection, binding: str, partition: str) -> Firing | None:
    query = select(firings).where(firings.c.binding == binding, firings.c.partition == partition)
    row = c.execute(query.order_by(firings.c.n.desc()).limit(1)).mappings().first()
    return None if row is None else _firing_from_row(row)


def _firing_from_row(row: RowMapping) -> Firing:
    return Firing(
        row["id"],
        row["binding"],
        row["n"],
        row["positions"],
        row["attempt"],
        row["state"],
        row["at"],
        row["partition"],
        row["why"] or "",
    )


def _firing_run_from_row(row: RowMapping) -> FiringRun:
    state: FiringRunState = "failed" if row["state"] in ("failed", "aborted") else "open"
    ended_at = row["finished_at"] or row["started_at"]
    return FiringRun("execution", row["id"], state, ended_at, row["failures"], row["run_id"])
