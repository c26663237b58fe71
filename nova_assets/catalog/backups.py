"""Backups: records that hold files against deletion, and a consistent copy of a SQLite catalog."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, delete, func, insert, select, update
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.tables import backups, blocks, catalog_identity, channels, files
from nova_assets.errors import CatalogUnavailable, NotSupported
from nova_assets.masking import is_secret_name
from nova_assets.model.backup import Backup, BackupContent
from nova_assets.model.file_source import is_external_path


class Backups(CatalogPart):
    """Records backups, and copies a SQLite catalog while others write to it."""

    def record(self, folder: str, hold_seconds: float) -> Backup:
        """Record a backup. From now on, no file of a block that is collected later is deleted until the hold ends.

        Records of backups whose hold has ended by itself are deleted.

        Args:
            folder: absolute path of the folder that will hold the backup.
            hold_seconds: seconds after which the hold ends by itself.
        """

        def insert_backup(c: Connection) -> Backup:
            # A collection that runs now ends first. So every later collection has a later time than the backup.
            c.execute(select(channels.c.name).order_by(channels.c.name).with_for_update()).all()
            now = self.database.clock()
            c.execute(delete(backups).where(backups.c.held_until <= now))
            backup = Backup(uuid.uuid4().hex, folder, now, now + timedelta(seconds=hold_seconds))
            c.execute(
                insert(backups).values(
                    id=backup.id, folder=folder, made_at=backup.made_at, held_until=backup.held_until
                )
            )
            return backup

        return self.database.write(insert_backup)

    def all(self) -> list[Backup]:
        """Recorded backups, latest first. The hold of some may have ended by itself."""
        query = select(backups).order_by(backups.c.made_at.desc(), backups.c.id)
        return [
            Backup(r["id"], r["folder"], r["made_at"], r["held_until"])
            for r in self.database.read(lambda c: c.execute(query).mappings().all())
        ]

    def delete(self, backup_id: str) -> bool:
        """Delete the record of a backup, and so end its hold. Returns whether the record existed."""
        return self.database.write(lambda c: c.execute(delete(backups).where(backups.c.id == backup_id)).rowcount > 0)

    def content(self) -> BackupContent:
        """Files of the warehouse that a backup of the catalog would list now."""
        return self.database.read(_read_content)

    def dump_command(self, target: Path) -> str | None:
        """Command that copies a catalog on PostgreSQL to a file, without the password; None for SQLite.

        Raises:
            NotSupported: the catalog is in memory.
        """
        if not self.database.is_sqlite:
            return f"pg_dump --format=custom --table='nova_*' --file {shlex.quote(str(target))} " + shlex.quote(
                _libpq_url(self.database.engine.url)
            )
        if self._sqlite_file() is None:
            raise NotSupported(
                "a catalog in memory cannot be backed up",
                found=self.database.masked_url,
                expected="a catalog in a file, or on PostgreSQL",
                next="set NOVA_CATALOG to sqlite:///FILE",
            )
        return None

    def copy(self, target: Path, made_at: datetime) -> BackupContent:
        """Copy a SQLite catalog to a file while others write to it, and check the copy.

        The copy is one file without a log. It contains every transaction that was committed before the call.

        Args:
            target: file that is overwritten.
            made_at: time of the backup, which the copy keeps.

        Returns:
            The files of the warehouse that the copy lists.

        Raises:
            CatalogUnavailable: the catalog cannot be read, or the copy is damaged.
            OSError: the file cannot be created.
        """
        source_file = self._sqlite_file()
        assert source_file is not None, "dump_command() checks that the catalog is a file"
        try:
            self.database.read(lambda c: _copy_database(c, target))
            target.chmod(source_file.stat().st_mode & 0o777)  # the copy holds what the catalog holds
        except sqlite3.Error as error:
            raise CatalogUnavailable(
                f"the catalog {self.database.masked_url} cannot be copied to {target}",
                found=str(error),
                expected="a readable catalog, and a disk with free space",
                next="nova doctor checks the catalog",
            ) from error
        with _open_copy(target) as engine:
            with engine.begin() as c:
                _mark_as_backup(c, made_at)
            with engine.connect() as c:
                return _read_content(c)

    def _sqlite_file(self) -> Path | None:
        name = self.database.engine.url.database
        return None if name in (None, "", ":memory:") else Path(str(name))


def _copy_database(c: Connection, target: Path) -> None:
    """Copy the database of a connection by SQLite's backup interface, in one step: a copy in several steps would start
    again at every commit of another process.
    """
    source: Any = c.connection.driver_connection
    target.unlink(missing_ok=True)  # of a failed attempt
    target.touch(mode=0o600)
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE").close()
        problems = [str(row[0]) for row in copy.execute("PRAGMA quick_check")]
    if problems != ["ok"]:
        raise sqlite3.DatabaseError(f"the copy is damaged: {problems[0]}")


@contextlib.contextmanager
def _open_copy(file: Path) -> Iterator[Engine]:
    """Open a copy without the settings of an open catalog, which would give the copy a log."""
    engine = create_engine(URL.create("sqlite", database=str(file)), poolclass=NullPool)
    try:
        yield engine
    finally:
        engine.dispose()


def _mark_as_backup(c: Connection, made_at: datetime) -> None:
    """Replace the place of the catalog's file, so that the first process that opens the copy notices the restore."""
    place = c.execute(select(catalog_identity.c.place)).scalar_one()
    original = None if place is None else json.loads(place)
    c.execute(
        update(catalog_identity).values(place=json.dumps({"backup_of": original, "made_at": made_at.isoformat()}))
    )


def _read_content(c: Connection) -> BackupContent:
    """Files of all blocks that are not collected. Several blocks may list the same file."""
    query = select(files.c.path, func.max(files.c.bytes)).join(blocks, blocks.c.id == files.c.block_id)
    query = query.where(blocks.c.collected_at.is_(None)).group_by(files.c.path).order_by(files.c.path)
    size_by_path = {path: int(size) for path, size in c.execute(query) if not is_external_path(path)}
    return BackupContent(tuple(sorted(size_by_path)), sum(size_by_path.values()))


def _libpq_url(url: URL) -> str:
    """URL of a PostgreSQL catalog for PostgreSQL's own programs, without passwords."""
    query = {name: value for name, value in url.query.items() if not is_secret_name(name)}
    plain = URL.create("postgresql", url.username, None, url.host, url.port, url.database, query)
    return plain.render_as_string(hide_password=False)
