"""Transactions on SQLite and PostgreSQL: begin, retry, and look-up of a lost COMMIT."""

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

from nova_assets.catalog.database.backend import DatabaseBackend, TransactionStart
from nova_assets.catalog.database.failures import (
    DATABASE_FAILURES,
    DatabaseFailure,
    DatabaseProblem,
    classify_failure,
    failure_message,
)
from nova_assets.catalog.database.postgres import PostgresBackend
from nova_assets.catalog.database.sqlite import SqliteBackend
from nova_assets.errors import CatalogUnavailable, CommitOutcomeUnknown
from nova_assets.masking import get_logger, mask_address, remember_secrets
from nova_assets.settings import CATALOG_PATIENCE, CATALOG_TIMEOUT


def open_backend(url: str, masked_url: str, statement_timeout: float) -> DatabaseBackend:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return SqliteBackend(parsed)
        if parsed.get_backend_name() == "postgresql":
            return PostgresBackend(parsed, masked_url, statement_timeout)
    except (ArgumentError, NoSuchModuleError) as error:
        raise CatalogUnavailable(
            f"the catalog's URL cannot be read: {masked_url}", found=str(error).split("\n")[0], expected=_EXPECTED_URLS
        ) from error
    except ValueError:  # invalid port; its text may be part of a password
        raise CatalogUnavailable(
            f"the catalog's URL cannot be read: {masked_url}",
            found="a port that is not a number",
            expected=_EXPECTED_URLS,
        ) from None
    except ModuleNotFoundError as error:
        raise CatalogUnavailable(
            "the driver for PostgreSQL is not installed", found=str(error), next="pip install 'nova-assets[postgres]'"
        ) from error
    raise CatalogUnavailable(
        f"the catalog's URL names an unknown kind of database: {masked_url}", expected=_EXPECTED_URLS
    )


_EXPECTED_URLS = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"


T = TypeVar("T")

log = get_logger("nova_assets.catalog")

FIRST_CONTACT_SECONDS = 3.0
"""Seconds of waiting for a server that has never answered this process: its address may be wrong."""

LOG_WAITING_AFTER_SECONDS = 5.0
"""Seconds after which a warning tells people what the transaction waits for."""

LOCK_RELEASE_SECONDS = 3.0
"""Seconds for asking a server to end a transaction whose connection broke. After that, the server's own limits end it.
"""

CLOCK_CACHE_SECONDS = 10.0
"""Seconds for which the database's time is extrapolated between transactions instead of being queried."""

MAX_RACE_ATTEMPTS = 5
"""Maximum number of attempts at a transaction whose rows other transactions insert first."""


def query_as_dict(c: Connection, query: Any) -> dict[Any, Any]:
    """Result of a two-column query as a dict."""
    return {row[0]: row[1] for row in c.execute(query)}


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split a sequence into batches, since one statement takes a limited number of parameters."""
    return (items[n : n + size] for n in range(0, len(items), size))


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Attempt:
    """Progress of one attempt at a transaction."""

    start: TransactionStart | None = None
    committing: bool = False
    result: Any = None


class Database:
    """One database. All access goes through ``read`` and ``write``, which call a function with a connection.

    ``write`` may call the function again if the transaction failed and nothing of it was kept. Threads may share a
    ``Database``.

    Args:
        url: URL of the database, for SQLAlchemy.
        clock: returns the current time; by default the database's own clock, which all processes of a catalog share.
        patience: seconds of waiting for a locked or unreachable database.
        statement_timeout: maximum seconds of one statement on a server.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], datetime] | None = None,
        *,
        patience: float = CATALOG_PATIENCE,
        statement_timeout: float = CATALOG_TIMEOUT,
    ) -> None:
        self.url = url
        self.masked_url = mask_address(url)
        remember_secrets(url)
        self.patience = patience
        self.clock: Callable[[], datetime] = clock or self._database_now
        self.backend = open_backend(url, self.masked_url, statement_timeout)
        self.engine = self.backend.engine
        self._current = threading.local()
        self._latest_start: TransactionStart | None = None
        # An in-memory database has a single connection, whose transactions must not mix.
        self._connection_lock: Any = threading.RLock() if self.backend.one_connection else nullcontext()

    @property
    def is_sqlite(self) -> bool:
        return isinstance(self.backend, SqliteBackend)

    def read(self, callback: Callable[[Connection], T]) -> T:
        """Call ``callback`` in a read transaction.

        Raises:
            CatalogUnavailable: the database cannot be used; the error names the cause.
        """
        shared: Connection | None = getattr(self._current, "shared", None)
        return self._run_with_retries(callback, write=False) if shared is None else callback(shared)

    @property
    def is_reading_together(self) -> bool:
        """Whether this thread is in ``read_together``."""
        return getattr(self._current, "shared", None) is not None

    def read_together(self, reads: Callable[[], T]) -> T:
        """Call ``reads`` in one read transaction, which every ``read`` of this thread uses meanwhile."""

        def read_all(c: Connection) -> T:
            outer, self._current.shared = getattr(self._current, "shared", None), c
            try:
                return reads()
            finally:
                self._current.shared = outer

        return self.read(read_all)

    def write(
        self,
        callback: Callable[[Connection], T],
        before_commit: Callable[[], None] | None = None,
        *,
        outcome_resolved_by_caller: bool = False,
        no_timeout: bool = False,
    ) -> T:
        """Call ``callback`` in a write transaction, and commit it.

        If the connection is lost during COMMIT, the server is asked for the outcome of the transaction (R7). The
        transaction is retried unless it was committed.

        Args:
            before_commit: called right before COMMIT.
            outcome_resolved_by_caller: raise on a lost COMMIT. The caller looks up the outcome under a lock of its own.
            no_timeout: statements may take any time.

        Raises:
            CommitOutcomeUnknown: the connection was lost during COMMIT, and either the caller settles or the server
                could not be asked.
            CatalogUnavailable: the database cannot be used; nothing was kept.
            ValueRefused: a value cannot be stored; nothing was kept.
        """
        assert not self.is_reading_together, "nothing is written in read_together"
        return self._run_with_retries(callback, True, before_commit, outcome_resolved_by_caller, no_timeout)

    def close(self) -> None:
        self.backend.close()

    def _database_now(self) -> datetime:
        """Current time by the database's clock.

        Extrapolated from the start of this thread's transaction, or of the latest transaction of any thread. If that is
        long ago, the database is queried.
        """
        start: TransactionStart | None = getattr(self._current, "began", None)
        if start is None and self._latest_start is not None and self._latest_start.age < CLOCK_CACHE_SECONDS:
            start = self._latest_start
        return self.read(lambda c: self._database_now()) if start is None else start.now()

    def _run_with_retries(
        self,
        callback: Callable[[Connection], T],
        write: bool,
        before_commit: Callable[[], None] | None = None,
        outcome_resolved_by_caller: bool = False,
        no_timeout: bool = False,
    ) -> T:
        retry_policy = _RetryPolicy(self.masked_url, self.patience, self._latest_start is not None, self.backend)
        while True:
            attempt = _Attempt()
            try:
                return self._run_once(callback, write, before_commit, no_timeout, attempt)
            except DATABASE_FAILURES as failure:
                problem = classify_failure(failure)
                if problem.kind == "lost" and attempt.start is not None and attempt.start.transaction_id is not None:
                    has_committed = self._find_lost_commit_outcome(
                        attempt, failure, outcome_resolved_by_caller, partial(retry_policy.log_waiting_once, problem)
                    )
                    if has_committed:
                        result: T = attempt.result
                        return result
                if not retry_policy.sleep_before_retry(problem):
                    raise retry_policy.final_error(problem) from failure

    def _run_once(
        self,
        callback: Callable[[Connection], T],
        write: bool,
        before_commit: Callable[[], None] | None,
        no_timeout: bool,
        attempt: _Attempt,
    ) -> T:
        options: dict[str, Any] = {"nova_write": write, **({} if write else self.backend.read_options)}
        outer_start = getattr(self._current, "began", None)
        self.backend.leave_connections_to_parent_after_fork()
        try:
            with self._connection_lock, self.engine.connect().execution_options(**options) as connection:
                transaction = connection.begin()
                try:
                    attempt.start = self._current.began = self.backend.begin_transaction(connection, write, no_timeout)
                    self._latest_start = attempt.start
                    result = callback(connection)
                    if write:
                        self.backend.before_commit(connection)
                    if before_commit is not None:
                        before_commit()
                    attempt.result, attempt.committing = result, write
                    transaction.commit()
                except BaseException:
                    _roll_back(transaction)
                    raise
                if write:
                    self.backend.after_commit(connection)
                return result
        finally:
            self._current.began = outer_start
            self.backend.on_transaction_end()

    def _find_lost_commit_outcome(
        self,
        attempt: _Attempt,
        failure: DatabaseFailure,
        outcome_resolved_by_caller: bool,
        on_progress: Callable[[float], None],
    ) -> bool:
        """Whether a write transaction was committed although its connection was lost (R7).

        If the transaction is still open, it is ended, and its locks are released.

        Args:
            on_progress: called with the remaining seconds while the server cannot be asked.

        Raises:
            CommitOutcomeUnknown: the outcome could not be determined, or the caller settles.
        """
        assert attempt.start is not None
        if not attempt.committing:  # nothing was kept; this call only releases the locks
            self.backend.has_committed(attempt.start, time.monotonic() + LOCK_RELEASE_SECONDS)
            return False
        deadline = time.monotonic() + self.patience
        while (
            has_committed := self.backend.has_committed(
                attempt.start, min(deadline, time.monotonic() + LOG_WAITING_AFTER_SECONDS)
            )
        ) is None:
            if time.monotonic() >= deadline:
                break
            on_progress(deadline - time.monotonic())
        if has_committed is not None and not outcome_resolved_by_caller:
            return has_committed
        unanswered_text = (
            ""
            if outcome_resolved_by_caller
            else f", and the outcome could not be determined within {self.patience:.0f} s"
        )
        raise CommitOutcomeUnknown(
            f"the connection to {self.masked_url} was lost during COMMIT{unanswered_text}",
            found=failure_message(failure),
            expected="an answer of the catalog",
            next="check the outcome before you repeat the command: nova timeline CHANNEL, nova executions",
        ) from failure


class _RetryPolicy:
    """Decides whether and when one transaction is retried. Logs once what it waits for."""

    def __init__(self, masked_url: str, patience: float, has_connected_before: bool, backend: DatabaseBackend) -> None:
        self.masked_url = masked_url
        self.patience = patience
        self.backend = backend
        self.reconnect_patience = patience if has_connected_before else min(patience, FIRST_CONTACT_SECONDS)
        self.started_at = time.monotonic()
        self.connection_lost_at: float | None = None
        self.race_count = 0
        self.has_logged = False

    def sleep_before_retry(self, problem: DatabaseProblem) -> bool:
        """Whether to retry. Sleeps for a moment before it returns true."""
        now = time.monotonic()
        if problem.kind == "final":
            return False
        if problem.kind == "raced":
            self.race_count += 1
            return self.race_count < MAX_RACE_ATTEMPTS
        if problem.kind == "lost":
            self.connection_lost_at = now if self.connection_lost_at is None else self.connection_lost_at
            deadline, pause = self.connection_lost_at + self.reconnect_patience, random.uniform(0.05, 0.3)
        else:
            deadline, pause = self.started_at + self.patience, random.uniform(0.005, 0.05)
        if now > deadline:
            return False
        if now - self.started_at > LOG_WAITING_AFTER_SECONDS:
            self.log_waiting_once(problem, deadline - now)
        time.sleep(pause)
        return True

    def log_waiting_once(self, problem: DatabaseProblem, seconds_left: float) -> None:
        """Log once what the transaction waits for, and the remaining seconds."""
        if not self.has_logged:
            self.has_logged = True
            log.warning("%s", self._waiting_message(problem, seconds_left))

    def final_error(self, problem: DatabaseProblem) -> Exception:
        """Error to raise when no retry is left."""
        waited_seconds = 0.0 if problem.kind == "final" else time.monotonic() - self.started_at
        return problem.to_error(
            self.masked_url, waited_seconds, self.backend.lock_holder() if problem.kind == "busy" else None
        )

    def _waiting_message(self, problem: DatabaseProblem, seconds_left: float) -> str:
        holder = self.backend.lock_holder() if problem.kind == "busy" else None
        cause = f"{problem.reason}; {holder} holds the lock" if holder else problem.reason
        return f"waiting for the catalog {self.masked_url} ({cause}); gives up in {seconds_left:.0f} s"


def _roll_back(transaction: Any) -> None:
    with suppress(SQLAlchemyError):  # raised if the connection is lost, and with it the transaction
        transaction.rollback()
