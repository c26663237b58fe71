"""``nova backup``: copy the catalog and hold the files that belong to the copy, list backups, and release them."""

from __future__ import annotations

import shlex
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment, check_catalog_exists
from nova_assets.cli.rendering import (
    escape_unprintable,
    format_bytes,
    format_iso_time,
    format_time,
    pluralize,
    print_table,
)
from nova_assets.model.backup import Backup, BackupSummary

DEFAULT_HOLD = "7d"


@click.command(cls=NovaCommand, checks_project=False)
@click.argument("folder", required=False)
@click.option(
    "--hold",
    metavar="PERIOD",
    help=f'Hold the files of the backup for this period, such as "30d".  [default: {DEFAULT_HOLD}]',
)
@click.option("--release", is_flag=True, help="End the hold of the backup in FOLDER. FOLDER may also be its id.")
@click.option("--dry-run", is_flag=True, help="Show the backup that would be made or released. Change nothing.")
def backup(deployment: Deployment, folder: str | None, hold: str | None, release: bool, dry_run: bool) -> CommandResult:
    """Back up the catalog into FOLDER, which must be new or empty, while others write. Without FOLDER, list the backups
    that hold files.

    FOLDER gets a copy of the catalog (catalog.db) and the list of the files of the warehouse that belong to the copy
    (files.txt, for rsync --files-from). Until the hold ends, no garbage collection deletes these files. A catalog on
    PostgreSQL is not copied: the command prints the pg_dump to type.

    \b
    JSON: {"dry_run", "id" or null, "folder", "made_at", "held_until", "catalog", "catalog_id", "warehouse",
           "catalog_file" or null, "dump_command" or null, "files": COUNT, "bytes"}
    With --release: {"dry_run", "released": whether this command ended the hold, "id", "folder", "made_at",
           "held_until"}
    Without FOLDER: {"backups": [{"id", "folder", "made_at", "held_until"}]}
    """
    _check_usage(folder, hold, release, dry_run)
    if folder is None:
        return _list_backups(deployment)
    check_catalog_exists(deployment.settings)
    return _release(deployment, folder, dry_run) if release else _make(deployment, folder, hold, dry_run)


def _check_usage(folder: str | None, hold: str | None, release: bool, dry_run: bool) -> None:
    if release and folder is None:
        raise click.UsageError("--release needs the FOLDER or the id of a backup; nova backup lists them")
    if release and hold is not None:
        raise click.UsageError("--hold and --release exclude each other")
    if folder is None and (hold is not None or dry_run):
        raise click.UsageError("a backup needs a FOLDER")


def _make(deployment: Deployment, folder: str, hold: str | None, dry_run: bool) -> CommandResult:
    with deployment.open(with_project=False, dry_run=dry_run) as store:
        summary = store.backup(folder, hold or DEFAULT_HOLD, dry_run=dry_run)
    data = {
        "dry_run": dry_run,
        **_backup_json(summary.backup),
        "catalog": summary.catalog,
        "catalog_id": summary.catalog_id,
        "warehouse": summary.warehouse,
        "catalog_file": None if summary.catalog_file is None else str(summary.catalog_file),
        "dump_command": summary.dump_command,
        "files": summary.files,
        "bytes": summary.bytes,
    }
    return CommandResult(data, lambda console: _show_backup(console, summary, dry_run))


def _release(deployment: Deployment, folder: str, dry_run: bool) -> CommandResult:
    with deployment.open(with_project=False, dry_run=dry_run) as store:
        now = store.catalog.now()
        released_backup = store.release_backup(folder, dry_run=dry_run)
    is_held = released_backup.is_held(now)
    data = {"dry_run": dry_run, "released": is_held and not dry_run, **_backup_json(released_backup)}
    return CommandResult(
        data, lambda console: _print_line(console, _format_release(released_backup, is_held=is_held, dry_run=dry_run))
    )


def _list_backups(deployment: Deployment) -> CommandResult:
    with deployment.open_read_only() as store:
        backups = store.backups()
    return CommandResult(
        {"backups": [_backup_json(b) for b in backups]}, lambda console: _show_backups(console, backups)
    )


def _backup_json(listed_backup: Backup) -> dict[str, Any]:
    return {
        "id": listed_backup.id or None,
        "folder": listed_backup.folder,
        "made_at": format_iso_time(listed_backup.made_at),
        "held_until": format_iso_time(listed_backup.held_until),
    }


def _show_backup(console: Console, summary: BackupSummary, dry_run: bool) -> None:
    folder = summary.backup.folder
    size_text = f"{pluralize(summary.files, 'file')} ({format_bytes(summary.bytes)}) of {summary.warehouse}"
    until = format_time(summary.backup.held_until)
    if dry_run:
        _print_line(console, f"The backup in {folder} would hold {size_text} until {until}.")
        return
    _print_line(console, f"The backup in {folder} holds {size_text} until {until}.")
    if summary.dump_command is not None:
        console.print(
            "It has no copy of the catalog, which is on PostgreSQL. To make the copy, stop the writers and type:"
        )
        _print_command(console, summary.dump_command)
    if "://" not in summary.warehouse:
        console.print("To copy the files, type:")
        _print_command(console, _copy_command(summary))
    _print_line(console, f"When the files are copied, end the hold: nova backup --release {shlex.quote(folder)}")


def _copy_command(summary: BackupSummary) -> str:
    file_list, target = f"{summary.backup.folder}/files.txt", f"{summary.backup.folder}/warehouse/"
    return (
        f"rsync -a --files-from={shlex.quote(file_list)} {shlex.quote(summary.warehouse + '/')} {shlex.quote(target)}"
    )


def _format_release(released_backup: Backup, *, is_held: bool, dry_run: bool) -> str:
    subject = f"backup {released_backup.id[:8]} in {released_backup.folder}"
    until = format_time(released_backup.held_until)
    if not is_held:
        return f"The {subject} held no files any more: its hold ended at {until}."
    if dry_run:
        return f"The {subject} would be released. It holds files until {until}."
    return f"The {subject} is released. Its folder stays as it is."


def _show_backups(console: Console, backups: list[Backup]) -> None:
    rows = [
        (b.id[:8], escape_unprintable(b.folder), format_time(b.made_at), format_time(b.held_until)) for b in backups
    ]
    empty = "No backup holds files. nova backup FOLDER makes one."
    print_table(console, ("id", "folder", "made", "holds files until"), rows, empty=empty)


def _print_command(console: Console, command: str) -> None:
    console.print()
    _print_line(console, f"  {command}")
    console.print()


def _print_line(console: Console, text: str) -> None:
    """Print a text that may contain paths, unwrapped, so that it can be copied."""
    console.print(escape_unprintable(text), soft_wrap=True)
