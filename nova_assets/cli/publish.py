"""``nova publish``, ``editions`` and ``withdraw``: channels in tables that other tools read."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, iso, moment, number, plural, size
from nova_assets.model.published_version import Edition, Publishable


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--take-over", is_flag=True, help="Replace a folder that is there and is not of this channel.")
@click.option("--dry-run", is_flag=True, help="Say what would be shown; change nothing.")
@click.pass_obj
def publish(deployment: Deployment, channel: str, take_over: bool, dry_run: bool) -> Answer:
    """Show CHANNEL as it is now in the tables of its publish=, whole and at once. Its data is not copied.

    With --take-over a folder that other tools read already becomes such a table: if the channel is empty, it is given
    what the folder holds, so that readers find the same as before; the folder is kept beside it, under another name.

    \b
    JSON: {"channel", "editions": [{"table", "edition", "state", "seq", "rows", "bytes", "files", "shown_at",
           "superseded_at"}]}
    With --dry-run: {"dry_run": true, "channel", "tables": [{"table", "edition", "seq", "rows", "files", "compacts"}]}
    """
    if dry_run:
        with deployment.look_at(channel) as store:
            found = store.publishable(channel)
        tables = [
            {
                "table": p.table,
                "edition": p.number,
                "seq": p.seq,
                "rows": p.rows,
                "files": p.files,
                "compacts": list(p.compacts),
            }
            for p in found
        ]
        data: dict[str, Any] = {"dry_run": True, "channel": channel, "tables": tables}
        return Answer(data, lambda console: _show_publishable(console, found))
    with deployment.open() as store:
        made = store.publish(channel, take_over=take_over)
    data = {"channel": channel, "editions": [_json(e) for e in made]}
    return Answer(data, lambda console: _show(console, made, f"{channel} is shown as it is already."))


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.pass_obj
def editions(deployment: Deployment, channel: str) -> Answer:
    """What the tables show in which CHANNEL is published, and what somebody may still be reading there. No file that
    one of these editions lists is deleted.

    \b
    JSON: {"channel", "editions": as of nova publish}
    """
    with deployment.look_at(channel) as store:
        found = store.editions(channel)
    data = {"channel": channel, "editions": [_json(e) for e in found]}
    return Answer(data, lambda console: _show(console, found, f"{channel} was not published yet."))


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.argument("table", required=False)
@click.option("--dry-run", is_flag=True, help="Say what would be shown no more; change nothing.")
@click.pass_obj
def withdraw(deployment: Deployment, channel: str, table: str | None, dry_run: bool) -> Answer:
    """Show CHANNEL no more in TABLE, or in any table. Its data stays. Take the table out of the channel's publish= as
    well, or it is published anew.

    \b
    JSON: {"dry_run", "channel", "tables": [ID]}
    """
    with deployment.look_at(channel) if dry_run else deployment.open() as store:
        gone = store.withdraw(channel, table, dry_run=dry_run)
    data = {"dry_run": dry_run, "channel": channel, "tables": gone}
    would = "would be" if dry_run else "is"
    return Answer(data, lambda console: console.print("\n".join(f"{t} {would} gone" for t in gone)))


def _json(e: Edition) -> dict[str, Any]:
    return {
        "table": e.table,
        "edition": e.number,
        "state": e.state,
        "seq": e.seq,
        "rows": e.rows,
        "bytes": e.bytes,
        "files": e.files,
        "shown_at": iso(e.shown_at),
        "superseded_at": iso(e.superseded_at),
    }


def _show(console: Console, found: list[Edition], nothing: str) -> None:
    if not found:
        console.print(nothing)
        return
    grid = Grid(
        "table", "edition", "at", "shown", "until", "rows", "bytes", "files",
        right=("edition", "at", "rows", "bytes", "files"), shorten=("table",),
    )  # fmt: skip
    for e in found:
        since = "being made" if e.shown_at is None else moment(e.shown_at)
        until = "" if e.superseded_at is None else moment(e.superseded_at)
        grid.add(e.table, str(e.number), str(e.seq), since, until, number(e.rows), size(e.bytes), number(e.files))
    console.print(grid)


def _show_publishable(console: Console, found: list[Publishable]) -> None:
    if not found:
        console.print("the channel has no columns yet: nothing would be shown")
    for p in found:
        if p.number is None:
            console.print(f"{p.table} shows {p.seq} already")
            continue
        console.print(f"{p.table} would show {p.seq}, {plural(p.rows, 'row')} in {plural(p.files, 'file')}")
        if p.compacts:
            console.print(f"  {plural(len(p.compacts), 'partition')} would be compacted first")
