"""Executions that only read: deleted when they end, or by maintenance if their process was killed (R15)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, Select, delete, select

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


def dead_readers(now: datetime, grace_seconds: float) -> Select[str]:
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
        readers: query of ``dead_readers``.
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
