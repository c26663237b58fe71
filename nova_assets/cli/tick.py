"""``nova tick``: compute the partitions that SQL datasets lack."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.refresh import format_refreshed
from nova_assets.cli.rendering import MAX_LISTED_PARTITIONS, print_lines, print_progress, print_table, print_title
from nova_assets.plan.tick import Tick, WaitingTask
from nova_assets.store.tick import TaskOutcome


@click.command(cls=NovaCommand)
@click.option(
    "--dry-run",
    is_flag=True,
    help="List tasks that would run or wait, and partitions that would be dropped. Change nothing.",
)
@click.option("--all", "until_done", is_flag=True, help="Repeat until no task can run.")
def tick(deployment: Deployment, dry_run: bool, until_done: bool) -> CommandResult:
    """Compute the missing, dirty and stale partitions of the datasets in SQL, once.

    A task runs once all partitions that it reads exist and are up to date. Partitions that no task writes any more are
    dropped. Before that, external channels are refreshed as by nova refresh, except in a dry run. Exits with 1 if a
    task has failed, or if a channel cannot be refreshed.

    JSON: {"run": [{"dataset", "partition", "error": null or text}], "dropped": {dataset: [partition]}, "amiss":
    {channel: [text]}, "waits": [{"dataset", "partition", "why", "waits_for"}]}; with --dry-run {"run": [{"dataset",
    "partition", "why"}], "waits", "drop": {dataset: [partition]}, "held": {dataset: [partition]}}
    """
    if dry_run:
        with deployment.open_read_only(with_project=True) as store:
            return _tick_preview_result(store.next_tick())
    with deployment.open() as store:
        refresh_problems = {r.channel: format_refreshed(r) for r in store.refresh_all() if r.needs_attention}
        runs: list[TaskOutcome] = []
        dropped: dict[str, list[str]] = {}
        while True:
            planned_tick = store.next_tick()
            dropped = {d: [*dropped.get(d, ()), *planned_tick.drop.get(d, ())] for d in (*dropped, *planned_tick.drop)}
            new_runs = store.tick(
                planned_tick, lambda task_run: print_progress(_format_task_run(task_run), deployment.quiet)
            )
            runs += new_runs
            if not until_done or not new_runs or any(r.error for r in new_runs):
                break
    return _tick_result(runs, dropped, refresh_problems, planned_tick.waits)


def _format_task_run(task_run: TaskOutcome) -> str:
    name = f"{task_run.dataset} {task_run.partition}".rstrip()
    return f"{name}: {'computed' if task_run.error is None else task_run.error}"


def _tick_result(
    task_runs: Sequence[TaskOutcome],
    dropped_partitions: dict[str, list[str]],
    refresh_problems: dict[str, list[str]],
    waiting_tasks: Sequence[WaitingTask],
) -> CommandResult:
    failed = [r for r in task_runs if r.error is not None]
    run_rows = [
        {"dataset": r.dataset, "partition": r.partition, "error": None if r.error is None else str(r.error)}
        for r in task_runs
    ]

    def show(console: Console) -> None:
        for problem_lines in refresh_problems.values():
            print_lines(console, problem_lines)
        for r in failed:
            console.print(f"{r.dataset} {r.partition} failed: {r.error}")
        dropped_count = sum(map(len, dropped_partitions.values()))
        console.print(f"{len(task_runs) - len(failed)} computed, {len(failed)} failed, {dropped_count} dropped")
        _print_waiting_tasks(console, waiting_tasks)

    return CommandResult(
        {
            "run": run_rows,
            "dropped": dropped_partitions,
            "amiss": refresh_problems,
            "waits": _waiting_rows(waiting_tasks),
        },
        show,
        1 if failed or refresh_problems else 0,
    )


def _tick_preview_result(planned_tick: Tick) -> CommandResult:
    run_rows = [(b.dataset, p, w) for b in planned_tick.run for p, w in zip(b.partitions, b.why, strict=True)]
    data = {
        "run": [dict(zip(("dataset", "partition", "why"), r, strict=True)) for r in run_rows],
        "waits": _waiting_rows(planned_tick.waits),
        "drop": {d: list(p) for d, p in planned_tick.drop.items()},
        "held": {d: list(p) for d, p in planned_tick.held.items()},
    }

    def show(console: Console) -> None:
        print_title(console, f"To run: {len(run_rows)}")
        print_table(console, ("dataset", "partition", "why"), run_rows)
        _print_waiting_tasks(console, planned_tick.waits)
        for title, partitions_by_dataset in (
            ("To drop", planned_tick.drop),
            ("Not dropped, because they are many", planned_tick.held),
        ):
            if partitions_by_dataset:
                print_title(console, title)
                rows = [(d, p) for d, partitions in partitions_by_dataset.items() for p in partitions]
                print_table(console, ("dataset", "partition"), rows[:MAX_LISTED_PARTITIONS])

    return CommandResult(data, show)


def _waiting_rows(tasks: Sequence[WaitingTask]) -> list[dict[str, str]]:
    return [{"dataset": t.dataset, "partition": t.partition, "why": t.why, "waits_for": t.waits_for} for t in tasks]


def _print_waiting_tasks(console: Console, tasks: Sequence[WaitingTask]) -> None:
    if tasks:
        print_title(console, f"Waiting: {len(tasks)}")
        rows = [(t.dataset, t.partition, t.why, t.waits_for) for t in tasks[:MAX_LISTED_PARTITIONS]]
        print_table(console, ("dataset", "partition", "why", "waits for"), rows)
