"""``nova seal`` and ``seals``: which days or hours of a channel are complete."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, iso, moment, number, plural, size
from nova_assets.model.seal import Seal
from nova_assets.plan.seal import Due, Open


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--dry-run", is_flag=True, help="Say what would be sealed, and what would not and why; change nothing.")
@click.pass_obj
def seal(deployment: Deployment, channel: str, dry_run: bool) -> Answer:
    """Seal every day or hour of CHANNEL that is complete: its files get their final form, and then it gets its seal.

    \b
    JSON: {"channel", "sealed": [{"group", "version", "state", "seq", "at", "rows", "bytes", "files"}]}
    With --dry-run: {"dry_run": true, "channel", "due": [{"group", "version"}], "open": [{"group", "why"}]}
    """
    if dry_run:
        with deployment.look_at(channel) as store:
            due, still = store.sealable(channel)
        data: dict[str, Any] = {
            "dry_run": True,
            "channel": channel,
            "due": [{"group": d.group, "version": d.version} for d in due],
            "open": [{"group": o.group, "why": o.why} for o in still],
        }
        return Answer(data, lambda console: _show_due(console, due, still))
    with deployment.open() as store:
        sealed = store.seal(channel)
    data = {"channel": channel, "sealed": [_json(s) for s in sealed]}
    return Answer(data, lambda console: _show(console, sealed, "Nothing is complete that is not sealed."))


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="So many, the latest first.")
@click.pass_obj
def seals(deployment: Deployment, channel: str, limit: int) -> Answer:
    """The days or hours of CHANNEL that were sealed. To one that is reopened, something has come since.

    \b
    JSON: {"channel", "seals": [{"group", "version", "state", "seq", "at", "rows", "bytes", "files"}]}
    """
    with deployment.look_at(channel) as store:
        found = store.seals(channel, limit)
    data = {"channel": channel, "seals": [_json(s) for s in found]}
    return Answer(data, lambda console: _show(console, found, f"Nothing of {channel} was sealed yet."))


def _json(s: Seal) -> dict[str, Any]:
    return {
        "group": s.group,
        "version": s.version,
        "state": s.state,
        "seq": s.seq,
        "at": iso(s.at),
        "rows": s.rows,
        "bytes": s.bytes,
        "files": s.files,
    }


def _show(console: Console, found: list[Seal], nothing: str) -> None:
    if not found:
        console.print(nothing)
        return
    grid = Grid(
        "group", "version", "state", "at", "sealed", "rows", "bytes", "files",
        right=("version", "at", "rows", "bytes", "files"),
    )  # fmt: skip
    for s in found:
        held = (number(s.rows), size(s.bytes), number(s.files))
        grid.add(s.group, str(s.version), s.state, str(s.seq), moment(s.at), *held)
    console.print(grid)


def _show_due(console: Console, due: list[Due], still: list[Open]) -> None:
    console.print(f"{plural(len(due), 'group')} would be sealed")
    for d in due:
        console.print(f"  {d.group}, version {d.version}")
    for o in still:
        console.print(f"  not {o.group}: {o.why}")
