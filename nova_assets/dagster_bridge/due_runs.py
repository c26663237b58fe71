"""One run for all bindings that are due: ``nova_due`` (Nova, section 4).

The run does what ``nova run --follow`` does. Bindings that are due together share common rows, and a binding that reads
the output of another one follows in the same run, without waiting for a sensor. Each has its own execution and commit.
All commits are materializations of this run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dagster import (
    DagsterInstance,
    Failure,
    OpExecutionContext,
    Output,
    RunRequest,
    SensorDefinition,
)
from dagster._core.definitions.job_definition import JobDefinition

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.grouped_triggers import (
    GroupedTriggers,
    build_switch,
    stopped_sensor_names,
)
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.ops import runtime_of_run
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.run_commits import report_execution
from nova_assets.dagster_bridge.sensor_job import SensorJob, log_periodically
from nova_assets.dagster_bridge.triggers import (
    SENSOR_INTERVAL,
    BindingJobDefinition,
    TriggerAnswer,
    register_once,
    sensor_name,
)
from nova_assets.model.binding import Binding
from nova_assets.operations.due_runs import DueRun, find_due_steps, record_firing_of, run_due_bindings
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
    triggers = GroupedTriggers(triggered, _answer_trigger, max_requests=1)
    job, sensor = SensorJob(
        name=JOB_NAME,
        op_name="run_due",
        job_description="Runs the bindings that are due, one after the other, each with its own commit.",
        sensor_description=f"Requests a run if one of {len(triggered)} bindings is due. "
        "To switch one binding off, stop the sensor with its name.",
        run=partial(_run_due, triggered),
        evaluate=lambda context, store: triggers.tick(store, context),
        sensor_interval=SENSOR_INTERVAL,
        pause_after_failure=PAUSE_AFTER_FAILURE,
    ).build_definitions(nova)
    return job, [sensor, *(build_switch(b, jobs[b.name], nova.names, f"{JOB_NAME}_sensor") for b in triggered)]


def _answer_trigger(binding: Binding, store: Store, instance: DagsterInstance) -> TriggerAnswer:
    """Whether a run has anything to do for a binding. It is looked at again, until it is not due any more."""
    register_once(binding, store)
    steps = list(find_due_steps(binding, store.catalog))
    for step in steps:
        if step.end is not None and not step.is_execution:  # no run comes that would record it
            record_firing_of(step, store.catalog)
    requests = (RunRequest(),) if any(s.is_execution for s in steps) else ()
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
