"""``nova compact``, ``collect``, ``drop`` and ``restore``: manual maintenance of channels, and its preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    TableGrid,
    block_json,
    format_block_name,
    format_bytes,
    format_count,
    pluralize,
    print_progress,
)
from nova_assets.model.commit import Commit
from nova_assets.model.reads import describe_read
from nova_assets.model.retention import CollectedGarbage, RetentionVerdict
from nova_assets.plan.compaction import PlannedCompaction

_CHANNELS_ARGUMENT = click.argument("channels", nargs=-1)


@click.command(cls=NovaCommand)
@_CHANNELS_ARGUMENT
@click.option("--due", "only_due", is_flag=True, help="Only what is worth it: as upkeep decides by itself.")
@click.option("--chain", "chained", is_flag=True, help="Chain deltas into fewer, instead of adding a base.")
@click.option("--partition", metavar="COL=VALUE[/…]", help="Only this partition.")
@click.option("--dry-run", is_flag=True, help="Say what would be compacted, and why; change nothing.")
@click.pass_obj
def compact(
    deployment: Deployment,
    channels: tuple[str, ...],
    only_due: bool,
    chained: bool,
    partition: str | None,
    dry_run: bool,
) -> CommandResult:
    """Compact CHANNELs, or all of them: add a base at the newest number of each partition that has deltas, so that they
    need not be merged by everybody who reads the whole.

    The head does not move, no trigger fires, no answer changes, and nothing is deleted: that is for nova gc.

    \b
    JSON: {"dry_run", "channels": [{"channel", "partitions": [{"partition", "at", "range", "why"}],
           "commit": ID or null, "blocks": [{"range", "rows", "bytes", ...}],
           "ways": [{"way", "estimate": {"rows", "bytes", "seconds"}, "seconds", "rows", "bytes"}]}]}
    """
    if only_due and chained:
        raise click.UsageError("--due decides by itself what is chained; leave out --chain")
    results: list[tuple[str, tuple[PlannedCompaction, ...], Commit | None]] = []
    with deployment.open_read_only(with_project=True) if dry_run else deployment.open() as store:
        for name in channels or [s.channel.name for s in store.channels()]:
            partition_filter = None if partition is None else [partition]
            compactions = store.compactable(name, force=not only_due, chained=chained, partitions=partition_filter)
            commit = None
            if compactions and not dry_run:
                print_progress(f"{name}: writing {', '.join(c.range for c in compactions[:3])}", deployment.quiet)
                commit = store.compact(name, force=not only_due, chained=chained, partitions=partition_filter)
            results.append((name, compactions, commit))
    data = {"dry_run": dry_run, "channels": [_compaction_json(*d) for d in results]}
    return CommandResult(data, lambda console: _show_compactions(console, results, dry_run))


@click.command(cls=NovaCommand)
@_CHANNELS_ARGUMENT
@click.option("--retain", metavar="PERIOD", help='How long old versions are kept, such as "30d"; otherwise as defined.')
@click.option("--dry-run", is_flag=True, help="Say of each block what becomes of it and who holds it; change nothing.")
@click.pass_obj
def gc(deployment: Deployment, channels: tuple[str, ...], retain: str | None, dry_run: bool) -> CommandResult:
    """Take the blocks of CHANNELs, or of all, that nobody needs: no consumer, no live execution, no retention.

    Their files are deleted some time later (the setting gc_grace), for those who are still reading.

    \b
    JSON: {"dry_run", "channels": [{"channel", "collected": [{"range", "rows", "bytes", ...}],
           "held": [{"range", "partition", "by": [WHO]}]}]}
    """
    results: list[tuple[str, tuple[RetentionVerdict, ...], CollectedGarbage | None]] = []
    with deployment.open_read_only(with_project=True) if dry_run else deployment.open() as store:
        for name in channels or [s.channel.name for s in store.channels()]:
            verdicts = store.held(name, retain=retain)
            results.append((name, verdicts, None if dry_run else store.collect_garbage(name, retain=retain)))
    data = {"dry_run": dry_run, "channels": [_collection_json(*d) for d in results]}
    return CommandResult(data, lambda console: _show_collections(console, results, dry_run))


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--partition", metavar="COL=VALUE[/…]", help="This one; or of some columns, all that agree with them.")
@click.option("--expired", is_flag=True, help="All that are over for longer than they are kept: as upkeep does.")
@click.option("--dry-run", is_flag=True, help="Say which partitions would be dropped; change nothing.")
@click.pass_obj
def drop(deployment: Deployment, channel: str, partition: str | None, expired: bool, dry_run: bool) -> CommandResult:
    """Drop partitions of CHANNEL: from its next number on there is nothing in them.

    Versions before are read as they were, for as long as they are kept. No trigger fires, and consumers are not told;
    to have them told, insert an empty base for the partition.

    \b
    JSON: {"dry_run", "channel", "partitions": [NAME], "seq": NUMBER or null}
    """
    if expired == (partition is not None):
        raise click.UsageError("say which: --partition COL=VALUE, or --expired")
    commit: Commit | None = None
    with deployment.open_read_only(with_project=True) if dry_run else deployment.open() as store:
        if partition is None:
            partitions = list(store.expired(channel))
        else:
            partitions = [p.partition for p in store.partitions(channel, partition) if not p.dropped]
        if partitions and not dry_run:
            commit = store.drop_expired(channel) if partition is None else store.drop(channel, partition)
            partitions = [] if commit is None else [b.partition for b in commit.blocks]
    seq = None if commit is None else commit.seq
    data = {"dry_run": dry_run, "channel": channel, "partitions": partitions, "seq": seq}
    return CommandResult(data, lambda console: console.print(_format_dropped(channel, partitions, seq)))


def _format_dropped(channel: str, partitions: list[str], seq: int | None) -> str:
    if not partitions:
        return f"{channel} has no such partition that holds anything."
    names = "\n".join(f"  {p}" for p in partitions)
    if seq is None:
        return f"Would be dropped of {channel}:\n{names}"
    return f"Dropped of {channel}, which is at {seq} now:\n{names}"


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--at", metavar="SEQ", type=click.IntRange(min=0), required=True, help="The number to go back to.")
@click.option("--dry-run", is_flag=True, help="Say what would be restored; change nothing.")
@click.pass_obj
def restore(deployment: Deployment, channel: str, at: int, dry_run: bool) -> CommandResult:
    """Make CHANNEL what it was at a number, by a base on top of what is there: nothing that happened is taken back, and
    consumers are told what changes.

    \b
    JSON: {"dry_run", "channel", "at", "head": before, "seq": NUMBER or null,
           "blocks": [{"range", "rows", "bytes", ...}]}
    """
    commit: Commit | None = None
    with deployment.open_read_only() if dry_run else deployment.open(with_project=False) as store:
        head = store.catalog.channel(channel).head
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
        return f"{channel}, now at {head}, would become what it was at {at}: {snapshot_text}"
    rows = sum(b.rows for b in commit.blocks if b.kind == "base")
    return f"{channel} is at {commit.seq} what it was at {at}: {pluralize(rows, 'row')}"


def _compaction_json(channel: str, compactions: tuple[PlannedCompaction, ...], commit: Commit | None) -> dict[str, Any]:
    return {
        "channel": channel,
        "partitions": [{"partition": c.partition, "at": c.at, "range": c.range, "why": c.why} for c in compactions],
        "commit": None if commit is None else commit.id,
        "blocks": [] if commit is None else [block_json(b) for b in commit.blocks],
        "ways": [] if commit is None else commit.details.get("ways", []),
    }


def _collection_json(
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


def _show_compactions(
    console: Console, results: list[tuple[str, tuple[PlannedCompaction, ...], Commit | None]], dry_run: bool
) -> None:
    grid = TableGrid(
        "channel", "partition", "block", "why", "rows", "bytes", right_aligned=("rows", "bytes"), shorten=("why",)
    )
    for name, compactions, commit in results:
        written_blocks = {} if commit is None else {(b.partition, b.range): b for b in commit.blocks}
        for c in compactions:
            block = written_blocks.get((c.partition, c.range))
            rows, held = ("", "") if block is None else (format_count(block.rows), format_bytes(block.bytes))
            grid.add(name, c.partition or "(whole)", c.range, c.why, rows, held)
    if not grid.row_count:
        console.print("Nothing to compact.")
        return
    console.print("Would be compacted:" if dry_run else "Compacted:")
    console.print(grid)
    for name, _, commit in results:
        for spent in () if commit is None else commit.details.get("ways", ()):
            console.print(f"{name}: {_format_compaction_cost(spent)}")


def _format_compaction_cost(cost: Mapping[str, Any]) -> str:
    """Actual cost of a compaction beside its estimate."""
    expected = "" if cost["estimate"] is None else f", expected {cost['estimate']['seconds']:.1f} s of CPU"
    wrote = f"wrote {pluralize(cost['rows'], 'row')}, {format_bytes(cost['bytes'])}"
    return f"by {cost['way']} in {cost['seconds']:.1f} s{expected}; {wrote}"


def _show_collections(
    console: Console, results: list[tuple[str, tuple[RetentionVerdict, ...], CollectedGarbage | None]], dry_run: bool
) -> None:
    grid = TableGrid("channel", "block", "bytes", "", "held by", right_aligned=("bytes",), shorten=("held by",))
    for name, verdicts, collection in results:
        collected_ids = (
            {b.id for b in collection.blocks}
            if collection is not None
            else {v.block.id for v in verdicts if not v.held_by}
        )
        for v in verdicts:
            word = ("would go" if dry_run else "collected") if v.block.id in collected_ids else "stays"
            grid.add(name, format_block_name(v.block), format_bytes(v.block.bytes), word, "; ".join(v.held_by))
    if not grid.row_count:
        console.print("There is no block.")
        return
    console.print(grid)
