"""The scheduler of datasets in SQL under Dagster: a sensor that looks, and a job that makes what they lack.

Nothing is kept in the sensor's cursor: what is to be done follows from the catalog at any moment, so a daemon or a run
that dies in between costs a look, no more. All that is ready is made by one run, in which Spark stays warm.

(Annotations are left as they are here: Dagster looks at the type of ``context`` when an op is made.)
"""

import time
from typing import Any

from dagster import (
    DefaultSensorStatus,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    Output,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    job,
    op,
)

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge.logs import forwarded
from nova_assets.dagster_bridge.maintenance_runs import is_busy, saying
from nova_assets.dagster_bridge.partitions import announce, paired_columns
from nova_assets.dagster_bridge.publisher import events_of
from nova_assets.dagster_bridge.resources import RESOURCE, NovaResource
from nova_assets.dagster_bridge.timeline_metadata import timelines
from nova_assets.model.channel import Channel
from nova_assets.operations.datasets.tick import Ran
from nova_assets.plan.tick import Tick
from nova_assets.store.store import Store

JOB = "nova_tick"
INTERVAL = 10  # seconds
LOOK = 60  # seconds between two looks at external channels
AFTER_FAILURE = 10  # seconds: tasks that fail have a pause of their own

_NAMED = 3


def tick_job() -> JobDefinition:
    """The job ``nova_tick``: makes what the project's datasets in SQL lack, once."""

    @op(name="tick", required_resource_keys={RESOURCE})
    def tick(context: OpExecutionContext) -> Output[dict[str, Any]]:
        store: Store = context.resources.nova.store()
        found = store.next_tick()
        context.log.info(said(found))
        ran: list[Ran] = []
        with forwarded(context.log), saying(context.log.info, "datasets are still being made"):
            ran += store.tick(found, lambda one: _tell(context, store, one), context.run_id)
        failed = [r for r in ran if r.error is not None]
        if failed:
            lines = (f"{r.dataset} {r.partition}".rstrip() + f": {r.error}" for r in failed)
            raise Failure("\n".join([f"{len(failed)} of {len(ran)} failed", *lines]), allow_retries=False)
        made: dict[str, list[str]] = {}
        for r in ran:
            made.setdefault(r.dataset, []).append(r.partition)
        shown = {name: MetadataValue.json(partitions) for name, partitions in made.items()}
        return Output({"made": made, "dropped": {d: list(p) for d, p in found.drop.items()}}, metadata=shown)

    @job(name=JOB, description="Makes what datasets in SQL lack. Requested by the sensor nova_tick_sensor.")
    def nova_tick() -> None:
        tick()

    return nova_tick


def tick_sensor(nova: NovaResource, ticks: JobDefinition) -> SensorDefinition:
    """The sensor ``nova_tick_sensor``."""

    looked = [float("-inf")]

    def on_tick(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        if is_busy(context, JOB, AFTER_FAILURE):
            return SkipReason("a run is under way, or failed a moment ago")
        store = nova.store()
        if time.monotonic() - looked[0] >= LOOK:
            for refreshed in store.refresh_all():
                if refreshed.is_amiss:
                    context.log.warning(refreshed.said)
            looked[0] = time.monotonic()
        found = store.next_tick()
        return RunRequest() if found.run or found.drop else SkipReason(said(found))

    return SensorDefinition(
        name=f"{JOB}_sensor",
        job=ticks,
        evaluation_fn=on_tick,
        minimum_interval_seconds=INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Has partitions of datasets in SQL made that are missing, marked or stale, as soon as what they "
        "read is there; and drops those that no task writes any more.",
    )


def said(found: Tick) -> str:
    """What a tick comes to, in a line."""
    parts = []
    if found.run:
        of = ", ".join(f"{len(b.partitions)} of {b.dataset}" for b in found.run)
        parts.append(f"to make: {of}")
    if found.waits:
        some = (f"{w.dataset} {w.partition}".rstrip() + f" for {w.waits_for}" for w in found.waits[:_NAMED])
        parts.append(f"{len(found.waits)} wait: {', '.join(some)}{', …' if len(found.waits) > _NAMED else ''}")
    if found.drop:
        parts.append(f"to drop: {', '.join(f'{len(p)} of {d}' for d, p in found.drop.items())}")
    for dataset, partitions in found.held.items():
        parts.append(f"{len(partitions)} of {dataset} have no task any more; so many are dropped by hand: nova drop")
    return "; ".join(parts) or "nothing is missing, marked or stale"


def _tell(context: OpExecutionContext, store: Store, ran: Ran) -> None:
    """Show a partition that was made as a materialization of this run."""
    name = f"{ran.dataset} {ran.partition}".rstrip()
    if ran.execution is None or ran.execution.commit is None:
        context.log.error(f"{name}: {ran.error}")
        return
    commit = ran.execution.commit
    channels: dict[str, Channel] = {c.name: c for c in store.project.channels}
    crash_point("publish.before")
    blocks = [(b.channel, b.partition) for b in commit.blocks]
    announce(context.instance, channels, blocks, paired_columns(store.project))
    for event in events_of(store, commit, channels, timelines(store, {b.channel for b in commit.blocks})):
        context.log_event(event)
    crash_point("publish.after")
    store.catalog.mark_published(commit.id)
