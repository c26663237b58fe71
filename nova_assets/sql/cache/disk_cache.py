"""What was found out of statements, kept from one process to the next, under the hash of what it was found out from.

It can be deleted at any time. Where it cannot be read or written, everything is found out anew.
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
"""The folder; nothing is kept where it is said to be empty."""

EXPIRE_AFTER_SECONDS = 30 * 86400
"""Seconds after which is forgotten what nobody asked for."""

PATIENCE = 1.0, 5.0
"""Seconds for which a file that somebody holds is waited for: once to read it, once to write it."""

_DAY = 86400
_CHECKSUM_SIZE = 32
_VERSION = 1
"""Of the table."""

_SCHEMA = "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, said BLOB, tree BLOB, used INTEGER) WITHOUT ROWID"

_log = get_logger(__name__)


class DiskCache:
    """Where it is kept.

    Args:
        file: a database of SQLite; None for nowhere.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file

    @staticmethod
    def default() -> DiskCache:
        """That of the user; or the one that ``NOVA_CACHE`` names."""
        named = os.environ.get(FOLDER_VARIABLE)
        if named == "":
            return DiskCache(None)
        try:
            folder = Path(named) if named else user_cache_path("nova_assets")
        except RuntimeError as error:  # whoever runs this has no home
            _log.debug("nothing is kept: %s", error)
            return DiskCache(None)
        return DiskCache(folder / f"definitions-{_VERSION}.db")

    @contextmanager
    def open_session(self) -> Iterator[DiskCacheSession]:
        """To look many things up, and to put more there, at the end."""
        db = self._connect_read_only()
        session = DiskCacheSession(self, db)
        try:
            yield session
        finally:  # what was found out of some holds, whatever was wrong with others
            session.close()
            self._write_session(session)
            session.new_entries = {}

    def tree(self, key: bytes) -> bytes | None:
        """What is kept beside what is said; None where it is not there any more."""
        db = self._connect_read_only()
        if db is None:
            return None
        with closing(db):
            try:
                found = _asked(db, "SELECT tree FROM kept WHERE key = ?", key)
            except sqlite3.Error as error:
                _log.debug("%s is not read: %s", self.file, error)
                return None
        return None if found is None else _verified_data(key, found[0])

    def _connect_read_only(self) -> sqlite3.Connection | None:
        try:
            if self.file is None or not self.file.is_file():
                return None
            return sqlite3.connect(f"{self.file.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE[0])
        except (sqlite3.Error, OSError, ValueError) as error:
            _log.debug("%s is not read: %s", self.file, error)
            return None

    def _write_session(self, session: DiskCacheSession) -> None:
        if self.file is None or not (session.new_entries or session.used_keys):
            return
        now = int(time.time())
        rows = [(key, said, tree, now) for key, (said, tree) in session.new_entries.items()]
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.file, os.O_CREAT, 0o600))
            with closing(sqlite3.connect(self.file, timeout=PATIENCE[1])) as db, db:
                db.execute(_SCHEMA)
                db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)", rows)
                db.executemany("UPDATE kept SET used = ? WHERE key = ?", [(now, key) for key in session.used_keys])
                db.execute("DELETE FROM kept WHERE used < ?", (now - EXPIRE_AFTER_SECONDS,))
        except (sqlite3.OperationalError, OSError) as error:  # it is full, locked, or not ours to write
            _log.debug("%s is not written: %s", self.file, error)
        except sqlite3.DatabaseError as error:  # it is damaged: the next process begins anew
            _log.debug("%s is damaged, and removed: %s", self.file, error)
            with suppress(OSError):
                self.file.unlink(missing_ok=True)


class DiskCacheSession:
    """A shelf, for the time in which many things are looked up.

    Args:
        new_entries: what is new.
        used_keys: what was asked for, and is not known to have been for a day.
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
        """What is kept under a hash; None where nothing is."""
        try:
            found = None if self._db is None else _asked(self._db, "SELECT said, used FROM kept WHERE key = ?", key)
            data = None if found is None else _verified_data(key, found[0])
            record = None if data is None else json.loads(data)
        except sqlite3.Error as error:  # it is locked, or damaged: nobody waits for it again and again
            _log.debug("%s is not read: %s", self.disk_cache.file, error)
            self.close()
            return None
        except (ValueError, TypeError, RecursionError):
            return None
        if found is None or data is None:
            return None
        if not isinstance(found[1], int) or found[1] < self._refresh_before:
            self.used_keys.append(key)
        return record

    def put(self, key: bytes, record: Mapping[str, Any], tree: bytes) -> None:
        """Keep something.

        Args:
            record: what everybody wants to know.
            tree: what is seldom asked for.
        """
        encoded_record = json.dumps(record, separators=(",", ":")).encode()
        self.new_entries[key] = _with_checksum(key, encoded_record), _with_checksum(key, tree)


def _with_checksum(key: bytes, data: bytes) -> bytes:
    """With a hash before it, so that what was damaged, or lies under another key, is seen."""
    return sha256(key + data).digest() + data


def _verified_data(key: bytes, checksummed: object) -> bytes | None:
    if not isinstance(checksummed, bytes):
        return None
    seal, data = checksummed[:_CHECKSUM_SIZE], checksummed[_CHECKSUM_SIZE:]
    return data if sha256(key + data).digest() == seal else None


def _asked(db: sqlite3.Connection, query: str, key: bytes) -> tuple[Any, ...] | None:
    found: tuple[Any, ...] | None = db.execute(query, (key,)).fetchone()
    return found
