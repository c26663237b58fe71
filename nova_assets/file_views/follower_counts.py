"""What a follower of timelines has done, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FollowerCounts:
    """What a follower has done, since it began.

    Args:
        asked: questions.
        met: of these, those that the view answered as it was, without a look at the catalog.
        applied: instants.
        loaded: partitions, from the catalog.
        rebuilt: of these, those that had been loaded, and to which an instant could not be applied.
        restarted: timelines that were another one, or too far ahead.
        failed: times that the storage failed.
    """

    asked: int = 0
    met: int = 0
    applied: int = 0
    loaded: int = 0
    rebuilt: int = 0
    restarted: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _RoundResult:
    """What came of a round.

    Args:
        complete: nothing is left to be loaded.
        absent_scopes: scopes that are partitions of which the catalog knows nothing.
    """

    complete: bool
    absent_scopes: frozenset[str] = frozenset()
