"""``nova run --due`` and ``nova run --follow``: run every binding that is due, without Dagster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from nova_assets.cli.command import CommandResult
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import format_count, pluralize, print_lines, print_progress, print_table
from nova_assets.model.execution import Execution
from nova_assets.store.due_runs import DuePlan, DueRun


def run_due(deployment: Deployment, select: tuple[str, ...], follow: bool) -> CommandResult:
    """Run the bindings that are due. The exit code is 1 if an execution has failed."""
    deployment.check_project_configured("nova run --due")

    def on_event(event: str, subject: Any) -> None:
        if event == "begin":
            print_progress(f"{subject.binding} {subject.partition}".rstrip(), deployment.quiet)

    with deployment.open() as store:
        due_runs = store.run_due(select, follow=follow, observer=on_event)
    failed = sum(r.error is not None for r in due_runs)
    return CommandResult(
        {"due": [_as_json(r) for r in due_runs]}, lambda console: _show(console, due_runs), exit_code=int(failed > 0)
    )


def plan_due(deployment: Deployment, select: tuple[str, ...], command: str) -> CommandResult:
    """The executions that are due, and the rows that they would share. Nothing changes.

    Args:
        command: the command that the user typed, for errors.
    """
    deployment.check_project_configured(command)
    with deployment.open_read_only(with_project=True) as store:
        due_plan = store.plan_due(select)
    return CommandResult(due_plan.as_json(), lambda console: _show_plan(console, due_plan))


def _show_plan(console: Console, due_plan: DuePlan) -> None:
    for step in due_plan.steps:
        waits = "" if step.is_execution else "waits: "
        console.print(f"{step.name}: {waits}{step.why}", soft_wrap=True)
    if not any(s.is_execution for s in due_plan.steps):
        console.print("nothing is due")
    for rows in due_plan.shared:
        console.print(f"{rows}{_UNKNOWN if rows.runs_python is None else ''}", soft_wrap=True)


_UNKNOWN = "; computed once if the function runs Python in Spark's workers, which shows when it is called"


def _show(console: Console, due_runs: list[DueRun]) -> None:
    if not due_runs:
        console.print("nothing is due")
        return
    rows = [(r.name, r.why, _state(r), "" if r.execution is None else format_count(_rows_written(r))) for r in due_runs]
    columns = ("binding", "due because", "", "rows written")
    print_table(console, columns, rows, right_aligned=("rows written",), shorten=("due because",))
    print_lines(console, (f"{r.name}: {r.error or r.waits}" for r in due_runs if r.error is not None or r.waits))
    print_lines(console, dict.fromkeys(_shared_texts(due_runs)))
    console.print(f"{pluralize(sum(r.execution is not None for r in due_runs), 'execution')} committed")


def _shared_texts(due_runs: list[DueRun]) -> Iterator[str]:
    """What the executions have shared, with the estimates that decided it."""
    for facts in (t.facts for r in due_runs if r.execution is not None for t in r.execution.tasks):
        for rows in facts.get("shared_rows", ()):
            how = "computed once" if rows["shared"] else "computed by each"
            cost = rows["estimated_cpu_seconds"]
            yield (
                f"{rows['rows_of']}, for {', '.join(rows['executions'])}: {how} "
                f"(once {cost['shared']:.1f} s of CPU, by each {cost['separate']:.1f} s)"
            )


def _state(due_run: DueRun) -> str:
    if due_run.error is not None:
        return "failed"
    return "waits" if due_run.execution is None else due_run.execution.state


def _rows_written(due_run: DueRun) -> int:
    commit = None if due_run.execution is None else due_run.execution.commit
    return 0 if commit is None else sum(b.rows for b in commit.blocks)


def _as_json(due_run: DueRun) -> dict[str, Any]:
    return {
        "binding": due_run.binding,
        "partition": due_run.partition,
        "why": due_run.why,
        "state": _state(due_run),
        "execution": None if due_run.execution is None else due_run.execution.id,
        "rows": _rows_written(due_run),
        "waits": due_run.waits or None,
        "error": None if due_run.error is None else str(due_run.error),
        "shared": [] if due_run.execution is None else _shared_json(due_run.execution),
    }


def _shared_json(execution: Execution) -> list[Any]:
    return [rows for t in execution.tasks for rows in t.facts.get("shared_rows", ())]
