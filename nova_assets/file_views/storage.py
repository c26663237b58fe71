"""Where views are kept: drawers of keys and values, of which many change at once or none does.

Whoever looks sees one state for as long as it looks, whatever is written meanwhile.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

KEYSPACE_BYTES = 17
"""Bytes of a drawer's name."""

Entry = tuple[bytes, bytes]
Changes = Mapping[bytes, Mapping[bytes, bytes | None] | None]
"""Drawer -> what changes in it: key -> value, or None for one that goes; None for a drawer that is emptied."""

ExpectedValue = tuple[bytes, bytes, bytes | None]
"""A drawer, a key in it, and its value; None where it is not there."""


class StorageSnapshot(Protocol):
    """One state of a storage."""

    def get(self, keyspace: bytes, key: bytes) -> bytes | None:
        """One value."""

    def scan(self, keyspace: bytes, start: bytes = b"") -> Iterator[Entry]:
        """What is in a drawer, in the order of its keys, from one on."""

    def scan_backwards(self, keyspace: bytes, before_key: bytes) -> Iterator[Entry]:
        """The same the other way: from the last key that is less than one."""

    def keyspaces(self) -> Iterator[bytes]:
        """The names of all that hold something."""


class ScanLimitExceeded(Exception):
    """There is more to be looked at than a glance takes in."""


class BoundedSnapshot:
    """A look that ends before it takes long: after so many values, or bytes of them."""

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
    """Keeps views. Every method raises StorageFailed where it cannot."""

    name: str

    def open_snapshot(self) -> AbstractContextManager[StorageSnapshot]:
        """One state, for as long as the block lasts."""

    def write(self, changes: Changes, expected: ExpectedValue | None = None) -> bool:
        """Change all of this, or nothing; says whether it did.

        Args:
            expected: what is there still; otherwise nothing is changed.
        """

    def size(self) -> int:
        """How many bytes it takes."""

    def save(self) -> None:
        """Make sure that the next process finds all of it, where this storage outlasts its process."""

    def close(self) -> None:
        """Save, and let go."""


_Keyspace = tuple[Entry, ...]

_MAX_SINGLE_INSERTS = 64
"""So many changes of a drawer are put in one by one."""


class MemoryStorage:
    """In the memory of this process.

    A state is a dict that never changes; a write makes another, which shares every drawer that it does not touch.

    Args:
        checkpoint: where it is saved, for the next process; None to forget all with this one.
    """

    name = "memory"

    def __init__(self, checkpoint: Storage | None = None) -> None:
        self._lock = threading.Lock()
        self._save_lock = threading.Lock()
        self._checkpoint = checkpoint
        self._unsaved_keyspaces: set[bytes] = set()
        self._keyspaces: dict[bytes, _Keyspace] = {}
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
        """One after the other: what is saved holds together, and nothing that was left out of it is forgotten."""
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
    def __init__(self, keyspaces: Mapping[bytes, _Keyspace]) -> None:
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


def _apply_change(keyspace: _Keyspace, change: Mapping[bytes, bytes | None]) -> _Keyspace:
    if len(change) > _MAX_SINGLE_INSERTS:
        unchanged = (e for e in keyspace if e[0] not in change)
        return tuple(sorted([*unchanged, *((k, v) for k, v in change.items() if v is not None)]))
    entries = list(keyspace)
    for key, value in change.items():
        n = bisect_left(entries, (key,))
        exists = n < len(entries) and entries[n][0] == key
        entries[n : n + exists] = [] if value is None else [(key, value)]
    return tuple(entries)


def _changes_to_replace(storage: Storage, keyspaces: Mapping[bytes, _Keyspace]) -> Changes:
    """What makes these drawers hold just this."""
    with storage.open_snapshot() as snapshot:
        keys_by_keyspace = {name: [key for key, _ in snapshot.scan(name)] for name in keyspaces}
    return {name: {**dict.fromkeys(keys_by_keyspace[name]), **dict(keyspace)} for name, keyspace in keyspaces.items()}
