"""Leases: which executions are live, which ones others may supersede, and which ones have lapsed (R4, R6).

``Execution.has_valid_lease`` is the same rule for an execution that was loaded.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, RowMapping, select

from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.execution_rows import in_progress_error, mark_aborted
from nova_assets.catalog.tables import executions


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
