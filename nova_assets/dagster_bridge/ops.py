"""Dagster ops of a bound workflowette: begin, one per task, checks, and commit (R4).

The ops pass only a small description of the execution to each other, which Dagster persists. A run that restarts from
a failure therefore continues with the same pins.

(This module does not postpone annotations, because Dagster inspects the type of ``context`` when it builds an op.)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from dagster import (
    AssetCheckResult,
    Backoff,
    Failure,
    In,
    Nothing,
    OpDefinition,
    OpExecutionContext,
    Out,
    Output,
    RetryPolicy,
)

from nova_assets.dagster_bridge.asset_checks import build_asset_check_specs, to_check_evaluation, to_check_result
from nova_assets.dagster_bridge.commit_outputs import report_commits
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.partitions import parse_dagster_key
from nova_assets.dagster_bridge.run_liveness import begin_for_run, execution_owner_of_run, is_dagster_owner_dead
from nova_assets.errors import CommitConflict, ExecutionNotLive
from nova_assets.execution.data_checks import check_failed_error
from nova_assets.execution.runtime import Runtime
from nova_assets.model.binding import Binding
from nova_assets.model.commit import Commit
from nova_assets.model.execution import Execution, TaskReport
from nova_assets.model.partitions import WHOLE
from nova_assets.model.task import Task
from nova_assets.store.store import Store

FIRING_TAG = "nova/firing"
ATTEMPT_TAG = "nova/attempt"
"""Tag with the number of the run among the runs requested for its firing, from 1."""
WHOLE_TAG = "nova/whole"
"""Tag that, set to ``true``, makes a run execute all partitions as one, as ``nova run --whole`` does."""

EXECUTION = "execution"

OpInputs = Mapping[str, dict[str, Any]]
"""Values of an op's inputs, as Dagster hands them to a plain compute function.

The ops are built without the decorator ``op``, which would inspect the signature of each function several times. With
many bindings, that would be a fifth of the time to load their definitions.
"""


AFTER = In(Nothing)
"""Input that waits for another step, or for an asset. It carries no data.

The ops of all bindings share their inputs and outputs, because Dagster resolves the type of each at length.
"""

OF_EXECUTION = In(dict)
"""Input with the description of the execution."""

REPORT_OUT, SIGNAL_OUT = Out(dict), Out(Nothing)


@cache
def channel_out(names: DagsterNames) -> Out:
    """Output that stands for a channel of a project."""
    return Out(Nothing, io_manager_key=names.resource)


def unique_step_name(binding: Binding, step: str, names: DagsterNames) -> str:
    """Step name prefixed with the binding's name, because op names must be unique in a code location."""
    return f"{names.name(binding.name)}__{step}"


def build_begin_op(binding: Binding, upstream_channels: list[str], names: DagsterNames) -> OpDefinition:
    """Op that begins the execution and pins heads and cursors.

    The op's inputs carry no data, because the runtime reads channels by their pins.
    """

    def begin(context: OpExecutionContext, inputs: OpInputs) -> Iterator[Output[dict[str, Any]]]:
        runtime = runtime_of_run(context, names)
        runtime.delete_dead_staging()
        is_partitioned = context.has_partition_key and bool(binding.dimensions)
        partition = parse_dagster_key(binding.dimensions, context.partition_key) if is_partitioned else WHOLE
        execution = begin_execution(context, runtime, binding, partition)
        pins = {c: {"head": p.head, "cursor": p.cursor} for c, p in execution.pins.items()}
        context.log.info(f"execution {execution.id} pins {pins}")
        yield Output(
            {"id": execution.id, "binding": binding.name},
            EXECUTION,
            metadata={"nova/execution": execution.id, "nova/pins": pins},
        )

    return OpDefinition(
        begin,
        name=unique_step_name(binding, "begin", names),
        ins={c: AFTER for c in upstream_channels},
        outs={EXECUTION: REPORT_OUT},
        required_resource_keys={names.resource},
        description=f"Pins the inputs of {binding.name}.",
    )


def build_task_op(binding: Binding, task: Task, upstream_tasks: tuple[str, ...], names: DagsterNames) -> OpDefinition:
    """Op that runs one task: reads its inputs, calls its function and stages its outputs."""
    delay, backoff = (task.retry_delay, Backoff.EXPONENTIAL) if task.retry_delay else (None, None)
    retries = RetryPolicy(max_retries=task.retries, delay=delay, backoff=backoff) if task.retries else None

    def run_task(context: OpExecutionContext, inputs: OpInputs) -> Iterator[Output[dict[str, Any]]]:
        runtime = runtime_of_run(context, names)
        last_try = context.retry_number >= task.retries
        with forward_logs_to_dagster(context.log), _attach_execution(context, runtime, inputs[EXECUTION]) as live:
            report = runtime.run_task(live, task.name, last_try)
        shown = log_task(context, report)
        rows = {f"rows in {port}": n for port, n in report.wrote.items() if n is not None}
        yield Output(shown, "report", metadata={"seconds": report.seconds, "nova/report": shown, **rows})

    return OpDefinition(
        run_task,
        name=unique_step_name(binding, task.name, names),
        ins={EXECUTION: OF_EXECUTION, **{f"after_{t}": AFTER for t in upstream_tasks}},
        outs={"report": REPORT_OUT},
        required_resource_keys={names.resource},
        retry_policy=retries,
        description=task.description,
    )


def build_checks_op(binding: Binding, names: DagsterNames) -> OpDefinition:
    """Op that runs the data checks on the staged blocks. A failed blocking check ends the execution and the run."""
    specs = build_asset_check_specs(binding, names)

    def checks(context: OpExecutionContext, inputs: OpInputs) -> Iterator[AssetCheckResult]:
        runtime = runtime_of_run(context, names)
        with forward_logs_to_dagster(context.log), _attach_execution(context, runtime, inputs[EXECUTION]) as live:
            reports = runtime.run_data_checks(live)
            if any(r.blocks_commit for r in reports):
                error = check_failed_error(live, reports)
                runtime.fail(live, error)
                context.log.error(str(error))
        yield from (to_check_result(r, names) for r in reports)

    return OpDefinition(
        checks,
        name=unique_step_name(binding, "checks", names),
        ins={EXECUTION: OF_EXECUTION, **{f"after_{t.name}": AFTER for t in binding.tasks}},
        outs={s.get_python_identifier(): SIGNAL_OUT for s in specs},
        required_resource_keys={names.resource},
        description=f"Checks the staged output of {binding.name} before it is published.",
    )


def build_commit_op(binding: Binding, names: DagsterNames) -> OpDefinition:
    """Op that commits the execution in one transaction, then reports its blocks as materializations, upstream first."""

    def commit(context: OpExecutionContext, inputs: OpInputs) -> Iterator[Output[None]]:
        store = store_of_run(context, names)
        with forward_logs_to_dagster(context.log):
            made = _commit_or_rerun(context, store, store.catalog.executions.get(inputs[EXECUTION]["id"]))
        yield from report_commits(context, store, binding, {"": made})

    return OpDefinition(
        commit,
        name=unique_step_name(binding, "commit", names),
        ins={
            EXECUTION: OF_EXECUTION,
            **{f"after_{t.name}": AFTER for t in binding.tasks},
            **({"after_checks": AFTER} if binding.checks else {}),
        },
        outs={c.name: channel_out(names) for c in binding.writes},
        required_resource_keys={names.resource},
        description=f"Publishes the staged output of {binding.name} and moves its cursors, in one transaction.",
    )


def begin_execution(context: OpExecutionContext, runtime: Runtime, binding: Binding, partition: str) -> Execution:
    """Begin an execution of the binding. An earlier execution whose run has ended is aborted.

    Raises:
        ExecutionInProgress: an execution of a run that is still active holds the binding and partition.
    """
    return begin_for_run(
        runtime,
        binding.name,
        partition,
        context.instance,
        run_id=context.run_id,
        whole=context.run.tags.get(WHOLE_TAG) == "true",
        firing_id=requested_firing_id(context, runtime),
    )


def requested_firing_id(context: OpExecutionContext, runtime: Runtime) -> str | None:
    """Id of the open firing for which this run was requested; None for a run by hand.

    A firing that has ended does not count. A person who re-executes its run runs the binding by hand.
    """
    firing_id = context.run.tags.get(FIRING_TAG)
    firing = None if firing_id is None else runtime.catalog.firings.get(firing_id)
    return firing.id if firing is not None and firing.state == "requested" else None


@contextmanager
def _attach_execution(
    context: OpExecutionContext, runtime: Runtime, begin_output: dict[str, Any]
) -> Iterator[Execution]:
    """Attach to the execution that the begin step opened, in this run or in an earlier run that has ended.

    Raises:
        Failure: another run has superseded the execution.
    """
    with refuse_if_superseded():
        yield runtime.attach_to_execution(
            begin_output["id"], context.run_id, lambda owner: is_dagster_owner_dead(owner, context.instance)
        )


@contextmanager
def refuse_if_superseded() -> Iterator[None]:
    """Raise Failure if another run has superseded the execution of the block. Retries cannot help (R4)."""
    try:
        yield
    except ExecutionNotLive as ended:
        ended.next = "run the whole binding again"
        raise Failure(ended.render(), allow_retries=False) from ended


def warn_of_conflict(context: OpExecutionContext, conflict: CommitConflict) -> None:
    """Say that a step plans and runs its binding again.

    Raises:
        Failure: another run has superseded the execution, and runs the binding.
    """
    if conflict.reason == "execution":
        raise Failure(conflict.render(), allow_retries=False) from conflict
    context.log.warning(f"{conflict}\nthis step plans and runs the binding again")


def log_task(context: OpExecutionContext, report: TaskReport) -> dict[str, Any]:
    """Log what a task has read and written. Returns these facts."""
    known = report.as_json()
    shown = {fact: known[fact] for fact in ("read", "wrote", "skipped", "ways")}
    context.log.info(f"task {report.task}: {shown} in {report.seconds:.1f} s")
    return shown


def _commit_or_rerun(context: OpExecutionContext, store: Store, execution: Execution) -> Commit:
    runtime, names = _runtime_of_store(context, store), DagsterNames.of(store)
    if execution.state == "committed" and execution.commit_id is not None:
        context.log.info("the execution was committed before; its commit is reported again")
        return runtime.catalog.commits.by_id(execution.commit_id)

    def commit_attached() -> Commit:
        with _attach_execution(context, runtime, {"id": execution.id}) as live:
            return runtime.commit(live)

    committed = runtime.commit_or_run_again(
        execution,
        commit_attached,
        lambda conflict: warn_of_conflict(context, conflict),
        run_id=context.run_id,
        firing_id=requested_firing_id(context, runtime),
    )
    for report in committed.checks:  # after a conflict, the earlier results describe other data
        context.log_event(to_check_evaluation(report, names))  # type: ignore[arg-type]  # log_event accepts it
    assert committed.commit is not None
    return committed.commit


def store_of_run(context: OpExecutionContext, names: DagsterNames) -> Store:
    """The open store of the project whose step runs."""
    store: Store = getattr(context.resources, names.resource).store()
    return store


def runtime_of_run(context: OpExecutionContext, names: DagsterNames) -> Runtime:
    """Runtime with this run as the owner of its executions, because the run's steps may be several processes."""
    return _runtime_of_store(context, store_of_run(context, names))


def _runtime_of_store(context: OpExecutionContext, store: Store) -> Runtime:
    return store.runtime.with_owner(execution_owner_of_run(context.run_id, context.instance))
