"""Transactions on SQLite and PostgreSQL: begun, tried again, looked up when their COMMIT was lost, and told of."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from nova_assets.catalog.database_errors import FAILURES, Failure, Trouble, reason_of, trouble_of
from nova_assets.catalog.postgres import PostgresBackend
from nova_assets.catalog.sqlite import SqliteBackend
from nova_assets.catalog.transaction import Backend, Began
from nova_assets.errors import CatalogUnavailable, CommitOutcomeUnknown
from nova_assets.masking import get_logger, mask_address, remember_secrets
from nova_assets.settings import CATALOG_PATIENCE, CATALOG_TIMEOUT

T = TypeVar("T")

log = get_logger("nova_assets.catalog")

FIRST_CONTACT = 3.0
"""Seconds for which a server is waited for that has not answered this process yet: its address may be wrong."""

SAY_AFTER = 5.0
"""Seconds after which a person is told what is waited for."""

LOCKS_FREED = 3.0
"""Seconds in which a server is asked to end a transaction whose connection broke. Later its own limits end it."""

CLOCK_KEPT = 10.0
"""Seconds for which the database's time is known without asking again, between transactions."""

RACES = 5
"""How often a transaction is tried again when others add its rows first."""


def pairs(c: Connection, query: Any) -> dict[Any, Any]:
    """The rows of a query of two columns, as a dict."""
    return {row[0]: row[1] for row in c.execute(query)}


def batched(of: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """So many at a time: as many as one statement may name."""
    return (of[n : n + size] for n in range(0, len(of), size))


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Attempt:
    """One attempt at a transaction, as far as it came."""

    began: Began | None = None
    committing: bool = False
    result: Any = None


class Database:
    """One database, and the only way to it: ``read`` and ``write`` take a function of a connection.

    A function that is handed to ``write`` may be called again, when the transaction could not go through and nothing of
    it was kept. A ``Database`` may be shared by threads.

    Args:
        clock: what time it is; by default the database's own clock, which all processes of a catalog share.
        patience: seconds for which a locked or unreachable database is waited for.
        timeout: seconds that one statement may take on a server.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], datetime] | None = None,
        *,
        patience: float = CATALOG_PATIENCE,
        timeout: float = CATALOG_TIMEOUT,
    ) -> None:
        self.url = url
        self.shown = mask_address(url)
        remember_secrets(url)
        self.patience = patience
        self.clock: Callable[[], datetime] = clock or self._clock
        self.backend = _backend(url, self.shown, timeout)
        self.engine = self.backend.engine
        self._current = threading.local()
        self._latest: Began | None = None
        # A database in memory is one connection, whose transactions must not mix.
        self._one_at_a_time: Any = threading.RLock() if self.backend.one_connection else nullcontext()

    @property
    def is_sqlite(self) -> bool:
        return isinstance(self.backend, SqliteBackend)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Call ``work`` in a read transaction.

        Raises:
            CatalogUnavailable: the database cannot be used; the error names the cause.
        """
        return self._tried(work, write=False)

    def write(
        self,
        work: Callable[[Connection], T],
        before_commit: Callable[[], None] | None = None,
        *,
        settled_by_caller: bool = False,
        slow: bool = False,
    ) -> T:
        """Call ``work`` in a write transaction, and commit it.

        When the connection is lost during COMMIT, the server is asked what became of the transaction (R7): it took, or
        it is tried again.

        Args:
            before_commit: called when all is done but COMMIT.
            settled_by_caller: a lost COMMIT is told to the caller, who looks it up under a lock of its own.
            slow: its statements may take as long as they need.

        Raises:
            CommitOutcomeUnknown: the connection was lost during COMMIT, and the caller settles, or the server could not
                be asked.
            CatalogUnavailable: the database cannot be used; nothing was kept.
            ValueRefused: a value cannot be kept; nothing was kept.
        """
        return self._tried(work, True, before_commit, settled_by_caller, slow)

    def close(self) -> None:
        self.backend.close()

    def _clock(self) -> datetime:
        """What time it is, by the database's clock.

        It is known since the beginning of this thread's transaction, or the latest transaction of any thread. It is
        asked for where that is long ago.
        """
        began: Began | None = getattr(self._current, "began", None)
        if began is None and self._latest is not None and self._latest.age < CLOCK_KEPT:
            began = self._latest
        return self.read(lambda c: self._clock()) if began is None else began.now()

    def _tried(
        self,
        work: Callable[[Connection], T],
        write: bool,
        before_commit: Callable[[], None] | None = None,
        settled_by_caller: bool = False,
        slow: bool = False,
    ) -> T:
        waiting = _Waiting(self.shown, self.patience, self._latest is not None, self.backend)
        while True:
            attempt = _Attempt()
            try:
                return self._once(work, write, before_commit, slow, attempt)
            except FAILURES as failure:
                trouble = trouble_of(failure)
                if trouble.kind == "lost" and attempt.began is not None and attempt.began.number is not None:
                    took = self._settled(attempt, failure, settled_by_caller, partial(waiting.say, trouble))
                    if took:
                        result: T = attempt.result
                        return result
                if not waiting.again(trouble):
                    raise waiting.error(trouble) from failure

    def _once(
        self,
        work: Callable[[Connection], T],
        write: bool,
        before_commit: Callable[[], None] | None,
        slow: bool,
        attempt: _Attempt,
    ) -> T:
        options: dict[str, Any] = {"nova_write": write, **({} if write else self.backend.reads)}
        outer = getattr(self._current, "began", None)
        try:
            with self._one_at_a_time, self.engine.connect().execution_options(**options) as connection:
                transaction = connection.begin()
                try:
                    attempt.began = self._current.began = self.backend.begin(connection, write, slow)
                    self._latest = attempt.began
                    result = work(connection)
                    if before_commit is not None:
                        before_commit()
                    attempt.result, attempt.committing = result, write
                    transaction.commit()
                except BaseException:
                    _roll_back(transaction)
                    raise
                return result
        finally:
            self._current.began = outer
            self.backend.finish()

    def _settled(self, attempt: _Attempt, failure: Failure, by_caller: bool, say: Callable[[float], None]) -> bool:
        """Whether a write took whose connection was lost. One that is still open is ended, with its locks (R7).

        Args:
            say: called with the seconds that are left, while the server cannot be asked.

        Raises:
            CommitOutcomeUnknown: nobody could tell, or the caller settles.
        """
        assert attempt.began is not None
        if not attempt.committing:  # nothing was kept: what is asked for is that its locks are free
            self.backend.has_committed(attempt.began, time.monotonic() + LOCKS_FREED)
            return False
        end = time.monotonic() + self.patience
        while (took := self.backend.has_committed(attempt.began, min(end, time.monotonic() + SAY_AFTER))) is None:
            if time.monotonic() >= end:
                break
            say(end - time.monotonic())
        if took is not None and not by_caller:
            return took
        asked = "" if by_caller else f", and could not be asked within {self.patience:.0f} s whether it took"
        raise CommitOutcomeUnknown(
            f"the connection to {self.shown} was lost during COMMIT{asked}",
            found=reason_of(failure),
            expected="an answer of the catalog",
            next="look at what is there before it is done again: nova timeline CHANNEL, nova executions",
        ) from failure


class _Waiting:
    """Whether and how long one transaction is tried again; says once what it waits for."""

    def __init__(self, shown: str, patience: float, has_answered: bool, backend: Backend) -> None:
        self.shown = shown
        self.patience = patience
        self.backend = backend
        self.lost_patience = patience if has_answered else min(patience, FIRST_CONTACT)
        self.began = time.monotonic()
        self.lost_at: float | None = None
        self.races = 0
        self.said = False

    def again(self, trouble: Trouble) -> bool:
        """Whether to try again. Sleeps a moment before it says so."""
        now = time.monotonic()
        if trouble.kind == "final":
            return False
        if trouble.kind == "raced":
            self.races += 1
            return self.races < RACES
        if trouble.kind == "lost":
            self.lost_at = now if self.lost_at is None else self.lost_at
            until, pause = self.lost_at + self.lost_patience, random.uniform(0.05, 0.3)
        else:
            until, pause = self.began + self.patience, random.uniform(0.005, 0.05)
        if now > until:
            return False
        if now - self.began > SAY_AFTER:
            self.say(trouble, until - now)
        time.sleep(pause)
        return True

    def say(self, trouble: Trouble, rest: float) -> None:
        """Tell people once what is waited for, and for how many seconds more."""
        if not self.said:
            self.said = True
            log.warning("%s", self._said(trouble, rest))

    def error(self, trouble: Trouble) -> Exception:
        """The error with which the waiting ends."""
        waited = 0.0 if trouble.kind == "final" else time.monotonic() - self.began
        return trouble.raised(self.shown, waited, self.backend.holder() if trouble.kind == "busy" else None)

    def _said(self, trouble: Trouble, rest: float) -> str:
        holder = self.backend.holder() if trouble.kind == "busy" else None
        because = f"{trouble.reason}; {holder} holds the lock" if holder else trouble.reason
        return f"waiting for the catalog {self.shown} ({because}); gives up in {rest:.0f} s"


def _backend(url: str, shown: str, timeout: float) -> Backend:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return SqliteBackend(parsed)
        if parsed.get_backend_name() == "postgresql":
            return PostgresBackend(parsed, shown, timeout)
    except (ArgumentError, NoSuchModuleError) as error:
        raise CatalogUnavailable(
            f"the catalog's URL cannot be read: {shown}", found=str(error).split("\n")[0], expected=_URLS
        ) from error
    except ValueError:  # of the port; its words may be part of a password
        raise CatalogUnavailable(
            f"the catalog's URL cannot be read: {shown}", found="a port that is no number", expected=_URLS
        ) from None
    except ModuleNotFoundError as error:
        raise CatalogUnavailable(
            "the driver for PostgreSQL is not installed", found=str(error), next="pip install 'nova-assets[postgres]'"
        ) from error
    raise CatalogUnavailable(f"the catalog is of an unknown kind: {shown}", expected=_URLS)


_URLS = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"


def _roll_back(transaction: Any) -> None:
    with suppress(SQLAlchemyError):  # raised when the connection is gone, and the transaction with it
        transaction.rollback()
