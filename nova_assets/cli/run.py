"""``nova run``: run a binding once and commit its output."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.due_runs import plan_due, run_due
from nova_assets.cli.plan import PartitionOptions, add_partition_options, plan_result
from nova_assets.cli.rendering import (
    block_json,
    elide_middle_rows,
    format_block_name,
    format_bytes,
    format_count,
    format_duration,
    format_iso_time,
    pluralize,
    print_progress,
    print_table,
)
from nova_assets.model.execution import Execution
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store


@click.command(cls=NovaCommand)
@click.argument("binding", required=False)
@add_partition_options
@click.option("--due", is_flag=True, help="Run every binding that is due, one after the other, without BINDING.")
@click.option("--follow", is_flag=True, help="As --due, and go on with what becomes due by these runs.")
@click.option(
    "--select",
    metavar="BINDING[+]",
    multiple=True,
    help="With --due or --follow: only this binding; with +, the bindings that follow it, too. Several times.",
)
@click.option("--resume", "resume_id", metavar="ID", help="Resume a failed execution with its pins and staged blocks.")
@click.option("--dry-run", is_flag=True, help="Show the plan, as nova plan does. Change nothing.")
def run(
    deployment: Deployment,
    binding: str | None,
    partitions: tuple[str, ...],
    missing: bool,
    whole: bool,
    due: bool,
    follow: bool,
    select: tuple[str, ...],
    resume_id: str | None,
    dry_run: bool,
) -> CommandResult:
    """Run BINDING once, due or not, and commit its outputs. A partitioned binding runs one execution for each named
    partition. With --due or --follow, run every binding whose trigger is due.

    If a task fails, the outputs of the execution stay invisible, and no cursor moves. The execution can be resumed.

    \b
    JSON: {"execution", "binding", "partition", "state", "started_at", "finished_at", "seconds",
           "commit": ID, "consumed": {CHANNEL: {"cursor", "head"}}, "numbers": {CHANNEL: SEQ},
           "blocks": [{"channel", "range", "kind", "rows", "deletes", "bytes", "files", ...}],
           "tasks": [{"task", "seconds", "cpu_seconds" or null, "read": {INPUT: ROWS}, "wrote": {PORT: ROWS}, "skipped",
             "ways": {INPUT: {"way", "rows", "bytes", "seconds"}}}],
           "checks": [{"check", "channel", "passed", "blocking", "found", "metadata", "seconds", "skipped"}]}
    With --missing or several --partition: {"binding", "executions": [one per partition]}. The first failure ends the
    command, and earlier executions stay committed. With --dry-run: as in nova plan. With --due or --follow:
    {"due": [{"binding", "partition", "why", "state": "committed", "failed" or "waits", "execution": ID or null, "rows",
    "waits": TEXT or null, "error": TEXT or null, "shared": [as in nova plan --due]}]}, and the exit code is 1 if one
    has failed. With --dry-run, too: as in nova plan --due.
    """
    if due or follow:
        if binding is not None or partitions or missing or whole or resume_id is not None:
            raise click.UsageError("--due and --follow take no BINDING, and of the options --select and --dry-run only")
        command = "nova run --due --dry-run"
        return plan_due(deployment, select, command) if dry_run else run_due(deployment, select, follow)
    if binding is None or select:
        raise click.UsageError("name a BINDING, or run what is due: nova run --due [--select BINDING]")
    partition_options = PartitionOptions(partitions, missing, whole)
    if resume_id is not None and (dry_run or not partition_options.is_single_execution):
        raise click.UsageError("--resume takes one execution: it excludes --dry-run, --missing and several partitions")
    if dry_run:
        return plan_result(deployment, binding, partition_options, f"nova run {binding} --dry-run")
    deployment.check_project_configured(f"nova run {binding}")
    with deployment.open() as store:
        if resume_id is not None:
            _check_execution_binding(store, binding, resume_id)
        finished_executions = [
            _run_with_progress(store, binding, p, whole, resume_id, deployment.quiet)
            for p in partition_options.resolve_partitions(store, binding)
        ]
    if partition_options.is_single_execution:
        return CommandResult(
            _execution_json(finished_executions[0]), lambda console: _show_execution(console, finished_executions[0])
        )
    data = {"binding": binding, "executions": [_execution_json(d) for d in finished_executions]}
    return CommandResult(data, lambda console: _show_executions(console, binding, finished_executions))


def _check_execution_binding(store: Store, binding: str, execution_id: str) -> None:
    execution_binding = store.catalog.executions.get(execution_id).binding
    if execution_binding != binding:
        owner_text = "an insert" if execution_binding is None else f"binding {execution_binding!r}"
        raise click.UsageError(f"execution {execution_id} belongs to {owner_text}, not to binding {binding!r}")


def _run_with_progress(
    store: Store, binding: str, partition: str, whole: bool, resume_id: str | None, quiet: bool
) -> Execution:
    tasks = [t.name for t in store.project.binding(binding).workflowette.in_order()]
    has_checks = bool(store.project.binding(binding).checks)
    label = f"{binding} {partition}".rstrip()
    begun_executions: list[Execution] = []
    finished_tasks: list[str] = []

    def on_run_event(event: str, subject: Any) -> None:
        if event == "begin":
            begun_executions.append(subject)
        elif event == "task":
            finished_tasks.append(subject.task)
        elif event == "progress":
            print_progress(f"{label}: {subject}", quiet)
            return
        current = tasks.index(finished_tasks[-1]) + 1 if finished_tasks else 0
        if current < len(tasks):
            current_step = f"{tasks[current]} ({current + 1} of {len(tasks)})"
        else:
            current_step = "checking and committing" if has_checks else "committing"
        if event != "commit":
            print_progress(f"{label}: {current_step}", quiet)

    try:
        return store.run(binding, partition, whole=whole, resume=resume_id, observer=on_run_event)
    except NovaError as error:
        _add_resume_advice(store, error, begun_executions)
        raise
    except KeyboardInterrupt:
        _print_interrupted(store, binding, begun_executions)
        raise


def _add_resume_advice(store: Store, error: NovaError, begun_executions: list[Execution]) -> None:
    """Add advice to an error on how to resume the failed execution (R4)."""
    if begun_executions and _has_failed(store, begun_executions[-1]):
        resume_advice = (
            "to resume with its pins and staged blocks: nova run "
            f"{begun_executions[-1].binding} --resume {begun_executions[-1].id}"
        )
        error.next = resume_advice if error.next is None else f"{error.next}\n            or, {resume_advice}"


def _print_interrupted(store: Store, binding: str, begun_executions: list[Execution]) -> None:
    if begun_executions and _has_failed(store, begun_executions[-1]):
        click.echo(
            f"\nInterrupted; nothing was committed. To resume: nova run {binding} --resume {begun_executions[-1].id}",
            err=True,
        )


def _has_failed(store: Store, execution: Execution) -> bool:
    with contextlib.suppress(NovaError):
        return store.catalog.executions.get(execution.id).state == "failed"
    return False


# output


def _show_executions(console: Console, binding: str, finished_executions: list[Execution]) -> None:
    """Print executions of several partitions, one line each, sorted by partition."""
    if not finished_executions:
        console.print(f"{binding}: no partition has unread data")
        return
    rows = []
    for e in sorted(finished_executions, key=lambda e: e.partition):
        numbers = ", ".join(f"{c} {n}" for c, n in e.commit.numbers.items()) if e.commit else ""
        written = format_count(sum(b.rows for b in e.commit.blocks)) if e.commit else "0"
        seconds = _duration_seconds(e)
        took = "" if seconds is None else format_duration(seconds)
        rows.append((e.partition or "(whole)", e.state, took, written, numbers))
    columns, numeric = ("partition", "state", "time", "rows written", "numbers"), ("time", "rows written")
    print_table(console, columns, elide_middle_rows(rows), right_aligned=numeric, shorten=("numbers",))
    total_rows = sum(b.rows for d in finished_executions if d.commit for b in d.commit.blocks)
    console.print(f"{pluralize(len(finished_executions), 'partition')}, {pluralize(total_rows, 'row')} written")


def _execution_json(execution: Execution) -> dict[str, Any]:
    commit = execution.commit
    return {
        "execution": execution.id,
        "binding": execution.binding,
        "partition": execution.partition,
        "state": execution.state,
        "started_at": format_iso_time(execution.started_at),
        "finished_at": format_iso_time(execution.finished_at),
        "seconds": _duration_seconds(execution),
        "commit": execution.commit_id,
        "consumed": {c: {"cursor": cursor, "head": head} for c, (cursor, head) in commit.consumed.items()}
        if commit
        else {},
        "numbers": dict(commit.numbers) if commit else {},
        "blocks": [block_json(b) for b in commit.blocks] if commit else [],
        "tasks": [t.as_json() for t in execution.tasks],
        "checks": [c.as_json() for c in execution.checks],
    }


def _duration_seconds(execution: Execution) -> float | None:
    return (
        None
        if execution.finished_at is None
        else round((execution.finished_at - execution.started_at).total_seconds(), 3)
    )


def _show_execution(console: Console, execution: Execution) -> None:
    duration = _duration_seconds(execution)
    console.print(
        f"{execution.binding} {execution.state}"
        + ("" if duration is None else f" in {format_duration(duration)}")
        + f"  ({execution.id})"
    )
    commit = execution.commit
    consumed = commit.consumed.items() if commit else ()
    console.print(f"read  {'; '.join(_format_pin(c, *pin) for c, pin in consumed) or 'nothing'}")
    if execution.tasks:
        console.print()
        rows = [
            (t.task, "", "nothing new", "skipped")
            if t.skipped
            else (t.task, format_duration(t.seconds), _format_row_counts(t.read), _format_row_counts(t.wrote))
            for t in execution.tasks
        ]
        counts = ("rows read", "rows written")
        print_table(console, ("task", "time", *counts), rows, right_aligned=("time",), shorten=counts)
    if execution.checks:
        console.print()
        checks = [
            (c.check, c.channel, "passed" if c.passed else "failed, not blocking", c.found or "")
            for c in execution.checks
        ]
        print_table(console, ("check", "of channel", "verdict", "found"), checks, shorten=("found",))
    console.print()
    if commit is None or not commit.blocks:
        console.print("No channel was changed: the tasks wrote nothing.")
        return
    blocks = [
        (b.channel, format_block_name(b), format_count(b.rows), format_count(b.manifest.deletes), format_bytes(b.bytes))
        for b in sorted(commit.blocks, key=lambda b: (b.channel, b.partition))
    ]
    numbers = ("rows", "deleted", "bytes")
    print_table(console, ("channel", "block", *numbers), elide_middle_rows(blocks), right_aligned=numbers)
    if len(commit.blocks) > 1:
        console.print(
            f"{pluralize(len(commit.blocks), 'block')}, {pluralize(sum(b.rows for b in commit.blocks), 'row')}"
        )


def _format_pin(channel: str, cursor: int | None, head: int) -> str:
    if cursor is None:
        return f"{channel} at {head}"
    return f"{channel} from {cursor} to {head}" if cursor != head else f"{channel} at {head}, nothing new"


def _format_row_counts(rows_by_name: Mapping[str, int | None]) -> str:
    return ", ".join(f"{name} {'passed on' if n is None else format_count(n)}" for name, n in rows_by_name.items())
