"""SQLite backend: connections, begin and end of transactions, clock, and holder of the write lock."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool, StaticPool

from nova_assets.catalog.database.backend import TransactionStart
from nova_assets.catalog.database.failures import DATABASE_FAILURES, classify_failure
from nova_assets.catalog.database.sqlite_file import CatalogConnection, CatalogFile
from nova_assets.catalog.database.sqlite_log import stamp_first_page
from nova_assets.errors import CatalogUnavailable, CommitOutcomeUnknown
from nova_assets.masking import get_logger, mask_address

T = TypeVar("T")

log = get_logger("nova_assets.catalog")

CLOCK_TOLERANCE = timedelta(seconds=2)
"""Accepted difference between the clocks of this process and of the file system. A greater difference is corrected."""

_WRITE_LOCK_BYTE = 120
"""Byte of the ``-shm`` file that a writer locks, by SQLite's file format."""


class SqliteBackend:
    """One SQLite file, or an in-memory database."""

    def __init__(self, url: URL) -> None:
        in_memory = url.database in (None, "", ":memory:")
        self.file = None if in_memory else Path(str(url.database))
        self.one_connection = in_memory
        self.read_options: dict[str, Any] = {}
        self._has_warned_of_skew = False
        self._url = url
        self._catalog_file = None if self.file is None else CatalogFile(self.file)
        self._process_id = os.getpid()
        self.engine = _create_engine(url, self._catalog_file)

    @property
    def catalog_file(self) -> CatalogFile | None:
        """The file of the catalog; None for a catalog in memory."""
        return self._catalog_file

    def leave_connections_to_parent_after_fork(self) -> None:
        """Leave the connections to the parent process after a fork. This process opens its own."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self.engine.dispose(close=False)
            if self._catalog_file is not None:
                self._catalog_file.forget_all()

    def begin_transaction(self, c: Connection, write: bool, no_timeout: bool) -> TransactionStart:
        """Record the start time, and the number of changes until now. The transaction has already begun.

        Raises:
            CatalogUnavailable: the file is no longer the one that this process has open.
        """
        connection = _driver_connection(c)
        if not write:  # a write transaction is checked before it is committed
            self._check_file(connection)
        connection.changes_at_begin = connection.total_changes
        return TransactionStart(self.now())

    def before_commit(self, c: Connection) -> None:
        """Stamp a transaction that has changed rows.

        Raises:
            CatalogUnavailable: the file is no longer the one that this process has open.
        """
        connection = _driver_connection(c)
        self._check_file(connection)
        if self._catalog_file is not None and connection.changes_at_begin != connection.total_changes:
            stamp_first_page(connection)

    def after_commit(self, c: Connection) -> None:
        """Check that the transaction was committed to the file that bears the catalog's name.

        Raises:
            CommitOutcomeUnknown: the file or its log was replaced during COMMIT.
        """
        try:
            self._check_file(_driver_connection(c))
        except CatalogUnavailable as error:
            raise CommitOutcomeUnknown(
                "the file of the catalog was replaced or removed during COMMIT",
                found=error.found,
                expected=error.expected,
                next="put the file and its log back in place, start the processes of the catalog again, and check the "
                "outcome before you repeat the command: nova timeline CHANNEL, nova executions",
            ) from error

    def find_file_problem(self) -> str | None:
        """Why the file cannot be used any more, without folder names; None if the file can be used."""
        return None if self._catalog_file is None else self._catalog_file.find_problem()

    def run_exclusively(self, callback: Callable[[Connection], T]) -> T | None:
        """Call ``callback`` in a write transaction while no other connection has the file open, under any name.

        All connections of this backend are closed. Afterwards, the file holds everything of its log.

        Returns:
            None if another connection has the file open. ``callback`` was not called.

        Raises:
            CatalogUnavailable: the file cannot be written.
        """
        self.engine.dispose()
        engine = _create_engine(self._url, self._catalog_file, is_exclusive=True)
        try:
            with engine.begin() as c:
                result = callback(c)
                stamp_first_page(_driver_connection(c))
            return result
        except DATABASE_FAILURES as error:
            problem = classify_failure(error)
            if problem.kind == "busy":
                return None
            raise problem.to_error(mask_address(str(self._url))) from error
        finally:
            engine.dispose()

    def write_log_into_file(self) -> None:
        """Copy the log into the file as far as possible, without waiting for other processes."""
        with self.engine.connect() as c:
            _driver_connection(c).execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    def _check_file(self, connection: CatalogConnection) -> None:
        if self._catalog_file is not None:
            self._catalog_file.check(connection)

    def now(self) -> datetime:
        """Time by the host's clock, or by the file system that holds the catalog if the two differ.

        All processes of a catalog share the file system's clock.
        """
        now = datetime.now(UTC)
        file_system_time = None if self.file is None else _file_system_time(self.file)
        if file_system_time is None or abs(file_system_time - now) <= CLOCK_TOLERANCE:
            return now
        if not self._has_warned_of_skew:
            self._has_warned_of_skew = True
            log.warning(
                "the clock of this process is %.0f s %s that of the file system of %s, which counts",
                abs(now - file_system_time).total_seconds(),
                "ahead of" if now > file_system_time else "behind",
                self.file,
            )
        return file_system_time

    def has_committed(self, start: TransactionStart, deadline: float) -> bool | None:
        """Always None. A COMMIT to a local file cannot be lost."""
        return None

    def lock_holder(self) -> str | None:
        """Process that holds the write lock; None if the system does not tell (other than Linux)."""
        if self.file is None:
            return None
        inodes = {}
        for file in (Path(f"{self.file}-shm"), self.file):
            with suppress(OSError):
                inodes[str(file.stat().st_ino)] = file
        try:
            locks = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        for line in locks:
            fields = line.split()
            if "->" in fields or len(fields) < 8 or fields[3] != "WRITE" or int(fields[4]) == os.getpid():
                continue
            locked_file = inodes.get(fields[5].rpartition(":")[2])
            if locked_file is not None and (
                locked_file == self.file or int(fields[6]) <= _WRITE_LOCK_BYTE <= _parse_lock_end(fields[7])
            ):
                return _describe_process(int(fields[4]))
        return None

    def on_transaction_end(self) -> None:
        """Save a log that was removed while this process uses it."""
        if self._catalog_file is not None:
            self._catalog_file.save_removed_log()

    def close(self) -> None:
        self.engine.dispose()


def _parse_lock_end(range_end: str) -> int:
    return int(range_end) if range_end.isdigit() else 2**62


def _describe_process(pid: int) -> str:
    with suppress(OSError):  # only its name, since arguments may contain secrets
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()})"
    return f"process {pid}"


def _file_system_time(file: Path) -> datetime | None:
    """Current time by the file system's clock; None if the file cannot be touched."""
    try:
        os.utime(file)
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        return None


def _driver_connection(c: Connection) -> CatalogConnection:
    connection = c.connection.driver_connection
    assert isinstance(connection, CatalogConnection)
    return connection


def _create_engine(url: URL, catalog_file: CatalogFile | None, *, is_exclusive: bool = False) -> Engine:
    if url.query:
        raise CatalogUnavailable(
            f"the catalog's URL has options, but a SQLite URL takes none: {mask_address(str(url))}",
            found=", ".join(url.query),
            expected="sqlite:///PATH",
            next="remove the question mark and the part after it",
        )
    if catalog_file is not None:
        _create_folder(catalog_file.path)
    pool: dict[str, Any] = {"poolclass": StaticPool if catalog_file is None else NullPool if is_exclusive else None}
    # ``Database`` waits for locks and logs it, so the driver itself waits only briefly.
    connect_args = {"check_same_thread": False, "timeout": 0.5, "factory": CatalogConnection}
    engine = create_engine(url, connect_args=connect_args, **{k: v for k, v in pool.items() if v is not None})
    pragmas = ("locking_mode=EXCLUSIVE",) * is_exclusive + ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> CatalogConnection:
        def open_connection() -> CatalogConnection:
            connection: CatalogConnection = dialect.connect(*arguments, **options)
            try:
                _configure(connection, pragmas)
            except sqlite3.Error:
                connection.close()
                raise
            return connection

        return open_connection() if catalog_file is None else catalog_file.connect(open_connection)

    @event.listens_for(engine, "begin")
    def send_begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("nova_write", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _configure(connection: CatalogConnection, pragmas: tuple[str, ...]) -> None:
    """Set up a connection, and read from the file, so that SQLite opens the log.

    The driver's own BEGIN comes too late. ``send_begin`` sends ``BEGIN IMMEDIATE`` instead.
    """
    connection.isolation_level = None
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}").close()
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


def _create_folder(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CatalogUnavailable(
            f"the folder of the catalog {file} cannot be created",
            found=str(error),
            next="name another file with --catalog or NOVA_CATALOG",
        ) from error
