"""PostgreSQL backend: stateless connections, the server's clock, and transactions whose answer was lost.

The first statement of each transaction sets everything that the transaction needs, and the settings end with it. So
PgBouncer may give each transaction another server connection.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from nova_assets.catalog.database.backend import TransactionStart
from nova_assets.catalog.database.column_types import EPOCH
from nova_assets.catalog.database.failures import ConnectionOptionIgnored, ServerIsStandby, classify_failure
from nova_assets.errors import CatalogUnavailable

IDLE_TIMEOUT = 300.0
"""Seconds after which the server ends a transaction whose client sends nothing."""

LOCK_TIMEOUT = 5.0
"""Seconds of waiting for a lock in one transaction. After that, a new transaction requests the lock again."""

_BEGIN_QUERY = text("""
    SELECT pg_is_in_recovery(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_backend_pid(),
      CASE WHEN :write AND NOT pg_is_in_recovery() THEN txid_current() END,
      set_config('statement_timeout', coalesce(nullif(current_setting('statement_timeout'), '0'), :statement), true),
      set_config('lock_timeout', coalesce(nullif(current_setting('lock_timeout'), '0'), :lock), true),
      set_config('idle_in_transaction_session_timeout',
        coalesce(nullif(current_setting('idle_in_transaction_session_timeout'), '0'), :idle), true),
      current_setting('search_path')""")
"""Sets the limits of a transaction. Limits set by the role, the database or the URL's options take precedence."""

_STATUS_QUERY = text("SELECT txid_status(:number)")
_TERMINATE_QUERY = text("""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = :session AND backend_xid::text::bigint = :number % 4294967296""")

_FORBIDDEN_URL_PARAMETERS = ("autocommit", "row_factory", "cursor_factory", "context")


class PostgresBackend:
    """One PostgreSQL database.

    Args:
        statement_timeout: maximum seconds of one statement. A statement that is still unanswered a little later counts
            as lost.
    """

    one_connection = False

    def __init__(self, url: URL, masked_url: str, statement_timeout: float) -> None:
        self.statement_timeout = statement_timeout
        # All reads of one transaction see the same moment, as in SQLite.
        self.read_options: dict[str, Any] = {"isolation_level": "REPEATABLE READ"}
        self.engine = _create_engine(url, masked_url)
        self.search_path = _requested_search_path(url)
        self.watchdog = StatementWatchdog(statement_timeout + min(statement_timeout / 2, 5.0))
        for name in ("before_cursor_execute", "commit", "rollback"):
            event.listen(self.engine, name, self._on_statement_sent)
        event.listen(self.engine, "after_cursor_execute", self._on_statement_answered)

    def begin_transaction(self, c: Connection, write: bool, no_timeout: bool) -> TransactionStart:
        """Set the limits of the transaction, and read the server's time, the process id and the transaction id.

        Raises:
            ServerIsStandby: the server is a read-only standby.
            ConnectionOptionIgnored: the connection has another ``search_path`` than the URL requests.
        """
        milliseconds = 0 if no_timeout else int(self.statement_timeout * 1000)
        c.info["nova_slow"] = no_timeout
        limits = {
            "statement": f"{milliseconds}ms",
            "lock": f"{0 if no_timeout else int(min(self.statement_timeout / 2, LOCK_TIMEOUT) * 1000)}ms",
            "idle": f"{int(IDLE_TIMEOUT * 1000)}ms",
        }
        row = c.execute(_BEGIN_QUERY, {"write": write, **limits}).one()
        if row[0]:
            c.invalidate()
            raise ServerIsStandby("the server is a standby in recovery, whose data may be old")
        if self.search_path is not None and _parse_search_path(row[7]) != _parse_search_path(self.search_path):
            c.invalidate()
            raise ConnectionOptionIgnored(f"search_path is {row[7]!r}, and not {self.search_path!r}")
        return TransactionStart(EPOCH + timedelta(microseconds=row[1]), row[2], row[3])

    def leave_connections_to_parent_after_fork(self) -> None:
        pass

    def before_commit(self, c: Connection) -> None:
        pass

    def after_commit(self, c: Connection) -> None:
        pass

    def find_file_problem(self) -> str | None:
        """Always None. Only the server touches its files."""
        return None

    def has_committed(self, start: TransactionStart, deadline: float) -> bool | None:
        """Ask the server for the outcome of a transaction (R7).

        A transaction that is still open after a second is ended.
        """
        terminate_after = time.monotonic() + 1.0
        while True:
            try:
                with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
                    status = c.execute(_STATUS_QUERY, {"number": start.transaction_id}).scalar()
                    if status != "in progress":
                        return None if status is None else status == "committed"
                    if time.monotonic() > terminate_after:
                        c.execute(
                            _TERMINATE_QUERY, {"session": start.server_process_id, "number": start.transaction_id}
                        )
            except SQLAlchemyError as error:
                if classify_failure(error).kind != "lost":
                    return None
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)

    def lock_holder(self) -> str | None:
        """Always None, since only the busy server could tell."""
        return None

    def on_transaction_end(self) -> None:
        """Called after each transaction of the current thread, committed or not."""
        self.watchdog.statement_answered()

    def close(self) -> None:
        self.watchdog.close()
        self.engine.dispose()

    def _on_statement_sent(self, c: Connection, *rest: Any) -> None:
        if not c.invalidated and not c.info.get("nova_slow"):
            self.watchdog.statement_sent(_socket_number(c))

    def _on_statement_answered(self, c: Connection, *rest: Any) -> None:
        self.watchdog.statement_answered()


class StatementWatchdog:
    """Closes connections whose server does not answer, so that an unanswered statement fails as a lost connection.

    One thread watches the statements of all other threads. Each thread has at most one pending statement.

    Args:
        timeout: seconds after which a statement counts as lost.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._pending_statements: dict[int, tuple[float, int]] = {}
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process_id = 0
        self._closed = False

    def statement_sent(self, socket_number: int | None) -> None:
        """Called when this thread has sent a statement over a socket."""
        if socket_number is None:
            return
        with self._condition:
            self._pending_statements[threading.get_ident()] = (time.monotonic() + self.timeout, socket_number)
            if self._thread is None or self._process_id != os.getpid():
                self._process_id = os.getpid()
                self._thread = threading.Thread(
                    target=self._close_silent_connections, name="nova-catalog-watch", daemon=True
                )
                self._thread.start()

    def statement_answered(self) -> None:
        """Called when the statement of this thread was answered or failed."""
        with self._condition:
            self._pending_statements.pop(threading.get_ident(), None)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _close_silent_connections(self) -> None:
        with self._condition:
            while not self._closed:
                now = time.monotonic()
                for thread, (deadline, socket_number) in list(self._pending_statements.items()):
                    if deadline < now:
                        del self._pending_statements[thread]
                        _shut_down_socket(socket_number)
                self._condition.wait(min(self.timeout / 4, 1.0))


def _socket_number(c: Connection) -> int | None:
    with suppress(Exception):  # the connection is closed
        return int(c.connection.driver_connection.pgconn.socket)  # type: ignore[union-attr]
    return None


def _shut_down_socket(socket_number: int) -> None:
    with suppress(OSError):
        duplicate = socket.socket(fileno=os.dup(socket_number))
        try:
            duplicate.shutdown(socket.SHUT_RDWR)
        finally:
            duplicate.close()


def _create_engine(url: URL, masked_url: str) -> Engine:
    if url.drivername not in ("postgresql", "postgresql+psycopg"):
        raise CatalogUnavailable(
            f"the catalog's URL names another driver than psycopg: {masked_url}",
            expected="postgresql://USER:PASSWORD@HOST/DATABASE",
            next="remove the driver from the URL",
        )
    arguments: dict[str, Any] = {
        "connect_timeout": 10,
        "client_encoding": "utf8",
        "application_name": "nova_assets",
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
    arguments = {name: value for name, value in arguments.items() if name not in url.query}
    arguments["prepare_threshold"] = _prepare_threshold(url, masked_url)
    for name in _FORBIDDEN_URL_PARAMETERS:
        if name in url.query:
            raise CatalogUnavailable(f"the catalog's URL has an unknown parameter: {masked_url}", found=name)
    engine_url = url.set(drivername="postgresql+psycopg").difference_update_query(["prepare_threshold"])
    return create_engine(
        engine_url, pool_size=3, isolation_level="READ COMMITTED", use_native_hstore=False, connect_args=arguments
    )


def _requested_search_path(url: URL) -> str | None:
    """``search_path`` in the URL's options; None if not set."""
    options = url.query.get("options", "")
    text = options if isinstance(options, str) else " ".join(options)
    matches = re.findall(r"(?:-c\s*|--)search_path=((?:\\.|\S)*)", text)
    return matches[-1].replace("\\", "") if matches else None


def _parse_search_path(search_path: str) -> list[str]:
    return [name.strip().strip('"') for name in search_path.split(",")]


def _prepare_threshold(url: URL, masked_url: str) -> int | None:
    """Number of executions after which a statement is prepared; None for never, which 0, ``none`` or no value request.

    Prepared statements belong to a session, which PgBouncer's transaction mode does not keep.
    """
    value = url.query.get("prepare_threshold", "none")
    if isinstance(value, str) and value.lower() in ("none", ""):
        return None
    if not isinstance(value, str) or not value.isdigit():
        raise CatalogUnavailable(
            f"prepare_threshold in the catalog's URL is not a number: {masked_url}",
            found=value,
            expected="0 to prepare no statement, or the number of uses after which a statement is prepared",
        )
    return int(value) or None
