"""Storage of views in RocksDB: a log-structured store for very many partitions (decision 0074).

The keys of a partition stand side by side in the order of their numbers, so a partition is read by one prefix scan.
"""

from __future__ import annotations

import os
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, RdictIter, WriteBatch

from nova_assets.file_views.storage import KEYSPACE_BYTES, Changes, Entry, ExpectedValue, StorageSnapshot
from nova_assets.file_views.storage_folder import lock_folder, storage_errors
from nova_assets.masking import get_logger

log = get_logger("nova_assets.views")

DEFAULT_CACHE_BYTES = 64 * 2**20
"""Default size of write buffers and block cache together, in bytes."""

STORAGE_FORMAT = b"1"
"""Version of the content. Content of another version is not read, but deleted."""

_META_KEYSPACE = b"m" + bytes(KEYSPACE_BYTES - 1)
_OWNER_KEY = b"owner"
_KEYSPACE_END = b"\xff" * 200
"""Greater than every key, since no key is this long."""

_ENTRIES_PER_SEEK = 64
"""Number of entries that a scan reads at once. The reader may use the same snapshot between two batches."""

_MAX_OPEN_FILES = 128

_FOLDER_PREFIX = "rocksdb-"


class RocksDbStorage:
    """A folder with a RocksDB database, used by one process whose threads share it.

    Write buffers and block cache together take at most ``cache_bytes``, whatever the size of the database. Writes are
    atomic. Values have checksums, in addition to those of RocksDB. Damaged content is deleted, since the catalog has
    all the data. A power failure may lose the last writes, but leaves a consistent older state.

    Args:
        folder: folder for this storage alone.
        catalog_id: identity of the catalog of the views. Content of another catalog is deleted.
        cache_bytes: memory for write buffers and block cache.

    Raises:
        StorageFailed: the storage cannot be opened, or another process uses it.
    """

    name = "rocksdb"

    def __init__(self, folder: Path, catalog_id: str, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.folder = folder
        self._owner_value = STORAGE_FORMAT + b" " + catalog_id.encode()
        self._cache_bytes = cache_bytes
        self._write_lock = threading.RLock()
        with storage_errors("opened"):
            self._lock_file_descriptor = lock_folder(folder)
        try:
            with storage_errors("opened", Exception):  # the binding raises plain exceptions
                self._database = self._open_or_recreate()
        except BaseException:
            os.close(self._lock_file_descriptor)
            raise

    def _open_or_recreate(self) -> Rdict:
        for path in reversed(self._database_folders()):
            try:
                database = self._open(path)
                if _get(database.iter(), _META_KEYSPACE + _OWNER_KEY) == self._owner_value:
                    return database
                database.close()
            except OSError:
                raise
            except Exception as error:
                log.warning("views in %s cannot be read, and are loaded again: %s", path, error)
            break
        return self._create()

    def _create(self) -> Rdict:
        """Create an empty database in a new folder: a reader may still have the files of the former one open."""
        former = self._database_folders()
        number = int(former[-1].name.removeprefix(_FOLDER_PREFIX)) + 1 if former else 1
        database = self._open(self.folder / f"{_FOLDER_PREFIX}{number:09d}")
        database[_META_KEYSPACE + _OWNER_KEY] = _with_checksum(self._owner_value)
        for path in former:
            shutil.rmtree(path, ignore_errors=True)
        return database

    def _database_folders(self) -> list[Path]:
        return sorted(self.folder.glob(f"{_FOLDER_PREFIX}*"))

    def _open(self, path: Path) -> Rdict:
        table = BlockBasedOptions()
        table.set_block_cache(Cache(max(self._cache_bytes * 3 // 4, 2**20)))
        table.set_cache_index_and_filter_blocks(True)  # so that they count against the limit
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(max(self._cache_bytes // 8, 2**18))
        options.set_db_write_buffer_size(max(self._cache_bytes // 4, 2**19))
        options.set_max_open_files(_MAX_OPEN_FILES)
        options.set_keep_log_file_num(2)
        return Rdict(str(path), options)

    @contextmanager
    def open_snapshot(self) -> Iterator[StorageSnapshot]:
        database = self._database
        with self._recreate_if_damaged(database, "read"):
            iterator = database.iter()
        snapshot = _RocksDbSnapshot(iterator, lambda: self._recreate_if_damaged(database, "read"))
        try:
            yield snapshot
        finally:
            snapshot.close()

    def write(self, changes: Changes, expected: ExpectedValue | None = None) -> bool:
        with self._write_lock, self._recreate_if_damaged(self._database, "written"):
            iterator = self._database.iter()
            if expected is not None and _get(iterator, expected[0] + expected[1]) != expected[2]:
                return False
            batch = WriteBatch(raw_mode=True)
            for keyspace, change in changes.items():
                if change is None:
                    for key in _keys(iterator, keyspace):
                        batch.delete(key)
                    continue
                for key, value in change.items():
                    if value is None:
                        batch.delete(keyspace + key)
                    else:
                        batch.put(keyspace + key, _with_checksum(value))
            self._database.write(batch)
            return True

    def size(self) -> int:
        with storage_errors("read"):
            return sum(f.stat().st_size for f in self.folder.glob(f"{_FOLDER_PREFIX}*/*"))

    def save(self) -> None:
        """Nothing to do, since every write goes to the log of the database."""

    def close(self) -> None:
        with self._write_lock:
            if self._lock_file_descriptor < 0:
                return
            try:
                with storage_errors("saved", Exception):
                    self._database.close()
            finally:
                os.close(self._lock_file_descriptor)
                self._lock_file_descriptor = -1

    @contextmanager
    def _recreate_if_damaged(self, database: Rdict, action: str) -> Iterator[None]:
        """Convert errors in the block to StorageFailed.

        If the content is damaged, it is recreated. After a failed write, too: RocksDB refuses all further writes, even
        once there is space again.
        """
        with storage_errors(action, Exception):
            try:
                yield
            except Exception as error:
                if action == "written" or "Corruption" in str(error):
                    self._recreate(database, error)
                raise

    def _recreate(self, database: Rdict, error: Exception) -> None:
        """Replace a database, once for all threads with an error. If this fails, the next error tries again."""
        with self._write_lock, suppress(Exception):
            if database is self._database and self._lock_file_descriptor >= 0:
                log.warning("views in %s are damaged, and loaded again: %s", self.folder, error)
                self._database = self._create()
                database.close()


class _RocksDbSnapshot:
    """One state: an iterator shows the database as it was when the iterator was created.

    Snapshots of the binding are not used: their iterators show later writes, too.
    """

    def __init__(self, iterator: RdictIter, recreate_if_damaged: Callable[[], AbstractContextManager[None]]) -> None:
        self._open_iterators = [iterator]
        self._recreate_if_damaged = recreate_if_damaged

    def close(self) -> None:
        """Release the iterator, which keeps the database open."""
        self._open_iterators.clear()

    @contextmanager
    def _iterator(self) -> Iterator[RdictIter]:
        with self._recreate_if_damaged():
            yield self._open_iterators[0]

    def get(self, keyspace: bytes, key: bytes) -> bytes | None:
        with self._iterator() as iterator:
            return _get(iterator, keyspace + key)

    def scan(self, keyspace: bytes, start: bytes = b"") -> Iterator[Entry]:
        next_key = keyspace + start
        while True:
            with self._iterator() as iterator:
                iterator.seek(next_key)
                entries = list(islice(_entries_from_here(iterator, keyspace, iterator.next), _ENTRIES_PER_SEEK))
            yield from entries
            if len(entries) < _ENTRIES_PER_SEEK:
                return
            next_key = keyspace + entries[-1][0] + b"\0"

    def scan_backwards(self, keyspace: bytes, before_key: bytes) -> Iterator[Entry]:
        end_key = keyspace + before_key
        while True:
            with self._iterator() as iterator:
                iterator.seek_for_prev(end_key)
                if _is_valid(iterator) and iterator.key() == end_key:
                    iterator.prev()
                entries = list(islice(_entries_from_here(iterator, keyspace, iterator.prev), _ENTRIES_PER_SEEK))
            yield from entries
            if len(entries) < _ENTRIES_PER_SEEK:
                return
            end_key = keyspace + entries[-1][0]

    def keyspaces(self) -> Iterator[bytes]:
        next_key = b""
        while True:
            with self._iterator() as iterator:
                iterator.seek(next_key)
                if not _is_valid(iterator):
                    return
                name = iterator.key()[:KEYSPACE_BYTES]
            if name != _META_KEYSPACE:
                yield name
            next_key = name + _KEYSPACE_END


def _is_valid(iterator: RdictIter) -> bool:
    """Whether the iterator is at an entry. Raises an exception if it stopped because of an error."""
    if iterator.valid():
        return True
    iterator.status()
    return False


def _get(iterator: RdictIter, key: bytes) -> bytes | None:
    iterator.seek(key)
    return _verify_checksum(iterator.value()) if _is_valid(iterator) and iterator.key() == key else None


def _entries_from_here(iterator: RdictIter, keyspace: bytes, move: Callable[[], None]) -> Iterator[Entry]:
    """Entries of a keyspace from the iterator's position on."""
    while _is_valid(iterator) and (key := iterator.key()).startswith(keyspace):
        yield key[KEYSPACE_BYTES:], _verify_checksum(iterator.value())
        move()


def _keys(iterator: RdictIter, keyspace: bytes) -> Iterator[bytes]:
    iterator.seek(keyspace)
    return (keyspace + key for key, _ in _entries_from_here(iterator, keyspace, iterator.next))


def _with_checksum(value: bytes) -> bytes:
    return zlib.crc32(value).to_bytes(4, "big") + value


def _verify_checksum(stored: bytes) -> bytes:
    value = stored[4:]
    if zlib.crc32(value).to_bytes(4, "big") != stored[:4]:
        raise ValueError("Corruption: a value is not what was written")
    return value
