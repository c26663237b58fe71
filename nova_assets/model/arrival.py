"""Arrivals: announced files, each of which is ingested exactly once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

ArrivalState = Literal["waiting", "taken", "refused", "gone"]
"""``refused``: the whole file was quarantined; ``gone``: the file was deleted before it was read."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One version of one file.

    Args:
        path: relative to the source's location, with forward slashes.
        version: distinguishes contents at the same path: size and modification time, or the store's ETag.
        size: in bytes.
        modified: time of the last change.
    """

    path: str
    version: str
    size: int
    modified: datetime | None = None

    @property
    def key(self) -> str:
        """Identity of this version of the file. Announcements with equal keys are the same arrival."""
        return _sha256_hex(f"{self.path}\0{self.version}")

    @property
    def path_key(self) -> str:
        """Identity of the path, shared by all versions of the file."""
        return _sha256_hex(self.path)


@dataclass(frozen=True, slots=True)
class ArrivalOutcome:
    """Result of one arrival, as part of a commit.

    The commit is rejected if the arrival is no longer waiting. A refused arrival can be set to waiting again.

    Args:
        rows: rows added to the channel.
        bad: records in quarantine.
        reason: why the whole file was quarantined; for an ingested file, why its first bad records were.
    """

    arrival: Arrival
    state: ArrivalState
    rows: int = 0
    bad: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ArrivalStatus:
    """An arrival as recorded in the catalog.

    Args:
        at: time of its first announcement.
        commit_id: commit that ingested or refused it.
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
    """Number of arrivals of a channel per state, with totals of the ingested data.

    Args:
        oldest: announcement time of the oldest waiting arrival.
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
