"""One Dagster step for a whole execution: begin, the tasks, the checks and the commit.

Dagster writes some ten events for each step, so an execution of few rows is faster in one step. Its tasks are lines of
the log. A run that restarts from the failure continues the execution: with the same pins, and without the tasks that
have staged their output (R4).
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from dagster import Nothing, OpDefinition, OpExecutionContext, Out, OutputMapping
from dagster._core.definitions.output import OutputDefinition

from nova_assets.dagster_bridge.asset_checks import build_asset_check_specs, to_check_evaluation, to_check_result
from nova_assets.dagster_bridge.asset_steps import run_before_failure
from nova_assets.dagster_bridge.commit_outputs import report_commits
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.ops import (
    AFTER,
    WHOLE_TAG,
    OpInputs,
    begin_execution,
    channel_out,
    log_task,
    refuse_if_superseded,
    requested_firing_id,
    runtime_of_run,
    store_of_run,
    unique_step_name,
    warn_of_conflict,
)
from nova_assets.dagster_bridge.partitions import parse_dagster_key
from nova_assets.dagster_bridge.run_liveness import is_dagster_owner_dead
from nova_assets.errors import CheckFailed, CommitConflict
from nova_assets.execution.runtime import Runtime
from nova_assets.model.binding import Binding
from nova_assets.model.commit import Commit
from nova_assets.model.execution import CheckReport, Execution
from nova_assets.model.partitions import WHOLE

STEP = "execute"


@cache
def output_mapping_type(io_manager_key: str) -> type[OutputMapping]:
    """Type of the mappings from the op's outputs to those of the graph around it, which have this IO manager.

    Dagster gives outputs of a graph its default IO manager. A run of selected assets has only the resources that an op
    requires, and Dagster would then refuse the graph.
    """

    class MappingToIOManager(OutputMapping):
        def get_definition(self, is_dynamic: bool) -> OutputDefinition:
            return OutputDefinition(name=self.graph_output_name, io_manager_key=io_manager_key)

    return MappingToIOManager


def build_execution_op(binding: Binding, upstream_channels: list[str], names: DagsterNames) -> OpDefinition:
    """Op that carries out an execution of a binding, and reports its blocks as materializations."""
    checks = [s.get_python_identifier() for s in build_asset_check_specs(binding, names)]

    def execute(context: OpExecutionContext, inputs: OpInputs) -> Iterator[Any]:
        runtime = runtime_of_run(context, names)
        runtime.delete_dead_staging()
        made: dict[str, Commit] = {}
        has_keys = bool(binding.dimensions) and (context.has_partition_key or context.has_partition_key_range)
        keys = context.partition_keys if has_keys else [""]
        for key in keys:
            reports: list[CheckReport] = []
            failed: CheckFailed | None = None
            with forward_logs_to_dagster(context.log):
                try:
                    made[key] = _execute(context, runtime, binding, key, reports)
                except CheckFailed as error:
                    failed = error
            to_event = to_check_result if len(keys) == 1 else to_check_evaluation
            yield from (to_event(r, names) for r in reports)
            if failed is not None:
                raise failed
        yield from report_commits(context, store_of_run(context, names), binding, made)

    return OpDefinition(
        execute,
        name=unique_step_name(binding, STEP, names),
        ins={c: AFTER for c in upstream_channels},
        outs={
            **{c.name: channel_out(names) for c in binding.writes},
            **{name: Out(Nothing, is_required=False) for name in checks},
        },
        required_resource_keys={names.resource},
        description=binding.description,
    )


def _execute(
    context: OpExecutionContext, runtime: Runtime, binding: Binding, key: str, reports: list[CheckReport]
) -> Commit:
    """Carry out an execution, or the rest of one that a failed run has begun. After a conflict, it is planned again.

    Args:
        key: Dagster's key of the partition; empty without partitions.
        reports: gets the results of the checks.

    Raises:
        Failure: another run has superseded the execution.
    """

    def observe(event: str, subject: Any) -> None:
        if event == "task":
            log_task(context, subject)
        elif event == "check":
            reports.append(subject)

    partition = parse_dagster_key(binding.dimensions, key) if key else WHOLE
    try:
        with refuse_if_superseded():
            continued = _find_begun(context, runtime, binding, partition)
            if continued is not None and continued.commit_id is not None:
                context.log.info("the execution was committed before; its commit is reported again")
                return runtime.catalog.commits.by_id(continued.commit_id)
            execution = continued or begin_execution(context, runtime, binding, partition)
            done = runtime.run_tasks_and_commit(execution, observe)
    except CommitConflict as conflict:
        warn_of_conflict(context, conflict)
        reports.clear()  # they describe other data
        done = runtime.run(
            binding.name,
            partition,
            whole=context.run.tags.get(WHOLE_TAG) == "true",
            run_id=context.run_id,
            firing_id=requested_firing_id(context, runtime),
            observer=observe,
        )
    assert done.commit is not None
    return done.commit


def _find_begun(context: OpExecutionContext, runtime: Runtime, binding: Binding, partition: str) -> Execution | None:
    """The execution that an earlier attempt of this step has begun, or the failed run that this run continues."""
    run_ids = {context.run_id, run_before_failure(context.run)} - {None}
    for known in runtime.catalog.executions.find(binding.name, 1, partition):
        if known.run_id not in run_ids:
            continue
        if known.state == "committed":
            return known
        if known.state in ("running", "failed"):
            return runtime.attach_to_execution(
                known.id, context.run_id, lambda owner: is_dagster_owner_dead(owner, context.instance)
            )
    return None
