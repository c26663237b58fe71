"""Checks of the rows that come from outside: they run on the staged block of an insert, before it is committed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova_assets.execution.begin_request import load_pinned_history
from nova_assets.execution.data_checks import channel_check_failed_error, run_all_checks
from nova_assets.execution.run_state import RunState
from nova_assets.execution.runtime import Runtime
from nova_assets.execution.task_run import TaskRun
from nova_assets.model.binding import Binding
from nova_assets.model.block import Kind
from nova_assets.model.channel_checks import insert_binding
from nova_assets.model.commit import CommitRequest, RequireHead
from nova_assets.model.execution import CheckReport, Execution
from nova_assets.model.partitions import WHOLE


@dataclass(frozen=True, slots=True)
class CheckedBlock:
    """Result of the checks of an inserted block.

    Args:
        reports: result of each check. No blocking check failed.
        required_heads: preconditions of the commit: the channel has not changed, if a check has read its rows.
    """

    reports: tuple[CheckReport, ...] = ()
    required_heads: tuple[RequireHead, ...] = ()

    def added_to(self, request: CommitRequest) -> CommitRequest:
        """The request with these preconditions. The commit records the results."""
        if not self.reports:
            return request
        heads = (*request.required_heads, *(h for h in self.required_heads if h not in request.required_heads))
        details = {**request.details, "checks": [r.as_json() for r in self.reports]}
        return replace(request, required_heads=heads, details=details)


class InsertChecks:
    """The checks of the rows that are inserted into a channel.

    Args:
        scope: partition of the inserted block.
    """

    def __init__(self, runtime: Runtime, channel: str, kind: Kind, scope: str = WHOLE) -> None:
        checks = runtime.project.checks_of(channel)
        self.runtime = runtime
        self.channel = channel
        self.binding: Binding | None = (
            insert_binding(runtime.project.channel(channel), kind, checks, scope) if checks else None
        )

    @property
    def channels(self) -> tuple[str, ...]:
        """Other channels that a check reads. The execution has to pin them."""
        read = () if self.binding is None else self.binding.channels_read_by_checks
        return tuple(c.name for c in read if c.name != self.channel)

    def run(self, execution: Execution) -> CheckedBlock:
        """Run the checks on the staged block. Without checks, the result is empty.

        Raises:
            CheckFailed: a blocking check failed, so the block must not be committed.
        """
        if self.binding is None or self.channel not in self.runtime.staging.complete_blocks_by_port(execution):
            return CheckedBlock()
        runtime, binding = self.runtime, self.binding
        histories = {c: load_pinned_history(runtime.catalog, binding, p) for c, p in execution.pins.items()}
        state = RunState(execution, binding, histories)
        task_run = TaskRun(runtime.engine, runtime.staging, state, {})
        reports = run_all_checks(task_run)
        if any(r.blocks_commit for r in reports):
            raise channel_check_failed_error(self.channel, reports)
        return CheckedBlock(reports, task_run.plan.heads)
