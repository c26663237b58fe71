"""Sensor that detects lost runs, whose process was killed or whose machine is gone.

Dagster considers a run STARTED until an event ends it, and a run whose whole deployment was killed sends no event. The
run's firing would wait for ever. The catalog has reliable evidence, because a process that executes a binding renews a
lease.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
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
    SensorResult,
)
from dagster._core.events.log import EventLogEntry
from dagster._core.launcher.base import WorkerStatus

from nova_assets.dagster_bridge.asset_consumers import is_asset_consumer
from nova_assets.dagster_bridge.code_locations import code_location_of_sensor
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.maintenance import JOB_NAME as UPKEEP
from nova_assets.dagster_bridge.ops import ATTEMPT_TAG, FIRING_TAG, unique_step_name
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.errors import ExecutionNotLive
from nova_assets.masking import get_logger
from nova_assets.model.execution import Execution
from nova_assets.plan.silence_timeouts import SilenceTimeouts, timeouts_before_start, timeouts_without_live_lease
from nova_assets.store.store import Store

log = get_logger("nova_assets.janitor")


SENSOR_INTERVAL = 10  # seconds

_RECENT_EVENT_LIMIT = 5
"""Number of recent events that are searched, because an event of the executor may follow the event of a step."""

SuspectedRuns = dict[str, tuple[str, str]]
"""Reason and start of suspicion (ISO time) of each suspected run, by run id."""

_UNSTARTED_STATUSES = (
    DagsterRunStatus.NOT_STARTED,  # created, but its launching process died
    DagsterRunStatus.STARTING,
)
_UNFINISHED_STATUSES = [*_UNSTARTED_STATUSES, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


def build_lost_runs_sensor(nova: NovaResource) -> SensorDefinition:
    """Sensor ``nova_janitor``: reports lost runs. Its cursor holds the suspected runs."""

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        suspected: SuspectedRuns = json.loads(context.cursor) if context.cursor else {}
        lost, suspected = report_lost_runs(nova.store(), context.instance, suspected, code_location_of_sensor(context))
        skip_reason = "\n".join(lost) or "every active run is alive"
        return SensorResult(skip_reason=skip_reason, cursor=json.dumps(suspected))

    return SensorDefinition(
        name=nova.names.name("nova_janitor"),
        evaluation_fn=on_tick,
        minimum_interval_seconds=SENSOR_INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Reports a run as failed if its process is gone, and aborts its executions.",
    )


def report_lost_runs(
    store: Store, instance: DagsterInstance, suspected_before: SuspectedRuns, code_location: str | None = None
) -> tuple[list[str], SuspectedRuns]:
    """Report lost runs of this project as failed, or as canceled if cancellation was requested.

    All leases lapse at once after a machine slept or the catalog was unavailable, and their processes need a moment to
    renew them. A run is therefore only suspected at first. It is reported if nothing changes during the confirmation
    time (``SilenceTimeouts``). Executions of reported runs are aborted, so that the next run need not wait for a lease.
    Their staged files are swept later.

    Args:
        suspected_before: suspected runs of the previous tick.
        code_location: report only runs of this code location, because another location may have equal names and another
            catalog; None for all.

    Returns:
        Messages on the reported runs, and the runs that are suspected now.
    """
    reported: list[str] = []
    still_suspected: SuspectedRuns = {}
    now = store.catalog.now()
    for record in instance.get_run_records(RunsFilter(statuses=_UNFINISHED_STATUSES)):
        run = record.dagster_run
        origin = run.remote_job_origin
        if code_location is not None and origin is not None and origin.location_name != code_location:
            continue
        executions = [e for e in store.catalog.executions.find(run_id=run.run_id) if not is_asset_consumer(e.binding)]
        if not executions and not _is_run_of_project(run, store):
            continue
        timeouts = _silence_timeouts(store, instance, run, executions)
        reason = None if timeouts is None else _lost_run_reason(store, instance, record, executions, timeouts.silence)
        if timeouts is None or reason is None:
            continue
        earlier_reason, since = suspected_before.get(run.run_id, ("", ""))
        if earlier_reason != reason:
            still_suspected[run.run_id] = (reason, now.isoformat())
        elif now - datetime.fromisoformat(since) < timeouts.confirmation:
            still_suspected[run.run_id] = (reason, since)
        else:
            reported.append(_report_lost_run(store, instance, run, executions, reason))
    return reported, still_suspected


def _silence_timeouts(
    store: Store, instance: DagsterInstance, run: DagsterRun, executions: Sequence[Execution]
) -> SilenceTimeouts | None:
    """Timeouts of a run; None if the run is known to be alive."""
    settings = store.settings
    if run.status not in _UNSTARTED_STATUSES or executions:
        return timeouts_without_live_lease(executions, settings.lease, settings.grace, store.catalog.now())
    launcher = instance.run_launcher
    is_launched = run.status == DagsterRunStatus.STARTING and launcher.supports_check_run_worker_health
    if is_launched and launcher.check_run_worker_health(run).status == WorkerStatus.RUNNING:
        return None
    return timeouts_before_start(settings.start_timeout, int(run.tags.get(ATTEMPT_TAG, "1")), SENSOR_INTERVAL)


def _lost_run_reason(
    store: Store, instance: DagsterInstance, record: RunRecord, executions: Sequence[Execution], silence: timedelta
) -> str | None:
    """Reason why a run is lost; None for a run with an event within ``silence``, or with an active foreign step."""
    now, run = store.catalog.now(), record.dagster_run
    events = instance.event_log_storage.get_logs_for_run(run.run_id, limit=_RECENT_EVENT_LIMIT, ascending=False)
    last = max((e.timestamp for e in events), default=None)
    last_heard_at = record.create_timestamp if last is None else datetime.fromtimestamp(last, UTC)
    if now - last_heard_at - _announced_retry_wait(events) < silence or _has_active_foreign_step(instance, run, store):
        return None
    if run.status in _UNSTARTED_STATUSES:
        return f"its process never started: the last event came at {last_heard_at:%Y-%m-%d %H:%M:%S} UTC"
    executions_text = "".join(f"; execution {e.id} of {e.binding} is {e.state}" for e in executions)
    return f"its process is gone: the last event came at {last_heard_at:%Y-%m-%d %H:%M:%S} UTC{executions_text}"


def _report_lost_run(
    store: Store, instance: DagsterInstance, run: DagsterRun, executions: Sequence[Execution], reason: str
) -> str:
    for execution in executions:
        if execution.state in ("running", "failed"):
            with suppress(ExecutionNotLive):  # it was resumed or committed just now
                store.catalog.executions.abort(execution.id, f"its run {run.run_id} was lost", execution.epoch)
    if run.status == DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, reason)
    else:
        instance.report_run_failed(run, reason)
    storage = instance.event_log_storage
    if storage.supports_global_concurrency_limits:
        storage.free_concurrency_slots_for_run(run.run_id)
    log.warning("run %s was lost: %s", run.run_id, reason)
    return f"run {run.run_id} was lost: {reason}"


def _is_run_of_project(run: DagsterRun, store: Store) -> bool:
    """Whether a run without an execution does only work of this project: a firing, a binding, maintenance or assets."""
    firing = run.tags.get(FIRING_TAG)
    if run.job_name in _job_names(store) or (firing is not None and store.catalog.firings.get(firing) is not None):
        return True
    names = DagsterNames.of(store)
    written = {names.key(c.name) for b in store.project.bindings for c in b.writes}
    selected = run.asset_selection or frozenset()
    return bool(selected) and selected <= written


def _job_names(store: Store) -> set[str]:
    """Names of the jobs that do only work of the project."""
    names = DagsterNames.of(store)
    return {names.name(n) for n in (UPKEEP, *(b.name for b in store.project.bindings))}


def _has_active_foreign_step(instance: DagsterInstance, run: DagsterRun, store: Store) -> bool:
    """Whether a step outside all bindings is active. Such a step may work for hours without an event."""
    if run.job_name in _job_names(store):
        return False
    started_steps = _step_keys_with_event(instance, run, DagsterEventType.STEP_START)
    ended_steps = _step_keys_with_event(instance, run, DagsterEventType.STEP_SUCCESS) | _step_keys_with_event(
        instance, run, DagsterEventType.STEP_FAILURE
    )
    names = DagsterNames.of(store)
    binding_step_prefixes = tuple(unique_step_name(b, "", names) for b in store.project.bindings)
    return any(not step.startswith(binding_step_prefixes) for step in started_steps - ended_steps)


def _step_keys_with_event(instance: DagsterInstance, run: DagsterRun, event_type: DagsterEventType) -> set[str]:
    return {e.step_key for e in instance.all_logs(run.run_id, of_type=event_type) if e.step_key}


def _announced_retry_wait(events: Iterable[EventLogEntry]) -> timedelta:
    """Longest wait that a step of the run has announced before its retry."""
    dagster_events = [e.dagster_event for e in events if e.dagster_event is not None]
    retries = [e.step_retry_data for e in dagster_events if e.event_type == DagsterEventType.STEP_UP_FOR_RETRY]
    return max((timedelta(seconds=r.seconds_to_wait or 0) for r in retries), default=timedelta())
