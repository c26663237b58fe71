"""Identity of a file, independent of its names, and the descriptors of this process that belong to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_GET_GENERATION = 0x80087601  # FS_IOC_GETVERSION of Linux

_OPEN_FILE_LIMIT = 4096
"""Descriptors that are examined on systems that do not list the descriptors of a process."""


class FileIdentity(NamedTuple):
    """Identity of a file on this host, independent of its names."""

    device: int
    inode: int


def identity_of(path: Path) -> FileIdentity | None:
    """Identity of the file that bears a name; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileIdentity(status.st_dev, status.st_ino)


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def descriptors_of(identity: FileIdentity, candidates: Iterable[int] | None = None) -> Iterator[int]:
    """Descriptors of this process that belong to a file. By default, all open descriptors are candidates."""
    if candidates is None:
        try:
            candidates = [int(name) for name in os.listdir("/proc/self/fd")]
        except OSError:
            candidates = range(_OPEN_FILE_LIMIT)
    for descriptor in candidates:
        with suppress(OSError):
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == identity:
                yield descriptor


def generation_of(descriptor: int) -> int:
    """Number that a file system gives to each use of an inode; 0 if the file system, or the system, gives none."""
    if sys.platform != "linux":
        return 0
    import fcntl

    try:
        return int.from_bytes(fcntl.ioctl(descriptor, _GET_GENERATION, bytes(8)), sys.byteorder)
    except OSError:
        return 0
