"""Views in a file, of any size, with next to no memory: LMDB, an embedded key-value store (decision 0023)."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from nova_assets.errors import StorageFailed
from nova_assets.views.storage import DRAWER, Changes, Expected, Look

log = logging.getLogger("nova_assets.views")

FORMAT = b"1"
"""Of what is kept. Another one is not read, but made anew."""

_META = b"m" + bytes(DRAWER - 1)
_OWNER = b"owner"


class OnDisk:
    """A folder with a memory-mapped file, whose pages the operating system keeps in memory as it has room.

    Several threads and processes may look and write: a look is a snapshot, and writes come one after the other, each
    durable when it is done. What is found that was kept for another catalog, or cannot be read, is thrown away: it can
    be had again from the catalog.

    Args:
        folder: the storage's alone.
        owner: the identity of the catalog that it is of.
        limit: bytes that it may grow to.
        exclusive: no other process uses it meanwhile.

    Raises:
        StorageFailed: it cannot be opened; or it is in use, and was to be exclusive.
    """

    name = "disk"

    def __init__(self, folder: Path, owner: str, limit: int = 64 * 2**30, *, exclusive: bool = False) -> None:
        self.folder = folder
        self._limit = limit
        with _told("opened"):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _hold(folder / "in-use", exclusive)
            self._env = self._opened()
        self._make_sure_it_is_of(owner.encode())

    def _opened(self) -> Any:
        def opened() -> Any:
            return lmdb.open(str(self.folder), map_size=self._limit, max_readers=1024, metasync=True, readahead=False)

        try:
            return opened()
        except (lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PanicError) as error:
            log.warning("what is kept in %s cannot be read, and is made anew: %s", self.folder, error)
            for name in ("data.mdb", "lock.mdb"):
                (self.folder / name).unlink(missing_ok=True)
            return opened()

    def _make_sure_it_is_of(self, owner: bytes) -> None:
        mark = FORMAT + b" " + owner
        with self.look() as looked:
            found = looked.get(_META, _OWNER)
            others = [] if found == mark else list(looked.drawers())
        if found != mark:
            self.write({**dict.fromkeys(others), _META: {_OWNER: mark}})

    @contextmanager
    def look(self) -> Iterator[Look]:
        with _told("read", (lmdb.Error,)), self._env.begin() as transaction:
            yield _Seen(transaction)

    def write(self, changes: Changes, expect: Expected | None = None) -> bool:
        with _told("written"), self._env.begin(write=True) as transaction:
            if expect is not None and transaction.get(expect[0] + expect[1]) != expect[2]:
                transaction.abort()
                return False
            for drawer, change in changes.items():
                if change is None:
                    for key, _ in list(_Seen(transaction).scan(drawer)):
                        transaction.delete(drawer + key)
                    continue
                for key, value in change.items():
                    if value is None:
                        transaction.delete(drawer + key)
                    else:
                        transaction.put(drawer + key, value)
            return True

    def size(self) -> int:
        with _told("read"):
            used = self._env.info()["last_pgno"] + 1
            return int(used * self._env.stat()["psize"])

    def save(self) -> None:
        """Nothing: each write is durable."""

    def close(self) -> None:
        self._env.close()
        os.close(self._lock)

    def forget(self) -> None:
        """Close it, and remove what it kept."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Seen:
    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction

    def get(self, drawer: bytes, key: bytes) -> bytes | None:
        found: bytes | None = self._transaction.get(drawer + key)
        return found

    def scan(self, drawer: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        with self._transaction.cursor() as cursor:
            there = cursor.set_range(drawer + start)
            while there and (key := cursor.key()).startswith(drawer):
                yield key[DRAWER:], cursor.value()
                there = cursor.next()

    def back(self, drawer: bytes, before: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._transaction.cursor() as cursor:
            there = cursor.prev() if cursor.set_range(drawer + before) else cursor.last()
            while there and (key := cursor.key()).startswith(drawer):
                yield key[DRAWER:], cursor.value()
                there = cursor.prev()

    def drawers(self) -> Iterator[bytes]:
        with self._transaction.cursor() as cursor:
            there = cursor.first()
            while there:
                name = cursor.key()[:DRAWER]
                if name != _META:
                    yield name
                there = cursor.set_range(name + b"\xff" * 80)


def _hold(file: Path, exclusive: bool) -> int:
    """Let others know that this process uses it: the lock ends with the process, whatever becomes of that."""
    held = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise StorageFailed(
            f"views in {file.parent} are in use by another process",
            expected="a folder of its own for each service",
            next="name another one with --views or NOVA_VIEWS",
        ) from None
    return held


@contextmanager
def _told(what: str, kinds: tuple[type[Exception], ...] = (lmdb.Error, OSError)) -> Iterator[None]:
    """What goes wrong in there, as an error of ours."""
    try:
        yield
    except kinds as error:
        raise StorageFailed(
            f"views could not be {what}",
            found=f"{type(error).__name__}: {error}",
            expected="a folder on a disk with room that this user may write to",
            next="make room, or name another folder with --views or NOVA_VIEWS",
        ) from error
