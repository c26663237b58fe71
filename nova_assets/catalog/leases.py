"""Leases: which executions are live, which ones others may supersede, and which ones have lapsed (R4, R6).

``Execution.has_valid_lease`` is the same rule for an execution that was loaded.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, delete, select

from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.execution_rows import in_progress_error, mark_aborted
from nova_assets.catalog.tables import executions, pins


def is_live(row: RowMapping, now: datetime, dead_owners: Container[str] = ()) -> bool:
    """Whether an execution runs under a valid lease, and its owner is not known to be dead."""
    return row["state"] == "running" and row["lease_until"] >= now and row["owner"] not in dead_owners


def live_condition(now: datetime) -> ColumnElement[bool]:
    """Condition for executions that run under a valid lease."""
    return (executions.c.state == "running") & (executions.c.lease_until >= now)


def is_unended_with_lapsed_lease(lease_ended_before: datetime) -> ColumnElement[bool]:
    """Condition for executions that have not ended, and whose lease ended before a time.

    The lease of a failed execution is the time for which it can be resumed.
    """
    return executions.c.state.in_(["running", "failed"]) & (executions.c.lease_until < lease_ended_before)


def supersedable_executions(
    c: Connection,
    database: Database,
    condition: ColumnElement[bool],
    dead_owners: Container[str] = (),
    *,
    lock: bool,
) -> tuple[str, ...]:
    """Ids of the executions with a condition that have failed, lapsed or lost their owner (R4).

    Args:
        dead_owners: owners that are known to be dead; their leases are not awaited.
        lock: lock the executions until the transaction ends.

    Raises:
        ExecutionInProgress: one of the executions is live.
    """
    query = select(executions).where(condition, executions.c.state.in_(["running", "failed"]))
    rows = c.execute(query.with_for_update() if lock else query).mappings().all()
    for row in rows:
        if is_live(row, database.clock(), dead_owners):
            raise in_progress_error(row)
    return tuple(row["id"] for row in rows)


def abort_lapsed_executions(c: Connection, database: Database, lease_ended_before: datetime) -> None:
    """Abort every execution that has not ended, and whose lease ended before a time."""
    query = select(executions.c.id).where(is_unended_with_lapsed_lease(lease_ended_before))
    for execution_id in list(c.execute(query.with_for_update(skip_locked=True)).scalars()):
        mark_aborted(c, execution_id, "its lease ran out", database)


_READERS_PER_TRANSACTION = 500
"""Number of readers deleted in one transaction."""

_MAX_TRANSACTIONS = 20
"""Maximum number of transactions in one call. The next call continues."""

_IS_READER = executions.c.binding.is_(None) & (executions.c.purpose == "read")
"""Executions that hold pins for a reader. Named consumers keep their executions, since these move cursors."""


def delete_reader(c: Connection, execution_id: str) -> None:
    """Delete the execution and the pins of a reader that has ended. Other executions stay unchanged."""
    query = select(executions.c.id).where(_IS_READER, executions.c.id == execution_id)
    _delete_executions(c, list(c.execute(query).scalars()))


def lapsed_or_failed_readers(now: datetime, grace_seconds: float) -> Select[str]:
    """Query for a batch of readers that were killed, or that older versions aborted.

    Args:
        grace_seconds: seconds after the end of its lease until a reader counts as killed.
    """
    has_lapsed = is_unended_with_lapsed_lease(now - timedelta(seconds=grace_seconds))
    has_ended = executions.c.state.in_(["aborted", "failed"])
    return select(executions.c.id).where(_IS_READER, has_ended | has_lapsed).limit(_READERS_PER_TRANSACTION)


def delete_dead_readers(database: Database, readers: Select[str]) -> None:
    """Delete the rows of dead readers, in transactions of bounded size.

    Args:
        readers: query of ``lapsed_or_failed_readers``.
    """

    def delete_batch(c: Connection) -> int:
        return _delete_executions(c, list(c.execute(readers.with_for_update(skip_locked=True)).scalars()))

    for _ in range(_MAX_TRANSACTIONS):
        if database.write(delete_batch) < _READERS_PER_TRANSACTION:
            break


def _delete_executions(c: Connection, execution_ids: Sequence[str]) -> int:
    if execution_ids:
        c.execute(delete(pins).where(pins.c.execution_id.in_(execution_ids)))
        c.execute(delete(executions).where(executions.c.id.in_(execution_ids)))
    return len(execution_ids)
