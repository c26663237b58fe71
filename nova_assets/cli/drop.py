"""``nova drop``: drop partitions of a channel."""

from __future__ import annotations

import click

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.model.commit import Commit


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--partition", metavar="COL=VALUE[/…]", help="One partition, or all partitions with these values.")
@click.option(
    "--expired", is_flag=True, help="All partitions whose retention period is over, as automatic maintenance does."
)
@click.option("--dry-run", is_flag=True, help="List the partitions that would be dropped. Change nothing.")
def drop(deployment: Deployment, channel: str, partition: str | None, expired: bool, dry_run: bool) -> CommandResult:
    """Drop partitions of CHANNEL: from the next number on they are empty.

    Earlier versions can still be read while they are retained. No trigger fires, and consumers do not see the drop as a
    change. If they have to, insert an empty base into the partition instead.

    \b
    JSON: {"dry_run", "channel", "partitions": [NAME], "seq": NUMBER or null}
    """
    if expired == (partition is not None):
        raise click.UsageError("say which: --partition COL=VALUE, or --expired")
    commit: Commit | None = None
    with deployment.open(dry_run=dry_run) as store:
        if partition is None:
            partitions = list(store.expired(channel))
        else:
            partitions = [p.partition for p in store.partitions(channel, partition) if not p.is_dropped]
        if partitions and not dry_run:
            commit = store.drop_expired(channel) if partition is None else store.drop(channel, partition)
            partitions = [] if commit is None else [b.partition for b in commit.blocks]
    seq = None if commit is None else commit.seq
    data = {"dry_run": dry_run, "channel": channel, "partitions": partitions, "seq": seq}
    return CommandResult(data, lambda console: console.print(_format_dropped(channel, partitions, seq)))


def _format_dropped(channel: str, partitions: list[str], seq: int | None) -> str:
    if not partitions:
        return f"{channel} has no such partition with data."
    names = "\n".join(f"  {p}" for p in partitions)
    if seq is None:
        return f"Would be dropped from {channel}:\n{names}"
    return f"Dropped from {channel}, which is now at {seq}:\n{names}"
