"""PostgreSQL: connections without state of a session, the server's clock, and transactions whose answer was lost.

Everything that a transaction needs is said in its first statement and ends with it. So PgBouncer may give each
transaction another server connection.
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

from nova_assets.catalog.database_errors import OptionIgnored, Standby, trouble_of
from nova_assets.catalog.tables import EPOCH
from nova_assets.catalog.transaction import Began
from nova_assets.errors import CatalogUnavailable

IDLE = 300.0
"""Seconds after which the server ends a transaction whose client sends nothing."""

LOCK = 5.0
"""Seconds after which a lock that is not granted is asked for again, by a new transaction."""

_BEGIN = text("""
    SELECT pg_is_in_recovery(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_backend_pid(),
      CASE WHEN :write AND NOT pg_is_in_recovery() THEN txid_current() END,
      set_config('statement_timeout', coalesce(nullif(current_setting('statement_timeout'), '0'), :statement), true),
      set_config('lock_timeout', coalesce(nullif(current_setting('lock_timeout'), '0'), :lock), true),
      set_config('idle_in_transaction_session_timeout',
        coalesce(nullif(current_setting('idle_in_transaction_session_timeout'), '0'), :idle), true),
      current_setting('search_path')""")
"""Limits that the role, the database or the URL's options set are kept."""

_STATUS = text("SELECT txid_status(:number)")
_END = text("""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = :session AND backend_xid::text::bigint = :number % 4294967296""")

_NOT_FOR_URLS = ("autocommit", "row_factory", "cursor_factory", "context")


class PostgresBackend:
    """One PostgreSQL database.

    Args:
        timeout: seconds that one statement may take. One that is not answered a little later counts as lost.
    """

    one_connection = False

    def __init__(self, url: URL, shown: str, timeout: float) -> None:
        self.timeout = timeout
        # What is read in one transaction is of one moment, as it is in SQLite.
        self.reads: dict[str, Any] = {"isolation_level": "REPEATABLE READ"}
        self.engine = _engine(url, shown)
        self.search_path = _search_path(url)
        self.watch = Watch(timeout + min(timeout / 2, 5.0))
        for name in ("before_cursor_execute", "commit", "rollback"):
            event.listen(self.engine, name, self._sent)
        event.listen(self.engine, "after_cursor_execute", self._answered)

    def begin(self, c: Connection, write: bool, slow: bool) -> Began:
        """Set the limits of the transaction, and learn what time it is and how the transaction is called.

        Raises:
            Standby: the server is a read-only standby.
            OptionIgnored: the connection has another ``search_path`` than the URL asks for.
        """
        milliseconds = 0 if slow else int(self.timeout * 1000)
        c.info["nova_slow"] = slow
        limits = {
            "statement": f"{milliseconds}ms",
            "lock": f"{0 if slow else int(min(self.timeout / 2, LOCK) * 1000)}ms",
            "idle": f"{int(IDLE * 1000)}ms",
        }
        row = c.execute(_BEGIN, {"write": write, **limits}).one()
        if row[0]:
            c.invalidate()
            raise Standby("the server is a standby in recovery, whose data may be old")
        if self.search_path is not None and _schemas(row[7]) != _schemas(self.search_path):
            c.invalidate()
            raise OptionIgnored(f"search_path is {row[7]!r}, and not {self.search_path!r}")
        return Began(EPOCH + timedelta(microseconds=row[1]), row[2], row[3])

    def has_committed(self, began: Began, until: float) -> bool | None:
        """Ask the server what became of a transaction (R7). One that is still open after a second is ended."""
        patient = time.monotonic() + 1.0
        while True:
            try:
                with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
                    status = c.execute(_STATUS, {"number": began.number}).scalar()
                    if status != "in progress":
                        return None if status is None else status == "committed"
                    if time.monotonic() > patient:
                        c.execute(_END, {"session": began.session, "number": began.number})
            except SQLAlchemyError as error:
                if trouble_of(error).kind != "lost":
                    return None
            if time.monotonic() > until:
                return None
            time.sleep(0.1)

    def holder(self) -> str | None:
        """Not known without asking the server, which is busy."""
        return None

    def finish(self) -> None:
        """The transaction of this thread has ended, one way or the other."""
        self.watch.answered()

    def close(self) -> None:
        self.watch.close()
        self.engine.dispose()

    def _sent(self, c: Connection, *rest: Any) -> None:
        if not c.invalidated and not c.info.get("nova_slow"):
            self.watch.sent(_socket_of(c))

    def _answered(self, c: Connection, *rest: Any) -> None:
        self.watch.answered()


class Watch:
    """Cuts connections whose server does not answer: a statement that is never answered ends as a lost connection.

    One thread looks at the statements of all others. A thread has one statement under way at a time.

    Args:
        silence: seconds after which a statement counts as never answered.
    """

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self._under_way: dict[int, tuple[float, int]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process = 0
        self._closed = False

    def sent(self, number: int | None) -> None:
        """This thread has sent a statement over the socket of that number."""
        if number is None:
            return
        with self._changed:
            self._under_way[threading.get_ident()] = (time.monotonic() + self.silence, number)
            if self._thread is None or self._process != os.getpid():
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._look, name="nova-catalog-watch", daemon=True)
                self._thread.start()

    def answered(self) -> None:
        """The statement of this thread was answered, or failed."""
        with self._changed:
            self._under_way.pop(threading.get_ident(), None)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _look(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for thread, (deadline, number) in list(self._under_way.items()):
                    if deadline < now:
                        del self._under_way[thread]
                        _cut(number)
                self._changed.wait(min(self.silence / 4, 1.0))


def _socket_of(c: Connection) -> int | None:
    with suppress(Exception):  # it is closed
        return int(c.connection.driver_connection.pgconn.socket)  # type: ignore[union-attr]
    return None


def _cut(number: int) -> None:
    with suppress(OSError):
        cut = socket.socket(fileno=os.dup(number))
        try:
            cut.shutdown(socket.SHUT_RDWR)
        finally:
            cut.close()


def _engine(url: URL, shown: str) -> Engine:
    if url.drivername not in ("postgresql", "postgresql+psycopg"):
        raise CatalogUnavailable(
            f"the catalog is reached by another driver than psycopg: {shown}",
            expected="postgresql://USER:PASSWORD@HOST/DATABASE",
            next="leave out the driver",
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
    arguments["prepare_threshold"] = _prepare_threshold(url, shown)
    for name in _NOT_FOR_URLS:
        if name in url.query:
            raise CatalogUnavailable(f"the catalog's URL has a parameter that is none: {shown}", found=name)
    plain = url.set(drivername="postgresql+psycopg").difference_update_query(["prepare_threshold"])
    return create_engine(
        plain, pool_size=3, isolation_level="READ COMMITTED", use_native_hstore=False, connect_args=arguments
    )


def _search_path(url: URL) -> str | None:
    """The ``search_path`` that the URL's options ask for."""
    options = url.query.get("options", "")
    text = options if isinstance(options, str) else " ".join(options)
    found = re.findall(r"(?:-c\s*|--)search_path=((?:\\.|\S)*)", text)
    return found[-1].replace("\\", "") if found else None


def _schemas(search_path: str) -> list[str]:
    return [name.strip().strip('"') for name in search_path.split(",")]


def _prepare_threshold(url: URL, shown: str) -> int | None:
    """After how many times a statement is prepared; 0, ``none`` and nothing mean never.

    Prepared statements belong to a session, which PgBouncer's transaction mode does not keep.
    """
    given = url.query.get("prepare_threshold", "none")
    if isinstance(given, str) and given.lower() in ("none", ""):
        return None
    if not isinstance(given, str) or not given.isdigit():
        raise CatalogUnavailable(
            f"prepare_threshold in the catalog's URL is no number: {shown}",
            found=given,
            expected="0 for never, or after how many times a statement is prepared",
        )
    return int(given) or None
