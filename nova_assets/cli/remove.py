"""``nova remove``: remove a definition, or take a removal back."""

from __future__ import annotations

import sys

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.definitions import kind_argument, name_argument
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import is_terminal, print_table
from nova_assets.plan.removal import RemovalPlan


@click.command(cls=NovaCommand)
@kind_argument
@name_argument
@click.option("--yes", is_flag=True, help="Remove without asking.")
@click.option("--undo", is_flag=True, help="Take the removal back. Possible until the next garbage collection.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed and orphaned. Change nothing.")
def remove(deployment: Deployment, kind: str, name: str, yes: bool, undo: bool, dry_run: bool) -> CommandResult:
    """Remove the channel, workflowette, binding or trigger NAME. First shows what that orphans, and asks.

    A removed binding does not run, and its name cannot be registered by accident. The next garbage collection deletes
    the cursors of removed bindings, and the blocks of removed channels. Automatic maintenance waits for gc_grace before
    it does. Until then, --undo takes the removal back. With a workflowette, all its bindings are removed.

    \b
    JSON: {"dry_run", "kind", "name", "removes": [{"kind", "name"}], "orphans": [{"kind", "name", "detail"}],
           "removed": whether it is removed now}
    With --undo: {"dry_run", "kind", "name", "restored": [{"kind", "name"}]}
    """
    if undo:
        if yes:
            raise click.UsageError("--undo asks nothing, so it needs no --yes")
        return _undo(deployment, kind, name, dry_run)
    if dry_run:
        with deployment.open_read_only(with_project=True) as store:
            removal = store.plan_removal(kind, name)
        return CommandResult(
            {"dry_run": True, **removal.as_json(), "removed": False}, lambda console: show_removal(console, removal)
        )
    with deployment.open() as store:
        removal = store.plan_removal(kind, name)
        is_confirmed = yes or _is_confirmed(deployment, removal)
        if is_confirmed:
            removal = store.remove(kind, name)
    return CommandResult(
        {"dry_run": False, **removal.as_json(), "removed": is_confirmed},
        lambda console: _show_result(console, removal, is_confirmed),
        exit_code=0 if is_confirmed else 1,
    )


def _is_confirmed(deployment: Deployment, removal: RemovalPlan) -> bool:
    """Show what a removal orphans, and ask the person at the terminal.

    Raises:
        UsageError: nobody can be asked.
    """
    if deployment.quiet or not is_terminal(sys.stdin):
        orphans = "".join(f"\n  {o}" for o in removal.orphans)
        raise click.UsageError(f"removing {removal.key} needs --yes; it orphans:{orphans or ' nothing'}")
    show_removal(Console(stderr=True, markup=False, highlight=False, emoji=False), removal)
    return click.confirm(f"Remove {removal.key}?", err=True)


def _undo(deployment: Deployment, kind: str, name: str, dry_run: bool) -> CommandResult:
    with deployment.open(dry_run=dry_run) as store:
        restored = store.removed_with(kind, name) if dry_run else store.undo_removal(kind, name)
    data = {
        "dry_run": dry_run,
        "kind": kind,
        "name": name,
        "restored": [{"kind": k.kind, "name": k.name} for k in restored],
    }
    verb = "would be restored" if dry_run else "restored"
    text = "\n".join(f"{k}: {verb}" for k in restored) or f"{kind} {name} is not removed"
    return CommandResult(data, lambda console: console.print(text))


def show_removal(console: Console, removal: RemovalPlan) -> None:
    """Print what a removal removes, and what it orphans."""
    console.print(f"To be removed: {', '.join(map(str, removal.removed))}", soft_wrap=True)
    rows = [(o.label, o.name, o.detail) for o in removal.orphans]
    print_table(console, ("orphaned", "name", ""), rows, shorten=("",), empty="It orphans nothing.")


def _show_result(console: Console, removal: RemovalPlan, is_removed: bool) -> None:
    if not is_removed:
        console.print("Nothing was removed.")
        return
    for orphan in removal.orphans:
        console.print(f"orphaned: {orphan}", soft_wrap=True)
    for key in removal.removed:
        console.print(f"{key}: removed")
    console.print(f"nova remove {removal.key} --undo takes it back, until the next garbage collection", soft_wrap=True)
