"""Results of ingesting arrived files, and of replaying quarantined records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nova_assets.model.quarantine import merge_reason_counts

if TYPE_CHECKING:
    from nova_assets.model.commit import Commit


@dataclass(frozen=True, slots=True)
class ReceiveResult:
    """Result of one call of ``store.receive``.

    Args:
        announced: files announced for the first time.
        files: files ingested, or quarantined as a whole.
        rows: rows added to the channel.
        bad: records and whole files added to the quarantine.
        commits: one per batch.
        waiting: files that remain.
        why: reason -> number of records quarantined for it. Reasons that differ only in their values count as one.
    """

    announced: int = 0
    files: int = 0
    rows: int = 0
    bad: int = 0
    commits: tuple[Commit, ...] = ()
    waiting: int = 0
    why: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, later: ReceiveResult) -> ReceiveResult:
        """Sum of two consecutive results."""
        return ReceiveResult(
            self.announced + later.announced,
            self.files + later.files,
            self.rows + later.rows,
            self.bad + later.bad,
            (*self.commits, *later.commits),
            later.waiting,
            merge_reason_counts(self.why, later.why),
        )


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of one call of ``store.replay``.

    Args:
        rows: rows added to the channel.
        files: files that wait to be read again.
        left: records that stay in the quarantine.
        commit: None if no record could be repaired.
    """

    rows: int = 0
    files: int = 0
    left: int = 0
    commit: Commit | None = None
