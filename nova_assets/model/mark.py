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
    """

    channel: str
    partition: str
    at: datetime
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A partition that is there.

    Args:
        seq: the number at which it was given something last.
        read: of one that a task has made: dataset or channel -> its number when that was read.
    """

    seq: int
    read: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """How often in a row a task has failed, and when it did last."""

    times: int
    at: datetime
