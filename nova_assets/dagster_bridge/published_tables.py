"""Publication of channels as external tables: a sensor detects outdated tables and requests runs that publish.

(This module does not postpone annotations, because Dagster inspects the type of ``context`` when it builds an op.)
"""

from typing import Any

from dagster import (
    AssetKey,
    AssetObservation,
    DefaultSensorStatus,
    Failure,
    Field,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    Output,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    job,
    op,
)

from nova_assets.dagster_bridge.maintenance_runs import is_job_busy_or_paused, log_periodically
from nova_assets.dagster_bridge.resources import RESOURCE_KEY, NovaResource
from nova_assets.masking import get_logger
from nova_assets.model.channel import Channel
from nova_assets.model.published_version import PublishedVersion
from nova_assets.store.store import Store

log = get_logger("nova_assets.tables")

JOB_NAME = "nova_tables"
SENSOR_INTERVAL = 30  # seconds
PAUSE_AFTER_FAILURE = 300  # seconds


def build_publish_tables_job() -> JobDefinition:
    """Job ``nova_tables``: publishes channels to their tables.

    The job's configuration names the channels. The default is every channel with ``publish=``.
    """
    channels = Field([str], default_value=[], description="Names of channels; by default all with publish=.")

    @op(name="publish", config_schema={"channels": channels}, required_resource_keys={RESOURCE_KEY})
    def publish(context: OpExecutionContext) -> Output[dict[str, Any]]:
        store: Store = context.resources.nova.store()
        done: dict[str, Any] = {}
        failed: dict[str, Exception] = {}
        for name in context.op_config["channels"] or [c.name for c in published_channels(store)]:
            try:
                with log_periodically(context.log.info, f"{name} is still being published"):
                    made = store.publish(name)
            except Exception as error:  # a failing channel must not block the others
                context.log.error(f"{name}: {error}")
                failed[name] = error
                continue
            done[name] = [f"{e.table} shows {e.seq}, edition {e.number}" for e in made]
            for e in made:
                context.log.info(f"{e.table} shows {name} at {e.seq}: {e.rows} rows in {e.files} files")
                context.log_event(_build_publish_observation(e))
        if failed:
            raise Failure("\n".join(f"{name}: {error}" for name, error in failed.items()), allow_retries=False)
        return Output(done, metadata={name: MetadataValue.json(said) for name, said in done.items()})

    @job(name=JOB_NAME, description="Shows channels in the tables that others read. Requested by nova_tables_sensor.")
    def nova_tables() -> None:
        publish()

    return nova_tables


def build_publish_tables_sensor(nova: NovaResource, publish_job: JobDefinition) -> SensorDefinition:
    """Sensor ``nova_tables_sensor``: requests a run for the channels whose tables are outdated."""

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        return request_publish_run(nova.store(), is_job_busy_or_paused(context, JOB_NAME, PAUSE_AFTER_FAILURE))

    return SensorDefinition(
        name=f"{JOB_NAME}_sensor",
        job=publish_job,
        evaluation_fn=on_tick,
        minimum_interval_seconds=SENSOR_INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Has channels published whose tables show something older.",
    )


def request_publish_run(store: Store, is_run_active: bool) -> SensorResult:
    """Run request of one sensor tick, for all channels with an outdated table.

    Args:
        is_run_active: a run is active, so this tick requests none. The next tick sees commits that arrive meanwhile.
    """
    if is_run_active:
        return SensorResult(skip_reason="a run is under way, or failed a moment ago")
    channels_to_publish, errors = [], []
    for channel in published_channels(store):
        try:
            channels_to_publish += [channel.name] if store.to_publish(channel.name) else []
        except Exception as error:  # a failing channel must not block the others
            log.error("%s: %s", channel.name, error)
            errors.append(f"{channel.name}: {error}")
    if not channels_to_publish:
        return SensorResult(skip_reason="\n".join(errors) or "every table shows the newest")
    return SensorResult(
        run_requests=[RunRequest(run_config={"ops": {"publish": {"config": {"channels": channels_to_publish}}}})]
    )


def published_channels(store: Store) -> list[Channel]:
    """Channels of the project that are published and that the catalog knows."""
    registered_channels = {s.channel.name for s in store.catalog.channels()}
    return [c for c in store.project.channels if c.publish and c.name in registered_channels]


def _build_publish_observation(published_version: PublishedVersion) -> AssetObservation:
    metadata: dict[str, Any] = {
        "nova/table": published_version.table,
        "nova/edition": published_version.number,
        "nova/seq": published_version.seq,
        "nova/rows": published_version.rows,
        "nova/files": published_version.files,
    }
    return AssetObservation(
        AssetKey(published_version.channel),
        description=f"{published_version.table} shows {published_version.seq}",
        metadata=metadata,
    )
