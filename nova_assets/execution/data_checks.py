"""Data checks of one execution: their calls on the staged blocks, and their reports."""

from __future__ import annotations

import time
from typing import Any

from nova_assets.errors import CheckFailed
from nova_assets.execution.task_run import TaskRun
from nova_assets.masking import get_logger
from nova_assets.model.data_check import Check, CheckResult
from nova_assets.model.engine import Engine
from nova_assets.model.execution import CheckReport, Execution
from nova_assets.plan.run_plan import PlannedCheck
from nova_assets.user_code_errors import summarize_user_error

log = get_logger("nova_assets.runtime")

_EXPECTED_CHECK_OUTPUT = "True or False, a nova.CheckResult, or a frame of the rows that violate the check"


def run_all_checks(task_run: TaskRun) -> tuple[CheckReport, ...]:
    """Run every check on the staged blocks. A failed check does not stop the others."""
    reports = []
    for planned_check, check in zip(task_run.plan.checks, task_run.run_state.binding.checks, strict=True):
        report = _run_check(task_run, planned_check, check)
        if not report.passed:
            log.warning("check %s of channel %s failed: %s", report.check, report.channel, report.found or "")
        task_run.observer("check", report)
        reports.append(report)
    return tuple(reports)


def check_failed_error(execution: Execution, reports: tuple[CheckReport, ...]) -> CheckFailed:
    """Error for an execution that must not publish its results."""
    failed = [r for r in reports if r.blocks_commit]
    names = ", ".join(f"{r.check!r} of channel {r.channel!r}" for r in failed)
    return CheckFailed(
        f"binding {execution.binding!r} published nothing: the check{'s' if len(failed) > 1 else ''} {names} failed",
        found="; ".join(r.found or "False" for r in failed),
        next=f"look at the rows: nova check-failures {failed[0].channel}; fix the tasks or the check; then nova run "
        f"{execution.binding}",
        checks=[r.check for r in failed],
        binding=execution.binding,
        execution_id=execution.id,
    )


def channel_check_failed_error(channel: str, reports: tuple[CheckReport, ...]) -> CheckFailed:
    """Error for rows from outside that must not be published."""
    failed = [r for r in reports if r.blocks_commit]
    names = ", ".join(repr(r.check) for r in failed)
    return CheckFailed(
        f"nothing was inserted into channel {channel!r}: the check{'s' if len(failed) > 1 else ''} {names} failed",
        found="; ".join(f"{r.check}: {r.found or 'False'}" for r in failed),
        expected="rows that pass the checks of the channel",
        next="correct the rows, and insert them again; or give the check blocking=False",
        checks=[r.check for r in failed],
        channel=channel,
    )


def _run_check(task_run: TaskRun, planned_check: PlannedCheck, check: Check) -> CheckReport:
    started = time.monotonic()
    if any(
        i.port in task_run.ports_without_new_data
        for i in planned_check.inputs
        if i.channel is None or i.port == planned_check.port
    ):
        return CheckReport(
            check.name, planned_check.channel, True, check.blocking, 0.0, "nothing was written", skipped=True
        )
    try:
        with task_run.compute_with_progress(check):
            arguments = task_run.function_arguments(planned_check.inputs, check.wants_context)
            result = to_check_result(task_run.engine, check, check.function(**arguments))
    except Exception as error:  # a check that raises counts as failed
        failure = summarize_user_error(error)
        result = CheckResult(
            False, f"it raised {failure.message}" + (f", at {failure.location}" if failure.location else "")
        )
    seconds = time.monotonic() - started
    metadata = {name: _to_json_value(value) for name, value in result.metadata.items()}
    return CheckReport(
        check.name, planned_check.channel, bool(result.passed), check.blocking, seconds, result.found, metadata
    )


def to_check_result(engine: Engine, check: Check, check_output: Any) -> CheckResult:
    """What a check found, from what its function returned."""
    if isinstance(check_output, CheckResult):
        return check_output
    if type(check_output).__name__ in ("bool", "bool_"):  # numpy's bool is a class of its own
        return CheckResult(bool(check_output))
    if not engine.frames.is_frame(check_output):
        return CheckResult(False, f"it returned a {type(check_output).__name__}; expected {_EXPECTED_CHECK_OUTPUT}")
    rows = engine.frames.count(check_output)
    found = f"{rows} row{'s violate' if rows > 1 else ' violates'} the check" if rows else None
    checked = "changed rows" if check.consumes[0].mode == "new" else "all rows"
    return CheckResult(rows == 0, found, {"rows": rows, "checked": checked})


def _to_json_value(value: Any) -> str | int | float | bool:
    """Value as JSON and Dagster accept it. Numpy scalars become Python scalars."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, str | int | float | bool) else str(value)
