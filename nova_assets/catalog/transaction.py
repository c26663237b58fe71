"""What a database backend is asked for around a transaction."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection, Engine


def monotonic_seconds() -> float:
    """Seconds of a clock that never goes back, and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, slots=True)
class TransactionStart:
    """The beginning of a transaction.

    Args:
        database_time: what time it was, by the database's clock.
        server_process_id: the server's process that carries it out.
        transaction_id: the server's number of the transaction, by which its outcome is asked for; None for reads.
    """

    database_time: datetime
    server_process_id: int | None = None
    transaction_id: int | None = None
    _monotonic_start: float = field(default_factory=monotonic_seconds)

    @property
    def age(self) -> float:
        """Seconds since then."""
        return monotonic_seconds() - self._monotonic_start

    def now(self) -> datetime:
        """What time it is, by the database's clock."""
        return self.database_time + timedelta(seconds=self.age)


class DatabaseBackend(Protocol):
    """SQLite or PostgreSQL, as far as ``Database`` has to know."""

    engine: Engine
    one_connection: bool
    read_options: dict[str, Any]

    def begin_transaction(self, c: Connection, write: bool, no_timeout: bool) -> TransactionStart:
        """The first statement of each transaction."""
        ...

    def has_committed(self, start: TransactionStart, deadline: float) -> bool | None:
        """Whether a transaction took whose connection was lost. One that is still open is ended first.

        Args:
            deadline: on ``time.monotonic()``: when to give up.

        Returns:
            None where it cannot be known.
        """
        ...

    def lock_holder(self) -> str | None:
        """Who holds the lock that is waited for, where that is known."""
        ...

    def on_transaction_end(self) -> None:
        """The transaction of this thread has ended, one way or the other."""
        ...

    def close(self) -> None: ...
