"""Backups of a deployment: a copy of its catalog, the list of its files, and a hold that keeps these files.

    record the hold ─► copy the catalog ─► list the files ─► write backup.json
    (catalog)          (folder)            (folder)          (folder)

The hold is recorded first. So no file is deleted that the copy lists.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from nova_assets.errors import ArgumentRefused
from nova_assets.execution.runtime import Runtime
from nova_assets.model.backup import Backup, BackupContent, BackupSummary
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.nova_error import NovaError

CATALOG_FILE, DUMP_FILE, FILE_LIST, DESCRIPTION = "catalog.db", "catalog.dump", "files.txt", "backup.json"
"""Files of a backup. ``backup.json`` is written last, so a folder without it is no complete backup."""


class CatalogBackups:
    """Store methods that back up the catalog and hold the files of its backups."""

    def __init__(self, runtime: Runtime) -> None:
        self.catalog = runtime.catalog
        self.engine = runtime.engine

    def backup(self, folder: str | Path, hold: str = "7d", *, dry_run: bool = False) -> BackupSummary:
        """Copy the catalog into a folder while others write, and list the files of the warehouse that belong to it.

        The folder then contains:

        - ``catalog.db``: a consistent copy of a SQLite catalog. It contains every commit that was acknowledged before
          the backup began. A catalog on PostgreSQL is not copied. ``dump_command`` of the result is the command that
          copies it. Stop the writers until it ends, or ``files.txt`` lacks the files of their commits.
        - ``files.txt``: the files, one path relative to the warehouse per line, for ``rsync --files-from``.
        - ``backup.json``: id, times, catalog and warehouse.

        Until the hold ends, collection deletes none of these files. Collection itself goes on.

        Files that only a published table lists, because its channel was compacted since, do not belong to a backup.

        Args:
            folder: a new or empty folder of this host.
            hold: period after which the hold ends by itself, such as ``"7d"``. ``release_backup`` ends it earlier.
            dry_run: describe the backup without making it.

        Raises:
            ArgumentRefused: the folder is not empty or cannot be written, or the period is invalid.
            NotSupported: the catalog is in memory.
            CatalogUnavailable: the catalog cannot be read.
        """
        target = _check_folder(folder)
        now = self.catalog.now()
        seconds = _hold_seconds(hold, now)
        dump_command = self.catalog.backups.dump_command(target / DUMP_FILE)
        if dry_run:
            preview = Backup("", str(target), now, now + timedelta(seconds=seconds))
            return self._summary(preview, self._with_marker(self.catalog.backups.content()), dump_command)
        backup = self.catalog.backups.record(str(target), seconds)
        is_new_folder = not target.exists()
        try:
            return self._write(backup, target, dump_command)
        except BaseException as error:
            _remove_files(target, is_new_folder)
            with suppress(NovaError):  # the first error counts; the hold ends by itself
                self.catalog.backups.delete(backup.id)
            if isinstance(error, OSError):
                raise _unwritable_folder_error(target, error) from error
            raise

    def backups(self) -> list[Backup]:
        """Backups that hold files of the warehouse, latest first."""
        now = self.catalog.now()
        return [b for b in self.catalog.backups.all() if b.is_held(now)]

    def release_backup(self, id_or_folder: str | Path, *, dry_run: bool = False) -> Backup:
        """End the hold of a backup, so that collected files that it lists can be deleted. The folder stays.

        Args:
            id_or_folder: folder of the backup, or its id. The first characters of an id are enough.
            dry_run: return the backup without ending its hold.

        Returns:
            The backup. Its hold may have ended by itself before.

        Raises:
            ArgumentRefused: the catalog has no such backup.
        """
        backup = self._find(id_or_folder)
        if not dry_run:
            self.catalog.backups.delete(backup.id)
        return backup

    def _find(self, id_or_folder: str | Path) -> Backup:
        """Backup that a folder holds, which may have been moved or removed, or that an id names. Raises
        ArgumentRefused.
        """
        recorded = self.catalog.backups.all()
        folder = _absolute(id_or_folder)
        described = _read_description(folder)
        wanted = str(id_or_folder) if described is None else described.id
        matches = [b for b in recorded if b.id == wanted] or [b for b in recorded if b.folder == str(folder)]
        matches = matches or [b for b in recorded if described is None and wanted and b.id.startswith(wanted)]
        if len(matches) == 1:
            return matches[0]
        if described is not None and not described.is_held(self.catalog.now()):
            return described  # a later backup has deleted its record
        raise self._unknown_backup_error(id_or_folder, matches or self.backups(), several=bool(matches))

    def _write(self, backup: Backup, folder: Path, dump_command: str | None) -> BackupSummary:
        folder.mkdir(parents=True, exist_ok=True)
        if dump_command is None:
            part = folder / f"{CATALOG_FILE}.part"
            content = self.catalog.backups.copy(part, backup.made_at)
            _fsync(part)
            part.replace(folder / CATALOG_FILE)
        else:
            content = self.catalog.backups.content()
        content = self._with_marker(content)
        summary = self._summary(backup, content, dump_command)
        _write_file(folder / FILE_LIST, "".join(f"{path}\n" for path in content.paths))
        _write_file(folder / DESCRIPTION, json.dumps(_description(summary), indent=2) + "\n")
        _fsync(folder)
        return summary

    def _with_marker(self, content: BackupContent) -> BackupContent:
        """Content with the file by which the catalog recognises its warehouse."""
        warehouse_identity, _ = self.catalog.identity.warehouse()
        if warehouse_identity is None:  # nothing was written yet
            return content
        return BackupContent((f"catalogs/{self.catalog.identity.get()}", *content.paths), content.bytes)

    def _summary(self, backup: Backup, content: BackupContent, dump_command: str | None) -> BackupSummary:
        return BackupSummary(
            backup,
            self.catalog.url,
            self.catalog.identity.get(),
            self.engine.warehouse.address,
            len(content.paths),
            content.bytes,
            Path(backup.folder) / CATALOG_FILE if dump_command is None else None,
            dump_command,
        )

    def _unknown_backup_error(
        self, id_or_folder: str | Path, candidates: Iterable[Backup], several: bool
    ) -> ArgumentRefused:
        listed = "; ".join(f"{b.id[:8]} in {b.folder}" for b in candidates)
        return ArgumentRefused(
            f"several backups match {str(id_or_folder)!r}"
            if several
            else f"the catalog {self.catalog.url} holds no files for a backup {str(id_or_folder)!r}",
            found=listed or "no backup that holds files",
            expected="the folder or the id of one backup that holds files",
            next="nova backup lists the backups that hold files",
            argument="folder",
        )


def _hold_seconds(hold: str, now: datetime) -> int:
    """Length of the hold. Raises ArgumentRefused if the text is no period, or the hold ends after the year 9999."""
    seconds = period_seconds(hold)
    with suppress(OverflowError):
        if seconds is not None and now + timedelta(seconds=seconds) > now:
            return seconds
    raise ArgumentRefused(
        "the time for which a backup holds files is not a period",
        found=repr(hold),
        expected=EXPECTED_PERIOD,
        argument="hold",
    )


def _absolute(folder: str | Path) -> Path:
    return Path(os.path.abspath(Path(folder).expanduser()))


def _check_folder(folder: str | Path) -> Path:
    """Absolute path of a folder that is new or empty. Raises ArgumentRefused."""
    target = _absolute(folder)
    try:
        problem = _folder_problem(str(folder), target)
    except OSError as error:
        raise _unwritable_folder_error(target, error) from error
    if problem is None:
        return target
    raise ArgumentRefused(
        f"a backup cannot be made in {folder}",
        found=problem,
        expected="a new or empty folder of this host",
        next="name another folder, such as one with today's date",
        argument="folder",
    )


def _folder_problem(text: str, target: Path) -> str | None:
    if not text or "://" in text:
        return "no path of this host"
    if not target.exists():
        return "a link that leads nowhere" if target.is_symlink() else None
    if not target.is_dir():
        return "a file"
    first = next(iter(sorted(entry.name for entry in target.iterdir())), None)
    return None if first is None else f"a folder that contains {first}"


def _unwritable_folder_error(folder: Path, error: OSError) -> ArgumentRefused:
    return ArgumentRefused(
        f"a backup cannot be written to {folder}",
        found=error.strerror or str(error),
        expected="a folder that can be written, on a disk with free space",
        next="name another folder, or free space; nothing is held",
        argument="folder",
    )


def _description(summary: BackupSummary) -> dict[str, str | int]:
    backup = summary.backup
    return {
        "id": backup.id,
        "made_at": backup.made_at.isoformat(),
        "held_until": backup.held_until.isoformat(),
        "catalog": summary.catalog,
        "catalog_id": summary.catalog_id,
        "warehouse": summary.warehouse,
        "files": summary.files,
        "bytes": summary.bytes,
    }


def _read_description(folder: Path) -> Backup | None:
    """Backup that ``backup.json`` in a folder describes; None without a valid description."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        fields = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        times = (datetime.fromisoformat(fields["made_at"]), datetime.fromisoformat(fields["held_until"]))
        if all(t.tzinfo is not None for t in times):
            return Backup(str(fields["id"]), str(folder), *times)
    return None


def _write_file(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", newline="\n")
    _fsync(file)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_files(folder: Path, remove_folder: bool) -> None:
    """Remove the files of a backup that failed, and its folder if the backup created it."""
    parts = [f"{CATALOG_FILE}.part{suffix}" for suffix in ("", "-journal", "-wal", "-shm")]
    for name in (DESCRIPTION, FILE_LIST, CATALOG_FILE, *parts):
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)
    if remove_folder:
        with suppress(OSError):
            folder.rmdir()
