"""``nova receive``, ``arrivals`` and ``replay``: files that arrive for a channel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand, remark
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, in_one_line, iso, moment, number, plural, size
from nova_assets.errors import BadRecord
from nova_assets.model.arrival import Arrival, ArrivalCounts, ArrivalState, ArrivalStatus
from nova_assets.model.arrival_outcome import Received, Replayed
from nova_assets.model.quarantine import quarantine_name

_SHOWN = 20
"""Files that are listed one by one."""


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--follow", is_flag=True, help="Go on until interrupted: take what arrives as soon as it is told of.")
@click.option("--announced-only", is_flag=True, help="Do not look for files that were never announced.")
@click.option("--dry-run", is_flag=True, help="Say which files would be taken; change nothing.")
@click.pass_obj
def receive(deployment: Deployment, channel: str, follow: bool, announced_only: bool, dry_run: bool) -> Answer:
    """Take the files that have arrived for CHANNEL, each exactly once, from its source.

    Records that are not what the channel holds are set aside in CHANNEL_quarantine, with their file, line, reason and
    text; see nova replay.

    \b
    JSON: {"channel", "announced", "files", "rows", "bad", "why": {REASON: COUNT}, "waiting", "commits": [ID]}
    With --follow: such a line on stderr whenever something was taken, and in the end what was taken in all.
    With --dry-run: {"dry_run": true, "channel", "files": [{"file", "version", "bytes"}]}
    """
    if dry_run:
        with deployment.look_at(channel) as store:
            files = store.arriving(channel)
        return Answer(_arriving_json(channel, files), lambda console: _show_arriving(console, files))
    with deployment.open() as store:
        if not follow:
            found = store.receive(channel, look=not announced_only)
            return Answer(_received_json(channel, found), lambda console: console.print(_received(channel, found)))
        every = Received()
        with closing(store.follow(channel)) as arriving, suppress(KeyboardInterrupt):
            for found in arriving:
                every += found
                said = _received(channel, found)
                remark(json.dumps(_received_json(channel, found)) if deployment.quiet else said)
    return Answer(_received_json(channel, every), lambda console: console.print(f"in all: {_received(channel, every)}"))


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--state", type=click.Choice(get_args(ArrivalState)), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="So many, the latest first.")
@click.pass_obj
def arrivals(deployment: Deployment, channel: str, state: ArrivalState | None, limit: int) -> Answer:
    """The files that have arrived for CHANNEL, and what became of each.

    \b
    JSON: {"channel", "waiting", "taken", "refused", "gone", "rows", "bad", "oldest_waiting",
           "arrivals": [{"file", "version", "bytes", "state", "announced_at", "rows", "bad", "reason", "commit"}]}
    """
    with deployment.look_at(channel) as store:
        counts = store.catalog.arrival_counts(channel)
        found = store.arrivals(channel, state, limit)
    data = {**_counts_json(channel, counts), "arrivals": [_arrival_json(a) for a in found]}
    return Answer(data, lambda console: _show_arrivals(console, channel, counts, found))


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option(
    "--mended",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Rows of the quarantine, one JSON object per line, with their raw as it should be; only these are tried.",
)
@click.option("--dry-run", is_flag=True, help="Say what would become of them; change nothing.")
@click.pass_obj
def replay(deployment: Deployment, channel: str, mended: Path | None, dry_run: bool) -> Answer:
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
    texts = None if mended is None else _texts(mended)
    with deployment.open() as store:
        mend = None if texts is None else lambda row: texts.get(_name(row))
        done = store.replayable(channel, mend) if dry_run else store.replay(channel, mend)
    data = {
        "dry_run": dry_run,
        "channel": channel,
        "rows": done.rows,
        "files": done.files,
        "left": done.left,
        "commit": None if done.commit is None else done.commit.id,
    }
    would = "would be: " if dry_run else ""
    return Answer(data, lambda console: console.print(f"{would}{_replayed(channel, done)}"))


def _texts(mended: Path) -> dict[tuple[str, str, int], str]:
    found = {}
    for n, line in enumerate(mended.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
                found[_name(row)] = str(row["raw"])
            except (ValueError, KeyError, TypeError) as error:
                raise BadRecord(
                    f"{mended}: line {n} is no row of a quarantine",
                    found=f"{type(error).__name__}: {error}",
                    expected='{"file": ..., "version": ..., "line": ..., "raw": ...}',
                    file=str(mended),
                    line=n,
                ) from error
    return found


def _name(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return str(row["file"]), str(row["version"]), int(row["line"])


def _received_json(channel: str, found: Received) -> dict[str, Any]:
    return {
        "channel": channel,
        "announced": found.announced,
        "files": found.files,
        "rows": found.rows,
        "bad": found.bad,
        "why": dict(found.why),
        "waiting": found.waiting,
        "commits": [c.id for c in found.commits],
    }


def _received(channel: str, found: Received) -> str:
    if not found.files:
        return f"nothing new has arrived for {channel}"
    heads = [c.numbers[channel] for c in found.commits if channel in c.numbers]
    at = f", now at {heads[-1]}" if heads else ""
    aside = f"; {number(found.bad)} set aside in {quarantine_name(channel)}" if found.bad else ""
    return f"{channel}: {plural(found.rows, 'row')} of {plural(found.files, 'file')}{at}{aside}" + _why(found)


def _why(found: Received) -> str:
    """A line for each reason for which records were set aside."""
    shown = list(found.why.items())[:_SHOWN]
    lines = [f"\n  {number(count)} such as: {in_one_line(reason)}" for reason, count in shown]
    return "".join(lines) + (f"\n  and {len(found.why) - _SHOWN} more reasons" if len(found.why) > _SHOWN else "")


def _replayed(channel: str, done: Replayed) -> str:
    again = f"; {plural(done.files, 'file')} to be received anew" if done.files else ""
    return f"{channel}: {plural(done.rows, 'row')} mended{again}; {number(done.left)} left in the quarantine"


def _arriving_json(channel: str, found: list[Arrival]) -> dict[str, Any]:
    files = [{"file": a.path, "version": a.version, "bytes": a.size} for a in found]
    return {"dry_run": True, "channel": channel, "files": files}


def _show_arriving(console: Console, found: list[Arrival]) -> None:
    console.print(f"{plural(len(found), 'file')} would be taken, {size(sum(a.size for a in found))}")
    for a in found[:_SHOWN]:
        console.print(f"  {in_one_line(a.path)}")
    if len(found) > _SHOWN:
        console.print(f"  and {len(found) - _SHOWN} more")


def _counts_json(channel: str, counts: ArrivalCounts) -> dict[str, Any]:
    states = {s: getattr(counts, s) for s in get_args(ArrivalState)}
    return {"channel": channel, **states, "rows": counts.rows, "bad": counts.bad, "oldest_waiting": iso(counts.oldest)}


def _arrival_json(a: ArrivalStatus) -> dict[str, Any]:
    return {
        "file": a.arrival.path,
        "version": a.arrival.version,
        "bytes": a.arrival.size,
        "state": a.state,
        "announced_at": iso(a.at),
        "rows": a.rows,
        "bad": a.bad,
        "reason": a.reason,
        "commit": a.commit_id,
    }


def _show_arrivals(console: Console, channel: str, counts: ArrivalCounts, found: list[ArrivalStatus]) -> None:
    said = ", ".join(f"{number(getattr(counts, s))} {s}" for s in get_args(ArrivalState))
    since = "" if counts.oldest is None else f"; the oldest waits since {moment(counts.oldest)}"
    console.print(f"{channel}: {said}{since}")
    if found:
        grid = Grid(
            "file", "bytes", "state", "announced", "rows", "bad", "reason",
            right=("bytes", "rows", "bad"), shorten=("file", "reason"),
        )  # fmt: skip
        for a in found:
            name, reason = in_one_line(a.arrival.path), in_one_line(a.reason or "")
            grid.add(name, size(a.arrival.size), a.state, moment(a.at), number(a.rows), number(a.bad), reason)
        console.print(grid)
