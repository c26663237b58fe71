"""File of a SQLite catalog, as this process has it open.

SQLite opens files by name, and then works on the open files, whatever becomes of their names. If the file or its log is
replaced, renamed or removed, SQLite goes on without a word, and everything that it stores is lost ("How To Corrupt An
SQLite Database File", sections 1.4, 2.4 and 2.5). So each connection remembers the identities of the two files, and
each transaction compares them with the files that bear the names now. Only ``stat`` is used: to open and close the file
in this process would drop SQLite's locks (section 2.2).
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from nova_assets.catalog.database.sqlite_log import log_continues_file
from nova_assets.errors import CatalogUnavailable
from nova_assets.masking import mask_address

_INDEX_SUFFIX = "-shm"

_CONNECT_ATTEMPTS = 3
"""Attempts to connect while the file is replaced. (A union file system replaces a file with the first write access.)"""

_LOG_CHECK_SECONDS = 2.0
"""Seconds for which a log is examined again. While another process resets the log, log and file may seem unrelated."""

_OPEN_FILE_LIMIT = 4096
"""Descriptors that are examined on systems that do not list the descriptors of a process."""

_CONNECT_LOCK = threading.RLock()
"""Held while a thread opens the file: a log is examined before any connection of this process uses the log."""

if hasattr(os, "register_at_fork"):  # otherwise a child could inherit the lock while another thread holds it
    os.register_at_fork(
        before=_CONNECT_LOCK.acquire, after_in_parent=_CONNECT_LOCK.release, after_in_child=_CONNECT_LOCK.release
    )


class FileIdentity(NamedTuple):
    """Identity of a file on this host, independent of its names."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Files that one connection has open.

    Args:
        companions: the log and its index, by name. The index has the locks of the writers. Empty if the database has no
            log, because its file system does not support one.
    """

    file: FileIdentity
    companions: Mapping[Path, FileIdentity]


class CatalogConnection(sqlite3.Connection):
    """Connection to the file of a catalog. A connection whose log was replaced is never closed.

    With the last connection to a file, SQLite writes the log into the file, and removes the log *by its name*. If other
    processes have made a new log under this name, the old log would overwrite their transactions. A forked process must
    not close the connections of its parent, either (section 2.6).
    """

    opened_by: CatalogFile | None = None
    open_files: OpenFiles | None = None
    process_id = 0
    changes_at_begin = 0
    """Value of ``total_changes`` when the current write transaction began."""

    def close(self) -> None:
        if self._may_close():
            super().close()
        else:
            self._keep_open_until_process_ends()
        if self.opened_by is not None:
            self.opened_by.forget(self)

    def __del__(self) -> None:
        if not self._may_close():
            self._keep_open_until_process_ends()

    def _may_close(self) -> bool:
        """Whether SQLite does no harm when it closes the connection.

        A *missing* log or index was removed by a person. While this connection was open, no other process could remove
        a log that it had made. So nobody else has written, and SQLite may save the removed log by writing it into the
        file. If the file itself was replaced, SQLite leaves file and log alone.
        """
        if self.open_files is None or not self.open_files.companions:
            return True
        are_unused = all(_identity_of(p) in (None, i) for p, i in self.open_files.companions.items())
        return self.process_id == os.getpid() and are_unused

    def _keep_open_until_process_ends(self) -> None:
        """Count one reference more than there is, so that Python does not delete the connection even at its end."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        self.open_files = None


class CatalogFile:
    """File of a SQLite catalog under its configured name, and the identity with which this process has opened it.

    Args:
        path: configured name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.existed = path.exists()
        self._open_files: OpenFiles | None = None
        self._connections: WeakSet[CatalogConnection] = WeakSet()
        self._largest_size = 0

    def connect(self, open_connection: Callable[[], CatalogConnection]) -> CatalogConnection:
        """Open a connection, and remember the files that it has open.

        Args:
            open_connection: opens the file, and makes the first read access.

        Raises:
            CatalogUnavailable: the file is not the one that this process has open, it has several hard links, or the
                log beside the file belongs to another file.
        """
        with _CONNECT_LOCK:
            for _ in range(_CONNECT_ATTEMPTS):
                before = self._check_before_open()
                connection = open_connection()
                open_files = self._find_open_files()
                if open_files is not None and before in (None, open_files.file):
                    connection.open_files, connection.opened_by = open_files, self
                    connection.process_id = os.getpid()
                    self._open_files = open_files
                    self._connections.add(connection)
                    return connection
                connection.close()
        raise self._unavailable_error(f"its file {self.path.name} was replaced while it was opened")

    def _check_before_open(self) -> FileIdentity | None:
        """Check the file and its log before SQLite opens them. Returns the identity of the file, if there is a file.

        Raises:
            CatalogUnavailable.
        """
        identity = _identity_of(self.path)
        if identity is not None and self.path.stat().st_nlink > 1:
            raise self._unavailable_error(self._several_names_problem(self.path.stat().st_nlink))
        if self._open_files is not None and self._open_files.file != identity:
            what = "is missing" if identity is None else "was replaced by another file"
            raise self._unavailable_error(f"its file {self.path.name} {what}")
        if self._open_files is not None and self._connections:
            problem = self._find_problem(self._open_files)
            if problem is not None:
                raise self._unavailable_error(problem)
        self._check_log()
        return identity

    def check(self, connection: CatalogConnection) -> None:
        """Check that the connection has the files open that bear the names of the file and of its log.

        Raises:
            CatalogUnavailable.
        """
        if connection.open_files is not None:
            problem = self._find_problem(connection.open_files)
            if problem is not None:
                raise self._unavailable_error(problem)

    def find_problem(self) -> str | None:
        """Why this process cannot use the file any more, without folder names; None if it can."""
        return None if self._open_files is None else self._find_problem(self._open_files)

    def forget(self, connection: CatalogConnection) -> None:
        """Count a connection as closed."""
        with _CONNECT_LOCK:
            self._connections.discard(connection)

    def forget_connections_of_parent(self) -> None:
        """Count all connections as closed, in a forked process."""
        self._connections.clear()

    def save_removed_log(self) -> None:
        """Write a log that a person has removed into the file. The connections still have the removed log open."""
        if self._open_files is None or all(path.exists() for path in self._open_files.companions):
            return
        with _CONNECT_LOCK:
            connections = list(self._connections)
        for connection in connections:
            with suppress(sqlite3.Error):
                if not connection.in_transaction:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
                    return

    def _find_problem(self, open_files: OpenFiles) -> str | None:
        name, largest_size = self.path.name, self._largest_size  # before ``stat``: other threads see a file that grows
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return f"its file {name} is missing"
        except OSError as error:
            return f"its file {name} cannot be examined: {error.strerror}"
        if FileIdentity(status.st_dev, status.st_ino) != open_files.file:
            return f"its file {name} was replaced by another file"
        if status.st_nlink > 1:
            return self._several_names_problem(status.st_nlink)
        if status.st_size < largest_size:
            return f"its file {name} was overwritten: it is smaller than before"
        self._largest_size = max(self._largest_size, status.st_size)
        for path, identity in open_files.companions.items():
            found = _identity_of(path)
            if found != identity:
                what = "index" if path.name.endswith(_INDEX_SUFFIX) else "log"
                return f"its {what} {path.name} {'is missing' if found is None else 'was replaced by another file'}"
        return None

    def _several_names_problem(self, count: int) -> str:
        return f"its file {self.path.name} has {count} names (hard links), and each name has a log of its own"

    def _find_open_files(self) -> OpenFiles | None:
        """Identities of the file, its log and the index of the log under their names; None if there is no file."""
        file = _identity_of(self.path)
        log = log_of(self.path)
        identities = {path: _identity_of(path) for path in (log, index_of(log))}
        return None if file is None else OpenFiles(file, {p: i for p, i in identities.items() if i is not None})

    def _check_log(self) -> None:
        """Check that the log beside the file belongs to the file, before SQLite replays the log.

        If this process has the file open, it has accepted the log already.

        Raises:
            CatalogUnavailable.
        """
        log, deadline = log_of(self.path), time.monotonic() + _LOG_CHECK_SECONDS
        while _size_of(log) > 0:
            identity = _identity_of(self.path)
            if identity is None or _size_of(self.path) == 0:
                raise self._unavailable_error(
                    f"its file {self.path.name} is {'missing' if identity is None else 'empty'}, "
                    f"but the log {log.name} is there"
                )
            if _is_open_in_this_process(identity):
                return
            try:
                if log_continues_file(self.path, log):
                    return
            except FileNotFoundError:
                continue  # the last process that used the log has removed it
            except OSError:
                return  # SQLite reports that it cannot read the files
            if time.monotonic() > deadline:
                raise self._foreign_log_error(log)
            time.sleep(0.02)

    def _foreign_log_error(self, log: Path) -> CatalogUnavailable:
        return CatalogUnavailable(
            f"the log {log.name} does not belong to the catalog {mask_address(f'sqlite:///{self.path}')}",
            found="a file that is older or newer than the log, such as a backup that was put in place",
            expected="the log that the last process left beside this file, or none",
            next=f"if {self.path.name} was put in place and shall count, remove {log.name} and {self.path.name}-shm; "
            "otherwise put back the file to which the log belongs; nothing was changed",
        )

    def _unavailable_error(self, problem: str) -> CatalogUnavailable:
        return CatalogUnavailable(
            f"the catalog {mask_address(f'sqlite:///{self.path}')} cannot be used any more: {problem}",
            found=problem,
            expected="one file with one name and one log, which stay in place while processes use them",
            next="stop all processes of this catalog, put its file and its log in place, and start them again; "
            "nothing was stored",
        )


def log_of(file: Path) -> Path:
    """Name of the log of a SQLite file."""
    return Path(f"{os.path.realpath(file)}-wal")


def index_of(log: Path) -> Path:
    """Name of the index of a log. SQLite resolves symbolic links in the name of the file."""
    return log.with_name(log.name.removesuffix("-wal") + _INDEX_SUFFIX)


def _identity_of(path: Path) -> FileIdentity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return FileIdentity(status.st_dev, status.st_ino)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_open_in_this_process(identity: FileIdentity) -> bool:
    for descriptor in _open_descriptors():
        try:
            status = os.fstat(descriptor)
        except OSError:
            continue
        if (status.st_dev, status.st_ino) == identity:
            return True
    return False


def _open_descriptors() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return range(_OPEN_FILE_LIMIT)
