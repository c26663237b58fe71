"""How partitions stand for who decides what is to be made: what was made of what, what is marked, what fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Mark:
    """A partition that is to be made again.

    Args:
        at: since when.
        by: the backfill, or person, that wants it.
        priority: the higher is made first; what is missing has 0.
    """

    channel: str
    partition: str
    at: datetime
    by: str = ""
    why: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """A partition that is there.

    Args:
        seq: the number at which it was given something last.
        read: of one that a task has made: dataset or channel -> its number when that was read.
        arrived: the number at which it was given something last that was no backfill's: a backfill says itself what
            is to follow. None where that is ``seq``.
    """

    seq: int
    read: Mapping[str, int] = field(default_factory=dict)
    arrived: int | None = None

    def has_more_than(self, seen: int) -> bool:
        """Whether something has come since a number."""
        return self.last_given > seen

    @property
    def last_given(self) -> int:
        """The number at which something came last that is late data for who has read it before."""
        return self.seq if self.arrived is None else self.arrived


@dataclass(frozen=True, slots=True)
class Failure:
    """How often in a row a task has failed, and when it did last."""

    times: int
    at: datetime
