"""The project of the soak: events that clients insert, and an asset in Dagster that counts the events of each client.

Loaded by ``dagster dev`` and by the commands. Few rows need no Spark.
"""

from __future__ import annotations

import pyarrow as pa

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions, condition, maintenance, nova_asset

EVENTS = "events"

events = nova.Channel(
    EVENTS, merge=nova.Append(), schema="id string, client int", compaction=nova.Compaction(deltas=20)
)
counts = nova.Channel(
    "counts", merge=nova.Keyed("client", combine={"events": "sum"}), schema="client int, events bigint"
)


@nova_asset(
    reads={EVENTS: "new"},
    writes=nova.delta(counts),
    automation_condition=condition.has_unread(),
)
def count_events(events: pa.Table) -> pa.Table:
    """Adds each event to the count of its client."""
    return events.group_by("client").aggregate([("id", "count")]).rename_columns(["client", "events"])


maintenance.SENSOR_INTERVAL = 10  # seconds: the soak has no minutes to wait
defs = build_definitions(nova.Project([], channels=[events]), assets=[count_events])
