"""``nova gc``: remove blocks that no retained answer needs, and list what retains the others."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    block_json,
    format_block_name,
    format_bytes,
    print_table,
)
from nova_assets.model.channel_state import CollectedGarbage, RetentionVerdict


@click.command(cls=NovaCommand)
@click.argument("channels", nargs=-1)
@click.option(
    "--retain", metavar="PERIOD", help='Retention of old versions, such as "30d".  [default: that of the channel]'
)
@click.option(
    "--dry-run", is_flag=True, help="List each block, whether it would be removed, and what retains it. Change nothing."
)
def gc(deployment: Deployment, channels: tuple[str, ...], retain: str | None, dry_run: bool) -> CommandResult:
    """Remove the blocks of CHANNELs, or of all channels, that no consumer, no running execution and no retention
    period retains.

    Their files are deleted later (setting gc_grace), because readers may still use them. The removal of definitions
    (nova remove) becomes final, if it concerns one of the channels.

    \b
    JSON: {"dry_run", "removals": [{"kind", "name"}],
           "channels": [{"channel", "collected": [{"range", "rows", "bytes", ...}],
           "held": [{"range", "partition", "by": [WHO]}]}]}
    """
    results: list[tuple[str, tuple[RetentionVerdict, ...], CollectedGarbage | None]] = []
    with deployment.open(dry_run=dry_run) as store:
        removals = store.collect_removals(channels or None, dry_run=dry_run)
        for name in channels or [s.channel.name for s in store.channels()]:
            verdicts = store.held(name, retain=retain)
            results.append((name, verdicts, None if dry_run else store.collect_garbage(name, retain=retain)))
    data = {
        "dry_run": dry_run,
        "removals": [{"kind": k.kind, "name": k.name} for k in removals],
        "channels": [_garbage_collection_json(*d) for d in results],
    }

    def show(console: Console) -> None:
        for key in removals:
            console.print(f"the removal of {key} {'would become' if dry_run else 'is now'} final")
        _show_garbage_collections(console, results, dry_run)

    return CommandResult(data, show)


def _garbage_collection_json(
    channel: str, verdicts: tuple[RetentionVerdict, ...], collection: CollectedGarbage | None
) -> dict[str, Any]:
    collected_blocks = [v.block for v in verdicts if not v.held_by] if collection is None else list(collection.blocks)
    return {
        "channel": channel,
        "collected": [block_json(b) for b in collected_blocks],
        "held": [
            {"range": v.block.range, "partition": v.block.partition, "by": list(v.held_by)}
            for v in verdicts
            if v.held_by
        ],
    }


def _show_garbage_collections(
    console: Console, results: list[tuple[str, tuple[RetentionVerdict, ...], CollectedGarbage | None]], dry_run: bool
) -> None:
    rows = []
    for name, verdicts, collection in results:
        collected_ids = (
            {b.id for b in collection.blocks}
            if collection is not None
            else {v.block.id for v in verdicts if not v.held_by}
        )
        for v in verdicts:
            word = ("would be collected" if dry_run else "collected") if v.block.id in collected_ids else "stays"
            rows.append((name, format_block_name(v.block), format_bytes(v.block.bytes), word, "; ".join(v.held_by)))
    print_table(
        console,
        ("channel", "block", "bytes", "", "held by"),
        rows,
        right_aligned=("bytes",),
        shorten=("held by",),
        empty="There are no blocks.",
    )
