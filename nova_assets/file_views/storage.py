"""Where views are kept: drawers of keys and values, of which many change at once or none does.

Whoever looks sees one state for as long as it looks, whatever is written meanwhile.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

DRAWER = 17
"""Bytes of a drawer's name."""

Entry = tuple[bytes, bytes]
Changes = Mapping[bytes, Mapping[bytes, bytes | None] | None]
"""Drawer -> what changes in it: key -> value, or None for one that goes; None for a drawer that is emptied."""

Expected = tuple[bytes, bytes, bytes | None]
"""A drawer, a key in it, and its value; None where it is not there."""


class Look(Protocol):
    """One state of a storage."""

    def get(self, drawer: bytes, key: bytes) -> bytes | None:
        """One value."""

    def scan(self, drawer: bytes, start: bytes = b"") -> Iterator[Entry]:
        """What is in a drawer, in the order of its keys, from one on."""

    def back(self, drawer: bytes, before: bytes) -> Iterator[Entry]:
        """The same the other way: from the last key that is less than one."""

    def drawers(self) -> Iterator[bytes]:
        """The names of all that hold something."""


class TooMuch(Exception):
    """There is more to be looked at than a glance takes in."""


class Glance:
    """A look that ends before it takes long: after so many values, or bytes of them."""

    entries = 500
    size = 2**20

    def __init__(self, looked: Look) -> None:
        self._looked = looked
        self._entries, self._size = self.entries, self.size

    def get(self, drawer: bytes, key: bytes) -> bytes | None:
        return self._looked.get(drawer, key)

    def scan(self, drawer: bytes, start: bytes = b"") -> Iterator[Entry]:
        return self._counted(self._looked.scan(drawer, start))

    def back(self, drawer: bytes, before: bytes) -> Iterator[Entry]:
        return self._counted(self._looked.back(drawer, before))

    def drawers(self) -> Iterator[bytes]:
        return self._looked.drawers()

    def _counted(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            self._entries -= 1
            self._size -= len(entry[1])
            if self._entries < 0 or self._size < 0:
                raise TooMuch
            yield entry


class Storage(Protocol):
    """Keeps views. Every method raises StorageFailed where it cannot."""

    name: str

    def look(self) -> AbstractContextManager[Look]:
        """One state, for as long as the block lasts."""

    def write(self, changes: Changes, expect: Expected | None = None) -> bool:
        """Change all of this, or nothing; says whether it did.

        Args:
            expect: what is there still; otherwise nothing is changed.
        """

    def size(self) -> int:
        """How many bytes it takes."""

    def save(self) -> None:
        """Make sure that the next process finds all of it, where this storage outlasts its process."""

    def close(self) -> None:
        """Save, and let go."""


_Drawer = tuple[Entry, ...]

_SORTED_ANEW = 64
"""So many changes of a drawer are put in one by one."""


class InMemory:
    """In the memory of this process.

    A state is a dict that never changes; a write makes another, which shares every drawer that it does not touch.

    Args:
        checkpoint: where it is saved, for the next process; None to forget all with this one.
    """

    name = "memory"

    def __init__(self, checkpoint: Storage | None = None) -> None:
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._checkpoint = checkpoint
        self._unsaved: set[bytes] = set()
        self._state: dict[bytes, _Drawer] = {}
        if checkpoint is not None:
            with checkpoint.look() as looked:
                self._state = {name: tuple(looked.scan(name)) for name in looked.drawers()}

    @contextmanager
    def look(self) -> Iterator[Look]:
        yield _State(self._state)

    def write(self, changes: Changes, expect: Expected | None = None) -> bool:
        with self._lock:
            if expect is not None and _State(self._state).get(*expect[:2]) != expect[2]:
                return False
            made = dict(self._state)
            for name, change in changes.items():
                drawer = () if change is None else _changed(made.get(name, ()), change)
                if drawer:
                    made[name] = drawer
                else:
                    made.pop(name, None)
            self._state = made
            if self._checkpoint is not None:
                self._unsaved.update(changes)
            return True

    def size(self) -> int:
        return sum(len(k) + len(v) for drawer in self._state.values() for k, v in drawer)

    def save(self) -> None:
        with self._saving:
            self._save()

    def _save(self) -> None:
        """One after the other: what is saved holds together, and nothing that was left out of it is forgotten."""
        if self._checkpoint is None:
            return
        with self._lock:
            state, unsaved, self._unsaved = self._state, self._unsaved, set()
        try:
            self._checkpoint.write(_replacing(self._checkpoint, {name: state.get(name, ()) for name in unsaved}))
            self._checkpoint.save()
        except BaseException:
            with self._lock:
                self._unsaved |= unsaved
            raise

    def close(self) -> None:
        with self._saving:
            if self._checkpoint is None:
                return
            try:
                self._save()
            finally:
                self._checkpoint.close()
                self._checkpoint = None


class _State:
    def __init__(self, state: Mapping[bytes, _Drawer]) -> None:
        self._state = state

    def get(self, drawer: bytes, key: bytes) -> bytes | None:
        entries = self._state.get(drawer, ())
        n = bisect_left(entries, (key,))
        return entries[n][1] if n < len(entries) and entries[n][0] == key else None

    def scan(self, drawer: bytes, start: bytes = b"") -> Iterator[Entry]:
        entries = self._state.get(drawer, ())
        first = bisect_left(entries, (start,)) if start else 0
        return iter(entries[first:] if first else entries)

    def back(self, drawer: bytes, before: bytes) -> Iterator[Entry]:
        entries = self._state.get(drawer, ())
        return (entries[n] for n in range(bisect_left(entries, (before,)) - 1, -1, -1))

    def drawers(self) -> Iterator[bytes]:
        return iter(self._state)


def _changed(drawer: _Drawer, change: Mapping[bytes, bytes | None]) -> _Drawer:
    if len(change) > _SORTED_ANEW:
        kept = (e for e in drawer if e[0] not in change)
        return tuple(sorted([*kept, *((k, v) for k, v in change.items() if v is not None)]))
    entries = list(drawer)
    for key, value in change.items():
        n = bisect_left(entries, (key,))
        there = n < len(entries) and entries[n][0] == key
        entries[n : n + there] = [] if value is None else [(key, value)]
    return tuple(entries)


def _replacing(storage: Storage, drawers: Mapping[bytes, _Drawer]) -> Changes:
    """What makes these drawers hold just this."""
    with storage.look() as looked:
        before = {name: [key for key, _ in looked.scan(name)] for name in drawers}
    return {name: {**dict.fromkeys(before[name]), **dict(drawer)} for name, drawer in drawers.items()}
