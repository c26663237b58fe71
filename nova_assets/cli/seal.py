"""``nova seal`` and ``seals``: seal complete days or hours of a channel, and list the seals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import format_bytes, format_count, format_iso_time, format_time, pluralize, print_table
from nova_assets.model.seal import Seal
from nova_assets.plan.seal import IncompleteGroup, SealableGroup


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option(
    "--dry-run",
    is_flag=True,
    help="List the days or hours that would be sealed, and why others would not. Change nothing.",
)
def seal(deployment: Deployment, channel: str, dry_run: bool) -> CommandResult:
    """Seal every complete day or hour of CHANNEL: compact its files, then mark it as complete.

    \b
    JSON: {"channel", "sealed": [{"group", "version", "state", "seq", "at", "seconds_after_end", "rows", "bytes",
    "files"}]}
    With --dry-run: {"dry_run": true, "channel", "due": [{"group", "version"}], "open": [{"group", "why"}]}
    """
    if dry_run:
        with deployment.open_channel_read_only(channel) as store:
            due_groups, open_groups = store.sealable(channel)
        data: dict[str, Any] = {
            "dry_run": True,
            "channel": channel,
            "due": [{"group": d.group, "version": d.version} for d in due_groups],
            "open": [{"group": o.group, "why": o.why} for o in open_groups],
        }
        return CommandResult(data, lambda console: _show_seal_preview(console, due_groups, open_groups))
    with deployment.open() as store:
        sealed = store.seal(channel)
    data = {"channel": channel, "sealed": [_seal_json(s) for s in sealed]}
    return CommandResult(data, lambda console: _show_seals(console, sealed, "All complete days or hours are sealed."))


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of seals, latest first."
)
def seals(deployment: Deployment, channel: str, limit: int) -> CommandResult:
    """List the sealed days or hours of CHANNEL. A reopened one has received data since its seal.

    \b
    JSON: {"channel", "seals": [{"group", "version", "state", "seq", "at", "seconds_after_end", "rows", "bytes",
    "files"}]}
    """
    with deployment.open_channel_read_only(channel) as store:
        listed_seals = store.seals(channel, limit)
    data = {"channel": channel, "seals": [_seal_json(s) for s in listed_seals]}
    return CommandResult(
        data, lambda console: _show_seals(console, listed_seals, f"No day or hour of {channel} is sealed yet.")
    )


def _seal_json(listed_seal: Seal) -> dict[str, Any]:
    return {
        "group": listed_seal.group,
        "version": listed_seal.version,
        "state": listed_seal.state,
        "seq": listed_seal.seq,
        "at": format_iso_time(listed_seal.at),
        "seconds_after_end": listed_seal.seconds_after_end,
        "rows": listed_seal.rows,
        "bytes": listed_seal.bytes,
        "files": listed_seal.files,
    }


def _show_seals(console: Console, listed_seals: list[Seal], empty_text: str) -> None:
    rows = []
    for s in listed_seals:
        sizes = (format_count(s.rows), format_bytes(s.bytes), format_count(s.files))
        delay = "" if s.seconds_after_end is None else str(timedelta(seconds=round(s.seconds_after_end)))
        rows.append((s.group, str(s.version), s.state, str(s.seq), format_time(s.at), delay, *sizes))
    columns = ("group", "version", "state", "at", "sealed", "after its end", "rows", "bytes", "files")
    numbers = ("version", "at", "after its end", "rows", "bytes", "files")
    print_table(console, columns, rows, right_aligned=numbers, empty=empty_text)


def _show_seal_preview(console: Console, due_groups: list[SealableGroup], open_groups: list[IncompleteGroup]) -> None:
    console.print(f"{pluralize(len(due_groups), 'group')} would be sealed")
    for d in due_groups:
        console.print(f"  {d.group}, version {d.version}")
    for o in open_groups:
        console.print(f"  not {o.group}: {o.why}")
