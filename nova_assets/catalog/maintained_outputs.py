"""Outputs of maintained queries that have to be computed as a whole once, because their query has changed, or because
another writer has changed their rows. Such outputs are marked as for a backfill.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from nova_assets.catalog.scheduler_state import upsert_backfill_requests
from nova_assets.catalog.tables import bindings
from nova_assets.model.commit import CommitRequest
from nova_assets.model.partitions import WHOLE

_UNPARTITIONED, _PARTITIONED = "incremental", "incremental by partition"
"""How the definition of a maintained dataset says that it is maintained."""


def mark_redefined_outputs(c: Connection, binding: str, definition: Mapping[str, Any], now: datetime) -> None:
    """Mark the outputs of a binding if its new definition maintains them by another query than before.

    Partitions of a dataset stay as they are until an input changes, as those of a dataset that is computed again. The
    transaction has not stored the new definition yet.
    """
    queries = _maintained_queries(definition, [_UNPARTITIONED])
    if not queries:
        return
    earlier = c.execute(select(bindings.c.definition).where(bindings.c.name == binding)).scalar()
    if earlier is None:
        return
    earlier_queries = _maintained_queries(earlier, [_UNPARTITIONED])
    for channel in (n for n, query in queries.items() if earlier_queries.get(n) != query):
        upsert_backfill_requests(c, channel, [WHOLE], "", "its query has changed", 0, now)


def mark_outputs_of_other_writers(c: Connection, request: CommitRequest, now: datetime) -> None:
    """Part of a commit: mark the channels of maintained datasets to which something other than their task writes."""
    partitions_by_channel: dict[str, set[str]] = {}
    for block in request.added_blocks:
        if block.takes_sequence_number and block.origin != "drop" and block.channel != request.binding:
            partitions_by_channel.setdefault(block.channel, set()).add(block.partition)
    if not partitions_by_channel:
        return
    query = select(bindings.c.name, bindings.c.definition).where(bindings.c.name.in_(sorted(partitions_by_channel)))
    for name, definition in c.execute(query).all():  # the binding of a dataset has the name of its channel
        is_partitioned = name in _maintained_queries(definition, [_PARTITIONED])
        if is_partitioned or name in _maintained_queries(definition, [_UNPARTITIONED]):
            partitions = sorted(partitions_by_channel[name]) if is_partitioned else [WHOLE]
            upsert_backfill_requests(c, name, partitions, "", "another writer has changed its rows", 0, now)


def _maintained_queries(definition: Mapping[str, Any], kinds: Collection[str]) -> dict[str, Any]:
    """Output channel -> query by which it is maintained.

    Args:
        kinds: how the definition says that it is maintained.
    """
    found = {}
    for task in definition["tasks"]:
        query = task.get("query", {})
        if query.get("refresh") in kinds:
            for edge in task["produces"]:
                found[definition["channels"][edge["port"]]] = {k: v for k, v in query.items() if k != "file"}
    return found
