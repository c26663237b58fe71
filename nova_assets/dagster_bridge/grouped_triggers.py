"""One sensor for the triggers of many bindings. It evaluates those for which the catalog has changed.

Each binding keeps a sensor of its own name, which evaluates nothing. It shows the binding and its trigger on Dagster's
Automation page, and switches the binding off. The decision is the same as for a sensor per binding: ``plan/due``
and the firings in the catalog. The grouped sensor has no cursor. Its memory is in the process, and a new process
evaluates all triggers once.

In one layout, each due binding gets a run of its own (``nova_triggers``). In the other, one run executes all that is
due (``nova_due``), as ``nova run --follow`` does (Nova, section 4). Bindings that are due together share common rows,
and a binding that reads the output of another one follows in the same run, without waiting for a sensor. Each has its
own execution and commit. All commits are materializations of this run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from dagster import (
    DagsterInstance,
    DefaultSensorStatus,
    Failure,
    OpExecutionContext,
    Output,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)
from dagster._core.definitions.job_definition import JobDefinition
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorStatus

from nova_assets.catalog.catalog import Catalog
from nova_assets.dagster_bridge.code_locations import code_location_of_sensor
from nova_assets.dagster_bridge.commit_outputs import report_execution
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.ops import runtime_of_run
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.sensor_job import SensorJob, log_periodically
from nova_assets.dagster_bridge.triggers import (
    SENSOR_INTERVAL,
    BindingJobDefinition,
    TriggerAnswer,
    answer_trigger,
    build_sensor_of_binding,
    check_still_registered,
    register_once,
    sensor_name,
)
from nova_assets.execution.trigger_state import execution_counts_for_partition
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.trigger import After, OnSealed
from nova_assets.nova_error import NovaError
from nova_assets.plan.due import UNSEEN_CHANGE_INTERVAL, why_trigger_is_off
from nova_assets.plan.trigger_watch import CatalogCounters, TriggerWatch
from nova_assets.store.due_runs import DueRun, find_due_steps, record_firing_of, run_due_bindings
from nova_assets.store.store import Store

log = get_logger("nova_assets.triggers")

GROUPED_SENSOR = "nova_triggers"
DUE_JOB = "nova_due"
PAUSE_AFTER_FAILURE = 5  # seconds; failed executions have a delay of their own

MAX_SECONDS_PER_TICK = 10.0
"""Time after which a tick leaves the remaining bindings to the next tick. Dagster cancels a tick after a minute."""

MAX_REQUESTS_PER_TICK = 100
"""Number of run requests after which a tick leaves the remaining bindings to the next tick."""

SWITCH_INTERVAL = 365 * 86_400
"""Seconds between two ticks of the sensor of a binding whose trigger the grouped sensor evaluates."""


def build_grouped_sensors(
    triggered: list[Binding], jobs: Mapping[str, BindingJobDefinition], nova: NovaResource
) -> list[SensorDefinition]:
    """Sensor ``nova_triggers``, and for each binding with a trigger a sensor that switches it on and off.

    Args:
        triggered: bindings with a trigger.
    """
    if not triggered:
        return []
    evaluator = GroupedTriggers(triggered)

    def on_tick(context: SensorEvaluationContext) -> list[RunRequest] | SkipReason:
        return evaluator.tick(nova.store(), context)

    grouped_sensor = SensorDefinition(
        name=nova.names.name(GROUPED_SENSOR),
        jobs=[jobs[b.name] for b in triggered],
        evaluation_fn=on_tick,
        minimum_interval_seconds=SENSOR_INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Evaluates the triggers of {len(triggered)} bindings when the catalog has changed. To switch one "
        "binding off, stop the sensor with its name.",
    )
    return [grouped_sensor, *(build_switch(b, jobs[b.name], nova.names, GROUPED_SENSOR) for b in triggered)]


def build_switch(
    binding: Binding, job: BindingJobDefinition, names: DagsterNames, evaluated_by: str
) -> SensorDefinition:
    """Sensor that evaluates nothing. It shows a binding and its trigger, and switches the binding off.

    Args:
        evaluated_by: name of the sensor that evaluates the trigger, without a key prefix.
    """
    grouped_sensor = names.name(evaluated_by)

    def on_tick(context: SensorEvaluationContext) -> SkipReason:
        return SkipReason(f"{grouped_sensor} evaluates {binding.when}; stop this sensor to switch the binding off")

    assert binding.when is not None
    description = f"{binding.when}, evaluated by {grouped_sensor}. Stop this sensor to switch the binding off."
    return build_sensor_of_binding(binding, binding.when, job, on_tick, SWITCH_INTERVAL, description, names)


class GroupedTriggers:
    """Evaluates the triggers of several bindings in one tick.

    Args:
        bindings: bindings with triggers.
        answer: evaluates the trigger of one binding.
        max_requests: number of run requests after which a tick leaves the remaining bindings to the next tick.
    """

    def __init__(
        self,
        bindings: list[Binding],
        answer: Callable[[Binding, Store, DagsterInstance], TriggerAnswer] = answer_trigger,
        max_requests: int | None = None,
    ) -> None:
        self._bindings = {b.name: b for b in bindings}
        self._answer = answer
        self._max_requests = max_requests
        self._watch = TriggerWatch(bindings)
        self._is_registered = False
        self._lock = threading.Lock()  # a person can evaluate the sensor in Dagster's UI during a tick

    def tick(self, store: Store, context: SensorEvaluationContext) -> list[RunRequest] | SkipReason:
        """Evaluate the triggers that may be due. The error of a binding does not affect the others.

        Raises:
            Exception: triggers could not be evaluated, and no run is to be requested. The tick fails, so that Dagster
                shows it.
        """
        with self._lock:
            self._register_once(store)
            waiting = self._watch.observe(_load_counters(self._bindings.values(), store.catalog), store.catalog.now())
            if not waiting:
                return SkipReason(f"nothing has changed for {len(self._bindings)} bindings")
            return self._evaluate(waiting, store, context)

    def _register_once(self, store: Store) -> None:
        """Register all bindings in one transaction. One by one, a thousand new bindings would occupy several ticks.

        Each registration would also count as a change, so that the next tick would evaluate the bindings again.
        """
        if self._is_registered:
            return
        statuses = store.catalog.definition_states.statuses()
        bindings = [b for b in self._bindings.values() if not why_trigger_is_off(b, statuses)]
        names = {c.name for b in bindings for c in b.channels.values()}
        with suppress(NovaError):  # of one binding; its own evaluation says which
            store.catalog.definitions.register([c for c in store.project.channels if c.name in names], bindings)
        self._is_registered = True

    def _evaluate(
        self, binding_names: list[str], store: Store, context: SensorEvaluationContext
    ) -> list[RunRequest] | SkipReason:
        deadline = time.monotonic() + MAX_SECONDS_PER_TICK
        stopped_sensors = stopped_sensor_names(context.instance, code_location_of_sensor(context))
        requests: list[RunRequest] = []
        reasons: list[str] = []
        errors: list[Exception] = []
        for name in binding_names:
            if len(requests) >= (self._max_requests or MAX_REQUESTS_PER_TICK) or time.monotonic() > deadline:
                break
            binding, now = self._bindings[name], store.catalog.now()
            if sensor_name(binding, DagsterNames.of(store)) in stopped_sensors:
                self._watch.rest(name, now + UNSEEN_CHANGE_INTERVAL, now)
                reasons.append(f"{name}: its sensor is stopped")
                continue
            try:
                answer = self._answer(binding, store, context.instance)
            except Exception as error:
                self._watch.rest(name, now + UNSEEN_CHANGE_INTERVAL, now)
                error.add_note(f"(the trigger of binding {name})")
                log.error("the trigger of %s was not evaluated: %s", name, error)
                errors.append(error)
                continue
            self._watch.rest(name, answer.evaluate_at, now)
            requests += answer.requests
            reasons += [] if answer.requests else [f"{name}: {answer.why}"]
        if errors and not requests:
            raise error_of_triggers(errors)
        return requests or SkipReason(_describe(reasons))


def error_of_triggers(errors: list[Exception]) -> Exception:
    """One error for the triggers that were not evaluated, so that the tick fails and Dagster shows it.

    Dagster shows the text of a group, and neither its errors nor their notes.
    """
    if len(errors) == 1:
        return errors[0]
    lines = [f"{error} {' '.join(error.__notes__)}" for error in errors]
    return ExceptionGroup("\n".join([f"{len(errors)} triggers failed", *lines]), errors)


def _load_counters(bindings: Iterable[Binding], catalog: Catalog) -> CatalogCounters:
    """Counters whose change may make one of the bindings due."""
    kinds = {type(t) for b in bindings for t in b.triggers}

    def read() -> CatalogCounters:
        executions = execution_counts_for_partition(catalog.executions.counts() if After in kinds else {})
        return CatalogCounters(
            catalog.scheduler.heads(), catalog.seals.counts() if OnSealed in kinds else {}, executions
        )

    return catalog.read_together(read)


def stopped_sensor_names(instance: DagsterInstance, code_location: str | None = None) -> set[str]:
    """Names of the sensors that a person has switched off.

    Args:
        code_location: only sensors of this location.
    """
    states = instance.all_instigator_state(
        instigator_type=InstigatorType.SENSOR, instigator_statuses={InstigatorStatus.STOPPED}
    )
    return {
        s.instigator_name
        for s in states
        if code_location in (None, s.origin.repository_origin.code_location_origin.location_name)
    }


def _describe(reasons: list[str], limit: int = 10) -> str:
    more = [f"and {len(reasons) - limit} more bindings wait"] if len(reasons) > limit else []
    return "\n".join([*reasons[:limit], *more])


# one run for all that is due


def build_due_runs(
    triggered: list[Binding], jobs: Mapping[str, BindingJobDefinition], nova: NovaResource
) -> tuple[JobDefinition, list[SensorDefinition]]:
    """Job ``nova_due`` with its sensor, and for each binding with a trigger a sensor that switches it on and off.

    Args:
        triggered: bindings with a trigger.
        jobs: name of a binding -> its own job, for runs by hand.
    """
    triggers = GroupedTriggers(triggered, _answer_trigger, max_requests=1)
    job, sensor = SensorJob(
        name=DUE_JOB,
        op_name="run_due",
        job_description="Runs the bindings that are due, one after the other, each with its own commit.",
        sensor_description=f"Requests a run if one of {len(triggered)} bindings is due. "
        "To switch one binding off, stop the sensor with its name.",
        run=partial(_run_due, triggered),
        evaluate=lambda context, store: triggers.tick(store, context),
        sensor_interval=SENSOR_INTERVAL,
        pause_after_failure=PAUSE_AFTER_FAILURE,
    ).build_definitions(nova)
    return job, [sensor, *(build_switch(b, jobs[b.name], nova.names, f"{DUE_JOB}_sensor") for b in triggered)]


def _answer_trigger(binding: Binding, store: Store, instance: DagsterInstance) -> TriggerAnswer:
    """Whether a run has anything to do for a binding. It is looked at again, until it is not due any more."""
    register_once(binding, store)
    steps = list(find_due_steps(binding, store.catalog))
    for step in steps:
        if step.end is not None and not step.is_execution:  # no run comes that would record it
            record_firing_of(step, store.catalog)
    is_due = any(s.is_execution for s in steps)
    if is_due:
        check_still_registered(binding, store)
    requests = (RunRequest(),) if is_due else ()
    return TriggerAnswer.of_steps(requests, steps)


def _run_due(bindings: list[Binding], context: OpExecutionContext, store: Store) -> Output[dict[str, Any]]:
    """Run what is due of these bindings, until nothing is due.

    Raises:
        Failure: executions have failed. The others are committed.
    """
    stopped, names = stopped_sensor_names(context.instance), DagsterNames.of(store)
    active = [b for b in bindings if sensor_name(b, names) not in stopped]
    done: list[DueRun] = []
    with forward_logs_to_dagster(context.log), log_periodically(context.log.info, "what is due still runs"):
        for due_run in run_due_bindings(runtime_of_run(context, names), active, follow=True, run_id=context.run_id):
            done.append(due_run)
            if due_run.execution is not None:
                report_execution(context, store, due_run.execution)
            if due_run.error is not None:
                context.log.error(f"{due_run.name}: {due_run.error.render()}")
    failed = [r for r in done if r.error is not None]
    if failed:
        lines = [f"{r.name}: {r.error}" for r in failed]
        raise Failure("\n".join([f"{len(failed)} of {len(done)} failed", *lines]), allow_retries=False)
    return Output({"committed": [r.name for r in done if r.execution is not None]})
