"""``nova executions`` and ``nova release``: who works at what, and how an execution is ended whose process is gone."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, iso, moment
from nova_assets.model.execution import Execution
from nova_assets.operations.release import OpenExecution

_HOLDERS = {
    "alive": "a process of this host",
    "gone": "a process that is gone",
    "unknown": "not of this host",
    "none": "nobody: it failed",
}


@click.command(cls=NovaCommand)
@click.pass_obj
def executions(deployment: Deployment) -> Answer:
    """List the executions that have not ended: those that run, and those that failed and can be resumed. Inserts,
    readers and assets of your own are among them.

    \b
    JSON: {"executions": [{"id", "binding" or null, "partition", "state": "running"|"failed", "purpose", "owner",
           "holder": "alive"|"gone"|"unknown"|"none", "started_at", "lease_until", "lapsed", "run_id" or null,
           "error" or null}]}
    """
    with deployment.look() as store:
        found = store.open_executions()
    return Answer({"executions": [_json(e) for e in found]}, lambda console: _show(console, found))


@click.command(cls=NovaCommand)
@click.argument("execution_id", metavar="ID")
@click.option("--force", is_flag=True, help="Also if its holder is alive, or not known to be gone.")
@click.option("--dry-run", is_flag=True, help="Say what would be ended; change nothing.")
@click.pass_obj
def release(deployment: Deployment, execution_id: str, force: bool, dry_run: bool) -> Answer:
    """End the execution ID without a commit. ID may be the beginning of one that `nova executions` shows.

    Nothing is lost but the work of that execution: a process that still works for it can no longer commit, cursors stay
    where they are, and the next run reads the same again.

    \b
    JSON: {"dry_run", "released": whether it is by this, "execution": as nova executions gives it}
    """
    with deployment.look() if dry_run else deployment.open(with_project=False) as store:
        named = store.release(execution_id, force=force, dry_run=dry_run)
    data = {"dry_run": dry_run, "released": not dry_run, "execution": _json(named)}
    what = f"execution {named.execution.id[:8]} of {_name(named.execution)}, held by {named.execution.owner}"
    said = f"It would end {what}." if dry_run else f"Ended {what}. Its cursors stay where they were."
    return Answer(data, lambda console: console.print(said, soft_wrap=True))


def _json(found: OpenExecution) -> dict[str, Any]:
    execution = found.execution
    return {
        "id": execution.id,
        "binding": execution.binding,
        "partition": execution.partition,
        "state": execution.state,
        "purpose": execution.purpose,
        "owner": execution.owner,
        "holder": found.holder,
        "started_at": iso(execution.started_at),
        "lease_until": iso(execution.lease_until),
        "lapsed": found.lapsed,
        "run_id": execution.run_id,
        "error": execution.error,
    }


def _show(console: Console, found: list[OpenExecution]) -> None:
    if not found:
        console.print("Every execution has ended.")
        return
    grid = Grid("id", "of", "partition", "state", "since", "lease until", "holder", shorten=("holder",))
    for one in found:
        e = one.execution
        until = f"{moment(e.lease_until)}{' (lapsed)' if one.lapsed else ''}"
        holder = f"{_HOLDERS[one.holder]}: {e.owner}"
        grid.add(e.id[:8], _name(e), e.partition, e.state, moment(e.started_at), until, holder)
    console.print(grid)
    if any(one.may_end for one in found):
        console.print("nova release ID ends one whose process is gone; the next run of a binding does so by itself")


def _name(execution: Execution) -> str:
    return execution.binding or ("a reader" if execution.purpose == "read" else f"an insert ({execution.purpose})")
