"""Damage: inconsistencies between the catalog, the warehouse and Dagster, with their consequences and repairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DamageKind = Literal["staged", "lapsed", "unpublished", "event", "file", "orphan", "upload", "firing"]
"""Kinds of damage.

Leftover staged blocks; executions with an expired lease; commits that Dagster does not know; Dagster events without
commits; missing or changed files; unreferenced files; unfinished uploads; firings without a run.
"""

Cure = Literal["sweep", "publish", "rebuild", "give up", "set aside", "abort"]
"""Kinds of repair.

Sweep staged blocks; publish commits to Dagster; wipe the events of a channel in Dagster and publish them again; mark
blocks as collected; move files away; abort uploads.
"""


@dataclass(frozen=True, slots=True)
class Damage:
    """One inconsistency.

    Args:
        kind: kind of damage.
        subject: the affected execution, commit, channel, firing or path.
        what: description of the damage.
        means: consequence for results, and for whom.
        cure: the repair; None if Nova cannot repair it.
        mending: description of the repair.
        next: command or action for a person if there is no repair.
        wrong: whether the damage must be repaired. Temporary or foreign states are only reported.
        concerns: objects of the repair: block ids, commit ids, or paths.
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
    """Result of one repair.

    Args:
        mended: whether the damage was repaired.
        detail: why the repair failed, or what was done beyond the announced repair.
    """

    damage: Damage
    mended: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DamageReport:
    """Result of a search for damage.

    Args:
        damages: sorted by kind.
        counts: kind of inspected object -> number inspected.
        notes: what was not inspected, and why.
    """

    damages: tuple[Damage, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()

    def merged_with(self, other: DamageReport) -> DamageReport:
        """Combination of two reports."""
        return DamageReport(
            (*self.damages, *other.damages), {**self.counts, **other.counts}, (*self.notes, *other.notes)
        )
