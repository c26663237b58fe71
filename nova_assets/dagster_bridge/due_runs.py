"""One run for all bindings that are due: ``nova_due`` (Nova, section 4).

The run does what ``nova run --follow`` does. Bindings that are due together share common rows, and a binding that reads
the output of another one follows in the same run, without waiting for a sensor. Each has its own execution and commit.
All commits are materializations of this run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dagster import (
    Failure,
    OpExecutionContext,
    Output,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)
from dagster._core.definitions.job_definition import JobDefinition

from nova_assets.dagster_bridge.code_locations import code_location_of_sensor
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.grouped_triggers import (
    build_switch,
    error_of_triggers,
    load_counters,
    note_trigger_error,
    stopped_sensor_names,
)
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.ops import runtime_of_run
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.run_commits import report_execution
from nova_assets.dagster_bridge.sensor_job import SensorJob, log_periodically
from nova_assets.dagster_bridge.triggers import (
    SENSOR_INTERVAL,
    UNSEEN_CHANGE_INTERVAL,
    BindingJobDefinition,
    sensor_name,
)
from nova_assets.model.binding import Binding
from nova_assets.operations.due_runs import DueRun, find_due_steps, record_firing_of, run_due_bindings
from nova_assets.plan.trigger_watch import TriggerWatch
from nova_assets.store.store import Store

JOB_NAME = "nova_due"
PAUSE_AFTER_FAILURE = 5  # seconds; failed executions have a delay of their own


def build_due_runs(
    triggered: list[Binding], jobs: Mapping[str, BindingJobDefinition], nova: NovaResource
) -> tuple[JobDefinition, list[SensorDefinition]]:
    """Job ``nova_due`` with its sensor, and for each binding with a trigger a sensor that switches it on and off.

    Args:
        triggered: bindings with a trigger.
        jobs: name of a binding -> its own job, for runs by hand.
    """
    due = DueBindings(triggered)
    job, sensor = SensorJob(
        name=JOB_NAME,
        op_name="run_due",
        job_description="Runs the bindings that are due, one after the other, each with its own commit.",
        sensor_description=f"Requests a run if one of {len(triggered)} bindings is due. "
        "To switch one binding off, stop the sensor with its name.",
        run=due.run,
        evaluate=due.evaluate,
        sensor_interval=SENSOR_INTERVAL,
        pause_after_failure=PAUSE_AFTER_FAILURE,
    ).build_definitions(nova)
    return job, [sensor, *(build_switch(b, jobs[b.name], nova.names, f"{JOB_NAME}_sensor") for b in triggered)]


class DueBindings:
    """Bindings that one run executes when they are due.

    Args:
        bindings: bindings with triggers.
    """

    def __init__(self, bindings: list[Binding]) -> None:
        self._bindings = {b.name: b for b in bindings}
        self._watch = TriggerWatch(bindings)

    def evaluate(self, context: SensorEvaluationContext, store: Store) -> RunRequest | SkipReason:
        """Whether a run has anything to do. Bindings of which nothing has changed are not looked at.

        Raises:
            Exception: triggers could not be evaluated, and no run is to be requested.
        """
        catalog = store.catalog
        waiting = self._watch.observe(load_counters(self._bindings.values(), catalog), catalog.now())
        stopped = stopped_sensor_names(context.instance, code_location_of_sensor(context))
        errors: list[Exception] = []
        for name in waiting:
            binding, now = self._bindings[name], catalog.now()
            if sensor_name(binding, DagsterNames.of(store)) in stopped:
                self._watch.rest(name, now + UNSEEN_CHANGE_INTERVAL, now)
                continue
            try:
                store.runtime.register_binding(binding)
                steps = list(find_due_steps(binding, catalog))
                for step in steps:
                    if step.gives_up and not step.is_execution:  # no run comes that would record it
                        record_firing_of(step, catalog)
            except Exception as error:  # the other bindings are due all the same
                errors.append(note_trigger_error(error, name))
                self._watch.rest(name, now + UNSEEN_CHANGE_INTERVAL, now)
                continue
            if any(s.is_execution for s in steps):
                return RunRequest()  # the binding is looked at again, until it is not due any more
            soon = [now + UNSEEN_CHANGE_INTERVAL] if any(s.action == "wait" for s in steps) else []
            self._watch.rest(name, min([*soon, *(s.due_at for s in steps if s.due_at is not None)], default=None), now)
        if errors:
            raise error_of_triggers(errors)
        return SkipReason(f"nothing is due of {len(self._bindings)} bindings")

    def run(self, context: OpExecutionContext, store: Store) -> Output[dict[str, Any]]:
        """Run what is due, until nothing is due.

        Raises:
            Failure: executions have failed. The others are committed.
        """
        done: list[DueRun] = []
        with forward_logs_to_dagster(context.log), log_periodically(context.log.info, "what is due still runs"):
            for due_run in self._runs(context, store):
                done.append(due_run)
                if due_run.execution is not None:
                    report_execution(context, store, due_run.execution)
                if due_run.error is not None:
                    context.log.error(f"{_name(due_run)}: {due_run.error.render()}")
        failed = [r for r in done if r.error is not None]
        if failed:
            lines = [f"{_name(r)}: {r.error}" for r in failed]
            raise Failure("\n".join([f"{len(failed)} of {len(done)} failed", *lines]), allow_retries=False)
        return Output({"committed": [_name(r) for r in done if r.execution is not None]})

    def _runs(self, context: OpExecutionContext, store: Store) -> Iterator[DueRun]:
        stopped, names = stopped_sensor_names(context.instance), DagsterNames.of(store)
        active = [b for b in self._bindings.values() if sensor_name(b, names) not in stopped]
        runtime = runtime_of_run(context, names)
        return run_due_bindings(runtime, active, follow=True, run_id=context.run_id)


def _name(due_run: DueRun) -> str:
    return f"{due_run.binding} {due_run.partition}".rstrip()
