"""One step of a user's asset that writes channels: an execution of its binding around the call of its function.

    inputs ─► begin (pin) ─► the function ─► stage ─► blocking checks ─► commit ─► outputs and their materializations

Dagster loads the inputs of a step before it calls the function. So the first input begins the execution, and each later
part of the step attaches to it. A retry of the step in the same run has the same pins (R4).
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import pyarrow as pa
from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetKey,
    BetaWarning,
    MaterializeResult,
    OpDefinition,
    OpExecutionContext,
    Output,
    RetryRequested,
)
from dagster._core.definitions.utils import NoValueSentinel
from dagster._core.execution.plan.compute_generator import create_op_compute_wrapper

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.materializations import build_commit_output, build_unchanged_output
from nova_assets.dagster_bridge.partitions import (
    add_partitions_of_blocks,
    find_multi_partition_columns,
    parse_dagster_key,
)
from nova_assets.dagster_bridge.run_liveness import execution_owner_of_run, is_dagster_owner_dead
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.errors import CheckFailed, CommitConflict, ExecutionInProgress, NotSupported
from nova_assets.execution.lease import heartbeat
from nova_assets.execution.runtime import Runtime
from nova_assets.model.binding import Binding
from nova_assets.model.commit import Commit, describe_commit
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE, scope_for_columns
from nova_assets.store.store import Store


class AssetStep:
    """The execution of a step.

    Args:
        commit: the commit, if an earlier attempt of the step has made it.
    """

    def __init__(
        self, store: Store, runtime: Runtime, binding: Binding, execution: Execution, commit: Commit | None = None
    ) -> None:
        self.made = commit
        self.store = store
        self.runtime = runtime
        self.binding = binding
        self.execution = execution

    @classmethod
    def begin_or_attach(
        cls, store: Store, binding: Binding, step_context: Any, scope_by_channel: Mapping[str, str] | None = None
    ) -> AssetStep:
        """Attach to the execution that this run has begun for the asset and partition, or begin it.

        Args:
            step_context: Dagster's context of the step.
            scope_by_channel: partitions that are read of each channel.

        Raises:
            ExecutionInProgress: another active run of the asset has an execution.
        """
        run_id, instance = step_context.run_id, step_context.instance
        runtime = store.runtime.with_owner(execution_owner_of_run(run_id, instance))
        partition = _partition_of_step(binding, step_context)
        for known in store.catalog.executions(binding.name, 1, partition):
            if known.run_id == run_id and known.state == "committed" and known.commit_id is not None:
                return cls(store, runtime, binding, known, store.catalog.commit_by_id(known.commit_id))
            if known.run_id == run_id and known.state in ("running", "failed"):
                return cls(store, runtime, binding, runtime.attach_to_execution(known.id, run_id))

        def begin() -> Execution:
            is_whole = partition == WHOLE
            return runtime.begin(
                binding.name, partition, whole=is_whole, run_id=run_id, scope_by_channel=scope_by_channel
            )

        try:
            execution = begin()
        except ExecutionInProgress as busy:
            if not is_dagster_owner_dead(busy.fields.get("owner", ""), instance):
                raise
            reason = f"its run has ended; superseded by run {run_id}"
            runtime.catalog.abort(busy.fields["execution_id"], reason)
            execution = begin()
        return cls(store, runtime, binding, execution)

    @property
    def _task(self) -> str:
        return self.binding.tasks[0].name

    def load_input(self, name: str, *, may_be_table: bool) -> Any:
        """Frame or ``View`` of an input.

        Args:
            may_be_table: whether few rows are read in this process, as a table.
        """
        return self.runtime.task_run(self.execution).load_input(self._task, name, may_be_table=may_be_table)

    def stage(self, rows_by_channel: Mapping[str, Any]) -> None:
        """Stage what the function returned. Channels whose rows are missing or None do not change."""
        self.runtime.task_run(self.execution).stage_rows(self._task, rows_by_channel)

    def commit(self) -> Commit:
        """Publish the staged rows, and move the cursors, in one transaction (R2).

        Raises:
            CommitConflict: another commit has changed what this execution relied on. The execution is aborted (R6).
        """
        return self.runtime.commit(self.execution)

    def newest_sequence_number(self, channel: str) -> int:
        """Sequence number of the newest block in the partitions that the execution writes; 0 if there is no block."""
        state = self.store.catalog.channel(channel)
        scope = scope_for_columns(state.channel.partition_columns, self.execution.partition)
        if not scope:
            return state.head
        return max((p.seq for p in self.store.catalog.partitions(channel, scope)), default=0)


def _partition_of_step(binding: Binding, step_context: Any) -> str:
    """Partition that the step of an asset writes.

    Raises:
        NotSupported: the run is for a range of partitions.
    """
    if not binding.dimensions:
        return WHOLE
    if step_context.has_partition_key_range:
        keys = step_context.partition_key_range
        if keys.start != keys.end:
            raise NotSupported(
                f"asset {binding.name!r} writes a channel, and this run is for several of its partitions",
                found=f"{keys.start} to {keys.end}",
                expected="a run for each partition, because a commit moves the cursors of one partition",
                next="@dg.asset(backfill_policy=dg.BackfillPolicy.multi_run())",
            )
        return parse_dagster_key(binding.dimensions, keys.start)
    return parse_dagster_key(binding.dimensions, step_context.partition_key)


def binding_of_step(step_context: Any) -> Binding | None:
    """The binding of a step that runs an asset that writes channels; None for other steps."""
    compute = getattr(step_context.op_def, "compute_fn", None)
    return compute.binding if isinstance(compute, ChannelWriter) else None


class ChannelWriter:
    """The compute function of an asset that writes channels. It calls the asset's own function, and commits its rows.

    Args:
        op: the asset's own step.
        binding: the asset as a binding.
        channel_by_output: output of the step -> channel that it writes.
    """

    def __init__(self, op: OpDefinition, binding: Binding, channel_by_output: Mapping[str, str]) -> None:
        self.op = op
        self.binding = binding
        self.channel_by_output = channel_by_output
        self.__name__ = op.name
        self.__signature__ = _signature_for_dagster(op)

    def __call__(self, context: Any, inputs: Mapping[str, Any]) -> Iterator[Any]:
        op_context: OpExecutionContext = context.op_execution_context
        store: Store = op_context.resources.nova.store()
        with forward_logs_to_dagster(op_context.log):
            step = AssetStep.begin_or_attach(store, self.binding, op_context.get_step_execution_context())
            results = _StepResults(self.channel_by_output, _blocking_checks(op_context))
            events = create_op_compute_wrapper(self.op)(context, inputs)
            try:
                if step.made is not None:  # an earlier attempt of this step has failed after its commit
                    op_context.log.info("the rows were committed before; their commit is reported again")
                    yield from results.collect(events)
                    commit = step.made
                else:
                    with heartbeat(store.catalog, step.execution, step.runtime.lease):
                        yield from results.collect(events)
                        yield from results.raise_if_check_failed()
                        step.stage(results.rows_by_channel)
                    commit = step.commit()
            except CommitConflict as conflict:
                op_context.log.warning(f"{conflict}\nthis step reads its inputs and runs again")
                raise RetryRequested(max_retries=step.runtime.max_attempts) from conflict
            except BaseException as error:
                step.runtime.fail(step.execution, error)
                raise
            op_context.log.info(describe_commit(commit))
            crash_point("publish.before")
            yield from _outputs_of_commit(step, commit, results, op_context)
            crash_point("publish.after")
            store.catalog.mark_commit_reported(commit.id)


@dataclass
class _StepResults:
    """What an asset's function has yielded or returned. Outputs are held back until their rows are committed.

    Args:
        channel_by_output: output of the step -> channel that it writes.
        blocking_checks: names of the checks in the step that block the commit.
    """

    channel_by_output: Mapping[str, str]
    blocking_checks: frozenset[str]
    held: list[Output[Any] | MaterializeResult[Any]] = field(default_factory=list)
    rows_by_channel: dict[str, Any] = field(default_factory=dict)
    failed: list[AssetCheckResult] = field(default_factory=list)

    def collect(self, events: Iterable[Any]) -> Iterator[Any]:
        """Hold back outputs, and pass on other events. Record batches that a function yields are its one output."""
        iterator = iter(events)
        for event in iterator:
            if isinstance(event, pa.RecordBatch):
                reader = pa.RecordBatchReader.from_batches(event.schema, itertools.chain([event], iterator))
                [output_name] = self.channel_by_output
                self.hold(Output(reader, output_name))
                return
            if isinstance(event, Output | MaterializeResult):
                self.hold(event)
            else:
                yield event
            results = event.check_results if isinstance(event, MaterializeResult) else [event]
            self.failed += [r for r in results or () if self._blocks(r)]

    def hold(self, result: Output[Any] | MaterializeResult[Any]) -> None:
        """Hold back an output."""
        self.held.append(result)
        channel = self.channel_by_output.get(self.output_of(result))
        if channel is not None and result.value is not NoValueSentinel:
            self.rows_by_channel[channel] = result.value

    def output_of(self, result: Output[Any] | MaterializeResult[Any]) -> str:
        """Output of the step to which a result belongs."""
        if isinstance(result, Output):
            return result.output_name
        for output_name, channel in self.channel_by_output.items():
            if result.asset_key is None or result.asset_key == AssetKey(channel):
                return output_name
        return ""

    def _blocks(self, result: Any) -> bool:
        if not isinstance(result, AssetCheckResult) or result.passed or result.severity != AssetCheckSeverity.ERROR:
            return False
        return result.check_name in self.blocking_checks if result.check_name else bool(self.blocking_checks)

    def raise_if_check_failed(self) -> Iterator[AssetCheckResult]:
        """Pass on the results of checks that came with held outputs, and raise CheckFailed, if a blocking check has
        failed. Nothing is published then.
        """
        if not self.failed:
            return
        yield from (r for result in self.held if isinstance(result, MaterializeResult) for r in result.check_results)
        names = sorted({r.check_name or " or ".join(sorted(self.blocking_checks)) for r in self.failed})
        raise CheckFailed(
            f"a blocking check failed, so nothing is published: {', '.join(names)}",
            next="correct the rows or the check, and materialize the asset again",
        )


def _signature_for_dagster(op: OpDefinition) -> inspect.Signature:
    """Signature of a compute function whose context has the type that the asset's function wants."""
    function: Any = op.compute_fn
    annotation: Any = inspect.Parameter.empty
    if function.has_context_arg():
        with suppress(NameError):  # the name of a type that only type checkers import
            hints = get_type_hints(function.decorated_fn)
            annotation = hints.get(function.get_context_arg().name, annotation)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    context = inspect.Parameter("context", kind, annotation=annotation)
    return inspect.Signature([context, inspect.Parameter("inputs", kind)])


def _blocking_checks(context: OpExecutionContext) -> frozenset[str]:
    return frozenset(s.name for s in context.assets_def.check_specs if s.blocking)


def _outputs_of_commit(
    step: AssetStep, commit: Commit, results: _StepResults, context: OpExecutionContext
) -> Iterator[Any]:
    """The held outputs, with what the commit has made of them."""
    store, binding = step.store, step.binding
    channels = {c.name: c for c in binding.writes}
    add_partitions_of_blocks(
        context.instance,
        channels,
        [(b.channel, b.partition) for b in commit.blocks],
        find_multi_partition_columns(store.project),
    )
    written = {b.channel for b in commit.blocks}
    shown = timeline_metadata_by_channel(store, sorted(written))
    seconds = {"nova/seconds": round((commit.at - step.execution.started_at).total_seconds(), 3)}
    for result in results.held:
        channel = results.channel_by_output.get(results.output_of(result))
        if channel is None:
            yield result
            continue
        if channel in written:
            facts = {**shown.get(channel, {}), **seconds}
            made = build_commit_output(commit, channel, store.settings.warehouse, store.project, facts)
        else:
            made = build_unchanged_output(channel, step.newest_sequence_number(channel), materialized=False)
        yield _with_facts(result, made)


def _with_facts(result: Output[Any] | MaterializeResult[Any], made: Output[None]) -> Any:
    """A result of the function with the metadata, the tags and the data version of a commit."""
    metadata = {**made.metadata, **(result.metadata or {})}
    tags = {**(made.tags or {}), **(result.tags or {})}
    if isinstance(result, Output):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BetaWarning)  # data_version
            return Output(result.value, result.output_name, metadata, data_version=made.data_version, tags=tags)
    return result._replace(metadata=metadata, tags=tags, data_version=made.data_version)
