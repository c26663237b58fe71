"""The sensor that finds runs which Dagster has lost: their process was killed, or its machine is gone.

Dagster believes a run to be STARTED until somebody says otherwise, and a run whose whole deployment was killed says
nothing any more. Its firing would wait for it for ever. What is known for certain is in the catalog: who executes a
binding renews a lease.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRecord,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)
from dagster._core.events.log import EventLogEntry

from nova_assets.dagster_bridge.ops import FIRING_TAG
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.upkeep import JOB as UPKEEP
from nova_assets.model.execution import Execution
from nova_assets.model.project import Project
from nova_assets.store import Store

log = logging.getLogger("nova_assets.janitor")

SILENT = timedelta(minutes=15)
"""For how long a run may say nothing while no lease speaks for it: it waits for a machine, or tidies up at its end."""

_STATUSES = [
    DagsterRunStatus.NOT_STARTED,  # created, and nobody lived to launch it
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


def janitor(nova: NovaResource) -> SensorDefinition:
    """The sensor ``nova_janitor``."""

    def on_tick(context: SensorEvaluationContext) -> SkipReason:
        lost = report_lost(nova.store(), context.instance)
        return SkipReason("\n".join(lost) or "every run under way is alive")

    return SensorDefinition(
        name="nova_janitor",
        evaluation_fn=on_tick,
        minimum_interval_seconds=30,
        default_status=DefaultSensorStatus.RUNNING,
        description="Reports runs as failed whose process is gone, and frees what they held.",
    )


def report_lost(store: Store, instance: DagsterInstance) -> list[str]:
    """Report lost runs of this project as failed, or canceled where that was asked for; says what was done.

    Their executions are aborted, so that the next need not wait for a lease, and what they staged is swept later.
    """
    done = []
    for record in instance.get_run_records(RunsFilter(statuses=_STATUSES)):
        run = record.dagster_run
        executions = store.catalog.executions(run_id=run.run_id)
        if not executions and not _is_ours(run, store.project):
            continue
        latest = executions[0] if executions else None
        why = _lost(store, instance, record, latest)
        if why is not None:
            done.append(_report(store, instance, run, latest, why))
    return done


def silent_for(execution: Execution | None, patience: timedelta, now: datetime) -> timedelta:
    """How long a run has to have said nothing to be taken for lost.

    Args:
        execution: the latest that it began.
        patience: lease and grace of an execution.
    """
    lapsed = execution is not None and execution.state == "running" and execution.lease_until + patience < now
    return patience if lapsed else max(SILENT, patience)


def _lost(store: Store, instance: DagsterInstance, record: RunRecord, execution: Execution | None) -> str | None:
    """Why a run is lost; None for one that may be alive."""
    now, run = store.catalog.now(), record.dagster_run
    if execution is not None and execution.state == "running" and execution.lease_until >= now:
        return None
    events = instance.event_log_storage.get_logs_for_run(run.run_id, limit=1, ascending=False)
    said = datetime.fromtimestamp(events[-1].timestamp, UTC) if events else record.create_timestamp
    patience = timedelta(seconds=store.settings.lease + store.settings.grace)
    silence = now - said - _waits(events)
    if silence < silent_for(execution, patience, now) or _others_work(instance, run, store.project):
        return None
    held = "" if execution is None else f"; execution {execution.id} of {execution.binding} is {execution.state}"
    return f"its process is gone: nothing was heard of it since {said:%Y-%m-%d %H:%M:%S} UTC{held}"


def _report(store: Store, instance: DagsterInstance, run: DagsterRun, execution: Execution | None, why: str) -> str:
    if execution is not None and execution.state in ("running", "failed"):
        store.catalog.abort(execution.id, f"its run {run.run_id} was lost")
    if run.status == DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, why)
    else:
        instance.report_run_failed(run, why)
    storage = instance.event_log_storage
    if storage.supports_global_concurrency_limits:
        storage.free_concurrency_slots_for_run(run.run_id)
    log.warning("run %s was lost: %s", run.run_id, why)
    return f"run {run.run_id} was lost: {why}"


def _is_ours(run: DagsterRun, project: Project) -> bool:
    """Whether a run that has not begun an execution yet will do nothing else."""
    if FIRING_TAG in run.tags or run.job_name in {UPKEEP, *(b.name for b in project.bindings)}:
        return True
    written = {c.name for b in project.bindings for c in b.writes}
    selected = {k.to_user_string() for k in run.asset_selection or ()}
    return bool(selected) and selected <= written


def _others_work(instance: DagsterInstance, run: DagsterRun, project: Project) -> bool:
    """Whether a step is under way that is none of a binding's: it may work for hours and say nothing."""
    if run.job_name == UPKEEP:
        return False
    started = _steps(instance, run, DagsterEventType.STEP_START)
    over = _steps(instance, run, DagsterEventType.STEP_SUCCESS) | _steps(instance, run, DagsterEventType.STEP_FAILURE)
    ours = tuple(f"{b.name}__" for b in project.bindings)
    return any(not step.startswith(ours) for step in started - over)


def _steps(instance: DagsterInstance, run: DagsterRun, type: DagsterEventType) -> set[str]:
    return {e.step_key for e in instance.all_logs(run.run_id, of_type=type) if e.step_key}


def _waits(events: Iterable[EventLogEntry]) -> timedelta:
    """How long the run has said that it would say nothing: a step that waits to be tried again."""
    waits = timedelta()
    for entry in events:
        event = entry.dagster_event
        if event is not None and event.event_type == DagsterEventType.STEP_UP_FOR_RETRY:
            waits = timedelta(seconds=event.step_retry_data.seconds_to_wait or 0)
    return waits
