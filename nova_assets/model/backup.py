"""Backups of a catalog, which hold the files that they list against deletion."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup of the catalog. Files of the warehouse that it lists are not deleted while it holds them.

    Args:
        id: id of the backup; empty in a dry run.
        folder: absolute path of the folder that holds the backup.
        made_at: time from which the backup holds files. The copy of the catalog is newer.
        held_until: time at which the hold ends by itself.
    """

    id: str
    folder: str
    made_at: datetime
    held_until: datetime

    def is_held(self, now: datetime) -> bool:
        """Whether the hold has not ended by itself."""
        return self.held_until > now


@dataclass(frozen=True, slots=True)
class BackupContent:
    """Files of the warehouse that a catalog needs: those of all blocks that are not collected.

    Args:
        paths: relative to the warehouse, sorted. Files outside the warehouse are left out.
        bytes: total size of the files.
    """

    __repr__ = short_repr

    paths: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """A backup that was made, or that a dry run describes.

    Args:
        backup: the backup, with its folder and the end of its hold.
        catalog: masked URL of the catalog.
        catalog_id: identity of the catalog.
        warehouse: address of the warehouse that holds the files.
        files: number of files of the warehouse that belong to the backup.
        bytes: total size of these files.
        catalog_file: the copy of a SQLite catalog; None for a catalog on PostgreSQL.
        dump_command: command that copies a catalog on PostgreSQL; None for SQLite.
    """

    backup: Backup
    catalog: str
    catalog_id: str
    warehouse: str
    files: int
    bytes: int
    catalog_file: Path | None = None
    dump_command: str | None = None
