"""Executions that only read: deleted when they end, or by maintenance if their process was killed (R15)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import Connection, delete, select

from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.leases import is_unended_with_lapsed_lease
from nova_assets.catalog.tables import executions, pins

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


def delete_dead_readers(database: Database, grace_seconds: float) -> int:
    """Delete the rows of readers that were killed, and of readers that older versions aborted.

    Args:
        grace_seconds: seconds after the end of its lease until a reader counts as killed.

    Returns:
        Number of deleted readers. They are deleted in transactions of bounded size.
    """
    has_lapsed = is_unended_with_lapsed_lease(database.clock() - timedelta(seconds=grace_seconds))
    has_ended = executions.c.state.in_(["aborted", "failed"])
    query = select(executions.c.id).where(_IS_READER, has_ended | has_lapsed).limit(_READERS_PER_TRANSACTION)

    def delete_batch(c: Connection) -> int:
        return _delete_executions(c, list(c.execute(query.with_for_update(skip_locked=True)).scalars()))

    if database.read(lambda c: c.execute(query.limit(1)).first()) is None:
        return 0
    deleted = 0
    for _ in range(_MAX_TRANSACTIONS):
        count = database.write(delete_batch)
        deleted += count
        if count < _READERS_PER_TRANSACTION:
            break
    return deleted


def _delete_executions(c: Connection, execution_ids: Sequence[str]) -> int:
    if execution_ids:
        c.execute(delete(pins).where(pins.c.execution_id.in_(execution_ids)))
        c.execute(delete(executions).where(executions.c.id.in_(execution_ids)))
    return len(execution_ids)
