"""``nova refresh``: find external changes of external channels and commit them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import pluralize, print_lines
from nova_assets.errors import DefinitionError
from nova_assets.model.channel import Channel
from nova_assets.model.external_table import RefreshResult

MAX_LISTED = 10
"""Maximum number of partitions or folders that a line names."""


@click.command(cls=NovaCommand)
@click.argument("channels", nargs=-1, metavar="[CHANNEL]...")
@click.option(
    "--gone",
    "accept_missing",
    is_flag=True,
    help="Drop partitions whose files are all missing, however many there are.",
)
@click.option("--dry-run", is_flag=True, help="List the changed partitions. Change nothing, and open no file.")
def refresh(deployment: Deployment, channels: tuple[str, ...], accept_missing: bool, dry_run: bool) -> CommandResult:
    """Find changes that other systems made to external tables, and commit them. By default, refresh all external
    channels of the project.

    Partitions with new, changed or missing files are committed, and nova tick then computes what depends on them. nova
    tick also refreshes external channels itself. Files are read in place: none is copied, changed or deleted. If many
    partitions are missing at once, they keep their state, unless --gone is given.

    Exits with 1 if a partition cannot be refreshed.

    \b
    JSON: {"dry_run", "refreshed": [{"channel", "seq", "changed": [partition], "gone": [...], "held": [...],
    "unfinished": [...], "ignored": {folder: why}, "beyond": [...], "bad": {partition: why}, "same", "error"}]}
    """
    if dry_run:
        with deployment.open_read_only(with_project=True) as store:
            results = [
                store.preview_refresh(c, gone=accept_missing)
                for c in _external_channel_names(store.project.channels, channels)
            ]
    else:
        with deployment.open() as store:
            names = _external_channel_names(store.project.channels, channels)
            results = (
                [store.refresh(c, gone=accept_missing) for c in names]
                if channels or accept_missing
                else store.refresh_all()
            )
    data = {"dry_run": dry_run, "refreshed": [refreshed_json(r) for r in results]}
    return CommandResult(
        data,
        lambda console: _show_results(console, results, dry_run),
        1 if any(r.needs_attention for r in results) else 0,
    )


def _external_channel_names(channels: Sequence[Channel], requested: Sequence[str]) -> list[str]:
    external = [c.name for c in channels if c.external is not None]
    if not external and not requested:
        raise DefinitionError(
            "the project has no external channel",
            expected="CREATE EXTERNAL TABLE in a folder of datasets, or nova.Channel(..., external=nova.external(...))",
        )
    return list(requested) or external


def refreshed_json(refreshed: RefreshResult) -> dict[str, Any]:
    return {
        "channel": refreshed.channel,
        "seq": refreshed.seq,
        "changed": list(refreshed.changed),
        "gone": list(refreshed.gone),
        "held": list(refreshed.held),
        "unfinished": list(refreshed.unfinished),
        "ignored": dict(refreshed.ignored),
        "beyond": list(refreshed.beyond),
        "bad": dict(refreshed.bad),
        "same": refreshed.same,
        "error": refreshed.error,
    }


def format_refreshed(refreshed: RefreshResult, *, dry_run: bool = False) -> list[str]:
    """Lines that describe the refresh of a channel."""
    if refreshed.error is not None:
        return [f"{refreshed.channel}: {refreshed.error}"]
    changed = len(refreshed.changed) - len(refreshed.bad)
    verb = "would be " if dry_run else ""
    at = "" if refreshed.seq is None else f", at {refreshed.seq}"
    text_lines = [
        f"{refreshed.channel}: {pluralize(changed, 'partition')} {verb}refreshed{at}; {refreshed.same} unchanged"
    ]
    text_lines += _format_partition_names("missing", refreshed.gone)
    text_lines += _format_partition_names("not complete, not refreshed", refreshed.unfinished)
    text_lines += _format_partition_names("outside the declared partitions", refreshed.beyond)
    text_lines += [f"  {name}: {why}" for name, why in list(refreshed.bad.items())[:MAX_LISTED]]
    text_lines += [
        f"  ignored {folder or '(the location itself)'}: {why}"
        for folder, why in list(refreshed.ignored.items())[:MAX_LISTED]
    ]
    if refreshed.held:
        held_count_text = pluralize(len(refreshed.held), "partition")
        text_lines += [
            f"  {held_count_text} missing at once, not refreshed; nova refresh {refreshed.channel} --gone drops them"
        ]
    return text_lines


def _format_partition_names(label: str, names: Sequence[str]) -> list[str]:
    more_text = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return [f"  {label}: {', '.join(n or '(unpartitioned)' for n in names[:MAX_LISTED])}{more_text}"] if names else []


def _show_results(console: Console, results: Sequence[RefreshResult], dry_run: bool) -> None:
    for refreshed in results:
        print_lines(console, format_refreshed(refreshed, dry_run=dry_run))
