"""``nova compact``, ``nova collect`` and ``nova restore``: what is done for channels by hand, and what would be."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.render import Grid, block_json, name_of, number, plural, progress, size
from nova_assets.model.commit import Commit
from nova_assets.model.reads import describe
from nova_assets.model.upkeep import Collection, Verdict
from nova_assets.plan.compact import Compact

_CHANNELS = click.argument("channels", nargs=-1)


@click.command(cls=NovaCommand)
@_CHANNELS
@click.option("--due", "only_due", is_flag=True, help="Only what is worth it: as upkeep decides by itself.")
@click.option("--partition", metavar="COL=VALUE[/…]", help="Only this partition.")
@click.option("--dry-run", is_flag=True, help="Say what would be compacted, and why; change nothing.")
@click.pass_obj
def compact(
    deployment: Deployment, channels: tuple[str, ...], only_due: bool, partition: str | None, dry_run: bool
) -> Answer:
    """Compact CHANNELs, or all of them: add a base at the newest number of each partition that has deltas, so that they
    need not be merged by everybody who reads the whole.

    The head does not move, no trigger fires, no answer changes, and nothing is deleted: that is for nova collect.

    \b
    JSON: {"dry_run", "channels": [{"channel", "partitions": [{"partition", "at", "why"}],
           "commit": ID or null, "blocks": [{"range", "rows", "bytes", ...}]}]}
    """
    done: list[tuple[str, tuple[Compact, ...], Commit | None]] = []
    with deployment.look(with_project=True) if dry_run else deployment.open() as store:
        for name in channels or [s.channel.name for s in store.channels()]:
            only = None if partition is None else [partition]
            found = store.compactable(name, force=not only_due, partitions=only)
            commit = None
            if found and not dry_run:
                progress(f"{name}: compacting {plural(len(found), 'partition')}", deployment.quiet)
                commit = store.compact(name, force=not only_due, partitions=only)
            done.append((name, found, commit))
    data = {"dry_run": dry_run, "channels": [_compacted_json(*d) for d in done]}
    return Answer(data, lambda console: _show_compacted(console, done, dry_run))


@click.command(cls=NovaCommand)
@_CHANNELS
@click.option("--retain", metavar="PERIOD", help='How long old versions are kept, such as "30d"; otherwise as defined.')
@click.option("--dry-run", is_flag=True, help="Say of each block what becomes of it and who holds it; change nothing.")
@click.pass_obj
def collect(deployment: Deployment, channels: tuple[str, ...], retain: str | None, dry_run: bool) -> Answer:
    """Take the blocks of CHANNELs, or of all, that nobody needs: no consumer, no live execution, no retention.

    Their files are deleted some time later (the setting collect_grace), for those who are still reading.

    \b
    JSON: {"dry_run", "channels": [{"channel", "collected": [{"range", "rows", "bytes", ...}],
           "held": [{"range", "partition", "by": [WHO]}]}]}
    """
    done: list[tuple[str, tuple[Verdict, ...], Collection | None]] = []
    with deployment.look(with_project=True) if dry_run else deployment.open() as store:
        for name in channels or [s.channel.name for s in store.channels()]:
            verdicts = store.held(name, retain=retain)
            done.append((name, verdicts, None if dry_run else store.collect(name, retain=retain)))
    data = {"dry_run": dry_run, "channels": [_collected_json(*d) for d in done]}
    return Answer(data, lambda console: _show_collected(console, done, dry_run))


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--at", metavar="SEQ", type=click.IntRange(min=0), required=True, help="The number to go back to.")
@click.option("--dry-run", is_flag=True, help="Say what would be restored; change nothing.")
@click.pass_obj
def restore(deployment: Deployment, channel: str, at: int, dry_run: bool) -> Answer:
    """Make CHANNEL what it was at a number, by a base on top of what is there: nothing that happened is taken back, and
    consumers are told what changes.

    \b
    JSON: {"dry_run", "channel", "at", "head": before, "seq": NUMBER or null,
           "blocks": [{"range", "rows", "bytes", ...}]}
    """
    commit: Commit | None = None
    with deployment.look() if dry_run else deployment.open(with_project=False) as store:
        head = store.catalog.channel(channel).head
        there = describe(store.read(channel, at=at).plan)
        if not dry_run:
            progress(f"restoring {channel} as of {at}", deployment.quiet)
            commit = store.restore(channel, at)
    data = {
        "dry_run": dry_run,
        "channel": channel,
        "at": at,
        "head": head,
        "seq": None if commit is None else commit.seq,
        "blocks": [] if commit is None else [block_json(b) for b in commit.blocks],
    }
    return Answer(data, lambda console: console.print(_restored(channel, at, head, there, commit)))


def _restored(channel: str, at: int, head: int, there: str, commit: Commit | None) -> str:
    if commit is None:
        return f"{channel}, now at {head}, would become what it was at {at}: {there}"
    rows = sum(b.rows for b in commit.blocks if b.kind == "base")
    return f"{channel} is at {commit.seq} what it was at {at}: {plural(rows, 'row')}"


def _compacted_json(name: str, found: tuple[Compact, ...], commit: Commit | None) -> dict[str, Any]:
    return {
        "channel": name,
        "partitions": [{"partition": c.partition, "at": c.at, "why": c.why} for c in found],
        "commit": None if commit is None else commit.id,
        "blocks": [] if commit is None else [block_json(b) for b in commit.blocks],
    }


def _collected_json(name: str, verdicts: tuple[Verdict, ...], done: Collection | None) -> dict[str, Any]:
    gone = [v.block for v in verdicts if not v.held_by] if done is None else list(done.blocks)
    return {
        "channel": name,
        "collected": [block_json(b) for b in gone],
        "held": [
            {"range": v.block.range, "partition": v.block.partition, "by": list(v.held_by)}
            for v in verdicts
            if v.held_by
        ],
    }


def _show_compacted(
    console: Console, done: list[tuple[str, tuple[Compact, ...], Commit | None]], dry_run: bool
) -> None:
    shown = Grid("channel", "partition", "at", "why", "rows", "bytes", right=("at", "rows", "bytes"), shorten=("why",))
    for name, found, commit in done:
        made = {} if commit is None else {b.partition: b for b in commit.blocks}
        for c in found:
            block = made.get(c.partition)
            rows, held = ("", "") if block is None else (number(block.rows), size(block.bytes))
            shown.add(name, c.partition or "(whole)", str(c.at), c.why, rows, held)
    if not shown.row_count:
        console.print("Nothing to compact.")
        return
    console.print("Would be compacted:" if dry_run else "Compacted:")
    console.print(shown)


def _show_collected(
    console: Console, done: list[tuple[str, tuple[Verdict, ...], Collection | None]], dry_run: bool
) -> None:
    shown = Grid("channel", "block", "bytes", "", "held by", right=("bytes",), shorten=("held by",))
    for name, verdicts, taken in done:
        gone = {b.id for b in taken.blocks} if taken is not None else {v.block.id for v in verdicts if not v.held_by}
        for v in verdicts:
            word = ("would go" if dry_run else "collected") if v.block.id in gone else "stays"
            shown.add(name, name_of(v.block), size(v.block.bytes), word, "; ".join(v.held_by))
    if not shown.row_count:
        console.print("There is no block.")
        return
    console.print(shown)
