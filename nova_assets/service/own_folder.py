"""Folders in which a running service keeps temporary files: request bodies and shared metrics.

They are below the service's own folder, because cleaners of the system's temporary folder delete files that are in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from nova_assets.masking import get_logger

log = get_logger("nova_assets.service")

_UNLOCKED_SECONDS = 60.0
"""Age in seconds below which an unlocked folder may belong to a process that is about to lock it."""


class OwnFolder:
    """Folder with a unique name, locked while a process uses it.

    Other processes may use the same folder (``share``). A folder that no process locks any more is deleted by the next
    process that creates a folder with the same prefix.

    Args:
        parent: folder in which the folder is created. If it cannot be written, the system's temporary folder.
        prefix: first part of the name.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        self.parent = parent
        self.prefix = prefix
        self._thread_lock = threading.Lock()
        self._path: Path | None = None
        self._descriptor: int | None = None

    @classmethod
    def share(cls, path: Path) -> OwnFolder:
        """Folder that another process has created."""
        folder = cls(path.parent, path.name)
        folder._path = path
        return folder

    def ensure(self) -> Path:
        """The folder. Created on first use, and again under the same name if it was deleted from outside.

        Raises:
            OSError: the folder cannot be created.
        """
        with self._thread_lock:
            if self._path is None:
                self._path = self._create()
            if self._descriptor is None or not _is_open(self._path, self._descriptor):
                self._unlock()
                self._descriptor = _create_and_lock(self._path)
            return self._path

    def _create(self) -> Path:
        """Create the folder. Delete abandoned folders first."""
        parent = _writable_folder(self.parent)
        _delete_abandoned_folders(parent, self.prefix)
        return Path(tempfile.mkdtemp(prefix=self.prefix, dir=parent))

    def _unlock(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def close(self) -> None:
        """Delete the folder, and unlock it."""
        with self._thread_lock:
            if self._path is not None:
                shutil.rmtree(self._path, ignore_errors=True)
                self._path = None
            self._unlock()


def _writable_folder(folder: Path) -> Path:
    """The folder, created if it is missing; the system's temporary folder if it cannot be created or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
        reason = f"{folder} cannot be written"
    except OSError as error:
        reason = str(error)
    log.warning("the service keeps temporary files in %s: %s", tempfile.gettempdir(), reason)
    return Path(tempfile.gettempdir())


def _is_open(path: Path, descriptor: int) -> bool:
    """Whether a descriptor belongs to the folder that has the path now."""
    with suppress(OSError):
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    return False


def _create_and_lock(path: Path) -> int:
    """Descriptor that locks a folder, which is created if it is missing. Several processes may lock it."""
    while True:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = _lock_folder(path, fcntl.LOCK_SH)
        except FileNotFoundError:  # deleted again
            continue
        if _is_open(path, descriptor):
            return descriptor
        os.close(descriptor)


def _delete_abandoned_folders(parent: Path, prefix: str) -> None:
    """Delete this user's folders that no process locks."""
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # the folder is locked, was deleted meanwhile, or is no folder
            descriptor = _lock_folder(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                status = os.fstat(descriptor)
                if status.st_uid == os.geteuid() and status.st_mtime < time.time() - _UNLOCKED_SECONDS:
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _lock_folder(folder: Path, flock_flags: int) -> int:
    """Lock a folder until the returned descriptor is closed or this process ends. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, flock_flags)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
