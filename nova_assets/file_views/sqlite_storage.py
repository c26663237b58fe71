"""Storage of views on disk, in a SQLite file: any size, with little memory (decision 0100)."""

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
from nova_assets.file_views.storage import (
    KEYSPACE_BYTES,
    Changes,
    Entry,
    ExpectedValue,
    MemoryStorage,
    Storage,
    StorageSnapshot,
)
from nova_assets.masking import get_logger

log = get_logger("nova_assets.views")

DEFAULT_CACHE_BYTES = 64 * 2**20
"""Default size of the page cache, in bytes."""

STORAGE_FORMAT = b"2"
"""Version of the file content. A file of another version is not read, but recreated."""

_META_KEYSPACE = b"m" + bytes(KEYSPACE_BYTES - 1)
_OWNER_KEY = b"owner"
_KEYSPACE_END = b"\xff" * 200
"""Greater than every key, since no key is this long."""

_PAGE_BYTES = 16384
"""Bytes of a page. A value larger than a quarter of it continues on overflow pages."""

_MAX_IDLE_CONNECTIONS = 8
"""Maximum number of idle connections for reads. Further readers open their own."""

_LOCK_TIMEOUT = 30.0
"""Seconds for which a write waits for another process."""


def open_storage(kind: str, folder: Path, memory_bytes: int, catalog_id: str) -> Storage:
    """Open a storage that outlives its process.

    If the folder cannot be used, views are kept in memory only, so that a service starts even with a broken disk.

    Args:
        kind: value of the setting ``views``. Views in memory are saved to the folder from time to time, and when the
            process ends.
        folder: folder for the storage alone.
        memory_bytes: limit of the memory for views; no limit if they are kept in memory.
        catalog_id: identity of the catalog of the views.
    """
    try:
        on_disk = SqliteStorage(folder, catalog_id, memory_bytes)
        return _load_into_memory(on_disk) if kind == "memory" else on_disk
    except StorageFailed as error:
        log.warning("views are kept in memory, and lost when this process ends: %s", error)
        return MemoryStorage()


def _load_into_memory(on_disk: SqliteStorage) -> MemoryStorage:
    """Views in memory that are loaded from a file, and saved to it. Raises StorageFailed if the file cannot be read."""
    with contextlib.suppress(StorageFailed):
        return MemoryStorage(on_disk)
    try:
        return MemoryStorage(on_disk)  # the read that has found a damage has also recreated the file
    except StorageFailed:
        on_disk.close()
        raise


class SqliteStorage:
    """A folder with one file, used by one process whose threads share it.

    Snapshots are consistent, and writes are atomic and run one at a time. Values have checksums. If a value is damaged,
    the whole file is recreated, since the catalog has all the data. A file of another catalog is emptied. A power
    failure may lose the last writes, but always leaves a consistent older state.

    Args:
        folder: folder for this storage alone.
        catalog_id: identity of the catalog of the views.
        cache_bytes: size of the page cache, independent of the file's size.

    Raises:
        StorageFailed: the storage cannot be opened, or another process uses it.
    """

    name = "disk"

    def __init__(self, folder: Path, catalog_id: str, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.folder = folder
        self._file = folder / "views.db"
        self._owner_value = STORAGE_FORMAT + b" " + catalog_id.encode()
        self._connection_cache_bytes = cache_bytes // (_MAX_IDLE_CONNECTIONS + 1)
        self._write_lock = threading.RLock()
        self._pool_lock = threading.Lock()
        self._idle_connections: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._generation = 0
        with _storage_errors("opened", sqlite3.Error):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock_file_descriptor = _lock_folder(folder)
            try:
                self._writer = self._open_or_recreate()
            except BaseException:
                os.close(self._lock_file_descriptor)
                raise

    def _open_or_recreate(self) -> sqlite3.Connection:
        try:
            return self._open_for_owner()
        except sqlite3.DatabaseError as error:
            if not _is_damage_error(error):
                raise
            log.warning("views in %s cannot be read, and are loaded again: %s", self.folder, error)
            self._delete_files()
            return self._open_for_owner()

    def _open_for_owner(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            connection.execute("PRAGMA synchronous=NORMAL").close()
            connection.execute("BEGIN IMMEDIATE").close()
            connection.execute(
                "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
            ).close()
            if _read_value(connection, _META_KEYSPACE + _OWNER_KEY) != self._owner_value:
                connection.execute("DELETE FROM kept").close()
                _write_value(connection, _META_KEYSPACE + _OWNER_KEY, self._owner_value)
            connection.execute("COMMIT").close()
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._file, timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}").close()  # applies only to a new file
        connection.execute(f"PRAGMA cache_size=-{max(self._connection_cache_bytes // 1024, 64)}").close()
        connection.execute("PRAGMA mmap_size=0").close()  # a truncated file would crash the process
        connection.execute("PRAGMA cell_size_check=ON").close()
        return connection

    def _recreate_file(self, generation: int) -> None:
        """Recreate a damaged file, once even if several threads have detected the damage."""
        with self._write_lock:
            if generation != self._generation:
                return
            self._close_idle_connections()
            self._writer.close()
            self._delete_files()
            self._writer = self._open_or_recreate()

    def _delete_files(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._file}{suffix}").unlink(missing_ok=True)

    @contextmanager
    def open_snapshot(self) -> Iterator[StorageSnapshot]:
        generation = self._generation
        with self._recreate_if_damaged(generation, "read"):
            connection = self._take_connection()
            try:
                connection.execute("BEGIN").close()
                snapshot = _SqliteSnapshot(connection, lambda: self._recreate_if_damaged(generation, "read"))
                snapshot.get(_META_KEYSPACE, _OWNER_KEY)  # the first read starts the snapshot
            except BaseException:
                connection.close()
                raise
        try:
            yield snapshot
        finally:
            self._return_connection(connection, generation)

    def _take_connection(self) -> sqlite3.Connection:
        try:
            return self._idle_connections.get_nowait()
        except queue.Empty:
            return self._connect()

    def _return_connection(self, connection: sqlite3.Connection, generation: int) -> None:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK").close()
            with self._pool_lock:
                if generation == self._generation and self._idle_connections.qsize() < _MAX_IDLE_CONNECTIONS:
                    self._idle_connections.put_nowait(connection)
                    return
        connection.close()

    def _close_idle_connections(self) -> None:
        """Close the idle connections. Connections in use are closed on their return."""
        with self._pool_lock:
            self._generation += 1
            while not self._idle_connections.empty():
                self._idle_connections.get_nowait().close()

    def write(self, changes: Changes, expected: ExpectedValue | None = None) -> bool:
        with self._write_lock, self._recreate_if_damaged(self._generation, "written"):
            self._writer.execute("BEGIN IMMEDIATE").close()
            try:
                is_written = self._apply_changes(changes, expected)
                self._writer.execute("COMMIT" if is_written else "ROLLBACK").close()
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK").close()
                raise
            return is_written

    def _apply_changes(self, changes: Changes, expected: ExpectedValue | None) -> bool:
        if expected is not None and _read_value(self._writer, expected[0] + expected[1]) != expected[2]:
            return False
        for keyspace, change in changes.items():
            if change is None:
                self._writer.execute(
                    "DELETE FROM kept WHERE key >= ? AND key < ?", (keyspace, keyspace + _KEYSPACE_END)
                ).close()
                continue
            for key, value in change.items():
                if value is None:
                    self._writer.execute("DELETE FROM kept WHERE key = ?", (keyspace + key,)).close()
                else:
                    _write_value(self._writer, keyspace + key, value)
        return True

    def size(self) -> int:
        with _storage_errors("read", sqlite3.Error):
            return sum(f.stat().st_size for f in self.folder.glob("views.db*"))

    def save(self) -> None:
        """Nothing to do, since every write goes to the file."""

    def close(self) -> None:
        with self._write_lock:
            if self._lock_file_descriptor < 0:
                return
            self._close_idle_connections()
            self._writer.close()
            os.close(self._lock_file_descriptor)
            self._lock_file_descriptor = -1

    @contextmanager
    def _recreate_if_damaged(self, generation: int, action: str) -> Iterator[None]:
        """Convert database errors in the block to StorageFailed. If the file is damaged, recreate it."""
        with _storage_errors(action, sqlite3.Error):
            try:
                yield
            except sqlite3.DatabaseError as error:
                if _is_damage_error(error):
                    log.warning("views in %s are damaged, and loaded again: %s", self.folder, error)
                    self._recreate_file(generation)
                raise


class _SqliteSnapshot:
    def __init__(self, connection: sqlite3.Connection, recreate_if_damaged: Any) -> None:
        self._connection = connection
        self._recreate_if_damaged = recreate_if_damaged

    def get(self, keyspace: bytes, key: bytes) -> bytes | None:
        try:
            return _read_value(self._connection, keyspace + key)
        except sqlite3.Error:
            with self._recreate_if_damaged():
                raise

    def scan(self, keyspace: bytes, start: bytes = b"") -> Iterator[Entry]:
        query = "SELECT key, value FROM kept WHERE key >= ? AND key < ? ORDER BY key"
        return self._query_entries(query, keyspace + start, keyspace + _KEYSPACE_END)

    def scan_backwards(self, keyspace: bytes, before_key: bytes) -> Iterator[Entry]:
        query = "SELECT key, value FROM kept WHERE key >= ? AND key < ? ORDER BY key DESC"
        return self._query_entries(query, keyspace, keyspace + before_key)

    def keyspaces(self) -> Iterator[bytes]:
        last_key = b""
        while True:
            with self._recreate_if_damaged():
                row = self._connection.execute("SELECT min(key) FROM kept WHERE key > ?", (last_key,)).fetchone()
            if row[0] is None:
                return
            name = row[0][:KEYSPACE_BYTES]
            last_key = name + _KEYSPACE_END
            if name != _META_KEYSPACE:
                yield name

    def _query_entries(self, query: str, first_key: bytes, end_key: bytes) -> Iterator[Entry]:
        with contextlib.closing(self._connection.cursor()) as cursor, self._recreate_if_damaged():
            for key, stored in cursor.execute(query, (first_key, end_key)):
                yield key[KEYSPACE_BYTES:], _verify_checksum(stored)


def _read_value(connection: sqlite3.Connection, key: bytes) -> bytes | None:
    row = connection.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
    return None if row is None else _verify_checksum(row[0])


def _write_value(connection: sqlite3.Connection, key: bytes, value: bytes) -> None:
    stored = zlib.crc32(value).to_bytes(4, "big") + value
    connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (key, stored)).close()


def _verify_checksum(stored: bytes) -> bytes:
    value = stored[4:]
    if zlib.crc32(value).to_bytes(4, "big") != stored[:4]:
        raise sqlite3.DatabaseError("malformed: a value is not what was written")
    return value


def _is_damage_error(error: sqlite3.DatabaseError) -> bool:
    return any(message in str(error) for message in _DAMAGE_MESSAGES)


_DAMAGE_MESSAGES = ("malformed", "not a database", "unsupported file format", "no such table")


def _lock_folder(folder: Path) -> int:
    """Create a folder, and lock out other processes. The lock ends with this process, even if it is killed.

    Returns:
        The file descriptor of the lock. Closing it releases the lock.

    Raises:
        StorageFailed: another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "in-use", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StorageFailed(
            f"views in {folder} are in use by another process",
            expected="a separate folder for each service",
            next="name another folder with --views-folder or NOVA_VIEWS_FOLDER",
        ) from None
    return descriptor


@contextmanager
def _storage_errors(action: str, *kinds: type[Exception]) -> Iterator[None]:
    """Convert errors in the block to StorageFailed.

    Args:
        action: participle for the message, such as ``written``.
        kinds: kinds of errors, in addition to OSError.
    """
    caught: tuple[type[Exception], ...] = (OSError, *kinds)
    try:
        yield
    except StorageFailed:
        raise
    except caught as error:
        raise StorageFailed(
            f"views could not be {action}",
            found=f"{type(error).__name__}: {error}",
            expected="a folder that this user may write to, on a disk with free space",
            next="free disk space, or name another folder with --views-folder or NOVA_VIEWS_FOLDER",
        ) from error
