"""Damage: what is amiss between the catalog, the warehouse and Dagster, what that means, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DamageKind = Literal["staged", "lapsed", "unpublished", "event", "file", "orphan", "upload", "firing"]
"""Staged leftovers; executions whose lease is over; commits that Dagster has not heard of; Dagster's events without
commits; files missing or changed; files that nobody lists; uploads that nobody has finished; firings without a run."""

Cure = Literal["sweep", "publish", "rebuild", "give up", "set aside", "abort"]
"""Sweep what was staged; tell Dagster; wipe what Dagster has of a channel and tell it again; mark blocks as collected;
move files out of the way; abort uploads."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that was found.

    Args:
        kind: of which it is.
        subject: the execution, commit, channel, firing or path that it is about.
        what: is wrong, in plain words.
        means: for answers, and for whom.
        cure: what mends it; None where nothing here can.
        mending: what the cure does, for people.
        next: what to type, or do, where there is no cure.
        wrong: whether it has to be mended; what only passes, or is somebody else's, is told.
        concerns: what the cure is about: block ids, commit ids, or paths.
    """

    kind: DamageKind
    subject: str
    what: str
    means: str
    cure: Cure | None = None
    mending: str = ""
    next: str | None = None
    wrong: bool = True
    concerns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """What became of a damage that there was a cure for.

    Args:
        mended: whether it is gone.
        detail: why not, or what was done beyond the mending that was announced.
    """

    damage: Damage
    mended: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DamageReport:
    """What was looked at, and found.

    Args:
        damages: by kind.
        counts: what was looked at -> how many.
        notes: what was not looked at, and why.
    """

    damages: tuple[Damage, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()

    def merged_with(self, other: DamageReport) -> DamageReport:
        """Both together."""
        return DamageReport(
            (*self.damages, *other.damages), {**self.counts, **other.counts}, (*self.notes, *other.notes)
        )
