"""``nova executions`` and ``nova release``: list open executions, and end an execution whose process is gone."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import format_iso_time, format_time, print_table
from nova_assets.model.execution import Execution
from nova_assets.store.binding_executions import OpenExecution

_HOLDER_TEXTS = {
    "alive": "a process of this host",
    "gone": "a process that has died",
    "unknown": "a process of another host",
    "none": "no process: it has failed",
}


@click.command(cls=NovaCommand)
def executions(deployment: Deployment) -> CommandResult:
    """List the executions that have not ended: running ones, and failed ones that can be resumed. Executions of
    inserts, reads and your own Dagster assets are listed, too.

    \b
    JSON: {"executions": [{"id", "binding" or null, "partition", "state": "running"|"failed", "purpose", "owner",
           "holder": "alive"|"gone"|"unknown"|"none", "started_at", "lease_until", "lapsed", "run_id" or null,
           "error" or null}]}
    """
    with deployment.open_read_only() as store:
        open_executions = store.open_executions()
    return CommandResult(
        {"executions": [_execution_json(e) for e in open_executions]},
        lambda console: _show_executions(console, open_executions),
    )


@click.command(cls=NovaCommand)
@click.argument("execution_id", metavar="ID")
@click.option("--force", is_flag=True, help="End the execution even if its process is alive or unknown.")
@click.option("--dry-run", is_flag=True, help="Show the execution that would be ended. Change nothing.")
def release(deployment: Deployment, execution_id: str, force: bool, dry_run: bool) -> CommandResult:
    """End execution ID without a commit. The first characters of an id that nova executions lists are enough.

    Only the work of this execution is lost. Its process can no longer commit, cursors stay where they are, and the next
    run reads the same rows again.

    \b
    JSON: {"dry_run", "released": whether this command ended it, "execution": as in nova executions}
    """
    with deployment.open(with_project=False, dry_run=dry_run) as store:
        ended = store.release(execution_id, force=force, dry_run=dry_run)
    data = {"dry_run": dry_run, "released": not dry_run, "execution": _execution_json(ended)}
    execution_text = (
        f"execution {ended.execution.id[:8]} of {_binding_or_purpose(ended.execution)}, held by {ended.execution.owner}"
    )
    message = f"It would end {execution_text}." if dry_run else f"Ended {execution_text}. Its cursors have not moved."
    return CommandResult(data, lambda console: console.print(message, soft_wrap=True))


def _execution_json(open_execution: OpenExecution) -> dict[str, Any]:
    execution = open_execution.execution
    return {
        "id": execution.id,
        "binding": execution.binding,
        "partition": execution.partition,
        "state": execution.state,
        "purpose": execution.purpose,
        "owner": execution.owner,
        "holder": open_execution.holder,
        "started_at": format_iso_time(execution.started_at),
        "lease_until": format_iso_time(execution.lease_until),
        "lapsed": open_execution.lapsed,
        "run_id": execution.run_id,
        "error": execution.error,
    }


def _show_executions(console: Console, open_executions: list[OpenExecution]) -> None:
    if not open_executions:
        console.print("Every execution has ended.")
        return
    rows = []
    for open_execution in open_executions:
        e = open_execution.execution
        lease_text = f"{format_time(e.lease_until)}{' (expired)' if open_execution.lapsed else ''}"
        holder = f"{_HOLDER_TEXTS[open_execution.holder]}: {e.owner}"
        of, since = _binding_or_purpose(e), format_time(e.started_at)
        rows.append((e.id[:8], of, e.partition, e.state, since, lease_text, holder))
    columns = ("id", "of", "partition", "state", "since", "lease until", "holder")
    print_table(console, columns, rows, shorten=("holder",))
    if any(e.may_end for e in open_executions):
        console.print(
            "nova release ID ends an execution whose process has died; the next run of its binding does so, too"
        )


def _binding_or_purpose(execution: Execution) -> str:
    return execution.binding or ("a reader" if execution.purpose == "read" else f"an insert ({execution.purpose})")
