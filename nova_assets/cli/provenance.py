"""``nova provenance``: list the commits that a version of a channel was computed from, or that used it."""

from __future__ import annotations

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import TableGrid
from nova_assets.model.provenance import ProvenanceStep
from nova_assets.store.listings import provenance_table


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--at", type=int, metavar="N", help="Version of the channel.  [default: the head]")
@click.option("--since", type=int, metavar="N", help="Only the changes after version N, and the changes behind them.")
@click.option("--partition", metavar="COL=VALUE[/…]", help="One partition, or all partitions with these values.")
@click.option("--downstream", is_flag=True, help="What was computed from it, instead of what it was computed from.")
@click.pass_obj
def provenance(
    deployment: Deployment, channel: str, at: int | None, since: int | None, partition: str | None, downstream: bool
) -> CommandResult:
    """List the commits that a version of CHANNEL was computed from, through all channels, back to the inserts.

    No commit whose rows were used is missing. Reads are recorded by number and partition, so a commit may be listed
    whose rows had no effect. Collected blocks are listed, too.

    \b
    JSON: {"channel", "steps": [{"distance", "channel", "seq", "partitions": [...], "origin": "task"|"insert"|...,
           "commit": ID, "binding" or null, "partition", "at": ISO, "key": idempotency key or null,
           "reads": [{"channel", "since" or null, "at", "partition", "only_new"}]}]}, nearest first
    """
    with deployment.open_read_only() as store:
        steps = store.provenance(channel, at, since=since, partition=partition, downstream=downstream)
    data = {"channel": channel, "steps": [s.as_json() for s in steps]}
    return CommandResult(data, lambda console: _show_steps(console, channel, steps, downstream))


def _show_steps(console: Console, channel: str, steps: list[ProvenanceStep], downstream: bool) -> None:
    if not steps:
        console.print("Nothing was computed from it." if downstream else f"{channel} has no block there.")
        return
    console.print(TableGrid.of(provenance_table(steps)))
