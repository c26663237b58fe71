"""``nova run --due`` and ``nova run --follow``: run every binding that is due, without Dagster."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from nova_assets.cli.command import CommandResult
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import TableGrid, format_count, pluralize, print_progress
from nova_assets.operations.due_runs import DueRun, select_bindings


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


def list_due(deployment: Deployment, select: tuple[str, ...]) -> CommandResult:
    """List the bindings that are due. Nothing changes."""
    with deployment.open_read_only(with_project=True) as store:
        selected = {b.name for b in select_bindings(store.project, select)}
        due = [
            (s.binding.name, p, why) for s in store.bindings() if s.binding.name in selected for p, why in s.due.items()
        ]

    def show(console: Console) -> None:
        for binding, partition, why in due:
            console.print(f"{f'{binding} {partition}'.rstrip()}: {why}", markup=False)
        if not due:
            console.print("nothing is due")

    return CommandResult({"due": [{"binding": b, "partition": p, "why": why} for b, p, why in due]}, show)


def _show(console: Console, due_runs: list[DueRun]) -> None:
    if not due_runs:
        console.print("nothing is due")
        return
    grid = TableGrid(
        "binding", "due because", "", "rows written", right_aligned=("rows written",), shorten=("due because",)
    )
    for r in due_runs:
        rows = "" if r.execution is None else format_count(_rows_written(r))
        grid.add(_name(r), r.why, _state(r), rows)
    console.print(grid)
    for r in due_runs:
        if r.error is not None or r.waits:
            console.print(f"{_name(r)}: {r.error or r.waits}", markup=False, soft_wrap=True)
    console.print(f"{pluralize(sum(r.execution is not None for r in due_runs), 'execution')} committed")


def _name(due_run: DueRun) -> str:
    return f"{due_run.binding} {due_run.partition}".rstrip()


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
    }
