"""Arrivals: files that were announced, each of which is taken exactly once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from nova_assets.model.quarantine import add_reasons

if TYPE_CHECKING:
    from nova_assets.model.commit import Commit

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
        return _hashed(f"{self.path}\0{self.version}")

    @property
    def place(self) -> str:
        """What all versions at its path are known by."""
        return _hashed(self.path)


@dataclass(frozen=True, slots=True)
class Taken:
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


@dataclass(frozen=True, slots=True)
class Received:
    """What one call of ``store.receive`` did.

    Args:
        announced: files that were not known before.
        files: that were taken, or set aside whole.
        rows: that went onto the channel.
        bad: records, and whole files, that went into its quarantine.
        commits: one for each batch.
        waiting: files that are left.
        why: reason -> how many records were set aside for it; reasons that differ only in their values are one.
    """

    announced: int = 0
    files: int = 0
    rows: int = 0
    bad: int = 0
    commits: tuple[Commit, ...] = ()
    waiting: int = 0
    why: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, later: Received) -> Received:
        """Both together."""
        return Received(
            self.announced + later.announced,
            self.files + later.files,
            self.rows + later.rows,
            self.bad + later.bad,
            (*self.commits, *later.commits),
            later.waiting,
            add_reasons(self.why, later.why),
        )


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one call of ``store.replay`` did.

    Args:
        rows: that went onto the channel.
        files: that wait to be read anew.
        left: records that stay in the quarantine.
        commit: None where nothing could be mended.
    """

    rows: int = 0
    files: int = 0
    left: int = 0
    commit: Commit | None = None


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
