"""Life cycle of executions: begin with pins, lease, fail, resume, supersede, abort (R3, R4, R6)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, case, func, insert, select, update

from nova_assets.catalog.database import Database, query_as_dict
from nova_assets.catalog.definitions import Definitions
from nova_assets.catalog.execution_rows import (
    delete_skip_markers,
    execution_from_row,
    execution_row,
    executions_from_rows,
    held_by_epoch_conditions,
    in_progress_error,
    not_live_error,
    read_executions,
    storable_text,
)
from nova_assets.catalog.tables import bindings, channels, cursors, executions, pins
from nova_assets.errors import PartitionError, VersionNotFound
from nova_assets.model.execution import BeginRequest, Execution, ExecutionState, Pin

FAILED_RETENTION = timedelta(days=1)
"""Time for which a failed execution keeps its pins and staged files, unless it is resumed or superseded (R4)."""


@dataclass(frozen=True, slots=True)
class _BeginDecision:
    """Rows that ``begin`` writes after all checks.

    Args:
        superseded_ids: executions to abort.
        pins: pins of the new execution.
    """

    superseded_ids: tuple[str, ...]
    pins: tuple[Pin, ...]


class Executions:
    """Life cycle of executions up to their commit."""

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self.database = database
        self.definitions = definitions

    def begin(self, request: BeginRequest) -> Execution:
        """Open an execution: supersede a dead or failed one, and pin heads and cursors at one moment.

        Raises:
            ExecutionInProgress: another execution is live (R6).
            ChannelNotFound: a channel to pin is not registered.
            VersionNotFound: a requested version does not exist.
            PartitionError: the binding has cursors of the other kind (R13).
        """
        return self.database.write(lambda c: self._begin_in_transaction(c, request))

    def preview_pins(self, request: BeginRequest) -> tuple[Pin, ...]:
        """Pins that ``begin`` would take now. Changes nothing. Channels that are not registered yet count as empty.

        Raises:
            ExecutionInProgress, PartitionError: as ``begin``.
        """
        return self.database.read(lambda c: self._check_begin(c, request, lock=False).pins)

    def execution(self, execution_id: str) -> Execution:
        """Execution with an id. Raises ExecutionNotLive if it does not exist."""
        return self.database.read(lambda c: execution_from_row(c, execution_row(c, execution_id)))

    def executions(
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

    def running_executions(self) -> list[Execution]:
        """Running executions, oldest first."""
        return self.database.read(lambda c: read_executions(c, executions.c.state == "running"))

    def execution_counts(self) -> dict[tuple[str, str, str], int]:
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

    def renew(self, execution_id: str, epoch: int, lease_seconds: float) -> bool:
        """Extend a lease.

        Returns:
            False if the execution is no longer held under this epoch.
        """

        def extend_lease(c: Connection) -> bool:
            lease_until = self.database.clock() + timedelta(seconds=lease_seconds)
            change = (
                update(executions).where(*held_by_epoch_conditions(execution_id, epoch)).values(lease_until=lease_until)
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
                "failures": executions.c.failures + int(counts_as_failure),
            }
            c.execute(update(executions).where(*held_by_epoch_conditions(execution_id, epoch)).values(**values))

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
            row = execution_row(c, execution_id, lock=True)
            if row["state"] == "committed" or (epoch is not None and row["epoch"] != epoch):
                raise not_live_error(row)
            if row["state"] != "aborted":
                mark_aborted(c, execution_id, reason, self.database, counts_as_failure=counts_as_failure)

        self.database.write(abort_unless_ended)

    def abort_expired_executions(self, c: Connection, grace_period: timedelta) -> None:
        """Abort every execution whose lease ended longer ago than the grace period."""
        expired_before = self.database.clock() - grace_period
        query = select(executions.c.id).where(
            executions.c.state.in_(["running", "failed"]), executions.c.lease_until < expired_before
        )
        for execution_id in list(c.execute(query.with_for_update(skip_locked=True)).scalars()):
            mark_aborted(c, execution_id, "its lease ran out", self.database)

    def _begin_in_transaction(self, c: Connection, request: BeginRequest) -> Execution:
        decision = self._check_begin(c, request, lock=True)
        for execution_id in decision.superseded_ids:
            mark_aborted(c, execution_id, f"superseded by {request.execution_id}", self.database)
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
                lease_until=now + timedelta(seconds=request.lease),
                run_id=request.run_id,
                firing_id=request.firing_id,
                purpose=request.purpose,
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
        return execution_from_row(c, execution_row(c, request.execution_id))

    def _check_begin(self, c: Connection, request: BeginRequest, lock: bool) -> _BeginDecision:
        """Run all checks of ``begin``, and determine what it would write. ``preview_pins`` calls this without locks."""
        superseded_ids = () if request.binding is None else self._supersedable_by_begin(c, request, lock)
        heads = self._heads_to_pin(c, request, lock)
        cursor_positions = self._cursor_positions(c, request)
        if request.binding is not None and request.cursor_channels:
            _check_one_cursor_kind(c, request)
        return _BeginDecision(
            superseded_ids,
            tuple(
                Pin(
                    name,
                    head,
                    cursor_positions.get(name, 0)
                    if name in request.cursor_channels
                    else request.changes_after_by_channel.get(name),
                    request.scope_by_channel.get(name, ""),
                    has_run=name in request.cursor_channels and name in cursor_positions,
                )
                for name, head in heads.items()
            ),
        )

    def supersedable_executions(self, c: Connection, binding: str) -> tuple[str, ...]:
        """Executions of all partitions of a binding that can be superseded.

        They are locked for the rest of the transaction.

        Raises:
            ExecutionInProgress: one of them is live.
        """
        return self._supersedable_ids(c, executions.c.binding == binding, lock=True)

    def _supersedable_by_begin(self, c: Connection, request: BeginRequest, lock: bool) -> tuple[str, ...]:
        """Executions that a begin supersedes: failed, lapsed or dead (R4).

        With ``lock``, only one begin of a binding runs at a time.
        """
        if lock:
            c.execute(select(bindings.c.name).where(bindings.c.name == request.binding).with_for_update())
        is_same_partition = (executions.c.binding == request.binding) & (executions.c.partition == request.partition)
        return self._supersedable_ids(c, is_same_partition, lock, request.dead)

    def _supersedable_ids(
        self, c: Connection, condition: Any, lock: bool, dead_owners: Container[str] = ()
    ) -> tuple[str, ...]:
        query = select(executions).where(condition, executions.c.state.in_(["running", "failed"]))
        rows = c.execute(query.with_for_update() if lock else query).mappings().all()
        for row in rows:
            is_dead = row["owner"] in dead_owners or row["lease_until"] < self.database.clock()
            if row["state"] == "running" and not is_dead:
                raise in_progress_error(row)
        return tuple(row["id"] for row in rows)

    def _heads_to_pin(self, c: Connection, request: BeginRequest, lock: bool) -> dict[str, int]:
        """Heads of all channels to pin, at one moment. The locks wait for running commits and delay later ones (R2)."""
        channel_names = sorted(set(request.pinned_channels) | set(request.cursor_channels))
        query = (
            select(channels.c.name, channels.c.head).where(channels.c.name.in_(channel_names)).order_by(channels.c.name)
        )
        heads = (
            query_as_dict(c, query.with_for_update(read=True))
            if lock
            else dict.fromkeys(channel_names, 0) | query_as_dict(c, query)
        )
        for name in channel_names:
            if name not in heads:
                raise self.definitions.channel_not_found_error(name)
        for name, number in (*request.pinned_version_by_channel.items(), *request.changes_after_by_channel.items()):
            if not 0 <= number <= heads[name]:
                raise VersionNotFound.of(name, number, heads[name])
        return {**heads, **request.pinned_version_by_channel}

    def _cursor_positions(self, c: Connection, request: BeginRequest) -> dict[str, int]:
        query = select(cursors.c.channel, cursors.c.channel_partition, cursors.c.seq).where(
            cursors.c.binding == (request.binding or ""), cursors.c.partition == request.partition
        )
        rows = c.execute(query).all()
        return {name: seq for name, scope, seq in rows if scope == request.scope_by_channel.get(name, "")}

    def _resume_in_transaction(
        self,
        c: Connection,
        execution_id: str,
        owner: str,
        lease_seconds: float,
        run_id: str | None,
        dead_owners: Container[str],
    ) -> Execution:
        row = execution_row(c, execution_id, lock=True)
        now = self.database.clock()
        is_leased = row["lease_until"] >= now and row["owner"] not in dead_owners
        if row["state"] == "running" and is_leased and row["owner"] != owner:
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
        return execution_from_row(c, execution_row(c, execution_id))


def partition_of_conflicting_cursor(c: Connection, binding: str, partition: str) -> str | None:
    """Partition of a cursor of the other kind: unpartitioned, if this execution is partitioned, or the reverse (R13).

    Returns:
        None if there is no such cursor.
    """
    is_unpartitioned = cursors.c.partition == ""
    query = select(cursors.c.partition).join(bindings, bindings.c.name == cursors.c.binding)
    query = query.where(
        cursors.c.binding == binding, cursors.c.seq > 0, ~is_unpartitioned if partition == "" else is_unpartitioned
    )
    other_partition: str | None = c.execute(query.limit(1)).scalar()
    return other_partition


def _check_one_cursor_kind(c: Connection, request: BeginRequest) -> None:
    """Check that a binding always runs either unpartitioned or per partition. Otherwise it would read rows twice (R13).

    Raises:
        PartitionError: the binding has cursors of the other kind.
    """
    other_partition = partition_of_conflicting_cursor(c, request.binding or "", request.partition)
    if other_partition is None:
        return
    before = f"for single partitions (such as {other_partition})" if other_partition else "whole"
    now = "whole" if other_partition else f"for {request.partition} alone"
    target_kind, options = ("whole", "--partition, or --missing") if other_partition else ("partitions", "--whole")
    raise PartitionError(
        f"binding {request.binding!r} has been executed {before}, and would read the same again {now}",
        found=f"cursors of executions {before}",
        expected="executions of one kind: each keeps cursors of its own (R13)",
        next=f"go on as before: nova run {request.binding} with {options}; or switch its cursors, which loses and "
        f"repeats no rows: nova switch {request.binding} --to {target_kind}",
        binding=request.binding,
    )


def mark_aborted(
    c: Connection, execution_id: str, reason: str, database: Database, counts_as_failure: bool = True
) -> None:
    """Mark an execution as aborted, inside a transaction that holds its row.

    Aborting a running execution counts as a failure. An execution that had failed before was counted then.
    """
    failure_increment = case((executions.c.state == "running", int(counts_as_failure)), else_=0)
    values = {
        "state": "aborted",
        "error": storable_text(reason),
        "finished_at": database.clock(),
        "failures": executions.c.failures + failure_increment,
    }
    c.execute(update(executions).where(executions.c.id == execution_id).values(**values))
    delete_skip_markers(c, execution_id)
