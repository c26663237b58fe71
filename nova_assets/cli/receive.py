"""``nova receive``: ingest files that arrive for a channel."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand, print_to_stderr
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    escape_unprintable,
    format_bytes,
    format_count,
    pluralize,
)
from nova_assets.model.arrival import Arrival
from nova_assets.model.quarantine import quarantine_channel_name
from nova_assets.model.receive_result import ReceiveResult

_MAX_LISTED = 20
"""Maximum number of files or reasons that are listed individually."""


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option(
    "--follow", is_flag=True, help="Continue until interrupted, and ingest files as soon as they are announced."
)
@click.option("--announced-only", is_flag=True, help="Do not list the source to find files that were never announced.")
@click.option("--dry-run", is_flag=True, help="List the files that would be ingested. Change nothing.")
def receive(deployment: Deployment, channel: str, follow: bool, announced_only: bool, dry_run: bool) -> CommandResult:
    """Ingest the files that have arrived for CHANNEL in its source, each exactly once.

    Records that do not fit the channel go to CHANNEL_quarantine, with their file, line, reason and text. nova replay
    ingests them later.

    \b
    JSON: {"channel", "announced", "files", "rows", "bad", "why": {REASON: COUNT}, "waiting", "commits": [ID]}
    With --follow: one such line on standard error per batch, and the totals at the end.
    With --dry-run: {"dry_run": true, "channel", "files": [{"file", "version", "bytes"}]}
    """
    if dry_run:
        with deployment.open_channel_read_only(channel) as store:
            files = store.arriving(channel)
        return CommandResult(_arriving_files_json(channel, files), lambda console: _show_arriving_files(console, files))
    with deployment.open() as store:
        if not follow:
            received = store.receive(channel, look=not announced_only)
            return CommandResult(
                _received_json(channel, received), lambda console: console.print(_format_received(channel, received))
            )
        total = ReceiveResult()
        with closing(store.follow(channel)) as receipts, suppress(KeyboardInterrupt):
            for received in receipts:
                total += received
                summary = _format_received(channel, received)
                print_to_stderr(json.dumps(_received_json(channel, received)) if deployment.quiet else summary)
    return CommandResult(
        _received_json(channel, total),
        lambda console: console.print(f"in total: {_format_received(channel, total)}"),
    )


def _received_json(channel: str, received: ReceiveResult) -> dict[str, Any]:
    return {
        "channel": channel,
        "announced": received.announced,
        "files": received.files,
        "rows": received.rows,
        "bad": received.bad,
        "why": dict(received.why),
        "waiting": received.waiting,
        "commits": [c.id for c in received.commits],
    }


def _format_received(channel: str, received: ReceiveResult) -> str:
    if not received.files:
        return f"no new files have arrived for {channel}"
    heads = [c.numbers[channel] for c in received.commits if channel in c.numbers]
    at = f", now at {heads[-1]}" if heads else ""
    quarantined_text = (
        f"; {format_count(received.bad)} quarantined in {quarantine_channel_name(channel)}" if received.bad else ""
    )
    return (
        f"{channel}: {pluralize(received.rows, 'row')} from {pluralize(received.files, 'file')}{at}{quarantined_text}"
        + _format_quarantine_reasons(received)
    )


def _format_quarantine_reasons(received: ReceiveResult) -> str:
    """One line for each reason why records are quarantined."""
    listed_reasons = list(received.why.items())[:_MAX_LISTED]
    lines = [f"\n  {format_count(count)} such as: {escape_unprintable(reason)}" for reason, count in listed_reasons]
    return "".join(lines) + (
        f"\n  and {len(received.why) - _MAX_LISTED} more reasons" if len(received.why) > _MAX_LISTED else ""
    )


def _arriving_files_json(channel: str, arriving: list[Arrival]) -> dict[str, Any]:
    files = [{"file": a.path, "version": a.version, "bytes": a.size} for a in arriving]
    return {"dry_run": True, "channel": channel, "files": files}


def _show_arriving_files(console: Console, files: list[Arrival]) -> None:
    console.print(f"{pluralize(len(files), 'file')} would be ingested, {format_bytes(sum(a.size for a in files))}")
    for a in files[:_MAX_LISTED]:
        console.print(f"  {escape_unprintable(a.path)}")
    if len(files) > _MAX_LISTED:
        console.print(f"  and {len(files) - _MAX_LISTED} more")
