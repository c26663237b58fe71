"""``nova switch``: switch a binding between unpartitioned and per-partition executions."""

from __future__ import annotations

from typing import Any, Literal

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import elide_middle_rows, print_table
from nova_assets.model.execution import CursorPosition, CursorSwitch


@click.command(cls=NovaCommand)
@click.argument("binding")
@click.option(
    "--to",
    type=click.Choice(["partitions", "whole"]),
    required=True,
    help="Run BINDING per partition, or unpartitioned.",
)
@click.option("--dry-run", is_flag=True, help="Show the new cursors. Change nothing.")
def switch(deployment: Deployment, binding: str, to: Literal["partitions", "whole"], dry_run: bool) -> CommandResult:
    """Switch BINDING between unpartitioned executions and executions per partition. Its cursors are replaced so that no
    row is lost and none is read twice.

    With --to partitions, each partition gets the cursor of the unpartitioned binding. With --to whole, no partition may
    have unread data.

    JSON: {"binding", "to", "before": [{"channel", "partition", "cursor"}], "after": [the same]}
    """
    deployment.check_project_configured(f"nova switch {binding}")
    with deployment.open(dry_run=dry_run) as store:
        cursor_switch = store.plan_switch(binding, to) if dry_run else store.switch(binding, to)
    data = {
        "binding": binding,
        "to": to,
        "before": [_cursor_json(c) for c in cursor_switch.before],
        "after": [_cursor_json(c) for c in cursor_switch.after],
    }
    return CommandResult(data, lambda console: _show_cursor_switch(console, cursor_switch, dry_run))


def _cursor_json(cursor: CursorPosition) -> dict[str, Any]:
    return {"channel": cursor.channel, "partition": cursor.partition, "cursor": cursor.seq}


def _show_cursor_switch(console: Console, cursor_switch: CursorSwitch, dry_run: bool) -> None:
    mode_text = "per partition" if cursor_switch.to == "partitions" else "unpartitioned"
    if cursor_switch.before == cursor_switch.after:
        console.print(f"{cursor_switch.binding} has no cursors to switch")
        return
    console.print(f"{cursor_switch.binding} {'would run' if dry_run else 'runs'} {mode_text} from now on; its cursors:")
    cursors = sorted(cursor_switch.after, key=lambda c: (c.partition, c.channel))
    rows = elide_middle_rows([(c.partition or "(whole)", c.channel, str(c.seq)) for c in cursors])
    columns = ("partition", "channel", "cursor")
    print_table(console, columns, rows, right_aligned=("cursor",), shorten=("partition",))
