"""``nova publish``, ``nova published`` and ``nova unpublish``: publish channels as tables for other tools."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import format_bytes, format_count, format_iso_time, format_time, pluralize, print_table
from nova_assets.model.published_version import PublicationPreview, PublishedVersion


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--take-over", is_flag=True, help="Replace an existing folder that does not belong to this channel.")
@click.option(
    "--take-over-from",
    metavar="ADDRESS",
    help="Import a folder in S3 or HDFS into the empty channel first, and keep the form of its files.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be published. Change nothing.")
def publish(
    deployment: Deployment, channel: str, take_over: bool, take_over_from: str | None, dry_run: bool
) -> CommandResult:
    """Publish the head of CHANNEL in the tables of its publish=, each atomically. Data is not copied.

    With --take-over, a folder that other tools already read becomes such a table. If the channel is empty, it first
    imports the files of the folder, so that readers find the same rows as before. The old folder is kept under another
    name. A folder in S3 or HDFS cannot be replaced in one step. With --take-over-from, the channel takes over its rows
    and the form of its files in a table at another address. The old folder stays as it is, for its readers.

    \b
    JSON: {"channel", "editions": [{"table", "edition", "state", "seq", "rows", "bytes", "files", "shown_at",
           "superseded_at"}]}
    With --dry-run: {"dry_run": true, "channel", "tables": [{"table", "edition", "seq", "rows", "files", "compacts"}]}
    """
    if dry_run:
        with deployment.open_channel_read_only(channel) as store:
            publishable_tables = store.publishable(channel)
        tables = [
            {
                "table": p.table,
                "edition": p.number,
                "seq": p.seq,
                "rows": p.rows,
                "files": p.files,
                "compacts": list(p.compacts),
            }
            for p in publishable_tables
        ]
        data: dict[str, Any] = {"dry_run": True, "channel": channel, "tables": tables}
        return CommandResult(data, lambda console: _show_publishable_tables(console, publishable_tables))
    with deployment.open() as store:
        published_versions = store.publish(channel, take_over=take_over, take_over_from=take_over_from)
    data = {"channel": channel, "editions": [_published_version_json(e) for e in published_versions]}
    return CommandResult(
        data,
        lambda console: _show_published_versions(
            console, published_versions, f"The tables of {channel} already show its head."
        ),
    )


@click.command(cls=NovaCommand)
@click.argument("channel")
def published(deployment: Deployment, channel: str) -> CommandResult:
    """List the published versions of CHANNEL: those that its tables show, and earlier ones that may still have readers.
    Files of a listed version are not deleted.

    \b
    JSON: {"channel", "editions": as in nova publish}
    """
    with deployment.open_channel_read_only(channel) as store:
        published_versions = store.published(channel)
    data = {"channel": channel, "editions": [_published_version_json(e) for e in published_versions]}
    return CommandResult(
        data,
        lambda console: _show_published_versions(console, published_versions, f"{channel} has not been published yet."),
    )


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.argument("table", required=False)
@click.option("--dry-run", is_flag=True, help="List the tables that would be removed. Change nothing.")
def unpublish(deployment: Deployment, channel: str, table: str | None, dry_run: bool) -> CommandResult:
    """Stop publishing CHANNEL in TABLE, or in all its tables. The data of the channel stays. Remove the table from the
    channel's publish=, too, or it is published again.

    \b
    JSON: {"dry_run", "channel", "tables": [ID]}
    """
    with deployment.open_channel_read_only(channel) if dry_run else deployment.open() as store:
        withdrawn_tables = store.unpublish(channel, table, dry_run=dry_run)
    data = {"dry_run": dry_run, "channel": channel, "tables": withdrawn_tables}
    verb = "would be removed" if dry_run else "was removed"
    return CommandResult(data, lambda console: console.print("\n".join(f"{t} {verb}" for t in withdrawn_tables)))


def _published_version_json(version: PublishedVersion) -> dict[str, Any]:
    return {
        "table": version.table,
        "edition": version.number,
        "state": version.state,
        "seq": version.seq,
        "rows": version.rows,
        "bytes": version.bytes,
        "files": version.files,
        "shown_at": format_iso_time(version.shown_at),
        "superseded_at": format_iso_time(version.superseded_at),
    }


def _show_published_versions(console: Console, versions: list[PublishedVersion], empty_text: str) -> None:
    rows = []
    for e in versions:
        since = "in progress" if e.shown_at is None else format_time(e.shown_at)
        until = "" if e.superseded_at is None else format_time(e.superseded_at)
        sizes = (format_count(e.rows), format_bytes(e.bytes), format_count(e.files))
        rows.append((e.table, str(e.number), str(e.seq), since, until, *sizes))
    print_table(
        console,
        ("table", "edition", "at", "shown", "until", "rows", "bytes", "files"),
        rows,
        right_aligned=("edition", "at", "rows", "bytes", "files"),
        shorten=("table",),
        empty=empty_text,
    )


def _show_publishable_tables(console: Console, publishable_tables: list[PublicationPreview]) -> None:
    if not publishable_tables:
        console.print("the channel has no columns yet, so nothing would be published")
    for p in publishable_tables:
        if p.number is None:
            console.print(f"{p.table} already shows {p.seq}")
            continue
        console.print(f"{p.table} would show {p.seq}, {pluralize(p.rows, 'row')} in {pluralize(p.files, 'file')}")
        if p.compacts:
            console.print(f"  {pluralize(len(p.compacts), 'partition')} would be compacted first")
