"""Dagster ops of a bound workflowette: begin, one per task, checks, and commit (R4).

The ops pass only a small description of the execution to each other, which Dagster persists. A run that restarts from
a failure therefore continues with the same pins.

(This module does not postpone annotations, because Dagster inspects the type of ``context`` when it builds an op.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
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
    op,
)
from dagster._core.storage.tags import BACKFILL_ID_TAG

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge.asset_checks import build_asset_check_specs, to_check_evaluation, to_check_result
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.materializations import (
    build_commit_output,
    build_unchanged_output,
    newest_sequence_number,
)
from nova_assets.dagster_bridge.partitions import (
    add_partitions_of_blocks,
    find_multi_partition_columns,
    parse_dagster_key,
)
from nova_assets.dagster_bridge.resources import IO_MANAGER_KEY, RESOURCE_KEY
from nova_assets.dagster_bridge.run_liveness import execution_owner_of_run, is_dagster_owner_dead
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.errors import CommitConflict, ExecutionInProgress, ExecutionNotLive
from nova_assets.execution.data_checks import check_failed_error
from nova_assets.execution.runtime import Runtime
from nova_assets.model.binding import Binding
from nova_assets.model.commit import Commit, describe_commit
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE
from nova_assets.model.task import Task
from nova_assets.store.store import Store

FIRING_TAG = "nova/firing"
ATTEMPT_TAG = "nova/attempt"
"""Tag with the number of the run among the runs requested for its firing, from 1."""
WHOLE_TAG = "nova/whole"
"""Tag that, set to ``true``, makes a run execute all partitions as one, as ``nova run --whole`` does."""

EXECUTION = "execution"


def unique_step_name(binding: Binding, step: str) -> str:
    """Step name prefixed with the binding's name, because op names must be unique in a code location."""
    return f"{binding.name}__{step}"


def build_begin_op(binding: Binding, upstream_channels: list[str]) -> OpDefinition:
    """Op that begins the execution and pins heads and cursors.

    The op's inputs carry no data, because the runtime reads channels by their pins.
    """

    @op(
        name=unique_step_name(binding, "begin"),
        ins={c: In(Nothing) for c in upstream_channels},
        out={EXECUTION: Out(dict)},
        required_resource_keys={RESOURCE_KEY},
        description=f"Pins the inputs of {binding.name}.",
    )
    def begin(context: OpExecutionContext) -> Iterator[Output[dict[str, Any]]]:
        runtime = _runtime_of_run(context)
        runtime.delete_dead_staging()
        execution = _begin_execution(context, runtime, binding)
        pins = {c: {"head": p.head, "cursor": p.cursor} for c, p in execution.pins.items()}
        context.log.info(f"execution {execution.id} pins {pins}")
        yield Output(
            {"id": execution.id, "binding": binding.name},
            EXECUTION,
            metadata={"nova/execution": execution.id, "nova/pins": pins},
        )

    return begin


def build_task_op(binding: Binding, task: Task, upstream_tasks: tuple[str, ...]) -> OpDefinition:
    """Op that runs one task: reads its inputs, calls its function and stages its outputs."""
    delay, backoff = (task.retry_delay, Backoff.EXPONENTIAL) if task.retry_delay else (None, None)
    retries = RetryPolicy(max_retries=task.retries, delay=delay, backoff=backoff) if task.retries else None

    @op(
        name=unique_step_name(binding, task.name),
        ins={EXECUTION: In(dict), **{f"after_{t}": In(Nothing) for t in upstream_tasks}},
        out={"report": Out(dict)},
        required_resource_keys={RESOURCE_KEY},
        retry_policy=retries,
        description=task.description,
    )
    def run_task(context: OpExecutionContext, execution: dict[str, Any]) -> Iterator[Output[dict[str, Any]]]:
        runtime = _runtime_of_run(context)
        last_try = context.retry_number >= task.retries
        with forward_logs_to_dagster(context.log), _attach_execution(context, runtime, execution) as live:
            report = runtime.run_task(live, task.name, last_try)
        known = report.as_json()
        shown = {fact: known[fact] for fact in ("read", "wrote", "skipped", "ways")}
        context.log.info(f"task {task.name}: {shown} in {report.seconds:.1f} s")
        rows = {f"rows in {port}": n for port, n in report.wrote.items() if n is not None}
        yield Output(shown, "report", metadata={"seconds": report.seconds, "nova/report": shown, **rows})

    return run_task


def build_checks_op(binding: Binding) -> OpDefinition:
    """Op that runs the data checks on the staged blocks. A failed blocking check ends the execution and the run."""
    specs = build_asset_check_specs(binding)

    @op(
        name=unique_step_name(binding, "checks"),
        ins={EXECUTION: In(dict), **{f"after_{t.name}": In(Nothing) for t in binding.tasks}},
        out={s.get_python_identifier(): Out(Nothing) for s in specs},
        required_resource_keys={RESOURCE_KEY},
        description=f"Checks the staged output of {binding.name} before it is published.",
    )
    def checks(context: OpExecutionContext, execution: dict[str, Any]) -> Iterator[AssetCheckResult]:
        runtime = _runtime_of_run(context)
        with forward_logs_to_dagster(context.log), _attach_execution(context, runtime, execution) as live:
            reports = runtime.run_data_checks(live)
            if any(r.blocks_commit for r in reports):
                error = check_failed_error(live, reports)
                runtime.fail(live, error)
                context.log.error(str(error))
        yield from map(to_check_result, reports)

    return checks


def build_commit_op(binding: Binding) -> OpDefinition:
    """Op that commits the execution in one transaction, then reports its blocks as materializations, upstream first."""
    produced_ports = [e.port for t in binding.workflowette.in_order() for e in t.produces]
    write_order = {binding.channels[p].name: n for n, p in enumerate(produced_ports) if p in binding.channels}

    @op(
        name=unique_step_name(binding, "commit"),
        ins={
            EXECUTION: In(dict),
            **{f"after_{t.name}": In(Nothing) for t in binding.tasks},
            **({"after_checks": In(Nothing)} if binding.checks else {}),
        },
        out={c.name: Out(Nothing, io_manager_key=IO_MANAGER_KEY) for c in binding.writes},
        required_resource_keys={RESOURCE_KEY},
        description=f"Publishes the staged output of {binding.name} and moves its cursors, in one transaction.",
    )
    def commit(context: OpExecutionContext, execution: dict[str, Any]) -> Iterator[Output[None]]:
        store: Store = context.resources.nova.store()
        with forward_logs_to_dagster(context.log):
            made = _commit_or_rerun(context, _runtime_of_run(context), store.catalog.execution(execution["id"]))
        context.log.info(describe_commit(made))
        seconds = (made.at - store.catalog.execution(made.execution_id).started_at).total_seconds()
        crash_point("publish.before")
        multi_partition_columns = find_multi_partition_columns(store.project)
        channels = {c.name: c for c in binding.writes}
        add_partitions_of_blocks(
            context.instance, channels, [(b.channel, b.partition) for b in made.blocks], multi_partition_columns
        )
        written = sorted({b.channel for b in made.blocks}, key=lambda c: write_order[c])
        shown = timeline_metadata_by_channel(store, written)
        for channel in sorted(write_order, key=lambda c: write_order[c]):
            if channel in written:
                facts = {**shown.get(channel, {}), "nova/seconds": round(seconds, 3)}
                yield build_commit_output(made, channel, store.settings.warehouse, store.project, facts)
            else:
                version = newest_sequence_number(store, channel, store.catalog.execution(made.execution_id).partition)
                yield build_unchanged_output(channel, version, materialized=BACKFILL_ID_TAG in context.run.tags)
        crash_point("publish.after")
        store.catalog.mark_commit_reported(made.id)

    return commit


def _begin_execution(context: OpExecutionContext, runtime: Runtime, binding: Binding) -> Execution:
    """Begin an execution of the binding. An earlier execution whose run has ended is aborted.

    Raises:
        ExecutionInProgress: an execution of a run that is still active holds the binding and partition.
    """
    firing_id = _requested_firing_id(context, runtime)
    partition = parse_dagster_key(binding.dimensions, context.partition_key) if context.has_partition_key else WHOLE
    is_unpartitioned = context.run.tags.get(WHOLE_TAG) == "true"
    try:
        return runtime.begin(
            binding.name, partition, whole=is_unpartitioned, run_id=context.run_id, firing_id=firing_id
        )
    except ExecutionInProgress as busy:
        if not is_dagster_owner_dead(busy.fields.get("owner", ""), context.instance):
            raise
        runtime.catalog.abort(busy.fields["execution_id"], f"its run has ended; superseded by run {context.run_id}")
        return runtime.begin(
            binding.name, partition, whole=is_unpartitioned, run_id=context.run_id, firing_id=firing_id
        )


def _requested_firing_id(context: OpExecutionContext, runtime: Runtime) -> str | None:
    """Id of the open firing for which this run was requested; None for a run by hand.

    A firing that has ended does not count. A person who re-executes its run runs the binding by hand.
    """
    firing_id = context.run.tags.get(FIRING_TAG)
    firing = None if firing_id is None else runtime.catalog.firing(firing_id)
    return firing.id if firing is not None and firing.state == "requested" else None


@contextmanager
def _attach_execution(
    context: OpExecutionContext, runtime: Runtime, begin_output: dict[str, Any]
) -> Iterator[Execution]:
    """Attach to the execution that the begin step opened, in this run or in an earlier run that has ended.

    Raises:
        Failure: another run has superseded the execution. Retries are disallowed, because they cannot help (R4).
    """
    try:
        yield runtime.attach_to_execution(
            begin_output["id"], context.run_id, lambda owner: is_dagster_owner_dead(owner, context.instance)
        )
    except ExecutionNotLive as ended:
        ended.next = "run the whole binding again"
        raise Failure(ended.render(), allow_retries=False) from ended


def _commit_or_rerun(context: OpExecutionContext, runtime: Runtime, execution: Execution) -> Commit:
    if execution.state == "committed" and execution.commit_id is not None:
        context.log.info("the execution was committed before; its commit is reported again")
        return runtime.catalog.commit_by_id(execution.commit_id)

    def commit_attached() -> Commit:
        with _attach_execution(context, runtime, {"id": execution.id}) as live:
            return runtime.commit(live)

    def warn_unless_superseded(conflict: CommitConflict) -> None:
        if conflict.reason == "execution":  # another run superseded this execution and runs the binding
            raise Failure(conflict.render(), allow_retries=False) from conflict
        context.log.warning(f"{conflict}\nthis step plans and runs the binding again")

    committed = runtime.commit_or_run_again(
        execution,
        commit_attached,
        warn_unless_superseded,
        run_id=context.run_id,
        firing_id=_requested_firing_id(context, runtime),
    )
    for report in committed.checks:  # after a conflict, the earlier results describe other data
        context.log_event(to_check_evaluation(report))  # type: ignore[arg-type]  # log_event accepts it
    assert committed.commit is not None
    return committed.commit


def _runtime_of_run(context: OpExecutionContext) -> Runtime:
    """Runtime with this run as the owner of its executions, because the run's steps may be several processes."""
    store: Store = context.resources.nova.store()
    return store.runtime.with_owner(execution_owner_of_run(context.run_id, context.instance))
