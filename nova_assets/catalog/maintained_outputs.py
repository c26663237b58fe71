"""Outputs of maintained queries that have to be computed as a whole once, because their query has changed, or because
another writer has changed their rows. Such outputs are marked as for a backfill.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from nova_assets.catalog.scheduler_state import upsert_backfill_requests
from nova_assets.catalog.tables import bindings
from nova_assets.model.commit import CommitRequest
from nova_assets.model.partitions import WHOLE

_WITHOUT_EFFECT = frozenset({"file", "freshness"})
"""Parts of a query's definition on which its rows do not depend."""


def mark_redefined_outputs(c: Connection, binding: str, definition: Mapping[str, Any], now: datetime) -> None:
    """Mark the outputs of a binding if its new definition maintains them by another query than before.

    The transaction has not stored the new definition yet.
    """
    queries = _maintained_queries(definition)
    if not queries:
        return
    earlier = c.execute(select(bindings.c.definition).where(bindings.c.name == binding)).scalar()
    if earlier is None:
        return
    earlier_queries = _maintained_queries(earlier)
    for channel in (n for n, query in queries.items() if earlier_queries.get(n) != query):
        upsert_backfill_requests(c, channel, [WHOLE], "", "its query has changed", 0, now)


def mark_outputs_of_other_writers(c: Connection, request: CommitRequest, now: datetime) -> None:
    """Part of a commit: mark the channels of maintained datasets to which something other than their task writes."""
    written = {b.channel for b in request.added_blocks if b.takes_sequence_number} - {request.binding}
    if not written:
        return
    query = select(bindings.c.name, bindings.c.definition).where(bindings.c.name.in_(sorted(written)))
    for name, definition in c.execute(query).all():  # the binding of a dataset has the name of its channel
        if name in _maintained_queries(definition):
            upsert_backfill_requests(c, name, [WHOLE], "", "another writer has changed its rows", 0, now)


def _maintained_queries(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Output channel -> query by which it is maintained."""
    found = {}
    for task in definition["tasks"]:
        query = task.get("query", {})
        if query.get("refresh") == "incremental":
            for edge in task["produces"]:
                found[definition["channels"][edge["port"]]] = {
                    k: v for k, v in query.items() if k not in _WITHOUT_EFFECT
                }
    return found
