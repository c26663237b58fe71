"""Storage of views in memory up to a limit; the rest lies in a file (decision 0074).

    write ─► changed keyspaces, in memory ─ more than half of the limit ─► runs in the file
    read  ◄─ changed keyspaces ◄─ cache of runs, at most the other half ◄─ runs in the file

A state is a dict that never changes: keyspace -> its entries, or the run that has them. Readers never wait for a write.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nova_assets.errors import StorageFailed
from nova_assets.file_views.spill_file import (
    Run,
    SpillDamaged,
    SpillFile,
    decode_entries,
    delete_other_files,
    encode_entries,
    read_index,
    write_index,
)
from nova_assets.file_views.storage import (
    Changes,
    Entries,
    EntriesSnapshot,
    ExpectedValue,
    Keyspace,
    StorageSnapshot,
    apply_change,
)
from nova_assets.file_views.storage_folder import lock_folder, storage_errors
from nova_assets.masking import get_logger

log = get_logger("nova_assets.views")

DEFAULT_MEMORY_BYTES = 64 * 2**20
"""Default limit of the entries in memory, in bytes."""

STORAGE_FORMAT = b"1"
"""Version of the file content. Files of another version are not read, but deleted."""

_BYTES_PER_ENTRY = 200
"""Memory that Python takes for an entry beside its key and value: a tuple, two headers, and the place in a tuple."""

_RUN_FILES = "views-*.runs"

_MIN_GARBAGE = 16 * 2**20
"""Bytes of outdated runs below which the file is not rewritten."""


class SpillableStorage:
    """A folder with a file, used by one process whose threads share it.

    Entries in memory take at most ``memory_bytes``; a single keyspace or write that is larger counts as it is. In
    addition, each keyspace takes about 300 bytes. What was written after the last save is lost with the process. The
    saved state is consistent. If a run is damaged, everything is deleted, since the catalog has all the data.

    Args:
        folder: folder for this storage alone.
        catalog_id: identity of the catalog of the views. Files of another catalog are deleted.
        memory_bytes: limit of the entries in memory.

    Raises:
        StorageFailed: the storage cannot be opened, or another process uses it.
    """

    name = "spillable"

    def __init__(self, folder: Path, catalog_id: str, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self.folder = folder
        self._owner = STORAGE_FORMAT + b" " + catalog_id.encode()
        self._limit = memory_bytes // 2
        self._write_lock = threading.RLock()
        self._cache = _RunCache(self._limit)
        self._unspilled_bytes: dict[Keyspace, int] = {}
        with storage_errors("opened"):
            self._lock_file_descriptor = lock_folder(folder)
            try:
                self._file, self._state = self._open_or_recreate()
            except BaseException:
                os.close(self._lock_file_descriptor)
                raise

    def _open_or_recreate(self) -> tuple[SpillFile, Mapping[Keyspace, Entries | Run]]:
        try:
            indexed = read_index(self.folder, self._owner)
        except (SpillDamaged, ValueError) as error:
            log.warning("views in %s cannot be read, and are loaded again: %s", self.folder, error)
            indexed = None
        if indexed is None:
            return self._new_file(), {}
        delete_other_files(self.folder, _RUN_FILES, [indexed[0].path])
        return indexed

    def _new_file(self) -> SpillFile:
        numbers = [int(p.stem.rpartition("-")[2]) for p in self.folder.glob(_RUN_FILES)]
        return SpillFile(self.folder / f"views-{max(numbers, default=0) + 1:09d}.runs")

    @contextmanager
    def open_snapshot(self) -> Iterator[StorageSnapshot]:
        yield EntriesSnapshot(_StateReader(self._state, self._entries_of))

    def _entries_of(self, stored: Entries | Run) -> Entries:
        if not isinstance(stored, Run):
            return stored
        with storage_errors("read", SpillDamaged):
            try:
                return self._cache.entries(stored)
            except SpillDamaged as error:
                self._discard_damaged(stored.file, error)
                raise

    def _discard_damaged(self, file: SpillFile, error: SpillDamaged) -> None:
        """Delete everything, once even if several threads have detected the damage."""
        with self._write_lock:
            if file is not self._file:
                return
            log.warning("views in %s are damaged, and loaded again: %s", self.folder, error)
            self._file, self._state = self._new_file(), {}
            self._unspilled_bytes.clear()
            write_index(self.folder, self._owner, self._file, {})
            delete_other_files(self.folder, _RUN_FILES, [self._file.path])

    def write(self, changes: Changes, expected: ExpectedValue | None = None) -> bool:
        with self._write_lock, storage_errors("written"):
            snapshot = EntriesSnapshot(_StateReader(self._state, self._entries_of))
            if expected is not None and snapshot.get(*expected[:2]) != expected[2]:
                return False
            new_state, unspilled = dict(self._state), dict(self._unspilled_bytes)
            for name, change in changes.items():
                entries = () if change is None else apply_change(self._entries_of(new_state.get(name, ())), change)
                if entries:
                    new_state[name], unspilled[name] = entries, _memory_bytes(entries)
                else:
                    new_state.pop(name, None)
                    unspilled.pop(name, None)
            must_spill = sum(unspilled.values()) > self._limit
            if must_spill:
                new_state, unspilled = self._spilled(new_state), {}
            self._state, self._unspilled_bytes = new_state, unspilled
            if must_spill and self._garbage_bytes() > max(_MIN_GARBAGE, self._file.end // 2):
                self._rewrite_file()
            return True

    def _spilled(self, state: Mapping[Keyspace, Entries | Run]) -> dict[Keyspace, Entries | Run]:
        """State whose keyspaces are all in the file."""
        result: dict[Keyspace, Entries | Run] = {}
        for name, stored in state.items():
            if not isinstance(stored, Run):
                run = self._file.append(encode_entries(stored))
                self._cache.add(run, stored)
                stored = run
            result[name] = stored
        return result

    def _garbage_bytes(self) -> int:
        return self._file.end - sum(r.size for r in self._state.values() if isinstance(r, Run))

    def _rewrite_file(self) -> None:
        """Copy the current runs to a new file, and delete the old file. If this fails, the old file stays in use."""
        old_file, old_state, new_file = self._file, self._state, self._new_file()
        try:
            self._state = {
                name: new_file.append(stored.encoded_entries()) if isinstance(stored, Run) else stored
                for name, stored in old_state.items()
            }
            self._file = new_file
            self.save()
        except (OSError, StorageFailed) as error:
            log.warning("the file of views in %s is not rewritten now: %s", self.folder, error)
            self._file, self._state = old_file, old_state
        except SpillDamaged as error:
            self._discard_damaged(old_file, error)
        self._cache.clear()
        delete_other_files(self.folder, _RUN_FILES, [self._file.path])

    def size(self) -> int:
        return self._file.end + sum(self._unspilled_bytes.values())

    def save(self) -> None:
        """Spill all keyspaces, and write the index that the next process reads."""
        with self._write_lock, storage_errors("saved"):
            self._state, self._unspilled_bytes = self._spilled(self._state), {}
            runs = {name: stored for name, stored in self._state.items() if isinstance(stored, Run)}
            write_index(self.folder, self._owner, self._file, runs)

    def close(self) -> None:
        with self._write_lock:
            if self._lock_file_descriptor < 0:
                return
            try:
                self.save()
            finally:
                os.close(self._lock_file_descriptor)
                self._lock_file_descriptor = -1


class _StateReader(Mapping[Keyspace, Entries]):
    """Keyspaces of a state, whose runs are read on demand."""

    def __init__(self, state: Mapping[Keyspace, Entries | Run], entries_of: Callable[[Entries | Run], Entries]) -> None:
        self._state = state
        self._entries_of = entries_of

    def __getitem__(self, name: Keyspace) -> Entries:
        return self._entries_of(self._state[name])

    def __iter__(self) -> Iterator[Keyspace]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)


class _RunCache:
    """Entries of the runs that were used last.

    Args:
        limit: bytes of memory. A single run that is larger stays until another one is used.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries_by_run: OrderedDict[Run, tuple[Entries, int]] = OrderedDict()
        self._bytes = 0

    def entries(self, run: Run) -> Entries:
        """Entries of a run. Raises SpillDamaged."""
        with self._lock:
            if run in self._entries_by_run:
                self._entries_by_run.move_to_end(run)
                return self._entries_by_run[run][0]
        entries = decode_entries(run.encoded_entries())
        self.add(run, entries)
        return entries

    def add(self, run: Run, entries: Entries) -> None:
        size = _memory_bytes(entries)
        with self._lock:
            if run not in self._entries_by_run:
                self._entries_by_run[run] = (entries, size)
                self._bytes += size
            while self._bytes > self._limit and len(self._entries_by_run) > 1:
                _, (_, evicted_size) = self._entries_by_run.popitem(last=False)
                self._bytes -= evicted_size

    def clear(self) -> None:
        with self._lock:
            self._entries_by_run.clear()
            self._bytes = 0


def _memory_bytes(entries: Entries) -> int:
    return sum(len(k) + len(v) + _BYTES_PER_ENTRY for k, v in entries)
