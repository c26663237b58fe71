"""What a database backend is asked for around a transaction."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection, Engine


def ticks() -> float:
    """Seconds of a clock that never goes back, and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, slots=True)
class Began:
    """The beginning of a transaction.

    Args:
        at: what time it was, by the database's clock.
        session: the server's process that carries it out.
        number: the server's number of the transaction, by which its outcome is asked for; None for reads.
    """

    at: datetime
    session: int | None = None
    number: int | None = None
    _ticks: float = field(default_factory=ticks)

    @property
    def age(self) -> float:
        """Seconds since then."""
        return ticks() - self._ticks

    def now(self) -> datetime:
        """What time it is, by the database's clock."""
        return self.at + timedelta(seconds=self.age)


class Backend(Protocol):
    """SQLite or PostgreSQL, as far as ``Database`` has to know."""

    engine: Engine
    one_connection: bool
    reads: dict[str, Any]

    def begin(self, c: Connection, write: bool, slow: bool) -> Began:
        """The first statement of each transaction."""
        ...

    def has_committed(self, began: Began, until: float) -> bool | None:
        """Whether a transaction took whose connection was lost. One that is still open is ended first.

        Args:
            until: on ``time.monotonic()``: when to give up.

        Returns:
            None where it cannot be known.
        """
        ...

    def holder(self) -> str | None:
        """Who holds the lock that is waited for, where that is known."""
        ...

    def finish(self) -> None:
        """The transaction of this thread has ended, one way or the other."""
        ...

    def close(self) -> None: ...
