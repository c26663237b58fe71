"""``nova receive``, ``arrivals`` and ``replay``: ingest files that arrive for a channel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand, print_to_stderr
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    TableGrid,
    escape_unprintable,
    format_bytes,
    format_count,
    format_iso_time,
    format_time,
    pluralize,
)
from nova_assets.errors import BadRecord
from nova_assets.model.arrival import Arrival, ArrivalCounts, ArrivalState, ArrivalStatus
from nova_assets.model.quarantine import quarantine_name
from nova_assets.model.receive_result import ReceiveResult, ReplayResult

_MAX_LISTED = 20
"""Maximum number of files or reasons that are listed individually."""


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--follow", is_flag=True, help="Go on until interrupted: take what arrives as soon as it is told of.")
@click.option("--announced-only", is_flag=True, help="Do not look for files that were never announced.")
@click.option("--dry-run", is_flag=True, help="Say which files would be taken; change nothing.")
@click.pass_obj
def receive(deployment: Deployment, channel: str, follow: bool, announced_only: bool, dry_run: bool) -> CommandResult:
    """Take the files that have arrived for CHANNEL, each exactly once, from its source.

    Records that are not what the channel holds are set aside in CHANNEL_quarantine, with their file, line, reason and
    text; see nova replay.

    \b
    JSON: {"channel", "announced", "files", "rows", "bad", "why": {REASON: COUNT}, "waiting", "commits": [ID]}
    With --follow: such a line on stderr whenever something was taken, and in the end what was taken in all.
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
        received_in_all = ReceiveResult()
        with closing(store.follow(channel)) as receipts, suppress(KeyboardInterrupt):
            for received in receipts:
                received_in_all += received
                summary = _format_received(channel, received)
                print_to_stderr(json.dumps(_received_json(channel, received)) if deployment.quiet else summary)
    return CommandResult(
        _received_json(channel, received_in_all),
        lambda console: console.print(f"in all: {_format_received(channel, received_in_all)}"),
    )


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--state", type=click.Choice(get_args(ArrivalState)), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="So many, the latest first.")
@click.pass_obj
def arrivals(deployment: Deployment, channel: str, state: ArrivalState | None, limit: int) -> CommandResult:
    """The files that have arrived for CHANNEL, and what became of each.

    \b
    JSON: {"channel", "waiting", "taken", "refused", "gone", "rows", "bad", "oldest_waiting",
           "arrivals": [{"file", "version", "bytes", "state", "announced_at", "rows", "bad", "reason", "commit"}]}
    """
    with deployment.open_channel_read_only(channel) as store:
        counts = store.catalog.arrival_counts(channel)
        statuses = store.arrivals(channel, state, limit)
    data = {**_counts_json(channel, counts), "arrivals": [_arrival_status_json(a) for a in statuses]}
    return CommandResult(data, lambda console: _show_arrivals(console, channel, counts, statuses))


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option(
    "--mended",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Rows of the quarantine, one JSON object per line, with their raw as it should be; only these are tried.",
)
@click.option("--dry-run", is_flag=True, help="Say what would become of them; change nothing.")
@click.pass_obj
def replay(deployment: Deployment, channel: str, mended: Path | None, dry_run: bool) -> CommandResult:
    """Try what was set aside for CHANNEL again: as it is, or mended.

    Records that are right now go onto the channel and leave the quarantine, at once. Whole files wait, for the next
    nova receive, to be read anew.

    \b
    To mend some by hand:
      nova read CHANNEL_quarantine --output bad.jsonl
      ... edit "raw" ...
      nova replay CHANNEL --mended bad.jsonl
    \b
    JSON: {"dry_run", "channel", "rows", "files", "left", "commit": ID or null}
    """
    text_by_record = None if mended is None else _read_mended_records(mended)
    with deployment.open() as store:
        mend = None if text_by_record is None else lambda row: text_by_record.get(_record_key(row))
        replayed = store.replayable(channel, mend) if dry_run else store.replay(channel, mend)
    data = {
        "dry_run": dry_run,
        "channel": channel,
        "rows": replayed.rows,
        "files": replayed.files,
        "left": replayed.left,
        "commit": None if replayed.commit is None else replayed.commit.id,
    }
    would = "would be: " if dry_run else ""
    return CommandResult(data, lambda console: console.print(f"{would}{_format_replayed(channel, replayed)}"))


def _read_mended_records(mended_file: Path) -> dict[tuple[str, str, int], str]:
    text_by_record = {}
    for n, line in enumerate(mended_file.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
                text_by_record[_record_key(row)] = str(row["raw"])
            except (ValueError, KeyError, TypeError) as error:
                raise BadRecord(
                    f"{mended_file}: line {n} is no row of a quarantine",
                    found=f"{type(error).__name__}: {error}",
                    expected='{"file": ..., "version": ..., "line": ..., "raw": ...}',
                    file=str(mended_file),
                    line=n,
                ) from error
    return text_by_record


def _record_key(quarantine_row: Mapping[str, Any]) -> tuple[str, str, int]:
    return str(quarantine_row["file"]), str(quarantine_row["version"]), int(quarantine_row["line"])


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
        return f"nothing new has arrived for {channel}"
    heads = [c.numbers[channel] for c in received.commits if channel in c.numbers]
    at = f", now at {heads[-1]}" if heads else ""
    quarantined_text = f"; {format_count(received.bad)} set aside in {quarantine_name(channel)}" if received.bad else ""
    return (
        f"{channel}: {pluralize(received.rows, 'row')} of {pluralize(received.files, 'file')}{at}{quarantined_text}"
        + _format_quarantine_reasons(received)
    )


def _format_quarantine_reasons(received: ReceiveResult) -> str:
    """One line for each reason why records are quarantined."""
    listed_reasons = list(received.why.items())[:_MAX_LISTED]
    lines = [f"\n  {format_count(count)} such as: {escape_unprintable(reason)}" for reason, count in listed_reasons]
    return "".join(lines) + (
        f"\n  and {len(received.why) - _MAX_LISTED} more reasons" if len(received.why) > _MAX_LISTED else ""
    )


def _format_replayed(channel: str, replayed: ReplayResult) -> str:
    again = f"; {pluralize(replayed.files, 'file')} to be received anew" if replayed.files else ""
    return (
        f"{channel}: {pluralize(replayed.rows, 'row')} mended{again}; "
        f"{format_count(replayed.left)} left in the quarantine"
    )


def _arriving_files_json(channel: str, arriving: list[Arrival]) -> dict[str, Any]:
    files = [{"file": a.path, "version": a.version, "bytes": a.size} for a in arriving]
    return {"dry_run": True, "channel": channel, "files": files}


def _show_arriving_files(console: Console, files: list[Arrival]) -> None:
    console.print(f"{pluralize(len(files), 'file')} would be taken, {format_bytes(sum(a.size for a in files))}")
    for a in files[:_MAX_LISTED]:
        console.print(f"  {escape_unprintable(a.path)}")
    if len(files) > _MAX_LISTED:
        console.print(f"  and {len(files) - _MAX_LISTED} more")


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
    since = "" if counts.oldest is None else f"; the oldest waits since {format_time(counts.oldest)}"
    console.print(f"{channel}: {counts_text}{since}")
    if statuses:
        grid = TableGrid(
            "file", "bytes", "state", "announced", "rows", "bad", "reason",
            right_aligned=("bytes", "rows", "bad"), shorten=("file", "reason"),
        )  # fmt: skip
        for a in statuses:
            name, reason = escape_unprintable(a.arrival.path), escape_unprintable(a.reason or "")
            grid.add(
                name,
                format_bytes(a.arrival.size),
                a.state,
                format_time(a.at),
                format_count(a.rows),
                format_count(a.bad),
                reason,
            )
        console.print(grid)
