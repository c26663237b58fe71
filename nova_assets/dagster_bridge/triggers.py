"""Triggers as Dagster sensors. ``plan/due`` alone decides whether a binding is due.

With many bindings, one sensor evaluates all triggers (``grouped_triggers``), by the same functions.

A firing is a row in the catalog before its run is requested. A daemon that dies in between neither loses nor repeats a
run: the next tick finds the row and asks Dagster for its run. The sensor's cursor holds no state. Time triggers are
sensors, too, because the tick of a schedule comes only once and would not retry a firing whose run failed or waited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from dagster import (
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    JobDefinition,
    MultiAssetSensorDefinition,
    MultiAssetSensorEvaluationContext,
    RunRecord,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.storage.tags import MAX_RETRIES_TAG, PRIORITY_TAG, RUN_KEY_TAG

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.ops import ATTEMPT_TAG, FIRING_TAG
from nova_assets.dagster_bridge.partitions import (
    add_partitions_to_dagster,
    build_partitions_definition,
    find_multi_partition_columns,
    to_dagster_key,
)
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.run_liveness import find_live_execution
from nova_assets.execution.trigger_state import load_trigger_state, load_trigger_states, runs_unpartitioned
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.model.partitions import WHOLE
from nova_assets.model.trigger import OnData, OnSealed, Trigger
from nova_assets.plan.due import TriggerState, decide_trigger, next_retry_time
from nova_assets.plan.trigger_pause import why_trigger_is_off
from nova_assets.store.store import Store

log = get_logger("nova_assets.triggers")

BindingJobDefinition: TypeAlias = JobDefinition | UnresolvedAssetJobDefinition
SensorAnswer: TypeAlias = RunRequest | list[RunRequest] | SkipReason

REASON_TAG = "nova/why"

MAX_RUNS_PER_TICK = 25
"""Maximum number of runs that one tick requests, one per partition."""

RUN_APPEARANCE_DELAY = timedelta(seconds=10)
"""Time that Dagster may take to record the run of a firing, before the run is requested again."""

UNSEEN_CHANGE_INTERVAL = timedelta(seconds=30)
"""Time after which a binding is evaluated again that waits for a change that the catalog does not count."""

FIRING_PRIORITY = 10
"""Priority of the runs of firings in Dagster's queue. Backfills and other runs have priority 0."""

SENSOR_INTERVAL = 5  # seconds; Dagster's sensor loop is no faster


def sensor_name(binding: Binding, names: DagsterNames) -> str:
    """Name of a binding's sensor."""
    return names.name(f"{binding.name}_sensor")


def build_trigger_sensor(binding: Binding, job: BindingJobDefinition, nova: NovaResource) -> SensorDefinition | None:
    """Sensor of a binding; None for a binding without a trigger, which runs only by hand.

    A trigger over several channels is a multi-asset sensor, so that Dagster shows which assets it watches.
    """
    trigger = binding.when
    if trigger is None:
        return None

    def evaluate(context: SensorEvaluationContext) -> SensorAnswer:
        return evaluate_trigger(binding, trigger, nova.store(), context.instance)

    return build_sensor_of_binding(binding, trigger, job, evaluate, SENSOR_INTERVAL, str(trigger), nova.names)


def build_sensor_of_binding(
    binding: Binding,
    trigger: Trigger,
    job: BindingJobDefinition,
    evaluate: Callable[[SensorEvaluationContext], SensorAnswer],
    interval: int,
    description: str,
    names: DagsterNames,
) -> SensorDefinition:
    """Sensor with a binding's name. It names the assets that a compound trigger watches.

    Dagster's page of a multi-asset sensor does not show its assets, so the description names them, too.
    """
    watched = [names.key(c) for c in watched_channels(trigger)]
    if len(watched) > 1:
        keys = [key.to_user_string() for key in watched]
        description = f"{description.rstrip('.')}. Watches {', '.join(keys[:-1])} and {keys[-1]}."
        return _multi_asset_sensor(sensor_name(binding, names), watched, job, evaluate, interval, description)
    return SensorDefinition(
        name=sensor_name(binding, names),
        job=job,
        evaluation_fn=evaluate,
        minimum_interval_seconds=interval,
        default_status=DefaultSensorStatus.RUNNING,
        description=description,
    )


def watched_channels(trigger: Trigger) -> list[str]:
    """Channels whose data or seals are parts of a trigger."""
    channels: list[str] = []
    for part in trigger.simple_triggers():
        channels += part.channels if isinstance(part, OnData) else [part.channel] if isinstance(part, OnSealed) else []
    return list(dict.fromkeys(channels))


def _multi_asset_sensor(
    name: str,
    watched: list[AssetKey],
    job: BindingJobDefinition,
    evaluate: Callable[[SensorEvaluationContext], SensorAnswer],
    interval: int,
    description: str,
) -> SensorDefinition:
    """Sensor that names the assets that it watches. The catalog decides, so its cursor only follows."""

    def on_tick(context: MultiAssetSensorEvaluationContext) -> SensorAnswer:
        answer = evaluate(context)
        if not isinstance(answer, SkipReason):
            context.advance_all_cursors()  # type: ignore[no-untyped-call]  # otherwise Dagster rejects the requests
        return answer

    return MultiAssetSensorDefinition(
        name=name,
        monitored_assets=watched,
        job_name=None,
        job=job,
        asset_materialization_fn=on_tick,
        minimum_interval_seconds=interval,
        default_status=DefaultSensorStatus.RUNNING,
        description=description,
    )


@dataclass(frozen=True, slots=True)
class TriggerAnswer:
    """Answer of one evaluation of a trigger.

    Args:
        requests: the runs to request, one per partition.
        why: reason why no run is requested.
        evaluate_at: time at which the trigger has to be evaluated again. None if only a change in the catalog can make
            the binding due.
    """

    requests: tuple[RunRequest, ...]
    why: str
    evaluate_at: datetime | None


def evaluate_trigger(
    binding: Binding, trigger: Trigger, store: Store, instance: DagsterInstance, now: datetime | None = None
) -> SensorAnswer:
    """Evaluate a binding's trigger once, independently in each partition.

    A tick continues the open firing of a partition, or decides whether the next firing is due.

    Args:
        now: time of the evaluation; the catalog's clock by default.

    Returns:
        A run request, a list of run requests (one per partition), or the reason why no run is requested.
    """
    answer = answer_trigger(binding, trigger, store, instance, now or store.catalog.now())
    if not answer.requests:
        return SkipReason(answer.why)
    return list(answer.requests) if binding.dimensions else answer.requests[0]


def answer_trigger(
    binding: Binding, trigger: Trigger, store: Store, instance: DagsterInstance, now: datetime
) -> TriggerAnswer:
    """Evaluate a binding's trigger once, as ``evaluate_trigger``, and say when to evaluate it again."""
    off = why_trigger_is_off(binding, store.catalog.definition_statuses())
    if off:
        return TriggerAnswer((), off, now + UNSEEN_CHANGE_INTERVAL)
    store.runtime.register_binding(binding)
    if not binding.dimensions:
        return _evaluate_partition(
            binding, trigger, store, instance, WHOLE, load_trigger_state(binding, store.catalog, now)
        )
    if runs_unpartitioned(binding, store.catalog):
        why = (
            f"the binding has run unpartitioned; nova switch {binding.name} --to partitions lets it run per partition, "
            "and partitions=[] in its definition triggers unpartitioned runs"
        )
        return TriggerAnswer((), why, now + UNSEEN_CHANGE_INTERVAL)
    requests: list[RunRequest] = []
    evaluate_at: list[datetime] = []
    state_by_partition = load_trigger_states(binding, store.catalog, now)
    multi_partition_columns = find_multi_partition_columns(store.project)
    add_partitions_to_dagster(instance, ((binding.dimensions, p) for p in state_by_partition), multi_partition_columns)
    for partition, trigger_state in state_by_partition.items():
        if not _has_partition_key(
            binding, to_dagster_key(binding.dimensions, partition, multi_partition_columns), instance
        ):
            evaluate_at.append(now + UNSEEN_CHANGE_INTERVAL)
            continue  # one unknown key, such as a future day, would make Dagster reject all requests
        answer = _evaluate_partition(binding, trigger, store, instance, partition, trigger_state)
        requests += answer.requests
        if answer.evaluate_at is not None:
            evaluate_at.append(answer.evaluate_at)
        if len(requests) == MAX_RUNS_PER_TICK:
            break
    return TriggerAnswer(tuple(requests), "nothing is due in any partition", min(evaluate_at, default=None))


def _has_partition_key(binding: Binding, partition_key: str, instance: DagsterInstance) -> bool:
    """Whether Dagster knows a partition of the binding under this key."""
    partitions = build_partitions_definition(binding.dimensions)
    with partition_loading_context(dynamic_partitions_store=instance):
        return partitions is not None and partitions.has_partition_key(partition_key)


def _evaluate_partition(
    binding: Binding,
    trigger: Trigger,
    store: Store,
    instance: DagsterInstance,
    partition: str,
    trigger_state: TriggerState,
) -> TriggerAnswer:
    """Evaluate a trigger in one partition. A partition with an open firing is evaluated again at the next tick."""
    catalog, now = store.catalog, trigger_state.now
    last_firing, ended_text = catalog.last_firing(binding.name, partition), ""
    if last_firing is not None and last_firing.state == "requested":
        answer = _evaluate_requested_firing(binding, last_firing, store, instance, now)
        if isinstance(answer, RunRequest):
            return TriggerAnswer((answer,), "", now)
        if isinstance(answer, SkipReason):
            return TriggerAnswer((), answer.skip_message or "", now)
        ended_text = f"{answer}; "
    busy = find_live_execution(catalog, binding.name, instance, partition)
    if busy is not None:
        return TriggerAnswer((), ended_text + _format_busy_execution(busy), now)
    decision = decide_trigger(trigger, last_firing.positions if last_firing is not None else {}, trigger_state)
    if not decision.due:
        return TriggerAnswer((), ended_text + decision.why, decision.due_at)
    crash_point("fire.before")
    firing = catalog.record_firing(
        binding.name, last_firing.n if last_firing is not None else 0, decision.positions, partition, decision.why
    )
    if firing is None:
        return TriggerAnswer((), "another process has fired the binding", now)
    crash_point("fire.after")
    log.info("%s fires: %s", binding.name, decision.why)
    return TriggerAnswer((_build_run_request(binding, firing, store),), "", now)


def _evaluate_requested_firing(
    binding: Binding, firing: Firing, store: Store, instance: DagsterInstance, now: datetime
) -> RunRequest | SkipReason | str:
    """Next step of a firing that has been requested.

    If Dagster does not know the firing's run, the run is requested again under the same run key. If the run failed, it
    is requested under the next attempt's run key, after the backoff and once no live execution blocks it.

    Returns:
        A run request, the reason to wait, or text that says how the firing ended. After an end, the caller decides
        whether the next firing is due.
    """
    records = instance.get_run_records(RunsFilter(tags={FIRING_TAG: firing.id}))  # latest first
    active_run = next((r.dagster_run for r in records if not r.dagster_run.is_finished), None)
    if active_run is not None:
        return SkipReason(f"run {active_run.run_id} of firing {firing.n} is under way")
    if any(r.dagster_run.status == DagsterRunStatus.SUCCESS for r in records):
        store.catalog.end_firing(firing.id, "committed")
        return f"firing {firing.n} is done"
    if not any(r.dagster_run.tags.get(RUN_KEY_TAG) == firing.run_key for r in records):
        if now - firing.at < RUN_APPEARANCE_DELAY:
            return SkipReason(f"the run of firing {firing.n} has just been requested")
        busy = find_live_execution(store.catalog, firing.binding, instance, firing.partition)
        if busy is not None:  # ``nova run --due`` carries it out
            return SkipReason(_format_busy_execution(busy))
        return _build_run_request(binding, firing, store)
    run = records[0].dagster_run
    if run.status == DagsterRunStatus.CANCELED:  # a person canceled the run, so it must not restart
        outcome = f"firing {firing.n} of {firing.binding} is abandoned: run {run.run_id} was canceled"
        log.warning("%s; to run it by hand: nova run %s", outcome, firing.binding)
        store.catalog.end_firing(firing.id, "abandoned", f"run {run.run_id} was canceled")
        return outcome
    failed_attempts = sum(_counts_as_failed_attempt(r.dagster_run.run_id, store, instance) for r in records)
    if failed_attempts >= binding.attempts:
        outcome = f"firing {firing.n} of {firing.binding} is abandoned after {failed_attempts} failed runs"
        log.error(
            "%s, the last of them %s; after a repair, run the binding by hand: nova run %s",
            outcome,
            run.run_id,
            firing.binding,
        )
        store.catalog.end_firing(
            firing.id, "abandoned", f"{failed_attempts} runs failed, the last of them {run.run_id}"
        )
        return f"{outcome}, the last of them {run.run_id}; after a repair, run the binding by hand"
    next_attempt_at = next_retry_time(binding, firing, _run_end_time(records[0]))
    if now < next_attempt_at:
        return SkipReason(
            f"run {run.run_id} of firing {firing.n} failed; the next attempt comes at {next_attempt_at:%H:%M:%S} UTC"
        )
    busy = find_live_execution(store.catalog, firing.binding, instance, firing.partition)
    if busy is not None:
        return SkipReason(_format_busy_execution(busy))
    again = store.catalog.retry_firing(firing.id, firing.attempt)
    return (
        SkipReason("another process retries the firing") if again is None else _build_run_request(binding, again, store)
    )


def _counts_as_failed_attempt(run_id: str, store: Store, instance: DagsterInstance) -> bool:
    """Whether a failed run counts as an attempt: it began its execution, or an error prevented that.

    A process that was killed earlier tells nothing about the binding, so its run does not count.
    """
    if store.catalog.executions(run_id=run_id, limit=1):
        return True
    failures = {DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE}
    events = [e.dagster_event for e in instance.all_logs(run_id, of_type=failures) if e.dagster_event is not None]
    return any(getattr(e.event_specific_data, "error", None) is not None for e in events)


def _run_end_time(record: RunRecord) -> datetime:
    return record.update_timestamp if record.end_time is None else datetime.fromtimestamp(record.end_time, UTC)


def _format_busy_execution(blocking_execution: Execution) -> str:
    return (
        f"execution {blocking_execution.id} of {blocking_execution.owner} is alive; "
        f"its lease lasts until {blocking_execution.lease_until:%H:%M:%S} UTC"
    )


def _build_run_request(binding: Binding, firing: Firing, store: Store) -> RunRequest:
    """Run request of a firing. Dagster's own retries are off, because the firing requests its further attempts."""
    tags = {
        FIRING_TAG: firing.id,
        ATTEMPT_TAG: str(firing.attempt),
        MAX_RETRIES_TAG: "0",
        PRIORITY_TAG: str(FIRING_PRIORITY),
        "nova/binding": firing.binding,
        **({REASON_TAG: firing.why} if firing.why else {}),
    }
    key = (
        to_dagster_key(binding.dimensions, firing.partition, find_multi_partition_columns(store.project))
        if firing.partition
        else None
    )
    return RunRequest(
        job_name=DagsterNames.of(store).name(binding.name),
        run_key=firing.run_key,
        tags=tags,
        partition_key=key,
    )
