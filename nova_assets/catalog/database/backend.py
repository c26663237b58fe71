"""Protocol of a database backend, and the start of a transaction."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection, Engine


def seconds_including_sleep() -> float:
    """Seconds of a clock that never goes back and continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, slots=True)
class TransactionStart:
    """Start of a transaction.

    Args:
        database_time: time at the start, by the database's clock.
        server_process_id: id of the server process that executes the transaction.
        transaction_id: the server's id of the transaction, used to look up its outcome; None for reads.
    """

    database_time: datetime
    server_process_id: int | None = None
    transaction_id: int | None = None
    _monotonic_start: float = field(default_factory=seconds_including_sleep)

    @property
    def age(self) -> float:
        """Seconds since the start."""
        return seconds_including_sleep() - self._monotonic_start

    def now(self) -> datetime:
        """Current time by the database's clock."""
        return self.database_time + timedelta(seconds=self.age)


class DatabaseBackend(Protocol):
    """SQLite or PostgreSQL: the operations on which ``Database`` depends."""

    engine: Engine
    one_connection: bool
    read_options: dict[str, Any]

    def begin_transaction(self, c: Connection, write: bool, no_timeout: bool) -> TransactionStart:
        """Run the first statement of a transaction."""
        ...

    def leave_connections_to_parent_after_fork(self) -> None:
        """After a fork, leave the connections to the parent process. Called before a connection is taken."""
        ...

    def before_commit(self, c: Connection) -> None:
        """Called at the end of a write transaction, before COMMIT. An error rolls the transaction back."""
        ...

    def after_commit(self, c: Connection) -> None:
        """Called after COMMIT, before the caller learns of it.

        Raises:
            CommitOutcomeUnknown: the transaction may be lost.
        """
        ...

    def find_file_problem(self) -> str | None:
        """Why the file of the database cannot be used any more, without folder names; None if there is no problem."""
        ...

    def has_committed(self, start: TransactionStart, deadline: float) -> bool | None:
        """Whether a transaction was committed whose connection was lost. If it is still open, it is ended first.

        Args:
            deadline: latest time to give up, on ``time.monotonic()``.

        Returns:
            None if the outcome cannot be determined.
        """
        ...

    def lock_holder(self) -> str | None:
        """Holder of the lock that blocks the transaction; None if unknown."""
        ...

    def on_transaction_end(self) -> None:
        """Called after each transaction of the current thread, committed or not."""
        ...

    def close(self) -> None: ...
