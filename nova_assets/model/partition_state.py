"""How partitions stand for who decides what is to be made: what was made of what, what is marked, what fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class DirtyPartition:
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
class MaterializedPartition:
    """A partition that is there.

    Args:
        seq: the number at which it was given something last.
        read_versions: of one that a task has made: dataset or channel -> its number when that was read.
        last_non_backfill_seq: the number at which it was given something last that was no backfill's: a backfill says
            itself what is to follow. None where that is ``seq``.
    """

    seq: int
    read_versions: Mapping[str, int] = field(default_factory=dict)
    last_non_backfill_seq: int | None = None

    def has_data_after(self, version: int) -> bool:
        """Whether something has come since a number."""
        return self.last_data_seq > version

    @property
    def last_data_seq(self) -> int:
        """The number at which something came last that is late data for who has read it before."""
        return self.seq if self.last_non_backfill_seq is None else self.last_non_backfill_seq


@dataclass(frozen=True, slots=True)
class TaskFailures:
    """How often in a row a task has failed, and when it did last."""

    consecutive: int
    at: datetime
