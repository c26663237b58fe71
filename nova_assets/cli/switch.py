"""``nova switch``: a binding that runs whole from now on, or per partition."""

from __future__ import annotations

from typing import Any, Literal

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, summarised
from nova_assets.model.cursor_switch import CursorAt, Switch


@click.command(cls=NovaCommand)
@click.argument("binding")
@click.option(
    "--to", type=click.Choice(["partitions", "whole"]), required=True, help="How BINDING is to run from now on."
)
@click.option("--dry-run", is_flag=True, help="Show the cursors that would be set; change nothing.")
@click.pass_obj
def switch(deployment: Deployment, binding: str, to: Literal["partitions", "whole"], dry_run: bool) -> Answer:
    """Switch BINDING between executions of the whole and executions per partition. Its cursors are replaced so that
    exactly the same rows have been read afterwards: none is lost, and none is read again.

    To partitions, each partition stands where the whole stood. To the whole, nothing may be unread in any partition.

    JSON: {"binding", "to", "before": [{"channel", "partition", "cursor"}], "after": [the same]}
    """
    deployment.require_project(f"nova switch {binding}")
    with deployment.look(with_project=True) if dry_run else deployment.open() as store:
        planned = store.plan_switch(binding, to) if dry_run else store.switch(binding, to)
    data = {
        "binding": binding,
        "to": to,
        "before": [_cursor_json(c) for c in planned.before],
        "after": [_cursor_json(c) for c in planned.after],
    }
    return Answer(data, lambda console: _show_switch(console, planned, dry_run))


def _cursor_json(at: CursorAt) -> dict[str, Any]:
    return {"channel": at.channel, "partition": at.partition, "cursor": at.seq}


def _show_switch(console: Console, planned: Switch, dry_run: bool) -> None:
    how = "per partition" if planned.to == "partitions" else "whole"
    if planned.before == planned.after:
        console.print(f"{planned.binding} keeps no cursor of the other kind: there is nothing to switch")
        return
    console.print(f"{planned.binding} {'would run' if dry_run else 'runs'} {how} from now on; its cursors:")
    shown = Grid("partition", "channel", "cursor", right=("cursor",), shorten=("partition",))
    for at in summarised(sorted(planned.after, key=lambda c: (c.partition, c.channel))):
        shown.add(*((at,) if isinstance(at, str) else (at.partition or "(whole)", at.channel, str(at.seq))))
    console.print(shown)
