"""The checks of one execution: what is staged, the calls, and the verdicts."""

from __future__ import annotations

import time
from typing import Any

from nova_assets.errors import CheckFailed
from nova_assets.execution.task_run import TaskRun
from nova_assets.masking import get_logger
from nova_assets.model.data_check import Check, CheckResult
from nova_assets.model.execution import CheckReport, Execution
from nova_assets.plan.run import Look
from nova_assets.user_code_errors import fault

log = get_logger("nova_assets.runtime")

_GIVES = "True or False, a nova.CheckResult, or a frame of the rows that ought not to be there"


def carry_out_checks(run: TaskRun) -> tuple[CheckReport, ...]:
    """Every check, on what the execution has staged; whatever one finds, the others are heard, too."""
    reports = []
    for look, check in zip(run.plan.checks, run.run.binding.checks, strict=True):
        report = _carry_out(run, look, check)
        if not report.passed:
            log.warning("check %s of channel %s failed: %s", report.check, report.channel, report.found or "")
        run.tell("check", report)
        reports.append(report)
    return tuple(reports)


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


def _carry_out(run: TaskRun, look: Look, check: Check) -> CheckReport:
    started = time.monotonic()
    if any(given.port in run.skipped for given in look.inputs if given.channel is None or given.port == look.port):
        return CheckReport(check.name, look.channel, True, check.blocking, 0.0, "nothing was written", skipped=True)
    try:
        with run.computing(check):
            result = _verdict(run, check.function(**run.arguments(look.inputs, check.wants_context)))
    except Exception as error:  # a check that cannot say that all is well has failed
        failure = fault(error)
        result = CheckResult(False, f"it raised {failure.said}" + (f", at {failure.at}" if failure.at else ""))
    seconds = time.monotonic() - started
    facts = {name: _plain(value) for name, value in result.metadata.items()}
    return CheckReport(check.name, look.channel, bool(result.passed), check.blocking, seconds, result.found, facts)


def _verdict(run: TaskRun, given: Any) -> CheckResult:
    if isinstance(given, CheckResult):
        return given
    if type(given).__name__ in ("bool", "bool_"):  # numpy has one of its own
        return CheckResult(bool(given))
    if not run.engine.is_frame(given):
        return CheckResult(False, f"it gave no verdict but a {type(given).__name__}; expected {_GIVES}")
    rows = run.engine.count(given)
    found = f"{rows} row{'s' if rows > 1 else ''} that ought not to be there" if rows else None
    return CheckResult(rows == 0, found, {"rows": rows})


def _plain(value: Any) -> str | int | float | bool:
    """As JSON and Dagster take it; numpy's numbers are none of Python's."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, str | int | float | bool) else str(value)
