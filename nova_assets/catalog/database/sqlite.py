"""SQLite backend: begin of transactions, clock, and holder of the write lock."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import StaticPool

from nova_assets.catalog.database.backend import TransactionStart
from nova_assets.errors import CatalogUnavailable
from nova_assets.masking import get_logger, mask_address

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
        self.engine = _create_engine(url, self.file)

    def begin_transaction(self, c: Connection, write: bool, no_timeout: bool) -> TransactionStart:
        """Record the start time. The transaction has already begun."""
        return TransactionStart(self.now())

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
        pass

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


def _create_engine(url: URL, file: Path | None) -> Engine:
    if url.query:
        raise CatalogUnavailable(
            f"the catalog's URL has options, but a SQLite URL takes none: {mask_address(str(url))}",
            found=", ".join(url.query),
            expected="sqlite:///PATH",
            next="remove the question mark and the part after it",
        )
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CatalogUnavailable(
                f"the folder of the catalog {url.database} cannot be created",
                found=str(error),
                next="name another file with --catalog or NOVA_CATALOG",
            ) from error
    pool: dict[str, Any] = {"poolclass": StaticPool} if file is None else {}
    # ``Database`` waits for locks and logs it, so the driver itself waits only briefly.
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 0.5}, **pool)

    @event.listens_for(engine, "connect")
    def configure_connection(connection: Any, record: Any) -> None:
        """Disable the driver's own BEGIN, which comes too late. ``send_begin`` sends ``BEGIN IMMEDIATE`` instead."""
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def send_begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("nova_write", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine
