"""Disk cache of statement analyses, shared by processes and keyed by hashes of the inputs.

The cache file can be deleted at any time. If it cannot be read or written, every analysis is computed again.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from nova_assets.masking import get_logger

FOLDER_VARIABLE = "NOVA_CACHE"
"""Environment variable with the cache folder. An empty value disables the cache."""

EXPIRE_AFTER_SECONDS = 30 * 86400
"""Seconds after its last use at which an entry is deleted."""

LOCK_TIMEOUTS_SECONDS = 1.0, 5.0
"""Seconds to wait for a locked database file: for reading, and for writing."""

_DAY = 86400
_CHECKSUM_SIZE = 32
_VERSION = 1
"""Version of the table layout, part of the file name."""

_SCHEMA = "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, said BLOB, tree BLOB, used INTEGER) WITHOUT ROWID"

_log = get_logger(__name__)


class DiskCache:
    """A cache file.

    Args:
        file: the SQLite database, or None to disable the cache.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file

    @staticmethod
    def default() -> DiskCache:
        """The user's cache, or the cache in the folder that ``NOVA_CACHE`` names."""
        named = os.environ.get(FOLDER_VARIABLE)
        if named == "":
            return DiskCache(None)
        try:
            folder = Path(named) if named else user_cache_path("nova_assets")
        except RuntimeError as error:  # the user has no home directory
            _log.debug("the cache of analyses is disabled: %s", error)
            return DiskCache(None)
        return DiskCache(folder / f"definitions-{_VERSION}.db")

    @contextmanager
    def open_session(self) -> Iterator[DiskCacheSession]:
        """Session for many lookups. New entries are written when the session ends."""
        db = self._connect_read_only()
        session = DiskCacheSession(self, db)
        try:
            yield session
        finally:  # entries of valid datasets hold even if another dataset raised an error
            session.close()
            self._write_session(session)
            session.new_entries = {}

    def get_tree(self, key: bytes) -> bytes | None:
        """The encoded syntax tree of an entry. None if the entry is missing or damaged."""
        db = self._connect_read_only()
        if db is None:
            return None
        with closing(db):
            try:
                row = _fetch_row(db, "SELECT tree FROM kept WHERE key = ?", key)
            except sqlite3.Error as error:
                _log.debug("cannot read %s: %s", self.file, error)
                return None
        return None if row is None else _verified_data(key, row[0])

    def _connect_read_only(self) -> sqlite3.Connection | None:
        try:
            if self.file is None or not self.file.is_file():
                return None
            return sqlite3.connect(
                f"{self.file.absolute().as_uri()}?mode=ro", uri=True, timeout=LOCK_TIMEOUTS_SECONDS[0]
            )
        except (sqlite3.Error, OSError, ValueError) as error:
            _log.debug("cannot read %s: %s", self.file, error)
            return None

    def _write_session(self, session: DiskCacheSession) -> None:
        if self.file is None or not (session.new_entries or session.used_keys):
            return
        now = int(time.time())
        rows = [(key, said, tree, now) for key, (said, tree) in session.new_entries.items()]
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.file, os.O_CREAT, 0o600))
            with closing(sqlite3.connect(self.file, timeout=LOCK_TIMEOUTS_SECONDS[1])) as db, db:
                db.execute(_SCHEMA)
                db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)", rows)
                db.executemany("UPDATE kept SET used = ? WHERE key = ?", [(now, key) for key in session.used_keys])
                db.execute("DELETE FROM kept WHERE used < ?", (now - EXPIRE_AFTER_SECONDS,))
        except (sqlite3.OperationalError, OSError) as error:  # disk full, file locked, or no permission
            _log.debug("cannot write %s: %s", self.file, error)
        except sqlite3.DatabaseError as error:  # damaged: the next process creates a new file
            _log.debug("%s is damaged and was removed: %s", self.file, error)
            with suppress(OSError):
                self.file.unlink(missing_ok=True)


class DiskCacheSession:
    """A session of the disk cache, for many lookups.

    Attributes:
        new_entries: key -> encoded record and tree of a new entry, written when the session ends.
        used_keys: keys that were read and whose time of last use is more than a day old.
    """

    def __init__(self, disk_cache: DiskCache, db: sqlite3.Connection | None) -> None:
        self.disk_cache = disk_cache
        self.new_entries: dict[bytes, tuple[bytes, bytes]] = {}
        self.used_keys: list[bytes] = []
        self._db = db
        self._refresh_before = int(time.time()) - _DAY

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None

    def get(self, key: bytes) -> Any | None:
        """The record stored under a key. None if there is none."""
        try:
            row = None if self._db is None else _fetch_row(self._db, "SELECT said, used FROM kept WHERE key = ?", key)
            data = None if row is None else _verified_data(key, row[0])
            record = None if data is None else json.loads(data)
        except sqlite3.Error as error:  # locked or damaged: do not wait again for every key
            _log.debug("cannot read %s: %s", self.disk_cache.file, error)
            self.close()
            return None
        except (ValueError, TypeError, RecursionError):
            return None
        if row is None or data is None:
            return None
        if not isinstance(row[1], int) or row[1] < self._refresh_before:
            self.used_keys.append(key)
        return record

    def put(self, key: bytes, record: Mapping[str, Any], tree: bytes) -> None:
        """Add an entry.

        Args:
            record: data that every lookup needs.
            tree: encoded syntax tree, which is rarely needed and is loaded separately.
        """
        encoded_record = json.dumps(record, separators=(",", ":")).encode()
        self.new_entries[key] = _with_checksum(key, encoded_record), _with_checksum(key, tree)


def _with_checksum(key: bytes, data: bytes) -> bytes:
    """The data with a checksum in front, which detects damaged data and data stored under another key."""
    return sha256(key + data).digest() + data


def _verified_data(key: bytes, checksummed: object) -> bytes | None:
    if not isinstance(checksummed, bytes):
        return None
    seal, data = checksummed[:_CHECKSUM_SIZE], checksummed[_CHECKSUM_SIZE:]
    return data if sha256(key + data).digest() == seal else None


def _fetch_row(db: sqlite3.Connection, query: str, key: bytes) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = db.execute(query, (key,)).fetchone()
    return row
