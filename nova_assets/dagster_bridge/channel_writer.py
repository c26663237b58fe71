"""Compute function of a user's asset that writes channels: it calls the asset's own function, and commits its rows."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
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
from dagster._core.execution.plan.compute import gen_from_async_gen
from dagster._core.execution.plan.compute_generator import create_op_compute_wrapper

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge import asset_steps
from nova_assets.dagster_bridge.asset_steps import AssetStep
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.materializations import (
    build_commit_output,
    build_unchanged_output,
    newest_sequence_number,
)
from nova_assets.dagster_bridge.partitions import add_partitions_of_blocks, find_multi_partition_columns
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.errors import CheckFailed, CommitConflict
from nova_assets.execution.lease import heartbeat
from nova_assets.model.binding import Binding
from nova_assets.model.commit import describe_commit
from nova_assets.store.store import Store


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
            steps = asset_steps.begin_or_attach(store, self.binding, op_context.get_step_execution_context())
            results = _StepResults(self.channel_by_output, _blocking_checks(op_context))
            try:
                with ExitStack() as leases:
                    for step in steps:
                        if step.commit is None:
                            leases.enter_context(heartbeat(store.catalog, step.execution, step.runtime.lease))
                        else:  # an earlier attempt of this step has failed after its commit
                            op_context.log.info("the rows were committed before; their commit is reported again")
                    yield from results.collect(self._call_function(context, inputs))
                    yield from results.raise_if_check_failed()
                    asset_steps.stage(steps, store, results.rows_by_channel)
                for step in steps:
                    step.publish()
            except CommitConflict as conflict:
                op_context.log.warning(f"{conflict}\nthis step reads its inputs and runs again")
                raise RetryRequested(max_retries=store.runtime.max_attempts) from conflict
            except BaseException as error:
                for step in steps:
                    if step.commit is None:
                        step.runtime.fail(step.execution, error)
                raise
            commits = [step.commit for step in steps if step.commit is not None]
            for commit in commits:
                op_context.log.info(describe_commit(commit))
            crash_point("publish.before")
            yield from _outputs_of_commits(steps, results, store, op_context)
            crash_point("publish.after")
            for commit in commits:
                store.catalog.mark_commit_reported(commit.id)

    def _call_function(self, context: Any, inputs: Mapping[str, Any]) -> Iterable[Any]:
        """What the asset's own function yields or returns, as Dagster passes it on."""
        events: Any = create_op_compute_wrapper(self.op)(context, inputs)
        is_async = inspect.isasyncgen(events)
        return (
            gen_from_async_gen(context.op_execution_context.get_step_execution_context(), events)
            if is_async
            else events
        )


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


def _outputs_of_commits(
    steps: Sequence[AssetStep], results: _StepResults, store: Store, context: OpExecutionContext
) -> Iterator[Any]:
    """The held outputs, with what the commits have made of them."""
    blocks = [b for step in steps if step.commit is not None for b in step.commit.blocks]
    channels = {c.name: c for c in steps[0].binding.writes}
    pairs = [(b.channel, b.partition) for b in blocks]
    add_partitions_of_blocks(context.instance, channels, pairs, find_multi_partition_columns(store.project))
    shown = timeline_metadata_by_channel(store, sorted({b.channel for b in blocks}))
    for result in results.held:
        channel = results.channel_by_output.get(results.output_of(result))
        if channel is None:
            yield result
            continue
        made = [_output_of_commit(step, channel, store, shown.get(channel, {}), len(steps) > 1) for step in steps]
        if len(steps) == 1:
            yield _with_commit(result, made[0])
            continue
        for step, output in zip(steps, made, strict=True):
            context.get_step_execution_context().add_asset_metadata(
                output.metadata, AssetKey(channel), step.partition_key
            )
        yield result


def _output_of_commit(
    step: AssetStep, channel: str, store: Store, shown: Mapping[str, Any], is_one_of_several: bool
) -> Output[None]:
    """What a commit has made of a channel.

    Args:
        shown: metadata on the current state of the channel.
        is_one_of_several: whether the step is for several partitions. Dagster then materializes all of them.
    """
    commit = step.commit
    assert commit is not None
    if not any(b.channel == channel for b in commit.blocks):
        version = newest_sequence_number(store, channel, step.execution.partition)
        return build_unchanged_output(channel, version, materialized=is_one_of_several)
    seconds = round((commit.at - step.execution.started_at).total_seconds(), 3)
    facts = {**shown, "nova/seconds": seconds}
    return build_commit_output(commit, channel, store.settings.warehouse, store.project, facts)


def _with_commit(result: Output[Any] | MaterializeResult[Any], made: Output[None]) -> Any:
    """A result of the function with the metadata, the tags and the data version of a commit."""
    metadata = {**made.metadata, **(result.metadata or {})}
    tags = {**(made.tags or {}), **(result.tags or {})}
    if isinstance(result, Output):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BetaWarning)  # data_version
            return Output(result.value, result.output_name, metadata, data_version=made.data_version, tags=tags)
    return result._replace(metadata=metadata, tags=tags, data_version=made.data_version)
