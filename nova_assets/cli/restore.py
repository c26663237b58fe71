"""``nova restore``: restore an earlier version of a channel."""

from __future__ import annotations

import click

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    block_json,
    pluralize,
    print_progress,
)
from nova_assets.model.commit import Commit
from nova_assets.model.reads import describe_read


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--at", metavar="SEQ", type=click.IntRange(min=0), required=True, help="The version to restore.")
@click.option("--dry-run", is_flag=True, help="Show what would be restored. Change nothing.")
def restore(deployment: Deployment, channel: str, at: int, dry_run: bool) -> CommandResult:
    """Restore an earlier version of CHANNEL by adding a base. The history stays, and consumers read the restored rows
    as changes.

    \b
    JSON: {"dry_run", "channel", "at", "head": before, "seq": NUMBER or null,
           "blocks": [{"range", "rows", "bytes", ...}]}
    """
    commit: Commit | None = None
    with deployment.open(with_project=False, dry_run=dry_run) as store:
        head = store.catalog.definitions.channel(channel).head
        snapshot_text = describe_read(store.read(channel, at=at).plan)
        if not dry_run:
            print_progress(f"restoring {channel} as of {at}", deployment.quiet)
            commit = store.restore(channel, at)
    data = {
        "dry_run": dry_run,
        "channel": channel,
        "at": at,
        "head": head,
        "seq": None if commit is None else commit.seq,
        "blocks": [] if commit is None else [block_json(b) for b in commit.blocks],
    }
    return CommandResult(
        data, lambda console: console.print(_format_restored(channel, at, head, snapshot_text, commit))
    )


def _format_restored(channel: str, at: int, head: int, snapshot_text: str, commit: Commit | None) -> str:
    if commit is None:
        return f"{channel}, now at {head}, would be restored to {at}: {snapshot_text}"
    rows = sum(b.rows for b in commit.blocks if b.kind == "base")
    return f"{channel} was restored to {at} as number {commit.seq}: {pluralize(rows, 'row')}"
