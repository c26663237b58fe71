"""``nova replay``: parse quarantined records again, unchanged or repaired."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    format_count,
    pluralize,
)
from nova_assets.errors import BadRecord
from nova_assets.model.receive_result import ReplayResult


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option(
    "--mended",
    "mended_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Rows of the quarantine as JSON lines, with corrected text in raw. Only these rows are replayed.",
)
@click.option("--dry-run", is_flag=True, help="Show how many records would be ingested. Change nothing.")
def replay(deployment: Deployment, channel: str, mended_file: Path | None, dry_run: bool) -> CommandResult:
    """Ingest the quarantined records of CHANNEL again, unchanged or repaired.

    Records that now fit the channel are inserted and leave the quarantine in one commit. Quarantined whole files are
    read again by the next nova receive.

    \b
    To repair records by hand:
      nova read CHANNEL_quarantine --output bad.jsonl
      ... edit "raw" ...
      nova replay CHANNEL --mended bad.jsonl
    \b
    JSON: {"dry_run", "channel", "rows", "files", "left", "commit": ID or null}
    """
    text_by_record = None if mended_file is None else _read_mended_records(mended_file)
    with deployment.open() as store:
        mend = None if text_by_record is None else lambda row: text_by_record.get(_quarantined_record_key(row))
        replayed = store.replayable(channel, mend) if dry_run else store.replay(channel, mend)
    data = {
        "dry_run": dry_run,
        "channel": channel,
        "rows": replayed.rows,
        "files": replayed.files,
        "left": replayed.left,
        "commit": None if replayed.commit is None else replayed.commit.id,
    }
    return CommandResult(data, lambda console: console.print(_format_replayed(channel, replayed, dry_run)))


class _RecordKey(NamedTuple):
    file: str
    version: str
    line: int


def _read_mended_records(mended_file: Path) -> dict[_RecordKey, str]:
    text_by_record = {}
    for n, line in enumerate(mended_file.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
                text_by_record[_quarantined_record_key(row)] = str(row["raw"])
            except (ValueError, KeyError, TypeError) as error:
                raise BadRecord(
                    f"{mended_file}: line {n} is not a row of a quarantine",
                    found=f"{type(error).__name__}: {error}",
                    expected='{"file": ..., "version": ..., "line": ..., "raw": ...}',
                    file=str(mended_file),
                    line=n,
                ) from error
    return text_by_record


def _quarantined_record_key(quarantine_row: Mapping[str, Any]) -> _RecordKey:
    return _RecordKey(str(quarantine_row["file"]), str(quarantine_row["version"]), int(quarantine_row["line"]))


def _format_replayed(channel: str, replayed: ReplayResult, dry_run: bool) -> str:
    ingested = "would be ingested" if dry_run else "ingested"
    again = f"; {pluralize(replayed.files, 'file')} to be received again" if replayed.files else ""
    return (
        f"{channel}: {pluralize(replayed.rows, 'row')} {ingested}{again}; "
        f"{format_count(replayed.left)} left in the quarantine"
    )
