"""A file system that counts: how often any process, the JVM included, reads a folder below some root.

The kernel tells (inotify), so whoever lists a folder is counted, in whatever language and by whatever library. Opening
a file, reading it or asking for its status is not.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections import Counter
from pathlib import Path

_ACCESS, _IS_FOLDER, _TOO_MANY = 0x00000001, 0x40000000, 0x00004000
_EVENT = struct.Struct("iIII")


class NoCounting(Exception):
    """It cannot be counted here; the message says why."""


class Listings:
    """Watches every folder that is below a root now. Use it in a ``with`` block.

    Raises:
        NoCounting: this is no Linux, or it has no watches left.
    """

    def __init__(self, root: Path) -> None:
        self._folders = [root, *(p for p in root.rglob("*") if p.is_dir())]

    def __enter__(self) -> Listings:
        if not sys.platform.startswith("linux"):
            raise NoCounting("only Linux tells of folders that are read")
        libc = ctypes.CDLL(None, use_errno=True)
        self._handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            raise NoCounting(f"inotify: {os.strerror(ctypes.get_errno())}")
        self._watched: dict[int, Path] = {}
        for folder in self._folders:
            watch = libc.inotify_add_watch(self._handle, os.fsencode(folder), _ACCESS)
            if watch < 0:
                os.close(self._handle)
                raise NoCounting(f"inotify: {os.strerror(ctypes.get_errno())}")
            self._watched[watch] = folder
        return self

    def __exit__(self, *of: object) -> None:
        os.close(self._handle)

    def seen(self) -> Counter[Path]:
        """Which folders were read since this was asked last; several times in a row may count as one."""
        found: Counter[Path] = Counter()
        while True:
            try:
                events = os.read(self._handle, 1 << 20)
            except BlockingIOError:
                return found
            at = 0
            while at < len(events):
                watch, mask, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                assert not mask & _TOO_MANY, "more has happened than can be told"
                if mask & _IS_FOLDER and not length:  # with a name it is told by the folder above, once more
                    found[self._watched[watch]] += 1
