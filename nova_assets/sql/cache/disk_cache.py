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

VARIABLE = "NOVA_CACHE"
"""The folder; nothing is kept where it is said to be empty."""

UNUSED = 30 * 86400
"""Seconds after which is forgotten what nobody asked for."""

PATIENCE = 1.0, 5.0
"""Seconds for which a file that somebody holds is waited for: once to read it, once to write it."""

_DAY = 86400
_SEAL = 32
_VERSION = 1
"""Of the table."""

_SCHEMA = "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, said BLOB, tree BLOB, used INTEGER) WITHOUT ROWID"

_log = get_logger(__name__)


class Shelf:
    """Where it is kept.

    Args:
        file: a database of SQLite; None for nowhere.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file

    @staticmethod
    def default() -> Shelf:
        """That of the user; or the one that ``NOVA_CACHE`` names."""
        named = os.environ.get(VARIABLE)
        if named == "":
            return Shelf(None)
        try:
            folder = Path(named) if named else user_cache_path("nova_assets")
        except RuntimeError as error:  # whoever runs this has no home
            _log.debug("nothing is kept: %s", error)
            return Shelf(None)
        return Shelf(folder / f"definitions-{_VERSION}.db")

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        """To look many things up, and to put more there, at the end."""
        db = self._reading()
        look = Opened(self, db)
        try:
            yield look
        finally:  # what was found out of some holds, whatever was wrong with others
            look.close()
            self._keep(look)
            look.put_there = {}

    def tree(self, key: bytes) -> bytes | None:
        """What is kept beside what is said; None where it is not there any more."""
        db = self._reading()
        if db is None:
            return None
        with closing(db):
            try:
                found = _asked(db, "SELECT tree FROM kept WHERE key = ?", key)
            except sqlite3.Error as error:
                _log.debug("%s is not read: %s", self.file, error)
                return None
        return None if found is None else _unsealed(key, found[0])

    def _reading(self) -> sqlite3.Connection | None:
        try:
            if self.file is None or not self.file.is_file():
                return None
            return sqlite3.connect(f"{self.file.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE[0])
        except (sqlite3.Error, OSError, ValueError) as error:
            _log.debug("%s is not read: %s", self.file, error)
            return None

    def _keep(self, look: Opened) -> None:
        if self.file is None or not (look.put_there or look.used):
            return
        now = int(time.time())
        rows = [(key, said, tree, now) for key, (said, tree) in look.put_there.items()]
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.file, os.O_CREAT, 0o600))
            with closing(sqlite3.connect(self.file, timeout=PATIENCE[1])) as db, db:
                db.execute(_SCHEMA)
                db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)", rows)
                db.executemany("UPDATE kept SET used = ? WHERE key = ?", [(now, key) for key in look.used])
                db.execute("DELETE FROM kept WHERE used < ?", (now - UNUSED,))
        except (sqlite3.OperationalError, OSError) as error:  # it is full, locked, or not ours to write
            _log.debug("%s is not written: %s", self.file, error)
        except sqlite3.DatabaseError as error:  # it is damaged: the next process begins anew
            _log.debug("%s is damaged, and removed: %s", self.file, error)
            with suppress(OSError):
                self.file.unlink(missing_ok=True)


class Opened:
    """A shelf, for the time in which many things are looked up.

    Args:
        put_there: what is new.
        used: what was asked for, and is not known to have been for a day.
    """

    def __init__(self, shelf: Shelf, db: sqlite3.Connection | None) -> None:
        self.shelf = shelf
        self.put_there: dict[bytes, tuple[bytes, bytes]] = {}
        self.used: list[bytes] = []
        self._db = db
        self._fresh = int(time.time()) - _DAY

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None

    def said(self, key: bytes) -> Any | None:
        """What is kept under a hash; None where nothing is."""
        try:
            found = None if self._db is None else _asked(self._db, "SELECT said, used FROM kept WHERE key = ?", key)
            data = None if found is None else _unsealed(key, found[0])
            said = None if data is None else json.loads(data)
        except sqlite3.Error as error:  # it is locked, or damaged: nobody waits for it again and again
            _log.debug("%s is not read: %s", self.shelf.file, error)
            self.close()
            return None
        except (ValueError, TypeError, RecursionError):
            return None
        if found is None or data is None:
            return None
        if not isinstance(found[1], int) or found[1] < self._fresh:
            self.used.append(key)
        return said

    def put(self, key: bytes, said: Mapping[str, Any], tree: bytes) -> None:
        """Keep something.

        Args:
            said: what everybody wants to know.
            tree: what is seldom asked for.
        """
        told = json.dumps(said, separators=(",", ":")).encode()
        self.put_there[key] = _sealed(key, told), _sealed(key, tree)


def _sealed(key: bytes, data: bytes) -> bytes:
    """With a hash before it, so that what was damaged, or lies under another key, is seen."""
    return sha256(key + data).digest() + data


def _unsealed(key: bytes, sealed: object) -> bytes | None:
    if not isinstance(sealed, bytes):
        return None
    seal, data = sealed[:_SEAL], sealed[_SEAL:]
    return data if sha256(key + data).digest() == seal else None


def _asked(db: sqlite3.Connection, query: str, key: bytes) -> tuple[Any, ...] | None:
    found: tuple[Any, ...] | None = db.execute(query, (key,)).fetchone()
    return found
