"""Transactions on SQLite and PostgreSQL: how one is begun, tried again, and what its errors mean to a caller."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from nova_assets.errors import CatalogUnavailable, CatalogVersion, CommitOutcomeUnknown
from nova_assets.settings import hide_password

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds for which a transaction that met another one is tried again."""

_RETRIED = {"40001", "40P01", "55P03"}  # PostgreSQL: serialization failure, deadlock, lock not available


def pairs(c: Connection, query: Any) -> dict[Any, Any]:
    """The rows of a query of two columns, as a dict."""
    return {row[0]: row[1] for row in c.execute(query)}


def batched(of: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """So many at a time: as many as one statement may name."""
    return (of[n : n + size] for n in range(0, len(of), size))


def utc_now() -> datetime:
    return datetime.now(UTC)


class Database:
    """One database, and the only way to it: ``read`` and ``write`` take a function of a connection.

    A function that is handed to ``write`` may be called again, when the transaction could not go through and nothing of
    it was kept.
    """

    def __init__(self, url: str, clock: Callable[[], datetime] = utc_now) -> None:
        self.url = url
        self.shown = hide_password(url)
        self.clock = clock
        self.engine = _engine(url, self.shown)
        # A database in memory is one connection, whose transactions must not mix.
        # What is read in one transaction is of one moment, as it is in SQLite.
        self._reads = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._one_at_a_time: Any = RLock() if isinstance(self.engine.pool, StaticPool) else nullcontext()

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def read(self, work: Callable[[Connection], T]) -> T:
        """Call ``work`` in a read transaction.

        Raises:
            CatalogUnavailable: the database does not answer.
        """
        return self._tried(work, write=False, before_commit=None)

    def write(self, work: Callable[[Connection], T], before_commit: Callable[[], None] | None = None) -> T:
        """Call ``work`` in a write transaction, and commit it.

        Args:
            before_commit: called when all is done but COMMIT.

        Raises:
            CommitOutcomeUnknown: the connection was lost during COMMIT (R7).
            CatalogUnavailable: the database does not answer; nothing was kept.
        """
        return self._tried(work, write=True, before_commit=before_commit)

    def close(self) -> None:
        self.engine.dispose()

    def _tried(self, work: Callable[[Connection], T], write: bool, before_commit: Callable[[], None] | None) -> T:
        until = time.monotonic() + PATIENCE
        lost = 0
        while True:
            try:
                return self._once(work, write, before_commit)
            except SQLAlchemyError as error:
                lost += _connection_lost(error)
                again = (_is_busy(error) and time.monotonic() < until) or (_connection_lost(error) and lost < 3)
                if not again:
                    raise self.translated(error) from error
                time.sleep(random.uniform(0.005, 0.05) * (1 + lost * 5))

    def _once(self, work: Callable[[Connection], T], write: bool, before_commit: Callable[[], None] | None) -> T:
        options: dict[str, Any] = {"nova_write": write, **({} if write else self._reads)}
        with self._one_at_a_time, self.engine.connect().execution_options(**options) as connection:
            transaction = connection.begin()
            try:
                result = work(connection)
                if before_commit is not None:
                    before_commit()
            except BaseException:
                _roll_back(transaction)
                raise
            try:
                transaction.commit()
            except SQLAlchemyError as error:
                if write and _connection_lost(error):
                    raise CommitOutcomeUnknown(
                        f"the connection to {self.shown} was lost during COMMIT",
                        found=_reason(error),
                        next="nothing: the outcome is looked up before anything is tried again",
                    ) from error
                _roll_back(transaction)
                raise
            return result

    def translated(self, error: SQLAlchemyError) -> CatalogUnavailable | CatalogVersion:
        """What a database error means to a caller."""
        reason = _reason(error)
        if "file is not a database" in reason:
            return CatalogVersion(
                f"{self.shown} is no catalog",
                found=reason,
                expected="a SQLite file made by nova init, or none",
                next="name another file with --catalog or NOVA_CATALOG",
            )
        if "disk is full" in reason or "No space left" in reason:
            return CatalogUnavailable(
                f"the catalog {self.shown} cannot be written",
                found=reason,
                expected="a disk with room",
                next="make room; then do it again: nothing of it was kept",
            )
        hint = (
            "check that the folder exists and may be written"
            if self.is_sqlite
            else "check that PostgreSQL runs, and the user, password and database in the URL"
        )
        return CatalogUnavailable(
            f"the catalog {self.shown} does not answer", found=reason, next=f"{hint}; then: nova doctor"
        )


def _engine(url: str, shown: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        if parsed.get_backend_name() == "postgresql":
            return create_engine(
                parsed, pool_pre_ping=True, pool_size=3, connect_args={"connect_timeout": 10, "options": _WAITS}
            )
    except (ArgumentError, NoSuchModuleError) as error:
        raise CatalogUnavailable(
            f"the catalog's URL cannot be read: {shown}", found=str(error).split("\n")[0], expected=_URLS
        ) from error
    except ModuleNotFoundError as error:
        raise CatalogUnavailable(
            "the driver for PostgreSQL is not installed", found=str(error), next="pip install 'nova-assets[postgres]'"
        ) from error
    raise CatalogUnavailable(f"the catalog is of an unknown kind: {shown}", expected=_URLS)


_WAITS = "-c lock_timeout=30s -c idle_in_transaction_session_timeout=300s"
"""A lock that is not given is asked for again, for as long as ``PATIENCE``; a session that hangs gives its locks
back."""

_URLS = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"


def _sqlite(url: URL) -> Engine:
    in_memory = url.database in (None, "", ":memory:")
    if not in_memory:
        try:
            Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CatalogUnavailable(
                f"the folder of the catalog {url.database} cannot be made",
                found=str(error),
                next="name another file with --catalog or NOVA_CATALOG",
            ) from error
    pool: dict[str, Any] = {"poolclass": StaticPool} if in_memory else {}
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": PATIENCE}, **pool)

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


def _roll_back(transaction: Any) -> None:
    with suppress(SQLAlchemyError):  # raised when the connection is gone, and the transaction with it
        transaction.rollback()


def _is_busy(error: SQLAlchemyError) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    if getattr(error.orig, "sqlstate", None) in _RETRIED:
        return True
    return "database is locked" in str(error.orig) or "database table is locked" in str(error.orig)


def _connection_lost(error: SQLAlchemyError) -> bool:
    """Whether the connection broke while it was in use; a failure to connect at all is not that."""
    if not isinstance(error, DBAPIError) or _is_busy(error):
        return False
    state = getattr(error.orig, "sqlstate", None)
    return error.connection_invalidated or (state is not None and state.startswith(("57P", "08")))


def _reason(error: SQLAlchemyError) -> str:
    return str(error.orig if isinstance(error, DBAPIError) else error).strip().split("\n")[0]
