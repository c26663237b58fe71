"""What one call that takes arrived files in, or tries them again, did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nova_assets.model.quarantine import merge_reason_counts

if TYPE_CHECKING:
    from nova_assets.model.commit import Commit


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
            merge_reason_counts(self.why, later.why),
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
