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
    AssetsDefinition,
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
from nova_assets.dagster_bridge.asset_checks import to_check_evaluation
from nova_assets.dagster_bridge.asset_steps import AssetStep
from nova_assets.dagster_bridge.commit_outputs import (
    is_backfill,
    log_materializations,
    output_of_commit,
    prepare_report,
)
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.logs import forward_logs_to_dagster
from nova_assets.dagster_bridge.materializations import NO_EVENT
from nova_assets.errors import CheckFailed, CommitConflict, TaskFailed
from nova_assets.execution.lease import heartbeat
from nova_assets.model.binding import Binding
from nova_assets.model.commit import describe_commit
from nova_assets.store.store import Store
from nova_assets.suggestions import did_you_mean


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
        names: names of the project in Dagster.
    """

    def __init__(
        self, op: OpDefinition, binding: Binding, channel_by_output: Mapping[str, str], names: DagsterNames
    ) -> None:
        self.op = op
        self.binding = binding
        self.channel_by_output = channel_by_output
        self.names = names
        self.__name__ = op.name
        self.__signature__ = _signature_for_dagster(op)

    def __call__(self, context: Any, inputs: Mapping[str, Any]) -> Iterator[Any]:
        op_context: OpExecutionContext = context.op_execution_context
        store: Store = getattr(op_context.resources, self.names.resource).store()
        with forward_logs_to_dagster(op_context.log):
            steps = asset_steps.begin_or_attach(store, self.binding, op_context.get_step_execution_context())
            results = StepResults(self.op, op_context.assets_def, self.channel_by_output)
            try:
                with ExitStack() as leases:
                    for step in steps:
                        if step.commit is None:
                            leases.enter_context(heartbeat(store.catalog, step.execution, step.runtime.lease))
                        else:  # an earlier attempt of this step has failed after its commit
                            op_context.log.info("the rows were committed before; their commit is reported again")
                    yield from results.collect(self._call_function(context, inputs))
                    yield from results.raise_if_check_failed()
                    results.check_complete(op_context)
                    asset_steps.stage(steps, store, results.rows_by_channel)
                    yield from (to_check_evaluation(r, self.names) for r in asset_steps.run_checks(steps))
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
                store.catalog.commits.mark_reported(commit.id)

    def _call_function(self, context: Any, inputs: Mapping[str, Any]) -> Iterable[Any]:
        """What the asset's own function yields or returns, as Dagster passes it on."""
        events: Any = create_op_compute_wrapper(self.op)(context, inputs)
        is_async = inspect.isasyncgen(events)
        return (
            gen_from_async_gen(context.op_execution_context.get_step_execution_context(), events)
            if is_async
            else events
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


def _outputs_of_commits(
    steps: Sequence[AssetStep], results: StepResults, store: Store, context: OpExecutionContext
) -> Iterator[Any]:
    """The held outputs, with what the commits have made of them."""
    commits = [step.commit for step in steps if step.commit is not None]
    shown = prepare_report(context, store, steps[0].binding.writes, commits)
    materialized = len(commits) > 1 or is_backfill(context)
    for result in results.held:
        channel = results.channel_by_output.get(results.output_of(result))
        if channel is None:
            yield result
            continue
        made = [
            output_of_commit(store, commit, step.execution, channel, shown.get(channel, {}), materialized=materialized)
            for commit, step in zip(commits, steps, strict=True)
        ]
        if len(commits) == 1:
            yield _with_commit(result, made[0])
            continue
        keys = [step.partition_key for step in steps]
        by_partition = dict(zip(keys, made, strict=True))
        log_materializations(context, DagsterNames.of(store).key(channel), by_partition, result.metadata)
        yield _without_event(result)


def _without_event(result: Output[Any] | MaterializeResult[Any]) -> Output[Any] | MaterializeResult[Any]:
    """A result of the function without a materialization, because those of its partitions are logged."""
    metadata = {**(result.metadata or {}), NO_EVENT: True}
    if isinstance(result, Output):
        return Output(result.value, result.output_name, metadata)
    return result._replace(metadata=metadata)


def _with_commit(result: Output[Any] | MaterializeResult[Any], made: Output[None]) -> Any:
    """A result of the function with the metadata, the tags and the data version of a commit."""
    metadata = {**made.metadata, **(result.metadata or {})}
    tags = {**(made.tags or {}), **(result.tags or {})}
    if isinstance(result, Output):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BetaWarning)  # data_version
            return Output(result.value, result.output_name, metadata, data_version=made.data_version, tags=tags)
    return result._replace(metadata=metadata, tags=tags, data_version=made.data_version)


_NO_ROWS = "return an empty table or [], if there is nothing to write"


@dataclass
class StepResults:
    """What an asset's function has yielded or returned. Outputs are held back until their rows are committed.

    Dagster validates the outputs of a step when the step yields them, which is after the commit. So an output that
    Dagster would reject is rejected here, before anything is published.

    Args:
        op: the asset's own step.
        asset: the asset that runs.
        channel_by_output: output of the step -> channel that it writes.
    """

    op: OpDefinition
    asset: AssetsDefinition
    channel_by_output: Mapping[str, str]
    held: list[Output[Any] | MaterializeResult[Any]] = field(default_factory=list)
    rows_by_channel: dict[str, Any] = field(default_factory=dict)
    check_results: list[AssetCheckResult] = field(default_factory=list)

    def collect(self, events: Iterable[Any]) -> Iterator[Any]:
        """Hold back outputs, and pass on other events. Record batches that a function yields are its one output."""
        iterator = iter(events)
        for event in iterator:
            if isinstance(event, pa.RecordBatch):
                if len(self.channel_by_output) != 1:
                    raise self._wrong_result("yielded a record batch", "dg.Output(rows, channel) for each channel")
                reader = pa.RecordBatchReader.from_batches(event.schema, itertools.chain([event], iterator))
                [output_name] = self.channel_by_output
                self._hold(Output(reader, output_name))
                return
            if isinstance(event, Output | MaterializeResult):
                self._hold(event)
            else:
                yield event
            results = event.check_results if isinstance(event, MaterializeResult) else [event]
            self.check_results += [r for r in results or () if isinstance(r, AssetCheckResult)]

    def _hold(self, result: Output[Any] | MaterializeResult[Any]) -> None:
        self.held.append(result)
        channel = self.channel_by_output.get(self.output_of(result))
        if channel is not None and result.value is not NoValueSentinel:
            self.rows_by_channel[channel] = result.value

    def output_of(self, result: Output[Any] | MaterializeResult[Any]) -> str:
        """Output of the step to which a result belongs."""
        if isinstance(result, Output):
            return result.output_name
        keys = self.asset.keys_by_output_name
        if result.asset_key is None and len(keys) > 1:
            raise self._wrong_result(
                "returned a MaterializeResult that does not say its asset", "dg.MaterializeResult(asset_key=..., ...)"
            )
        by_key = {key: name for name, key in keys.items()}
        key = next(iter(by_key)) if result.asset_key is None else AssetKey.from_coercible(result.asset_key)
        return by_key.get(key, key.to_user_string())

    def raise_if_check_failed(self) -> Iterator[AssetCheckResult]:
        """Pass on the results of checks that came with held outputs, and raise CheckFailed, if a blocking check has
        failed. Nothing is published then.
        """
        blocking = frozenset(s.name for s in self.asset.check_specs if s.blocking)
        failed = [r for r in self.check_results if _blocks(r, blocking)]
        if not failed:
            return
        yield from (r for result in self.held if isinstance(result, MaterializeResult) for r in result.check_results)
        names = sorted({r.check_name or " or ".join(sorted(blocking)) for r in failed})
        raise CheckFailed(
            f"a blocking check failed, so nothing is published: {', '.join(names)}",
            next="correct the rows or the check, and materialize the asset again",
        )

    def check_complete(self, context: OpExecutionContext) -> None:
        """Raise TaskFailed unless each output came once, with a value of its type, and each check has a result."""
        names = [self.output_of(result) for result in self.held]
        outputs = list(self.asset.keys_by_output_name)
        for name in names:
            if name not in outputs:
                raise self._wrong_result(
                    f"returned an output {name!r} that it does not have{did_you_mean(name, outputs)}",
                    ", ".join(map(repr, outputs)),
                )
            if names.count(name) > 1:
                raise self._wrong_result(f"returned output {name!r} {names.count(name)} times", "each output once")
        for definition in self.op.output_defs:
            channel = self.channel_by_output.get(definition.name)
            if channel is not None and self.rows_by_channel.get(channel) is None:
                raise self._wrong_result(
                    f"returned no rows for channel {channel!r}", "rows", self._describe_missing_rows(channel)
                )
            is_nothing = definition.dagster_type.is_nothing
            if (
                definition.name in outputs
                and definition.is_required
                and not is_nothing
                and definition.name not in names
            ):
                raise self._wrong_result(f"did not return its output {definition.name!r}", "each output once")
        self._check_types(context)
        checks = [spec.name for spec in self.asset.check_specs]
        if len(self.check_results) < len(checks):
            specified = ", ".join(map(repr, checks))
            raise self._wrong_result(
                "did not return a result of each of its checks", f"dg.AssetCheckResult of {specified}"
            )

    def _describe_missing_rows(self, channel: str) -> str:
        """How a channel came to have no rows."""
        for result in self.held:
            if self.channel_by_output.get(self.output_of(result)) == channel:
                return "None" if result.value is None else f"a {type(result).__name__} without a value"
        return "nothing"

    def _check_types(self, context: OpExecutionContext) -> None:
        """Raise TaskFailed if Dagster would refuse the type of a value."""
        step = context.get_step_execution_context()
        for result in self.held:
            name = self.output_of(result)
            dagster_type = self.op.output_def_named(name).dagster_type
            if dagster_type.is_nothing or result.value is NoValueSentinel:
                continue
            checked = dagster_type.type_check(step.for_type(dagster_type), result.value)
            if not checked.success:
                raise self._wrong_result(
                    f"returned another type for output {name!r} than its annotation says",
                    dagster_type.display_name,
                    type(result.value).__name__,
                )

    def _wrong_result(self, what: str, expected: str, found: str | None = None) -> TaskFailed:
        return TaskFailed(
            f"asset {self.op.name!r} {what}, so nothing is published",
            found=found,
            expected=expected,
            next=_NO_ROWS if expected == "rows" else "correct the function, and materialize the asset again",
            task=self.op.name,
        )


def _blocks(result: AssetCheckResult, blocking_checks: frozenset[str]) -> bool:
    if result.passed or result.severity != AssetCheckSeverity.ERROR:
        return False
    return result.check_name in blocking_checks if result.check_name else bool(blocking_checks)
