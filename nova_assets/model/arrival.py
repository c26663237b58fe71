"""Arrivals: files that were announced, each of which is taken exactly once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

ArrivalState = Literal["waiting", "taken", "refused", "gone"]
"""``refused``: all of it was set aside; ``gone``: it was deleted before it was read."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One version of one file.

    Args:
        path: below the source's location, with forward slashes.
        version: what tells it from another content at the same path: its size and the time of its last change, or the
            store's own mark (an ETag).
        size: in bytes.
        modified: when it was last changed.
    """

    path: str
    version: str
    size: int
    modified: datetime | None = None

    @property
    def key(self) -> str:
        """What it is known by: two that are announced with one key are one."""
        return _sha256_hex(f"{self.path}\0{self.version}")

    @property
    def path_key(self) -> str:
        """What all versions at its path are known by."""
        return _sha256_hex(self.path)


@dataclass(frozen=True, slots=True)
class ArrivalOutcome:
    """What became of an arrival: the commit that says so is refused if it is not waiting any more. One that was refused
    may be made to wait again.

    Args:
        rows: that went onto the channel.
        bad: records that were set aside.
        reason: why all of it was; of a file that was taken, why the first records were.
    """

    arrival: Arrival
    state: ArrivalState
    rows: int = 0
    bad: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ArrivalStatus:
    """An arrival as the catalog knows it.

    Args:
        at: when it was first announced.
        commit_id: by which it was taken or refused.
    """

    arrival: Arrival
    state: ArrivalState
    at: datetime
    rows: int = 0
    bad: int = 0
    reason: str | None = None
    commit_id: str | None = None


@dataclass(frozen=True, slots=True)
class ArrivalCounts:
    """How many arrivals of a channel are in each state, and what was taken.

    Args:
        oldest: when the first of those that wait was announced.
    """

    waiting: int = 0
    taken: int = 0
    refused: int = 0
    gone: int = 0
    waiting_bytes: int = 0
    rows: int = 0
    bad: int = 0
    oldest: datetime | None = None


def _sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
