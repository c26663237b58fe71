"""Outputs and check results of a user's asset that writes channels, held back until its rows are committed.

Dagster validates the outputs of a step when the step yields them, which is after the commit. So an output that Dagster
would reject is rejected here, before anything is published.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetKey,
    AssetsDefinition,
    MaterializeResult,
    OpDefinition,
    OpExecutionContext,
    Output,
)
from dagster._core.definitions.utils import NoValueSentinel

from nova_assets.errors import CheckFailed, TaskFailed
from nova_assets.suggestions import did_you_mean

_NO_ROWS = "return an empty table or [], if there is nothing to write"


@dataclass
class StepResults:
    """What an asset's function has yielded or returned. Outputs are held back until their rows are committed.

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
