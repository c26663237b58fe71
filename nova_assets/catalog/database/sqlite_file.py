"""File of a SQLite catalog, as this process has it open.

SQLite opens files by name, and then works on the open files, whatever becomes of their names. If the file or its log is
replaced, renamed or removed, SQLite goes on without a word, and everything that it stores is lost ("How To Corrupt An
SQLite Database File", sections 1.2, 1.4, 2.4 and 2.5). So each connection remembers the identities of its files, and
each transaction compares them with the files that bear the names now. While a connection is open, the file is examined
by ``stat`` and through SQLite's own descriptor: to open and close the file in this process would drop SQLite's locks
(section 2.2).
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

from nova_assets.catalog.database.file_identity import (
    FileIdentity,
    descriptors_of,
    generation_of,
    identity_of,
    size_of,
)
from nova_assets.catalog.database.sqlite_log import log_continues_file, read_stamp
from nova_assets.errors import CatalogUnavailable
from nova_assets.masking import mask_address

_CONNECT_ATTEMPTS = 3
"""Attempts to connect while the file is replaced. (A union file system replaces a file with the first write access.)"""

_LOG_CHECK_SECONDS = 2.0
"""Seconds for which a log is examined again. While another process resets the log, log and file may seem unrelated."""

_MISSING_LOG_SECONDS = 10.0
"""Seconds to wait for a process that has the file open without a log: it may be opening or closing the file."""

_STAMP_READS = 3  # a checkpoint may be writing the page

_INDEX_SUFFIX = "-shm"

_CONNECT_LOCK = threading.RLock()
"""Held while a thread opens the file: a log is examined before any connection of this process uses the log."""

if hasattr(os, "register_at_fork"):  # otherwise a child could inherit the lock while another thread holds it
    os.register_at_fork(
        before=_CONNECT_LOCK.acquire, after_in_parent=_CONNECT_LOCK.release, after_in_child=_CONNECT_LOCK.release
    )


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Files that one connection has open.

    Args:
        companions: the log and its index, by name. The index has the locks of the writers. Empty if the database has no
            log, because its file system does not support one.
        descriptor: SQLite's descriptor of the file; None if unknown.
    """

    file: FileIdentity
    companions: Mapping[Path, FileIdentity]
    descriptor: int | None


_OPEN_IN_PROCESS: dict[int, OpenFiles] = {}
"""Files of each connection of this process, by the id of the connection. SQLite shares its state of a file among all of
them, so a new connection must have the same log."""


class CatalogConnection(sqlite3.Connection):
    """Connection to the file of a catalog. If the connection would do harm when it is closed, it is never closed.

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
        if not self._keep_open_if_harmful():
            super().close()
            self.open_files = None
            _OPEN_IN_PROCESS.pop(id(self), None)
        if self.opened_by is not None:
            self.opened_by.forget(self)

    def __del__(self) -> None:
        if not self._keep_open_if_harmful():
            _OPEN_IN_PROCESS.pop(id(self), None)

    def _keep_open_if_harmful(self) -> bool:
        """Count one reference more than there is, so that Python does not delete the connection even at its end."""
        if self.open_files is None or self.opened_by is None:
            return False
        if self.process_id == os.getpid() and not self.opened_by.is_replaced(self.open_files):
            return False
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        self.open_files = None
        return True


class CatalogFile:
    """File of a SQLite catalog under its configured name, and the identity with which this process has opened it.

    Args:
        path: configured name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.existed = path.exists()
        self._file: FileIdentity | None = None
        self._connections: WeakSet[CatalogConnection] = WeakSet()
        self._newest_stamp_number = 0
        self._is_overwritten = False

    def connect(self, open_connection: Callable[[], CatalogConnection]) -> CatalogConnection:
        """Open a connection, and remember the files that it has open.

        Args:
            open_connection: opens the file, and makes the first read access.

        Raises:
            CatalogUnavailable: the file is not the one that this process has open, it has several hard links, or the
                log beside the file is not the one of the file, or of its other users.
        """
        with _CONNECT_LOCK:
            for _ in range(_CONNECT_ATTEMPTS):
                before = self._check_before_open()
                descriptors = set() if before is None else set(descriptors_of(before))
                connection = open_connection()
                open_files = self._find_open_files(descriptors)
                if open_files is not None and before in (None, open_files.file):
                    connection.open_files, connection.opened_by = open_files, self
                    connection.process_id = os.getpid()
                    self._file = open_files.file
                    self._connections.add(connection)
                    _OPEN_IN_PROCESS[id(connection)] = open_files
                    return connection
                connection.close()
        raise self._unavailable_error(f"its file {self.path.name} was replaced while it was opened")

    def check(self, connection: CatalogConnection) -> None:
        """Check that the connection has the files open that bear the names of the file, of its log and of its index,
        and that nobody has overwritten the file.

        Raises:
            CatalogUnavailable.
        """
        if connection.open_files is not None:
            problem = self._find_problem(connection.open_files)
            if problem is not None:
                raise self._unavailable_error(problem)

    def find_problem(self) -> str | None:
        """Why this process cannot use the file any more, without folder names; None if it can."""
        with _CONNECT_LOCK:
            open_files = next((c.open_files for c in self._connections if c.open_files is not None), None)
        if open_files is not None:
            return self._find_problem(open_files)
        return None if self._file is None else self._find_name_problem(self._file)

    def generation(self) -> int:
        """Number that the file system has given to this use of the file's inode; 0 if it gives none."""
        with _CONNECT_LOCK:
            descriptors = [c.open_files.descriptor for c in self._connections if c.open_files is not None]
        return next((generation_of(d) for d in descriptors if d is not None), 0)

    def is_replaced(self, open_files: OpenFiles) -> bool:
        """Whether SQLite would do harm if it closed the files: the file was overwritten, or another log bears the name.

        A *missing* log or index was removed by a person. While a connection is open, no other process can remove a log
        that it has made. So nobody else has written, and SQLite may save the removed log by writing it into the file.
        If another file bears the name of the file, SQLite leaves both alone.
        """
        are_others = any(identity_of(p) not in (None, i) for p, i in open_files.companions.items())
        return are_others or self._find_content_problem(open_files) is not None

    def forget(self, connection: CatalogConnection) -> None:
        """Count a connection as closed."""
        with _CONNECT_LOCK:
            self._connections.discard(connection)

    def forget_all(self) -> None:
        """Count the connections of the parent as closed, in a forked process."""
        self._connections.clear()

    def save_removed_log(self) -> None:
        """Write a log that a person has removed into the file. The connections still have the removed log open."""
        with _CONNECT_LOCK:
            connections = [(c, c.open_files) for c in self._connections if c.open_files is not None]
        for connection, open_files in connections:
            if all(path.exists() for path in open_files.companions) or self.is_replaced(open_files):
                return
            with suppress(sqlite3.Error):
                if not connection.in_transaction:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
                    return

    def _find_problem(self, open_files: OpenFiles) -> str | None:
        file_problem = self._find_name_problem(open_files.file) or self._find_content_problem(open_files)
        return file_problem or _find_companion_problem(open_files)

    def _find_name_problem(self, file: FileIdentity) -> str | None:
        name = self.path.name
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return f"its file {name} is missing"
        except OSError as error:
            return f"its file {name} cannot be examined: {error.strerror}"
        if FileIdentity(status.st_dev, status.st_ino) != file:
            return f"its file {name} was replaced by another file"
        return self._several_names_problem(status.st_nlink) if status.st_nlink > 1 else None

    def _find_content_problem(self, open_files: OpenFiles) -> str | None:
        """Problem of the file's content, by the stamp in the file, which SQLite never sets back."""
        if open_files.descriptor is None:
            return None
        for _ in range(_STAMP_READS):
            newest_number = self._newest_stamp_number  # before the file is read: other threads read newer stamps
            if next(descriptors_of(open_files.file, [open_files.descriptor]), None) is None:
                return f"its file {self.path.name} was closed by other code in this process"
            stamp = read_stamp(open_files.descriptor)
            if not self._is_overwritten and stamp is not None and stamp.number >= newest_number:
                self._newest_stamp_number = max(self._newest_stamp_number, stamp.number)
                return None
        self._is_overwritten = True
        return f"its file {self.path.name} was overwritten with an older file, or with something else"

    def _several_names_problem(self, count: int) -> str:
        return f"its file {self.path.name} has {count} names (hard links), and each name has a log of its own"

    def _find_open_files(self, former_descriptors: set[int]) -> OpenFiles | None:
        """Files that bear the names of the file, its log and the index of the log; None if there is no file."""
        file = identity_of(self.path)
        if file is None:
            return None
        log = log_of(self.path)
        identities = {path: identity_of(path) for path in (log, index_of(log))}
        new_descriptors = set(descriptors_of(file)) - former_descriptors
        return OpenFiles(
            file, {p: i for p, i in identities.items() if i is not None}, min(new_descriptors, default=None)
        )

    # checks before SQLite opens the file

    def _check_before_open(self) -> FileIdentity | None:
        """Check the file and its log. Returns the identity of the file, if there is a file.

        Raises:
            CatalogUnavailable.
        """
        identity = identity_of(self.path)
        if self._file is not None and (problem := self._find_name_problem(self._file)) is not None:
            raise self._unavailable_error(problem)
        if identity is not None and self.path.stat().st_nlink > 1:
            raise self._unavailable_error(self._several_names_problem(self.path.stat().st_nlink))
        for open_files in list(_OPEN_IN_PROCESS.values()):
            if open_files.file == identity and (problem := _find_companion_problem(open_files)) is not None:
                raise self._unavailable_error(f"{problem}, and this process still has the former one open")
        if identity is None or next(descriptors_of(identity), None) is None:
            self._check_log(identity)
        return identity

    def _check_log(self, identity: FileIdentity | None) -> None:
        """Check that the log beside the file belongs to the file, before SQLite replays the log.

        If this process has the file open, it has accepted the log already.

        Raises:
            CatalogUnavailable.
        """
        log, deadline = log_of(self.path), time.monotonic() + _LOG_CHECK_SECONDS
        if identity is not None and size_of(self.path) > 0 and not log.exists():
            self._check_nobody_has_lost_the_log(log)
        while size_of(log) > 0:
            if size_of(self.path) == 0:
                raise self._unavailable_error(
                    f"its file {self.path.name} is {'missing' if identity is None else 'empty'}, "
                    f"but the log {log.name} is there"
                )
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

    def _check_nobody_has_lost_the_log(self, log: Path) -> None:
        """Check that no other process has the file open, as long as no log bears its name.

        Such a process uses a log that was removed, or that bears another name. A new log would split the catalog.

        Raises:
            CatalogUnavailable.
        """
        deadline = time.monotonic() + _MISSING_LOG_SECONDS
        while not log.exists() and not _is_free(self.path):
            if time.monotonic() > deadline:
                raise self._unavailable_error(
                    f"other processes have its file {self.path.name} open, but the log {log.name} is not there: they "
                    "use another name of the file (perhaps in a container), or their log was removed"
                )
            time.sleep(0.02)

    # errors

    def _foreign_log_error(self, log: Path) -> CatalogUnavailable:
        return CatalogUnavailable(
            f"the log {log.name} does not belong to the catalog {mask_address(f'sqlite:///{self.path}')}",
            found="a file that is older or newer than the log, such as a backup that was put in place",
            expected="the log that the last process left beside this file, or none",
            next=f"stop all processes of this catalog; if {self.path.name} was put in place and shall count, remove "
            f"{log.name} and {self.path.name}{_INDEX_SUFFIX}; otherwise put back the file to which the log belongs; "
            "nothing was changed",
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
    """Name of the log of a SQLite file. SQLite resolves symbolic links in the name of the file."""
    return Path(f"{os.path.realpath(file)}-wal")


def index_of(log: Path) -> Path:
    """Name of the index of a log."""
    return log.with_name(log.name.removesuffix("-wal") + _INDEX_SUFFIX)


def _find_companion_problem(open_files: OpenFiles) -> str | None:
    for path, identity in open_files.companions.items():
        found = identity_of(path)
        if found != identity:
            what = "index" if path.name.endswith(_INDEX_SUFFIX) else "log"
            return f"its {what} {path.name} {'is missing' if found is None else 'was replaced by another file'}"
    return None


def _is_free(file: Path) -> bool:
    """Whether no process has a connection to a SQLite file, under any of its names. Errors of SQLite pass."""
    with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as connection:
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").close()
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.Error as error:
            return not str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY")
        return True
