"""Publication of channels as external tables: a sensor detects outdated tables and requests runs that publish."""

from __future__ import annotations

from typing import Any

from dagster import (
    AssetObservation,
    MetadataValue,
    OpExecutionContext,
    Output,
    SensorResult,
)

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.materializations import DATA_VERSION
from nova_assets.dagster_bridge.sensor_job import (
    SensorJob,
    build_channels_run_request,
    channels_config_field,
    process_each_channel,
)
from nova_assets.masking import get_logger
from nova_assets.model.published_version import PublishedVersion
from nova_assets.store.store import Store

log = get_logger("nova_assets.tables")

JOB_NAME = "nova_tables"
OP_NAME = "publish"
SENSOR_INTERVAL = 30  # seconds
PAUSE_AFTER_FAILURE = 300  # seconds


def publish_tables_sensor_job() -> SensorJob:
    """Job ``nova_tables``, which publishes channels to their tables, and its sensor."""
    return SensorJob(
        name=JOB_NAME,
        op_name=OP_NAME,
        job_description="Publishes channels to tables. The sensor nova_tables_sensor requests the runs.",
        sensor_description="Requests a run that publishes the channels with outdated tables.",
        run=_publish_channels,
        evaluate=lambda context, store: request_publish_run(store),
        sensor_interval=SENSOR_INTERVAL,
        pause_after_failure=PAUSE_AFTER_FAILURE,
        config_schema={"channels": channels_config_field("Names of channels; by default all with publish=.")},
    )


def _publish_channels(context: OpExecutionContext, store: Store) -> Output[dict[str, Any]]:
    def publish_channel(channel: str) -> list[str]:
        versions = store.publish(channel)
        for v in versions:
            context.log.info(f"{v.table} shows {channel} at {v.seq}: {v.rows} rows in {v.files} files")
            context.log_event(_build_publish_observation(store, v))
        return [f"{v.table} shows {v.seq}, edition {v.number}" for v in versions]

    results = process_each_channel(context, _registered_published_channels(store), "published", publish_channel)
    return Output(results, metadata={channel: MetadataValue.json(texts) for channel, texts in results.items()})


def request_publish_run(store: Store) -> SensorResult:
    """Run request of one sensor tick, for all channels with an outdated table."""
    channels_to_publish, errors = [], []
    for channel in _registered_published_channels(store):
        try:
            channels_to_publish += [channel] if store.to_publish(channel) else []
        except Exception as error:  # a failing channel must not block the others
            log.error("%s: %s", channel, error)
            errors.append(f"{channel}: {error}")
    if not channels_to_publish:
        return SensorResult(skip_reason="\n".join(errors) or "every table is up to date")
    return SensorResult(run_requests=[build_channels_run_request(OP_NAME, channels_to_publish)])


def _registered_published_channels(store: Store) -> list[str]:
    """Names of the project's channels that are published and that the catalog knows."""
    registered_channels = {s.channel.name for s in store.channels()}
    return [c.name for c in store.project.channels if c.publish and c.name in registered_channels]


def _build_publish_observation(store: Store, published_version: PublishedVersion) -> AssetObservation:
    metadata: dict[str, Any] = {
        "nova/table": published_version.table,
        "nova/edition": published_version.number,
        "nova/seq": published_version.seq,
        "nova/rows": published_version.rows,
        "nova/files": published_version.files,
    }
    head = store.catalog.definitions.channel(published_version.channel).head
    return AssetObservation(
        DagsterNames.of(store).key(published_version.channel),
        description=f"{published_version.table} shows {published_version.seq}",
        metadata=metadata,
        tags={DATA_VERSION: str(head)},  # otherwise, Dagster takes the observation for a change of the channel
    )
