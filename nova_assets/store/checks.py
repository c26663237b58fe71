"""Data checks of channels: the rows that violate them, and checks of the rows that a channel has now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from nova_assets.errors import CheckFailed, DefinitionError
from nova_assets.execution.data_checks import to_check_result
from nova_assets.execution.runtime import Runtime
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.channel_checks import insert_binding
from nova_assets.model.data_check import Check, CheckResult
from nova_assets.model.engine import Frame
from nova_assets.model.execution import CheckReport, Execution
from nova_assets.nova_error import NovaError
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.read import ChannelReader
from nova_assets.suggestions import did_you_mean
from nova_assets.user_code_errors import summarize_user_error

_MAX_EXECUTIONS = 100
"""Latest executions of a binding among which a failed one is looked for."""


@dataclass(frozen=True)
class FailingRows:
    """Rows that violate one check.

    Args:
        check: name of the check.
        binding: name of the binding that runs the check; empty if the rows of the channel come from outside.
        execution: id of the failed execution whose unpublished output is checked; None if the rows of the channel are.
        rows: the rows, as a frame that is computed when it is read; None if there is no such frame.
        reason: why there is no frame; empty if there is one.
    """

    check: str
    binding: str
    execution: str | None
    rows: Frame | None
    reason: str = ""


class ChannelChecks:
    """Store methods that run the data checks of channels."""

    def __init__(self, runtime: Runtime, registry: ChannelRegistry, reader: ChannelReader) -> None:
        self.runtime = runtime
        self.registry = registry
        self.reader = reader

    def failing_rows(self, channel: Channel | str, check: str | None = None) -> list[FailingRows]:
        """Rows that violate the data checks of a channel, for each check.

        An execution that failed because of its checks keeps its output: the rows are those of this output. Otherwise,
        the rows are those that violate the check in the channel as it is now.

        Args:
            channel: channel under test.
            check: name of one check; all checks of the channel by default.

        Raises:
            ChannelNotFound: neither the catalog nor the project has the channel.
            DefinitionError: the channel has no such check.
        """
        name = self.registry.known(channel)
        project = self.runtime.project
        found = [(b, c) for b in project.bindings for c in b.checks if b.channels[c.port].name == name]
        if project.writer(name) is None and (checks := project.checks_of(name)):
            outside = insert_binding(project.channel(name), "delta", checks)
            found = [(outside, c) for c in outside.checks]
        names = sorted({c.name for _, c in found})
        if check is not None and check not in names:
            raise DefinitionError(
                f"channel {name!r} has no check {check!r}{did_you_mean(check, names)}",
                expected=f"one of {', '.join(names)}" if names else "a check whose first edge is this channel",
            )
        failed = {b.name: self._last_failed_by_checks(b) for b in project.bindings if b in [f for f, _ in found]}
        return [self._failing_rows(b, c, failed.get(b.name)) for b, c in found if check in (None, c.name)]

    def check_rows(self, channel: Channel | str) -> list[CheckReport]:
        """Run the checks that the project gives to a channel on the rows that the channel has now. Nothing changes.

        Args:
            channel: channel whose rows come from outside.

        Raises:
            ChannelNotFound: neither the catalog nor the project has the channel.
        """
        name = self.registry.known(channel)
        return [self._check_present_rows(name, c) for c in self.runtime.project.checks_of(name)]

    def _check_present_rows(self, channel: str, check: Check) -> CheckReport:
        started = time.monotonic()
        if reason := _reason_without_rows(check):
            return CheckReport(check.name, channel, True, check.blocking, 0.0, reason, skipped=True)
        outside = insert_binding(self.runtime.project.channel(channel), "delta", [check])
        try:
            output = self._call_on_channels(outside, check)
            with self.runtime.engine.computation_scope():
                result = to_check_result(self.runtime.engine, check, output)
        except NovaError:
            raise
        except Exception as error:  # user code
            result = CheckResult(False, f"it raised {summarize_user_error(error).message}")
        metadata = {**result.metadata, "checked": "all rows"}
        seconds = time.monotonic() - started
        return CheckReport(check.name, channel, bool(result.passed), check.blocking, seconds, result.found, metadata)

    def _last_failed_by_checks(self, binding: Binding) -> Execution | None:
        """Latest execution of a binding that failed because of its checks. If its partition was executed again later,
        it does not count.
        """
        seen: set[str] = set()
        for execution in self.runtime.catalog.executions.find(binding.name, _MAX_EXECUTIONS):
            is_latest = execution.partition not in seen
            seen.add(execution.partition)
            if is_latest and execution.state == "failed" and (execution.error or "").startswith(CheckFailed.__name__):
                return execution
        return None

    def _failing_rows(self, binding: Binding, check: Check, failed: Execution | None) -> FailingRows:
        is_outside = binding not in self.runtime.project.bindings
        make = partial(
            FailingRows, check.name, "" if is_outside else binding.name, None if failed is None else failed.id
        )
        try:
            if failed is not None:
                output = self._call_on_output(failed, check)
            elif reason := _reason_without_rows(check):
                return make(None, reason)
            else:
                output = self._call_on_channels(binding, check)
        except NovaError:
            raise
        except Exception as error:  # user code
            return make(None, f"it raised {summarize_user_error(error).message}")
        if not self.runtime.engine.frames.is_frame(output):
            return make(None, "it returns no rows, but whether they are right")
        return make(output)

    def _call_on_output(self, execution: Execution, check: Check) -> Any:
        task_run = self.runtime.task_run(execution)
        planned = next(p for p in task_run.plan.checks if p.check == check.name)
        return check.function(**task_run.function_arguments(planned.inputs, check.wants_context))

    def _call_on_channels(self, binding: Binding, check: Check) -> Any:
        channels = {e.name: binding.channels[e.port].name for e in check.consumes}
        with self.runtime.engine.computation_scope():
            return check.function(**{name: self.reader.read(channel).to_spark() for name, channel in channels.items()})


def _reason_without_rows(check: Check) -> str:
    modes = [e.mode for e in check.consumes if e.mode not in ("new", "all")]
    if modes:
        return f"it reads {modes[0]}, which only an execution has"
    return "it needs the context of an execution" if check.wants_context else ""
