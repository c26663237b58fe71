"""``nova provenance``: list the commits that a version of a channel was computed from, or that used it."""

from __future__ import annotations

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import TableGrid
from nova_assets.model.provenance import ProvenanceStep
from nova_assets.store.channel_registry import provenance_table


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--at", type=int, metavar="N", help="Version of the channel.  [default: the head]")
@click.option("--since", type=int, metavar="N", help="Follow only changes after version N.")
@click.option("--partition", metavar="COL=VALUE[/…]", help="One partition, or all partitions with these values.")
@click.option("--downstream", is_flag=True, help="List the commits that used it, instead of those behind it.")
def provenance(
    deployment: Deployment, channel: str, at: int | None, since: int | None, partition: str | None, downstream: bool
) -> CommandResult:
    """List the commits that a version of CHANNEL was computed from, through all channels, back to the inserts.

    The list contains every commit whose rows an execution may have used through its declared inputs. It may contain
    more, because reads are recorded by number and partition, not by row. Collected blocks are listed, too. With
    --since, inputs that are read as a whole are not followed if another input has a cursor.

    \b
    JSON: {"channel", "steps": [{"distance", "channel", "seq", "partitions": [...], "origin": "task"|"insert"|...,
           "commit": ID, "binding" or null, "partition", "at": ISO, "key": idempotency key or null,
           "reads": [{"channel", "since" or null, "at", "partition", "new_only"}]}]}, nearest first
    """
    with deployment.open_read_only() as store:
        steps = store.provenance(channel, at, since=since, partition=partition, downstream=downstream)
    data = {"channel": channel, "steps": [s.as_json() for s in steps]}
    return CommandResult(data, lambda console: _show_steps(console, channel, steps, downstream))


def _show_steps(console: Console, channel: str, steps: list[ProvenanceStep], downstream: bool) -> None:
    if not steps:
        console.print(
            "No commit to a channel has recorded a read of these rows."
            if downstream
            else f"This part of {channel} has no data."
        )
        return
    console.print(TableGrid.of(provenance_table(steps)))
