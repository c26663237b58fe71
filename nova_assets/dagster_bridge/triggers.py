"""Triggers as Dagster sensors. ``plan/due`` alone decides what is due. A sensor asks, and carries out the answer.

With many bindings, one sensor evaluates all triggers (``grouped_triggers``), by the same functions.

A firing is a row in the catalog before its run is requested. A daemon that dies in between neither loses nor repeats a
run: the next tick finds the row and asks Dagster for its run. The sensor's cursor holds no state. Time triggers are
sensors, too, because the tick of a schedule comes only once and would not retry a firing whose run failed or waited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from dagster import (
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

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.ops import ATTEMPT_TAG, FIRING_TAG
from nova_assets.dagster_bridge.partitions import (
    add_partitions_to_dagster,
    build_partitions_definition,
    find_multi_partition_columns,
    to_dagster_key,
)
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.run_liveness import is_dagster_owner_dead
from nova_assets.errors import ExecutionInProgress
from nova_assets.execution.trigger_state import KnownRuns
from nova_assets.model.binding import Binding
from nova_assets.model.execution import Firing, FiringRun, FiringRunState
from nova_assets.model.trigger import OnData, OnSealed, Trigger
from nova_assets.plan.due import DueStep, why_trigger_is_off
from nova_assets.store.due_runs import find_due_steps, record_firing_of
from nova_assets.store.store import Store

BindingJobDefinition: TypeAlias = JobDefinition | UnresolvedAssetJobDefinition
SensorAnswer: TypeAlias = RunRequest | list[RunRequest] | SkipReason

REASON_TAG = "nova/why"

MAX_RUNS_PER_TICK = 25
"""Maximum number of runs that one tick requests, one per partition."""

RUN_APPEARANCE_DELAY = timedelta(seconds=10)
"""Time that Dagster may take to record the run of a firing, before the run is requested again."""

FIRING_PRIORITY = 10
"""Priority of the runs of firings in Dagster's queue. Backfills and other runs have priority 0."""

SENSOR_INTERVAL = 5  # seconds; Dagster's sensor loop is no faster

_FIRING_RUN_STATES: Mapping[DagsterRunStatus, FiringRunState] = {
    DagsterRunStatus.SUCCESS: "succeeded",
    DagsterRunStatus.CANCELED: "canceled",
    DagsterRunStatus.FAILURE: "failed",
}

_registered_bindings: WeakKeyDictionary[Store, set[str]] = WeakKeyDictionary()
"""Names of the bindings that a tick of this process has registered."""


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
        return evaluate_trigger(binding, nova.store(), context.instance)

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
    options: dict[str, Any] = {
        "name": sensor_name(binding, names),
        "job": job,
        "minimum_interval_seconds": interval,
        "default_status": DefaultSensorStatus.RUNNING,
        "description": description,
    }
    if len(watched) <= 1:
        return SensorDefinition(evaluation_fn=evaluate, **options)

    def on_tick(context: MultiAssetSensorEvaluationContext) -> SensorAnswer:
        answer = evaluate(context)
        if not isinstance(answer, SkipReason):
            # The catalog decides, so the cursor only follows. Otherwise Dagster rejects the requests.
            context.advance_all_cursors()  # type: ignore[no-untyped-call]
        return answer

    return MultiAssetSensorDefinition(
        monitored_assets=watched, job_name=None, asset_materialization_fn=on_tick, **options
    )


def watched_channels(trigger: Trigger) -> list[str]:
    """Channels whose data or seals are parts of a trigger."""
    channels: list[str] = []
    for part in trigger.simple_triggers():
        channels += part.channels if isinstance(part, OnData) else [part.channel] if isinstance(part, OnSealed) else []
    return list(dict.fromkeys(channels))


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

    @classmethod
    def of_steps(cls, requests: Sequence[RunRequest], steps: Sequence[DueStep]) -> TriggerAnswer:
        """Answer by the steps that were decided."""
        why = "nothing is due in any partition"
        if len(steps) == 1 and not steps[0].partition:
            why = _describe_step(steps[0])
        evaluate_at = (s.decide_again_at for s in steps if s.decide_again_at is not None)
        return cls(tuple(requests), why, min(evaluate_at, default=None))


def evaluate_trigger(
    binding: Binding, store: Store, instance: DagsterInstance, now: datetime | None = None
) -> SensorAnswer:
    """Evaluate a binding's trigger once, independently in each partition.

    Args:
        now: time of the evaluation; the catalog's clock by default.

    Returns:
        A run request, a list of run requests (one per partition), or the reason why no run is requested.
    """
    answer = answer_trigger(binding, store, instance, now)
    if not answer.requests:
        return SkipReason(answer.why)
    return list(answer.requests) if binding.dimensions else answer.requests[0]


def answer_trigger(
    binding: Binding, store: Store, instance: DagsterInstance, now: datetime | None = None
) -> TriggerAnswer:
    """Evaluate a binding's trigger once, as ``evaluate_trigger``, and say when to evaluate it again."""
    register_once(binding, store)
    requests: list[RunRequest] = []
    steps: list[DueStep] = []
    for step in find_due_steps(binding, store.catalog, DagsterRuns(instance, store), now):
        if step.is_execution and not requests:
            check_still_registered(binding, store)
        steps.append(step)
        firing = record_firing_of(step, store.catalog)
        if firing is not None:
            requests.append(_build_run_request(binding, firing, store))
        if len(requests) == MAX_RUNS_PER_TICK:
            break
    return TriggerAnswer.of_steps(requests, steps)


def _describe_step(step: DueStep) -> str:
    """Why a step requests no run."""
    lost_races = {"fire": "another process has fired the binding", "retry": "another process retries the firing"}
    why = lost_races.get(step.action, step.why)
    return why if step.end is None or step.firing is None else f"{step.end.describe(step.firing)}; {why}"


def register_once(binding: Binding, store: Store) -> None:
    """Register a binding at its first tick in this process, and whenever a restored catalog does not have it."""
    catalog, registered = store.catalog, _registered_bindings.setdefault(store, set())
    statuses, registered_at = catalog.read_together(
        lambda: (catalog.definition_states.statuses(), catalog.firings.registered_at(binding.name))
    )
    if why_trigger_is_off(binding, statuses) or (registered_at is not None and binding.name in registered):
        return
    store.runtime.register_binding(binding)
    registered.add(binding.name)


def check_still_registered(binding: Binding, store: Store) -> None:
    """Check that no other process has registered other definitions since this process was loaded. All runs would fail,
    and use up the attempts of the firing.

    Raises:
        DefinitionConflict: a channel or the binding was replaced (``nova init --replace``).
    """
    store.runtime.register_binding(binding)


class DagsterRuns(KnownRuns):
    """What Dagster knows of the runs of a project's bindings."""

    run_appears_within = RUN_APPEARANCE_DELAY

    def __init__(self, instance: DagsterInstance, store: Store) -> None:
        self.instance = instance
        self.store = store

    def is_owner_dead(self, owner: str) -> bool:
        return is_dagster_owner_dead(owner, self.instance)

    def runs_of_firing(self, firing: Firing, executions: tuple[FiringRun, ...]) -> tuple[FiringRun, ...]:
        """Dagster's runs of a firing, and executions in other processes, such as those of ``nova run --due``."""
        records = self.instance.get_run_records(RunsFilter(tags={FIRING_TAG: firing.id}))
        begun = {e.run_id for e in executions}
        known_ids = {r.dagster_run.run_id for r in records}
        others = (e for e in executions if e.run_id not in known_ids)
        return (*(self._firing_run(r, r.dagster_run.run_id in begun) for r in records), *others)

    def _firing_run(self, record: RunRecord, has_begun: bool) -> FiringRun:
        run = record.dagster_run
        state = _FIRING_RUN_STATES.get(run.status, "active")
        ended_at = record.update_timestamp if record.end_time is None else datetime.fromtimestamp(record.end_time, UTC)
        is_failure = run.is_finished and (has_begun or self._has_error(run.run_id))
        return FiringRun("run", run.run_id, state, ended_at, int(is_failure), run.run_id, run.tags.get(RUN_KEY_TAG, ""))

    def _has_error(self, run_id: str) -> bool:
        """Whether an error of the binding ended a run.

        A process that was killed leaves none, and an execution of another run that was in progress tells nothing about
        the binding either.
        """
        failures = {DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE}
        events = [e.dagster_event for e in self.instance.all_logs(run_id, of_type=failures)]
        errors = [getattr(e.event_specific_data, "error", None) for e in events if e is not None]
        return any(error is not None and not _is_of(error, ExecutionInProgress) for error in errors)

    def can_run(self, binding: Binding, partitions: Collection[str]) -> Callable[[str], bool]:
        """Whether Dagster knows a partition. One unknown key, such as a future day, makes it reject all requests."""
        dimensions = binding.dimensions
        definition = build_partitions_definition(dimensions) if dimensions else None
        if definition is None:
            return super().can_run(binding, partitions)
        columns = find_multi_partition_columns(self.store.project)
        add_partitions_to_dagster(self.instance, ((dimensions, p) for p in partitions), columns)

        def has_key(partition: str) -> bool:
            with partition_loading_context(dynamic_partitions_store=self.instance):
                return definition.has_partition_key(to_dagster_key(dimensions, partition, columns))

        return has_key


def _is_of(error: Any, error_class: type[Exception]) -> bool:
    """Whether Dagster recorded an error of a class, or an error that it caused."""
    return error.cls_name == error_class.__name__ or (error.cause is not None and _is_of(error.cause, error_class))


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
