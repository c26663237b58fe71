"""Channels are shown in the tables that others read by runs, which a sensor requests when a table is behind.

(Annotations are left as they are here: Dagster looks at the type of ``context`` when an op is made.)
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

from nova_assets.dagster_bridge.maintenance_runs import is_busy, saying
from nova_assets.dagster_bridge.resources import RESOURCE, NovaResource
from nova_assets.masking import get_logger
from nova_assets.model.channel import Channel
from nova_assets.model.published_version import Edition
from nova_assets.store.store import Store

log = get_logger("nova_assets.tables")

JOB = "nova_tables"
INTERVAL = 30  # seconds
AFTER_FAILURE = 300  # seconds


def tables_job() -> JobDefinition:
    """The job ``nova_tables``: shows the channels that its configuration names, or all that are published, in their
    tables."""
    channels = Field([str], default_value=[], description="Names of channels; by default all with publish=.")

    @op(name="publish", config_schema={"channels": channels}, required_resource_keys={RESOURCE})
    def publish(context: OpExecutionContext) -> Output[dict[str, Any]]:
        store: Store = context.resources.nova.store()
        done: dict[str, Any] = {}
        failed: dict[str, Exception] = {}
        for name in context.op_config["channels"] or [c.name for c in published(store)]:
            try:
                with saying(context.log.info, f"{name} is still being published"):
                    made = store.publish(name)
            except Exception as error:  # one channel that cannot be published keeps no other from it
                context.log.error(f"{name}: {error}")
                failed[name] = error
                continue
            done[name] = [f"{e.table} shows {e.seq}, edition {e.number}" for e in made]
            for e in made:
                context.log.info(f"{e.table} shows {name} at {e.seq}: {e.rows} rows in {e.files} files")
                context.log_event(_observed(e))
        if failed:
            raise Failure("\n".join(f"{name}: {error}" for name, error in failed.items()), allow_retries=False)
        return Output(done, metadata={name: MetadataValue.json(said) for name, said in done.items()})

    @job(name=JOB, description="Shows channels in the tables that others read. Requested by nova_tables_sensor.")
    def nova_tables() -> None:
        publish()

    return nova_tables


def tables_sensor(nova: NovaResource, publishes: JobDefinition) -> SensorDefinition:
    """The sensor ``nova_tables_sensor``."""

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        return due(nova.store(), is_busy(context, JOB, AFTER_FAILURE))

    return SensorDefinition(
        name=f"{JOB}_sensor",
        job=publishes,
        evaluation_fn=on_tick,
        minimum_interval_seconds=INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Has channels published whose tables show something older.",
    )


def due(store: Store, busy: bool) -> SensorResult:
    """One tick.

    Args:
        busy: a run is under way; what comes meanwhile is seen by the next tick.
    """
    if busy:
        return SensorResult(skip_reason="a run is under way, or failed a moment ago")
    wanted, said = [], []
    for channel in published(store):
        try:
            wanted += [channel.name] if store.to_publish(channel.name) else []
        except Exception as error:  # one that cannot be looked at keeps no other waiting
            log.error("%s: %s", channel.name, error)
            said.append(f"{channel.name}: {error}")
    if not wanted:
        return SensorResult(skip_reason="\n".join(said) or "every table shows the newest")
    return SensorResult(run_requests=[RunRequest(run_config={"ops": {"publish": {"config": {"channels": wanted}}}})])


def published(store: Store) -> list[Channel]:
    """The channels of the project that are published, as far as the catalog knows them."""
    known = {s.channel.name for s in store.catalog.channels()}
    return [c for c in store.project.channels if c.publish and c.name in known]


def _observed(e: Edition) -> AssetObservation:
    metadata: dict[str, Any] = {
        "nova/table": e.table,
        "nova/edition": e.number,
        "nova/seq": e.seq,
        "nova/rows": e.rows,
        "nova/files": e.files,
    }
    return AssetObservation(AssetKey(e.channel), description=f"{e.table} shows {e.seq}", metadata=metadata)
