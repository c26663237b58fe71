"""Storage of views: keyspaces of keys and values, with atomic changes of many keys.

A snapshot shows one state as long as it is open, whatever is written meanwhile.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

KEYSPACE_BYTES = 17
"""Bytes of a keyspace's name."""

Keyspace: TypeAlias = bytes
Key: TypeAlias = bytes
Value: TypeAlias = bytes

Entry: TypeAlias = tuple[Key, Value]
Changes: TypeAlias = Mapping[Keyspace, Mapping[Key, Value | None] | None]
"""Keyspace -> its changes: key -> new value, or None to delete the key.

None instead of changes empties the keyspace.
"""

ExpectedValue: TypeAlias = tuple[Keyspace, Key, Value | None]
"""A keyspace, a key in it, and the expected value; None if the key must not exist."""


class StorageSnapshot(Protocol):
    """One state of a storage."""

    def get(self, keyspace: bytes, key: bytes) -> bytes | None:
        """Value of a key; None if the key does not exist."""

    def scan(self, keyspace: bytes, start: bytes = b"") -> Iterator[Entry]:
        """Entries of a keyspace in key order, from a key on."""

    def scan_backwards(self, keyspace: bytes, before_key: bytes) -> Iterator[Entry]:
        """Entries of a keyspace in reverse key order, from the last key below ``before_key`` on."""

    def keyspaces(self) -> Iterator[bytes]:
        """Names of all keyspaces that are not empty."""


class ScanLimitExceeded(Exception):
    """A scan reads more entries than a bounded snapshot allows."""


class BoundedSnapshot:
    """Snapshot whose scans stop after a number of entries or bytes, so that reading it never takes long."""

    entries = 500
    size = 2**20

    def __init__(self, snapshot: StorageSnapshot) -> None:
        self._snapshot = snapshot
        self._entries_left, self._bytes_left = self.entries, self.size

    def get(self, keyspace: bytes, key: bytes) -> bytes | None:
        return self._snapshot.get(keyspace, key)

    def scan(self, keyspace: bytes, start: bytes = b"") -> Iterator[Entry]:
        return self._limit_entries(self._snapshot.scan(keyspace, start))

    def scan_backwards(self, keyspace: bytes, before_key: bytes) -> Iterator[Entry]:
        return self._limit_entries(self._snapshot.scan_backwards(keyspace, before_key))

    def keyspaces(self) -> Iterator[bytes]:
        return self._snapshot.keyspaces()

    def _limit_entries(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            self._entries_left -= 1
            self._bytes_left -= len(entry[1])
            if self._entries_left < 0 or self._bytes_left < 0:
                raise ScanLimitExceeded
            yield entry


class Storage(Protocol):
    """Stores views. Every method raises StorageFailed if it fails."""

    name: str

    def open_snapshot(self) -> AbstractContextManager[StorageSnapshot]:
        """One state, for the duration of the block."""

    def write(self, changes: Changes, expected: ExpectedValue | None = None) -> bool:
        """Apply all changes, or none.

        Args:
            expected: precondition. If the value differs, nothing is changed.

        Returns:
            Whether the changes were applied.
        """

    def size(self) -> int:
        """Bytes that the storage takes."""

    def save(self) -> None:
        """Ensure that the next process finds everything, if this storage outlives its process."""

    def close(self) -> None:
        """Save everything, and close the storage."""


Entries: TypeAlias = tuple[Entry, ...]
"""Entries of one keyspace, sorted by key."""

_MAX_SINGLE_INSERTS = 64
"""Maximum number of changes of a keyspace that are inserted one by one. More changes are merged and sorted at once."""


class MemoryStorage:
    """Storage in the memory of this process.

    A state is a dict that never changes. A write creates a new state, which shares all unchanged keyspaces.

    Args:
        checkpoint: storage to load from and save to; None to keep views in memory only.
    """

    name = "memory"

    def __init__(self, checkpoint: Storage | None = None) -> None:
        self._lock = threading.Lock()
        self._save_lock = threading.Lock()
        self._checkpoint = checkpoint
        self._unsaved_keyspaces: set[bytes] = set()
        self._keyspaces: dict[bytes, Entries] = {}
        if checkpoint is not None:
            with checkpoint.open_snapshot() as snapshot:
                self._keyspaces = {name: tuple(snapshot.scan(name)) for name in snapshot.keyspaces()}

    @contextmanager
    def open_snapshot(self) -> Iterator[StorageSnapshot]:
        yield _MemorySnapshot(self._keyspaces)

    def write(self, changes: Changes, expected: ExpectedValue | None = None) -> bool:
        with self._lock:
            if expected is not None and _MemorySnapshot(self._keyspaces).get(*expected[:2]) != expected[2]:
                return False
            new_state = dict(self._keyspaces)
            for name, change in changes.items():
                keyspace = () if change is None else _apply_change(new_state.get(name, ()), change)
                if keyspace:
                    new_state[name] = keyspace
                else:
                    new_state.pop(name, None)
            self._keyspaces = new_state
            if self._checkpoint is not None:
                self._unsaved_keyspaces.update(changes)
            return True

    def size(self) -> int:
        return sum(len(k) + len(v) for drawer in self._keyspaces.values() for k, v in drawer)

    def save(self) -> None:
        with self._save_lock:
            self._save_under_lock()

    def _save_under_lock(self) -> None:
        """Save the changed keyspaces.

        Saves run one at a time, so the saved state is consistent. A failed save is repeated later.
        """
        if self._checkpoint is None:
            return
        with self._lock:
            state, unsaved, self._unsaved_keyspaces = self._keyspaces, self._unsaved_keyspaces, set()
        try:
            self._checkpoint.write(
                _changes_to_replace(self._checkpoint, {name: state.get(name, ()) for name in unsaved})
            )
            self._checkpoint.save()
        except BaseException:
            with self._lock:
                self._unsaved_keyspaces |= unsaved
            raise

    def close(self) -> None:
        with self._save_lock:
            if self._checkpoint is None:
                return
            try:
                self._save_under_lock()
            finally:
                self._checkpoint.close()
                self._checkpoint = None


class _MemorySnapshot:
    """Snapshot of keyspaces whose entries are sorted tuples.

    Args:
        keyspaces: keyspace -> its entries.
    """

    def __init__(self, keyspaces: Mapping[bytes, Entries]) -> None:
        self._keyspaces = keyspaces

    def get(self, keyspace: bytes, key: bytes) -> bytes | None:
        entries = self._keyspaces.get(keyspace, ())
        n = bisect_left(entries, (key,))
        return entries[n][1] if n < len(entries) and entries[n][0] == key else None

    def scan(self, keyspace: bytes, start: bytes = b"") -> Iterator[Entry]:
        entries = self._keyspaces.get(keyspace, ())
        first = bisect_left(entries, (start,)) if start else 0
        return iter(entries[first:] if first else entries)

    def scan_backwards(self, keyspace: bytes, before_key: bytes) -> Iterator[Entry]:
        entries = self._keyspaces.get(keyspace, ())
        return (entries[n] for n in range(bisect_left(entries, (before_key,)) - 1, -1, -1))

    def keyspaces(self) -> Iterator[bytes]:
        return iter(self._keyspaces)


def _apply_change(keyspace: Entries, change: Mapping[bytes, bytes | None]) -> Entries:
    """Entries of a keyspace after a change."""
    if len(change) > _MAX_SINGLE_INSERTS:
        unchanged = (e for e in keyspace if e[0] not in change)
        return tuple(sorted([*unchanged, *((k, v) for k, v in change.items() if v is not None)]))
    entries = list(keyspace)
    for key, value in change.items():
        n = bisect_left(entries, (key,))
        exists = n < len(entries) and entries[n][0] == key
        entries[n : n + exists] = [] if value is None else [(key, value)]
    return tuple(entries)


def _changes_to_replace(storage: Storage, keyspaces: Mapping[bytes, Entries]) -> Changes:
    """Changes that give keyspaces exactly the given content."""
    with storage.open_snapshot() as snapshot:
        keys_by_keyspace = {name: [key for key, _ in snapshot.scan(name)] for name in keyspaces}
    return {name: {**dict.fromkeys(keys_by_keyspace[name]), **dict(keyspace)} for name, keyspace in keyspaces.items()}
