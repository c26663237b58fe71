"""Outputs of queries that have to be computed as a whole once, because their query has changed, or because
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
from nova_assets.plan.required_base import channels_of_other_queries, maintained_channels


def mark_redefined_outputs(c: Connection, binding: str, definition: Mapping[str, Any], now: datetime) -> None:
    """Mark the outputs of a binding if its new definition computes them by another query than before.

    The transaction has not stored the new definition yet.
    """
    earlier = c.execute(select(bindings.c.definition).where(bindings.c.name == binding)).scalar()
    for channel in channels_of_other_queries(earlier, definition) if earlier is not None else ():
        upsert_backfill_requests(c, channel, [WHOLE], "", "its query has changed", 0, now)


def mark_outputs_of_other_writers(c: Connection, request: CommitRequest, now: datetime) -> None:
    """Part of a commit: mark the channels of maintained datasets to which something other than their task writes."""
    written = {b.channel for b in request.added_blocks if b.takes_sequence_number} - {request.binding}
    if not written:
        return
    query = select(bindings.c.name, bindings.c.definition).where(bindings.c.name.in_(sorted(written)))
    for name, definition in c.execute(query).all():  # the binding of a dataset has the name of its channel
        if name in maintained_channels(definition):
            upsert_backfill_requests(c, name, [WHOLE], "", "another writer has changed its rows", 0, now)
