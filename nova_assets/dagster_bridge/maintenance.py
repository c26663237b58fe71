"""Automatic maintenance: a sensor collects unneeded blocks and requests runs that compact channels.

Collection changes only the catalog, so the sensor does it at once. Compaction reads and writes data, so it is a run of
its own. The catalog ensures that compaction can run beside every execution and reader (R14).
"""

from __future__ import annotations

import json
from typing import Any

from dagster import MetadataValue, OpExecutionContext, Output, SensorEvaluationContext, SensorResult

from nova_assets.dagster_bridge.code_locations import claim_channels_for_location, code_location_of_sensor
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.sensor_job import (
    SensorJob,
    build_channels_run_request,
    channels_config_field,
    is_job_busy_or_paused,
    process_each_channel,
)
from nova_assets.dagster_bridge.timeline_metadata import add_lag_observations
from nova_assets.store.maintenance_tick import auto_compacted_channels, run_maintenance_tick
from nova_assets.store.store import Store

JOB_NAME = "nova_upkeep"
OP_NAME = "compact"
SENSOR_INTERVAL = 60  # seconds
PAUSE_AFTER_FAILURE = 900  # seconds


def maintenance_sensor_job() -> SensorJob:
    """Job ``nova_upkeep``, which compacts channels, and its sensor, which does the rest of maintenance itself."""
    return SensorJob(
        name=JOB_NAME,
        op_name=OP_NAME,
        job_description="Compacts channels where it is worth the cost. Requested by the sensor nova_upkeep_sensor.",
        sensor_description="Collects unneeded blocks, requests compaction where it is worth the cost, and reports "
        "changed lags.",
        run=_compact_channels,
        evaluate=_evaluate_maintenance,
        sensor_interval=SENSOR_INTERVAL,
        pause_after_failure=PAUSE_AFTER_FAILURE,
        config_schema={
            "channels": channels_config_field("Names of channels; by default all that are compacted automatically.")
        },
        evaluates_during_run=True,
    )


def _compact_channels(context: OpExecutionContext, store: Store) -> Output[dict[str, Any]]:
    """Compact channels where compaction pays off, and collect their blocks."""

    def compact_channel(channel: str) -> str:
        commit = store.compact(channel, force=False)
        store.collect_garbage(channel, undo_period=store.settings.gc_grace)
        reasons = {} if commit is None else commit.details["compacted"]
        summary = (
            "; ".join(f"{block}: {reason}" for block, reason in reasons.items())
            or "compaction is no longer worth the cost"
        )
        context.log.info(f"{channel} is compacted: {summary}")
        return summary

    summaries = process_each_channel(context, auto_compacted_channels(store), "compacted", compact_channel)
    return Output(summaries, metadata={channel: MetadataValue.text(text) for channel, text in summaries.items()})


def _evaluate_maintenance(context: SensorEvaluationContext, store: Store) -> SensorResult:
    """One maintenance pass. The sensor's cursor holds the digests of the channels and their reported lags, as JSON."""
    is_busy = is_job_busy_or_paused(context, DagsterNames.of(store).name(JOB_NAME), PAUSE_AFTER_FAILURE)
    previous_digests = json.loads(context.cursor) if context.cursor else {}
    tick = run_maintenance_tick(store, previous_digests, is_busy)
    unchanged = {channel for channel, digest in tick.state_digests.items() if previous_digests.get(channel) == digest}
    channels = list(tick.channels_to_compact)
    result = SensorResult(
        run_requests=[build_channels_run_request(OP_NAME, channels)] if channels else [],
        skip_reason=None if channels else "\n".join(tick.messages) or "nothing to do",
        cursor=json.dumps(tick.state_digests),
    )
    own_channels = claim_channels_for_location(store, code_location_of_sensor(context))
    return add_lag_observations(store, context.cursor, result, own_channels, unchanged)
