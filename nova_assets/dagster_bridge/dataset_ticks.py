"""Ticks of SQL datasets under Dagster: a sensor finds missing partitions and a job computes them.

The sensor's cursor holds no state, because the work to do always follows from the catalog. A daemon or a run that dies
in between costs only another evaluation. One run computes all partitions that are ready, so Spark stays warm.
"""

from __future__ import annotations

import time
from typing import Any

from dagster import (
    Failure,
    MetadataValue,
    OpExecutionContext,
    Output,
    RunRequest,
    SensorEvaluationContext,
    SkipReason,
)

from nova_assets.dagster_bridge.commit_outputs import report_execution
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.sensor_job import SensorJob, log_periodically
from nova_assets.plan.tick import describe_tick
from nova_assets.store.store import Store
from nova_assets.store.tick import TaskOutcome

JOB_NAME = "nova_tick"
SENSOR_INTERVAL = 10  # seconds
EXTERNAL_REFRESH_INTERVAL = 60  # seconds
PAUSE_AFTER_FAILURE = 10  # seconds; failed tasks have a backoff of their own


def tick_sensor_job() -> SensorJob:
    """Job ``nova_tick``, which computes the partitions that the project's SQL datasets lack, and its sensor."""
    last_refresh = [float("-inf")]

    def evaluate(context: SensorEvaluationContext, store: Store) -> RunRequest | SkipReason:
        if time.monotonic() - last_refresh[0] >= EXTERNAL_REFRESH_INTERVAL:
            for refreshed in store.refresh_all():
                if refreshed.needs_attention:
                    context.log.warning(refreshed.problems_text)
            last_refresh[0] = time.monotonic()
        planned_tick = store.next_tick()
        return RunRequest() if planned_tick.run or planned_tick.drop else SkipReason(describe_tick(planned_tick))

    return SensorJob(
        name=JOB_NAME,
        op_name="tick",
        job_description="Computes partitions of datasets in SQL. The sensor nova_tick_sensor requests the runs.",
        sensor_description="Requests a run if partitions of datasets in SQL are missing, marked or stale, and their "
        "inputs are ready. The run also drops partitions that no task writes any more.",
        run=_run_tick,
        evaluate=evaluate,
        sensor_interval=SENSOR_INTERVAL,
        pause_after_failure=PAUSE_AFTER_FAILURE,
    )


def _run_tick(context: OpExecutionContext, store: Store) -> Output[dict[str, Any]]:
    planned_tick = store.next_tick()
    context.log.info(describe_tick(planned_tick))
    task_runs: list[TaskOutcome] = []
    with forward_logs_to_dagster(context.log), log_periodically(context.log.info, "datasets are still being computed"):
        task_runs += store.tick(planned_tick, lambda run: _report_materialization(context, store, run), context.run_id)
    failed = [r for r in task_runs if r.error is not None]
    if failed:
        lines = (f"{r.dataset} {r.partition}".rstrip() + f": {r.error}" for r in failed)
        raise Failure("\n".join([f"{len(failed)} of {len(task_runs)} failed", *lines]), allow_retries=False)
    partitions_by_dataset: dict[str, list[str]] = {}
    for r in task_runs:
        partitions_by_dataset.setdefault(r.dataset, []).append(r.partition)
    return Output(
        {"made": partitions_by_dataset, "dropped": {d: list(p) for d, p in planned_tick.drop.items()}},
        metadata={name: MetadataValue.json(partitions) for name, partitions in partitions_by_dataset.items()},
    )


def _report_materialization(context: OpExecutionContext, store: Store, task_run: TaskOutcome) -> None:
    """Report a computed partition as a materialization of this run, or log the error of a failed partition."""
    name = f"{task_run.dataset} {task_run.partition}".rstrip()
    if task_run.execution is None or task_run.execution.commit is None:
        context.log.error(f"{name}: {task_run.error}")
        return
    report_execution(context, store, task_run.execution)
