"""Life cycle of executions: begin with pins, lease, fail, resume, supersede, abort (R3, R4, R6)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import timedelta

from sqlalchemy import Connection, case, func, insert, select, update

from nova_assets.catalog.begin_decision import decide_begin
from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.definition_versions import version_number_of_fingerprint
from nova_assets.catalog.execution_rows import (
    conditions_of_held_execution,
    execution_from_row,
    executions_from_rows,
    in_progress_error,
    mark_aborted,
    not_live_error,
    read_execution_row,
    read_executions,
    storable_text,
)
from nova_assets.catalog.leases import delete_reader, is_live
from nova_assets.catalog.notification_outbox import notify_failed, notify_launched
from nova_assets.catalog.tables import executions, pins
from nova_assets.model.execution import BeginRequest, Execution, ExecutionState, Pin

FAILED_RETENTION = timedelta(days=1)
"""Time for which a failed execution keeps its pins and staged files, unless it is resumed or superseded (R4)."""


class Executions(CatalogPart):
    """Life cycle of executions up to their commit."""

    def begin(self, request: BeginRequest) -> Execution:
        """Open an execution: supersede a dead or failed one, and pin heads and cursors at one moment.

        Raises:
            ExecutionInProgress: another execution is live (R6).
            ChannelNotFound: a channel to pin is not registered.
            DefinitionRemoved: the binding or a channel to pin was removed.
            VersionNotFound: a requested version does not exist.
            PartitionError: the binding has cursors of the other kind (R13).
        """
        return self.database.write(lambda c: self._begin_in_transaction(c, request))

    def preview_pins(self, request: BeginRequest) -> tuple[Pin, ...]:
        """Pins that ``begin`` would take now. Changes nothing. Channels that are not registered yet count as empty.

        Raises:
            ExecutionInProgress, PartitionError: as ``begin``.
        """
        return self.database.read(lambda c: decide_begin(c, self.database, request, lock=False).pins)

    def get(self, execution_id: str) -> Execution:
        """Execution with an id. Raises ExecutionNotLive if it does not exist."""
        return self.database.read(lambda c: execution_from_row(c, read_execution_row(c, execution_id)))

    def find(
        self,
        binding: str | None = None,
        limit: int = 100,
        partition: str | None = None,
        *,
        run_id: str | None = None,
        state: ExecutionState | None = None,
        among_channels: Sequence[str] | None = None,
    ) -> list[Execution]:
        """Executions of bindings, latest first. Inserts are left out.

        Args:
            binding: only this binding.
            partition: only this partition of the binding.
            run_id: only executions of this Dagster run.
            state: only this state.
            among_channels: only executions that touch at least one of these channels, and no other channel.
        """
        query = select(executions).where(
            executions.c.binding.is_not(None) if binding is None else executions.c.binding == binding
        )
        if partition is not None:
            query = query.where(executions.c.partition == partition)
        if run_id is not None:
            query = query.where(executions.c.run_id == run_id)
        if state is not None:
            query = query.where(executions.c.state == state)
        if among_channels is not None:
            of_execution = pins.c.execution_id == executions.c.id
            others = select(pins.c.channel).where(of_execution, pins.c.channel.not_in(among_channels))
            query = query.where(select(pins.c.channel).where(of_execution).exists(), ~others.exists())
        query = query.order_by(executions.c.started_at.desc(), executions.c.id).limit(limit)
        return self.database.read(lambda c: executions_from_rows(c, c.execute(query).mappings().all()))

    def running(self) -> list[Execution]:
        """Running executions, oldest first."""
        return self.database.read(lambda c: read_executions(c, executions.c.state == "running"))

    def counts(self) -> dict[tuple[str, str, str], int]:
        """Total number of executions by (binding, partition, status). Never decreases.

        The status is ``launched``, ``succeeded`` or ``failed``.
        """
        query = select(
            executions.c.binding,
            executions.c.partition,
            func.count().label("launched"),
            func.sum(case((executions.c.state == "committed", 1), else_=0)).label("succeeded"),
            func.sum(executions.c.failures).label("failed"),
        )
        query = query.where(executions.c.binding.is_not(None)).group_by(executions.c.binding, executions.c.partition)
        rows = self.database.read(lambda c: c.execute(query).mappings().all())
        statuses = ("launched", "succeeded", "failed")
        return {(r["binding"], r["partition"], s): int(r[s] or 0) for r in rows for s in statuses}

    def renew_lease(self, execution_id: str, epoch: int, lease_seconds: float) -> bool:
        """Extend a lease.

        Returns:
            False if the execution is no longer held under this epoch.
        """

        def extend_lease(c: Connection) -> bool:
            lease_until = self.database.clock() + timedelta(seconds=lease_seconds)
            change = (
                update(executions)
                .where(*conditions_of_held_execution(execution_id, epoch))
                .values(lease_until=lease_until)
            )
            return bool(c.execute(change).rowcount == 1)

        return self.database.write(extend_lease)

    def resume(
        self,
        execution_id: str,
        owner: str,
        lease_seconds: float,
        *,
        run_id: str | None = None,
        dead_owners: Container[str] = (),
    ) -> Execution:
        """Take over a failed or lapsed execution under a new epoch (R4).

        Args:
            owner: the new owner.
            run_id: Dagster run that continues the execution, if it is another run.
            dead_owners: owners that are known to be dead; their leases are not awaited.

        Raises:
            ExecutionNotLive: it was superseded, aborted or committed.
            ExecutionInProgress: another owner holds its lease.
        """
        return self.database.write(
            lambda c: self._resume_in_transaction(c, execution_id, owner, lease_seconds, run_id, dead_owners)
        )

    def fail(self, execution_id: str, epoch: int, error: str, *, counts_as_failure: bool = True) -> None:
        """Mark an execution as failed. Its pins and staged files are kept for a while (R4).

        Args:
            counts_as_failure: count it as a failure of its binding, for cascade triggers. False if it is retried at
                once.
        """

        def mark_failed(c: Connection) -> None:
            now = self.database.clock()
            values = {
                "state": "failed",
                "error": storable_text(error),
                "lease_until": now + FAILED_RETENTION,
                "finished_at": now,
                # Not derived from the state: a failed execution that is resumed and then succeeds would take back a
                # count that a cascade trigger needs at the next failure.
                "failures": executions.c.failures + int(counts_as_failure),
            }
            held = conditions_of_held_execution(execution_id, epoch)
            if c.execute(update(executions).where(*held).values(**values)).rowcount and counts_as_failure:
                notify_failed(c, now, execution_id, error, only_if_running=False)

        self.database.write(mark_failed)

    def abort(
        self, execution_id: str, reason: str, epoch: int | None = None, *, counts_as_failure: bool = True
    ) -> None:
        """End an execution without a commit. An aborted execution stays unchanged.

        Args:
            epoch: abort only under this epoch; None for any.
            counts_as_failure: count the end of a running execution as a failure, for cascade triggers. False if it is
                planned again.

        Raises:
            ExecutionNotLive: it was committed, or is held under another epoch.
        """

        def abort_unless_ended(c: Connection) -> None:
            row = read_execution_row(c, execution_id, lock=True)
            if row["state"] == "committed" or (epoch is not None and row["epoch"] != epoch):
                raise not_live_error(row)
            if row["state"] != "aborted":
                mark_aborted(c, execution_id, reason, self.database, counts_as_failure=counts_as_failure)

        self.database.write(abort_unless_ended)

    def delete_reader(self, execution_id: str) -> None:
        """Delete the execution and the pins of a reader that has ended. Other executions stay unchanged."""
        self.database.write(lambda c: delete_reader(c, execution_id))

    def _begin_in_transaction(self, c: Connection, request: BeginRequest) -> Execution:
        decision = decide_begin(c, self.database, request, lock=True)
        for execution_id in decision.superseded_ids:
            mark_aborted(c, execution_id, f"superseded by {request.execution_id}", self.database)
        version = None
        if request.binding is not None and request.definition_fingerprint:
            version = version_number_of_fingerprint(c, request.binding, request.definition_fingerprint)
        now = self.database.clock()
        c.execute(
            insert(executions).values(
                id=request.execution_id,
                binding=request.binding,
                partition=request.partition,
                state="running",
                epoch=1,
                owner=request.owner,
                started_at=now,
                lease_until=now + timedelta(seconds=request.lease_seconds),
                run_id=request.run_id,
                firing_id=request.firing_id,
                purpose=request.purpose,
                version=version,
            )
        )
        rows = [
            {
                "execution_id": request.execution_id,
                "channel": pin.channel,
                "partition": pin.partition,
                "head": pin.head,
                "cursor": pin.cursor,
                "has_run": pin.has_run,
            }
            for pin in decision.pins
        ]
        if rows:
            c.execute(insert(pins), rows)
        row = read_execution_row(c, request.execution_id)
        notify_launched(c, now, row)
        return execution_from_row(c, row)

    def _resume_in_transaction(
        self,
        c: Connection,
        execution_id: str,
        owner: str,
        lease_seconds: float,
        run_id: str | None,
        dead_owners: Container[str],
    ) -> Execution:
        row = read_execution_row(c, execution_id, lock=True)
        now = self.database.clock()
        if is_live(row, now, dead_owners) and row["owner"] != owner:
            raise in_progress_error(row)
        if row["state"] not in ("running", "failed"):
            raise not_live_error(row)
        values = {
            "state": "running",
            "epoch": row["epoch"] + 1,
            "owner": owner,
            "lease_until": now + timedelta(seconds=lease_seconds),
            "run_id": run_id or row["run_id"],
        }
        c.execute(
            update(executions).where(executions.c.id == execution_id).values(finished_at=None, error=None, **values)
        )
        return execution_from_row(c, read_execution_row(c, execution_id))
