"""``nova arrivals``: list the files that have arrived for a channel, with the outcome of each."""

from __future__ import annotations

from typing import Any, get_args

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    escape_unprintable,
    format_bytes,
    format_count,
    format_iso_time,
    format_time,
    print_table,
)
from nova_assets.model.arrival import ArrivalCounts, ArrivalState, ArrivalStatus


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--state", type=click.Choice(get_args(ArrivalState)), help="Only files in this state.")
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of files, latest first."
)
def arrivals(deployment: Deployment, channel: str, state: ArrivalState | None, limit: int) -> CommandResult:
    """List the files that have arrived for CHANNEL, with their state, rows and bad records.

    \b
    JSON: {"channel", "waiting", "taken", "refused", "gone", "rows", "bad", "oldest_waiting",
           "arrivals": [{"file", "version", "bytes", "state", "announced_at", "rows", "bad", "reason", "commit"}]}
    """
    with deployment.open_channel_read_only(channel) as store:
        counts = store.catalog.arrivals.counts(channel)
        statuses = store.arrivals(channel, state, limit)
    data = {**_counts_json(channel, counts), "arrivals": [_arrival_status_json(a) for a in statuses]}
    return CommandResult(data, lambda console: _show_arrivals(console, channel, counts, statuses))


def _counts_json(channel: str, counts: ArrivalCounts) -> dict[str, Any]:
    states = {s: getattr(counts, s) for s in get_args(ArrivalState)}
    return {
        "channel": channel,
        **states,
        "rows": counts.rows,
        "bad": counts.bad,
        "oldest_waiting": format_iso_time(counts.oldest),
    }


def _arrival_status_json(status: ArrivalStatus) -> dict[str, Any]:
    return {
        "file": status.arrival.path,
        "version": status.arrival.version,
        "bytes": status.arrival.size,
        "state": status.state,
        "announced_at": format_iso_time(status.at),
        "rows": status.rows,
        "bad": status.bad,
        "reason": status.reason,
        "commit": status.commit_id,
    }


def _show_arrivals(console: Console, channel: str, counts: ArrivalCounts, statuses: list[ArrivalStatus]) -> None:
    counts_text = ", ".join(f"{format_count(getattr(counts, s))} {s}" for s in get_args(ArrivalState))
    since = "" if counts.oldest is None else f"; the oldest has been waiting since {format_time(counts.oldest)}"
    console.print(f"{channel}: {counts_text}{since}")
    if statuses:
        columns = ("file", "bytes", "state", "announced", "rows", "bad", "reason")
        rows = [
            (
                escape_unprintable(a.arrival.path),
                format_bytes(a.arrival.size),
                a.state,
                format_time(a.at),
                format_count(a.rows),
                format_count(a.bad),
                escape_unprintable(a.reason or ""),
            )
            for a in statuses
        ]
        print_table(console, columns, rows, right_aligned=("bytes", "rows", "bad"), shorten=("file", "reason"))
