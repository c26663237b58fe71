"""Folder of a storage on disk: one process at a time uses it, and its errors name the way out."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nova_assets.errors import StorageFailed


def lock_folder(folder: Path) -> int:
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
def storage_errors(action: str, *kinds: type[Exception]) -> Iterator[None]:
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
