"""Counters of a timeline follower."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FollowerCounts:
    """Counters of a timeline follower since its start.

    Args:
        asked: questions.
        met: questions answered by the view as it was, without asking the catalog.
        applied: applied instants.
        loaded: partitions loaded from the catalog.
        rebuilt: partitions and views that were loaded again, since an instant could not be applied or data was damaged.
        restarted: views restarted, since the timeline was another one or the view was too far behind.
        failed: failures of the storage.
    """

    asked: int = 0
    met: int = 0
    applied: int = 0
    loaded: int = 0
    rebuilt: int = 0
    restarted: int = 0
    failed: int = 0
