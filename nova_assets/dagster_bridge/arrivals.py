"""Ingestion of arriving files under Dagster: a sensor detects arrivals and requests runs that receive them."""

from __future__ import annotations

from typing import Any

from dagster import Field, MetadataValue, OpExecutionContext, Output, SensorResult

from nova_assets.dagster_bridge.sensor_job import (
    SensorJob,
    build_channels_run_request,
    channels_config_field,
    process_each_channel,
)
from nova_assets.nova_error import NovaError
from nova_assets.store.arrival_watch import WatchedInboxes, channels_with_source_or_seal, find_channels_to_receive
from nova_assets.store.store import Store

JOB_NAME = "nova_receive"
OP_NAME = "receive"
SENSOR_INTERVAL = 10  # seconds
PAUSE_AFTER_FAILURE = 60  # seconds


def receive_sensor_job() -> SensorJob:
    """Job ``nova_receive``, which receives arrived files and seals complete groups, and its sensor."""
    watched_inboxes = WatchedInboxes()
    return SensorJob(
        name=JOB_NAME,
        op_name=OP_NAME,
        job_description="Receives arrived files and seals groups. The sensor nova_receive_sensor requests the runs.",
        sensor_description="Requests runs that receive arrived files and seal complete days or hours.",
        run=_receive_and_seal_channels,
        evaluate=lambda context, store: request_receive_run(store, watched_inboxes),
        sensor_interval=SENSOR_INTERVAL,
        pause_after_failure=PAUSE_AFTER_FAILURE,
        config_schema={
            "channels": channels_config_field("Names of channels; by default all with a source or a seal."),
            "look": Field(
                bool, default_value=True, description="List the source, to find files that were never announced."
            ),
        },
    )


def _receive_and_seal_channels(context: OpExecutionContext, store: Store) -> Output[dict[str, Any]]:
    results = process_each_channel(
        context,
        [c.name for c in channels_with_source_or_seal(store.project)],
        "received",
        lambda channel: _receive_and_seal(context, store, channel),
        tolerated_error=NovaError,  # such as an unavailable source
    )
    return Output(results, metadata={channel: MetadataValue.json(counts) for channel, counts in results.items()})


def _receive_and_seal(context: OpExecutionContext, store: Store, channel_name: str) -> dict[str, Any]:
    """Receive the arrived files of a channel, then seal its complete groups. Returns counts for the run's metadata."""
    channel = store.project.channel(channel_name)
    counts: dict[str, Any] = {}
    if channel.source is not None:
        received = store.receive(channel.name, look=context.op_config["look"])
        counts |= {
            "files": received.files,
            "rows": received.rows,
            "bad": received.bad,
            "why": dict(received.why),
            "waiting": received.waiting,
        }
        context.log.info(f"{channel.name}: {received.rows} rows of {received.files} files; {received.bad} quarantined")
        for reason, count in received.why.items():
            context.log.warning(f"{channel.name}: {count} quarantined, such as: {reason}")
    if channel.seal is not None:
        counts["sealed"] = [s.group for s in store.seal(channel.name)]
        for group in counts["sealed"]:
            context.log.info(f"{channel.name}: {channel.seal.by}={group} is sealed")
    return counts


def request_receive_run(store: Store, watched_inboxes: WatchedInboxes) -> SensorResult:
    """Run request of one sensor tick. Full listings come before announced arrivals."""
    work = find_channels_to_receive(store, watched_inboxes)
    if work.to_list:
        request = build_channels_run_request(OP_NAME, list(work.to_list), look=True)
    elif work.with_arrivals:
        request = build_channels_run_request(OP_NAME, list(work.with_arrivals), look=False)
    else:
        return SensorResult(
            skip_reason="\n".join(work.errors) or "no file has arrived, and no day or hour can be sealed"
        )
    return SensorResult(run_requests=[request])
