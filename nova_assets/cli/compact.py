"""``nova compact``: compact channels by hand, and preview the compaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    block_json,
    format_bytes,
    format_count,
    pluralize,
    print_progress,
    print_table,
)
from nova_assets.model.commit import Commit
from nova_assets.plan.compaction import PlannedCompaction


@click.command(cls=NovaCommand)
@click.argument("channels", nargs=-1)
@click.option(
    "--due",
    "only_due",
    is_flag=True,
    help="Only where it saves readers more than it costs, as automatic maintenance does.",
)
@click.option("--chain", "chain_deltas", is_flag=True, help="Chain deltas into fewer deltas instead of adding a base.")
@click.option("--partition", metavar="COL=VALUE[/…]", help="Only this partition.")
@click.option("--dry-run", is_flag=True, help="List what would be compacted, and why. Change nothing.")
def compact(
    deployment: Deployment,
    channels: tuple[str, ...],
    only_due: bool,
    chain_deltas: bool,
    partition: str | None,
    dry_run: bool,
) -> CommandResult:
    """Compact CHANNELs, or all channels: add a base at the newest number of each partition that has deltas, so that
    readers merge less.

    The head does not move, no trigger fires, and no answer changes. Nothing is deleted: nova gc does that.

    \b
    JSON: {"dry_run", "channels": [{"channel", "partitions": [{"partition", "at", "range", "why"}],
           "commit": ID or null, "blocks": [{"range", "rows", "bytes", ...}],
           "ways": [{"way", "estimate": {"rows", "bytes", "seconds"}, "seconds", "rows", "bytes"}]}]}
    """
    if only_due and chain_deltas:
        raise click.UsageError("--due and --chain exclude each other: --due also chains deltas")
    results: list[tuple[str, tuple[PlannedCompaction, ...], Commit | None]] = []
    with deployment.open(dry_run=dry_run) as store:
        for name in channels or [s.channel.name for s in store.channels()]:
            partition_filter = None if partition is None else [partition]
            compactions = store.compactable(name, force=not only_due, chained=chain_deltas, partitions=partition_filter)
            commit = None
            if compactions and not dry_run:
                print_progress(f"{name}: writing {', '.join(c.range for c in compactions[:3])}", deployment.quiet)
                commit = store.compact(name, force=not only_due, chained=chain_deltas, partitions=partition_filter)
            results.append((name, compactions, commit))
    data = {"dry_run": dry_run, "channels": [_compaction_json(*d) for d in results]}
    return CommandResult(data, lambda console: _show_compactions(console, results, dry_run))


def _compaction_json(channel: str, compactions: tuple[PlannedCompaction, ...], commit: Commit | None) -> dict[str, Any]:
    return {
        "channel": channel,
        "partitions": [{"partition": c.partition, "at": c.at, "range": c.range, "why": c.why} for c in compactions],
        "commit": None if commit is None else commit.id,
        "blocks": [] if commit is None else [block_json(b) for b in commit.blocks],
        "ways": [] if commit is None else commit.details.get("ways", []),
    }


def _show_compactions(
    console: Console, results: list[tuple[str, tuple[PlannedCompaction, ...], Commit | None]], dry_run: bool
) -> None:
    table = []
    for name, compactions, commit in results:
        written_blocks = {} if commit is None else {(b.partition, b.range): b for b in commit.blocks}
        for c in compactions:
            block = written_blocks.get((c.partition, c.range))
            rows, size = ("", "") if block is None else (format_count(block.rows), format_bytes(block.bytes))
            table.append((name, c.partition or "(whole)", c.range, c.why, rows, size))
    if not table:
        console.print("Nothing to compact.")
        return
    console.print("Would be compacted:" if dry_run else "Compacted:")
    columns = ("channel", "partition", "block", "why", "rows", "bytes")
    print_table(console, columns, table, right_aligned=("rows", "bytes"), shorten=("why",))
    for name, _, commit in results:
        for spent in () if commit is None else commit.details.get("ways", ()):
            console.print(f"{name}: {_format_compaction_cost(spent)}")


def _format_compaction_cost(cost: Mapping[str, Any]) -> str:
    """Actual cost of a compaction beside its estimate."""
    expected = "" if cost["estimate"] is None else f", expected {cost['estimate']['seconds']:.1f} s of CPU"
    wrote = f"wrote {pluralize(cost['rows'], 'row')}, {format_bytes(cost['bytes'])}"
    return f"by {cost['way']} in {cost['seconds']:.1f} s{expected}; {wrote}"
