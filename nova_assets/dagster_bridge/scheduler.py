"""Scheduler of SQL datasets under Dagster: a sensor finds missing partitions and a job computes them.

The sensor's cursor holds no state, because the work to do always follows from the catalog. A daemon or a run that dies
in between costs only another evaluation. One run computes all partitions that are ready, so Spark stays warm.

(This module does not postpone annotations, because Dagster inspects the type of ``context`` when it builds an op.)
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
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.maintenance_runs import is_job_busy_or_paused, log_periodically
from nova_assets.dagster_bridge.partitions import add_partitions_of_blocks, find_paired_columns
from nova_assets.dagster_bridge.publisher import build_commit_events
from nova_assets.dagster_bridge.resources import RESOURCE_KEY, NovaResource
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.model.channel import Channel
from nova_assets.operations.datasets.tick import TaskOutcome
from nova_assets.plan.tick import Tick
from nova_assets.store.store import Store

JOB_NAME = "nova_tick"
SENSOR_INTERVAL = 10  # seconds
LOOK = 60  # seconds between two refreshes of external channels
PAUSE_AFTER_FAILURE = 10  # seconds; failed tasks have a backoff of their own

_MAX_WAITING_NAMED = 3


def build_tick_job() -> JobDefinition:
    """Job ``nova_tick``: computes the partitions that the project's SQL datasets lack, once."""

    @op(name="tick", required_resource_keys={RESOURCE_KEY})
    def tick(context: OpExecutionContext) -> Output[dict[str, Any]]:
        store: Store = context.resources.nova.store()
        found = store.next_tick()
        context.log.info(describe_tick(found))
        ran: list[TaskOutcome] = []
        with forward_logs_to_dagster(context.log), log_periodically(context.log.info, "datasets are still being made"):
            ran += store.tick(found, lambda one: _report_materialization(context, store, one), context.run_id)
        failed = [r for r in ran if r.error is not None]
        if failed:
            lines = (f"{r.dataset} {r.partition}".rstrip() + f": {r.error}" for r in failed)
            raise Failure("\n".join([f"{len(failed)} of {len(ran)} failed", *lines]), allow_retries=False)
        made: dict[str, list[str]] = {}
        for r in ran:
            made.setdefault(r.dataset, []).append(r.partition)
        shown = {name: MetadataValue.json(partitions) for name, partitions in made.items()}
        return Output({"made": made, "dropped": {d: list(p) for d, p in found.drop.items()}}, metadata=shown)

    @job(name=JOB_NAME, description="Makes what datasets in SQL lack. Requested by the sensor nova_tick_sensor.")
    def nova_tick() -> None:
        tick()

    return nova_tick


def build_tick_sensor(nova: NovaResource, tick_job: JobDefinition) -> SensorDefinition:
    """Sensor ``nova_tick_sensor``: refreshes external channels and requests a run when datasets need work."""

    last_refresh = [float("-inf")]

    def on_tick(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        if is_job_busy_or_paused(context, JOB_NAME, PAUSE_AFTER_FAILURE):
            return SkipReason("a run is under way, or failed a moment ago")
        store = nova.store()
        if time.monotonic() - last_refresh[0] >= LOOK:
            for refreshed in store.refresh_all():
                if refreshed.needs_attention:
                    context.log.warning(refreshed.describe_problems)
            last_refresh[0] = time.monotonic()
        found = store.next_tick()
        return RunRequest() if found.run or found.drop else SkipReason(describe_tick(found))

    return SensorDefinition(
        name=f"{JOB_NAME}_sensor",
        job=tick_job,
        evaluation_fn=on_tick,
        minimum_interval_seconds=SENSOR_INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Has partitions of datasets in SQL made that are missing, marked or stale, as soon as what they "
        "read is there; and drops those that no task writes any more.",
    )


def describe_tick(planned_tick: Tick) -> str:
    """One-line summary of a planned tick: partitions to compute, to wait for and to drop."""
    parts = []
    if planned_tick.run:
        of = ", ".join(f"{len(b.partitions)} of {b.dataset}" for b in planned_tick.run)
        parts.append(f"to make: {of}")
    if planned_tick.waits:
        waiting_texts = (
            f"{w.dataset} {w.partition}".rstrip() + f" for {w.waits_for}"
            for w in planned_tick.waits[:_MAX_WAITING_NAMED]
        )
        parts.append(
            f"{len(planned_tick.waits)} wait: "
            f"{', '.join(waiting_texts)}{', …' if len(planned_tick.waits) > _MAX_WAITING_NAMED else ''}"
        )
    if planned_tick.drop:
        parts.append(f"to drop: {', '.join(f'{len(p)} of {d}' for d, p in planned_tick.drop.items())}")
    for dataset, partitions in planned_tick.held.items():
        parts.append(f"{len(partitions)} of {dataset} have no task any more; so many are dropped by hand: nova drop")
    return "; ".join(parts) or "nothing is missing, marked or stale"


def _report_materialization(context: OpExecutionContext, store: Store, task_run: TaskOutcome) -> None:
    """Report a computed partition as a materialization of this run, or log the error of a failed partition."""
    name = f"{task_run.dataset} {task_run.partition}".rstrip()
    if task_run.execution is None or task_run.execution.commit is None:
        context.log.error(f"{name}: {task_run.error}")
        return
    commit = task_run.execution.commit
    channels: dict[str, Channel] = {c.name: c for c in store.project.channels}
    crash_point("publish.before")
    blocks = [(b.channel, b.partition) for b in commit.blocks]
    add_partitions_of_blocks(context.instance, channels, blocks, find_paired_columns(store.project))
    for event in build_commit_events(
        store, commit, channels, timeline_metadata_by_channel(store, {b.channel for b in commit.blocks})
    ):
        context.log_event(event)
    crash_point("publish.after")
    store.catalog.mark_published(commit.id)
