"""Views in a file, of any size, with little memory: a table of keys and values in SQLite (decision 0024)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nova_assets.errors import StorageFailed
from nova_assets.file_views.storage import DRAWER, Changes, Entry, Expected, Look
from nova_assets.masking import get_logger

log = get_logger("nova_assets.views")

MEMORY = 64 * 2**20
"""Bytes of pages that are kept in memory, by default."""

FORMAT = b"2"
"""Of what is kept. Another one is not read, but made anew."""

_META = b"m" + bytes(DRAWER - 1)
_OWNER = b"owner"
_AFTER = b"\xff" * 200
"""No key is this long."""

_PAGE = 16384
"""Bytes of a page: of a block with more files than fit in a quarter of it, the rest takes pages of its own."""

_LOOKING = 8
"""So many connections are kept open to look; who looks beside them opens one for that."""

_PATIENCE = 30.0
"""Seconds that a write waits for another process."""


class OnDisk:
    """A folder with one file, of one process, whose threads share it.

    A look is a snapshot; writes come one after the other, each whole or not at all. Values have checksums: what is
    damaged is found out, and thrown away with all the rest, since it can be had again from the catalog; as is what was
    kept for another catalog. What a power failure takes of the last writes leaves an older state, and no other.

    Args:
        folder: the storage's alone.
        owner: the identity of the catalog that it is of.
        memory: bytes of pages that it keeps in memory, however large the file is.

    Raises:
        StorageFailed: it cannot be opened, or is in use by another process.
    """

    name = "disk"

    def __init__(self, folder: Path, owner: str, memory: int = MEMORY) -> None:
        self.folder = folder
        self._file = folder / "views.db"
        self._mark = FORMAT + b" " + owner.encode()
        self._pages = memory // (_LOOKING + 1)
        self._writing = threading.RLock()
        self._lending = threading.Lock()
        self._waiting: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._generation = 0
        with _told("opened"):
            folder.mkdir(parents=True, exist_ok=True)
            self._held = _hold(folder / "in-use")
            try:
                self._writer = self._opened()
            except BaseException:
                os.close(self._held)
                raise

    # opening

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._prepared()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            log.warning("views in %s cannot be read, and are made anew: %s", self.folder, error)
            self._remove()
            return self._prepared()

    def _prepared(self) -> sqlite3.Connection:
        connection = self._connected()
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            connection.execute("PRAGMA synchronous=NORMAL").close()
            connection.execute("BEGIN IMMEDIATE").close()
            connection.execute(
                "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
            ).close()
            if _get(connection, _META + _OWNER) != self._mark:
                connection.execute("DELETE FROM kept").close()
                _put(connection, _META + _OWNER, self._mark)
            connection.execute("COMMIT").close()
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self) -> sqlite3.Connection:
        made = sqlite3.connect(self._file, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        made.execute(f"PRAGMA page_size={_PAGE}").close()  # of a file that is made
        made.execute(f"PRAGMA cache_size=-{max(self._pages // 1024, 64)}").close()
        made.execute("PRAGMA mmap_size=0").close()  # a file that is cut short would end the process
        made.execute("PRAGMA cell_size_check=ON").close()
        return made

    def _begin_anew(self, generation: int) -> None:
        """Throw away what is damaged, once however many have found it out."""
        with self._writing:
            if generation != self._generation:
                return
            self._end_of_generation()
            self._writer.close()
            self._remove()
            self._writer = self._opened()

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._file}{suffix}").unlink(missing_ok=True)

    # using

    @contextmanager
    def look(self) -> Iterator[Look]:
        generation = self._generation
        with self._minding(generation, "read"):
            connection = self._lent()
            try:
                connection.execute("BEGIN").close()
                seen = _Seen(connection, lambda: self._minding(generation, "read"))
                seen.get(_META, _OWNER)  # from the first read on it is a snapshot
            except BaseException:
                connection.close()
                raise
        try:
            yield seen
        finally:
            self._given_back(connection, generation)

    def _lent(self) -> sqlite3.Connection:
        try:
            return self._waiting.get_nowait()
        except queue.Empty:
            return self._connected()

    def _given_back(self, connection: sqlite3.Connection, generation: int) -> None:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK").close()
            with self._lending:
                if generation == self._generation and self._waiting.qsize() < _LOOKING:
                    self._waiting.put_nowait(connection)
                    return
        connection.close()

    def _end_of_generation(self) -> None:
        """Close the connections that wait; those that are lent are closed when they come back."""
        with self._lending:
            self._generation += 1
            while not self._waiting.empty():
                self._waiting.get_nowait().close()

    def write(self, changes: Changes, expect: Expected | None = None) -> bool:
        with self._writing, self._minding(self._generation, "written"):
            self._writer.execute("BEGIN IMMEDIATE").close()
            try:
                done = self._written(changes, expect)
                self._writer.execute("COMMIT" if done else "ROLLBACK").close()
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK").close()
                raise
            return done

    def _written(self, changes: Changes, expect: Expected | None) -> bool:
        if expect is not None and _get(self._writer, expect[0] + expect[1]) != expect[2]:
            return False
        for drawer, change in changes.items():
            if change is None:
                self._writer.execute("DELETE FROM kept WHERE key >= ? AND key < ?", (drawer, drawer + _AFTER)).close()
                continue
            for key, value in change.items():
                if value is None:
                    self._writer.execute("DELETE FROM kept WHERE key = ?", (drawer + key,)).close()
                else:
                    _put(self._writer, drawer + key, value)
        return True

    def size(self) -> int:
        with _told("read"):
            return sum(f.stat().st_size for f in self.folder.glob("views.db*"))

    def save(self) -> None:
        """Nothing: it is all there."""

    def close(self) -> None:
        with self._writing:
            if self._held < 0:
                return
            self._end_of_generation()
            self._writer.close()
            os.close(self._held)
            self._held = -1

    @contextmanager
    def _minding(self, generation: int, what: str) -> Iterator[None]:
        """What the database says in there, as an error of ours; where it is damaged, it is thrown away."""
        with _told(what):
            try:
                yield
            except sqlite3.DatabaseError as error:
                if _is_damage(error):
                    log.warning("views in %s are damaged, and made anew: %s", self.folder, error)
                    self._begin_anew(generation)
                raise


class _Seen:
    def __init__(self, connection: sqlite3.Connection, minding: Any) -> None:
        self._connection = connection
        self._minding = minding

    def get(self, drawer: bytes, key: bytes) -> bytes | None:
        try:
            return _get(self._connection, drawer + key)
        except sqlite3.Error:
            with self._minding():
                raise

    def scan(self, drawer: bytes, start: bytes = b"") -> Iterator[Entry]:
        query = "SELECT key, value FROM kept WHERE key >= ? AND key < ? ORDER BY key"
        return self._entries(query, drawer + start, drawer + _AFTER)

    def back(self, drawer: bytes, before: bytes) -> Iterator[Entry]:
        query = "SELECT key, value FROM kept WHERE key >= ? AND key < ? ORDER BY key DESC"
        return self._entries(query, drawer, drawer + before)

    def drawers(self) -> Iterator[bytes]:
        at = b""
        while True:
            with self._minding():
                row = self._connection.execute("SELECT min(key) FROM kept WHERE key > ?", (at,)).fetchone()
            if row[0] is None:
                return
            name = row[0][:DRAWER]
            at = name + _AFTER
            if name != _META:
                yield name

    def _entries(self, query: str, first: bytes, after: bytes) -> Iterator[Entry]:
        with contextlib.closing(self._connection.cursor()) as cursor, self._minding():
            for key, sealed in cursor.execute(query, (first, after)):
                yield key[DRAWER:], _checked(sealed)


def _get(connection: sqlite3.Connection, key: bytes) -> bytes | None:
    row = connection.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
    return None if row is None else _checked(row[0])


def _put(connection: sqlite3.Connection, key: bytes, value: bytes) -> None:
    sealed = zlib.crc32(value).to_bytes(4, "big") + value
    connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (key, sealed)).close()


def _checked(sealed: bytes) -> bytes:
    value = sealed[4:]
    if zlib.crc32(value).to_bytes(4, "big") != sealed[:4]:
        raise sqlite3.DatabaseError("malformed: a value is not what was written")
    return value


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return any(said in str(error) for said in _DAMAGED)


_DAMAGED = ("malformed", "not a database", "unsupported file format", "no such table")


def _hold(file: Path) -> int:
    """Keep other processes from it: the lock ends with this one, whatever becomes of that."""
    held = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise StorageFailed(
            f"views in {file.parent} are in use by another process",
            expected="a folder of its own for each service",
            next="name another one with --views-folder or NOVA_VIEWS_FOLDER",
        ) from None
    return held


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What goes wrong in there, as an error of ours."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StorageFailed(
            f"views could not be {what}",
            found=f"{type(error).__name__}: {error}",
            expected="a folder on a disk with room that this user may write to",
            next="make room, or name another folder with --views-folder or NOVA_VIEWS_FOLDER",
        ) from error
