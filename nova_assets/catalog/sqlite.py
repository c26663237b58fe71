"""SQLite: how its transactions begin, whose clock they go by, and who holds its lock."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import StaticPool

from nova_assets.catalog.transaction import Began
from nova_assets.errors import CatalogUnavailable
from nova_assets.masking import get_logger, mask_address

log = get_logger("nova_assets.catalog")

TOLERATED = timedelta(seconds=2)
"""Between the clock of this process and that of the file system. A greater difference is corrected."""

_WRITE_LOCK = 120
"""The byte of the file ``-shm`` that a writer locks, by SQLite's file format."""


class SqliteBackend:
    """One SQLite file, or a database in memory."""

    def __init__(self, url: URL) -> None:
        in_memory = url.database in (None, "", ":memory:")
        self.file = None if in_memory else Path(str(url.database))
        self.one_connection = in_memory
        self.reads: dict[str, Any] = {}
        self._skewed = False
        self.engine = _engine(url, self.file)

    def begin(self, c: Connection, write: bool, slow: bool) -> Began:
        """The transaction has begun already; nothing is asked."""
        return Began(self.now())

    def now(self) -> datetime:
        """The host's clock, corrected where the file system that holds the catalog has another one.

        The file system's clock is the one that all processes of a catalog share.
        """
        now = datetime.now(UTC)
        there = None if self.file is None else _clock_of(self.file)
        if there is None or abs(there - now) <= TOLERATED:
            return now
        if not self._skewed:
            self._skewed = True
            log.warning(
                "the clock of this process is %.0f s %s that of the file system of %s, which counts",
                abs(now - there).total_seconds(),
                "ahead of" if now > there else "behind",
                self.file,
            )
        return there

    def has_committed(self, began: Began, until: float) -> bool | None:
        """Not known: a COMMIT is not lost on the way to a file."""
        return None

    def holder(self) -> str | None:
        """The process that holds the write lock, where the system tells (Linux)."""
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
            locked = inodes.get(fields[5].rpartition(":")[2])
            if locked is not None and (locked == self.file or int(fields[6]) <= _WRITE_LOCK <= _end(fields[7])):
                return _described(int(fields[4]))
        return None

    def finish(self) -> None:
        pass

    def close(self) -> None:
        self.engine.dispose()


def _end(text: str) -> int:
    return int(text) if text.isdigit() else 2**62


def _described(pid: int) -> str:
    with suppress(OSError):  # its name alone: arguments may hold secrets
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()})"
    return f"process {pid}"


def _clock_of(file: Path) -> datetime | None:
    """What time it is for the file system; None where the file cannot be touched."""
    try:
        os.utime(file)
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        return None


def _engine(url: URL, file: Path | None) -> Engine:
    if url.query:
        raise CatalogUnavailable(
            f"the catalog's URL has options, and one of SQLite takes none: {mask_address(str(url))}",
            found=", ".join(url.query),
            expected="sqlite:///PATH",
            next="leave out what follows the question mark",
        )
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CatalogUnavailable(
                f"the folder of the catalog {url.database} cannot be made",
                found=str(error),
                next="name another file with --catalog or NOVA_CATALOG",
            ) from error
    pool: dict[str, Any] = {"poolclass": StaticPool} if file is None else {}
    # A lock is waited for by ``Database``, which says so; the driver itself waits only briefly.
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 0.5}, **pool)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        """The driver would begin transactions by itself, and late; ``BEGIN IMMEDIATE`` is sent below instead."""
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("nova_write", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine
