"""One check of one execution: what is staged, the call, and the verdict."""

from __future__ import annotations

import time
from typing import Any

from nova_assets.errors import CheckFailed, TaskFailed
from nova_assets.model.check import Check, CheckResult
from nova_assets.model.execution import CheckReport, Execution
from nova_assets.plan.run import Look
from nova_assets.tasks import TaskRun

_GIVES = "True or False, a nova.CheckResult, or a frame of the rows that ought not to be there"


def carry_out_check(run: TaskRun, look: Look, check: Check) -> CheckReport:
    """Carry out one check on what the execution has staged.

    Raises:
        TaskFailed: the function raised, or gave no verdict.
    """
    started = time.monotonic()
    if look.port in run.skipped:
        return CheckReport(check.name, look.channel, True, check.blocking, 0.0, "nothing was written", skipped=True)
    with run.calling(check.name):
        result = _verdict(run, check, check.function(**run.arguments(look.inputs, check.wants_context)))
    return CheckReport(
        check.name,
        look.channel,
        result.passed,
        check.blocking,
        time.monotonic() - started,
        result.found,
        dict(result.metadata),
    )


def refusal(execution: Execution, reports: tuple[CheckReport, ...]) -> CheckFailed:
    """The error of an execution that must not publish what it made."""
    failed = [r for r in reports if r.blocks]
    names = ", ".join(f"{r.check!r} of channel {r.channel!r}" for r in failed)
    return CheckFailed(
        f"binding {execution.binding!r} published nothing: the check{'s' if len(failed) > 1 else ''} {names} failed",
        found="; ".join(r.found or "False" for r in failed),
        next=f"mend what the tasks make, or the check, then: nova run {execution.binding}",
        checks=[r.check for r in failed],
        binding=execution.binding,
        execution_id=execution.id,
    )


def _verdict(run: TaskRun, check: Check, given: Any) -> CheckResult:
    if isinstance(given, CheckResult):
        return given
    if type(given).__name__ in ("bool", "bool_"):  # numpy has one of its own
        return CheckResult(bool(given))
    if not run.engine.is_frame(given):
        raise TaskFailed(
            f"check {check.name!r} gave no verdict",
            found=type(given).__name__,
            expected=_GIVES,
            task=check.name,
            execution_id=run.run.execution.id,
        )
    rows = run.engine.count(given)
    return CheckResult(
        rows == 0, f"{rows} row{'s' if rows > 1 else ''} that ought not to be there" if rows else None, {"rows": rows}
    )
