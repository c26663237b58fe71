"""Backups of the catalog."""

from __future__ import annotations

from pathlib import Path

from nova_assets.execution.runtime import Runtime
from nova_assets.model.backup import Backup, BackupSummary
from nova_assets.store.backup import CatalogBackups


class StoreBackups:
    """Store methods that back up the catalog and hold the files of its backups."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

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
        return self._backups().preview(folder, hold) if dry_run else self._backups().make(folder, hold)

    def backups(self) -> list[Backup]:
        """Backups that hold files of the warehouse, latest first."""
        return self._backups().holding()

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
        return self._backups().find(id_or_folder) if dry_run else self._backups().release(id_or_folder)

    def _backups(self) -> CatalogBackups:
        return CatalogBackups(self.runtime.catalog, self.runtime.engine)
