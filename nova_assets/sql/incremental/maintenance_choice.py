"""How an execution brings a stored result up to date, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from nova_assets.sql.incremental.maintenance_cost import MaintenanceCost

Strategy: TypeAlias = Literal["first rows", "no change", "changes", "replacement", "comparison"]
"""``first rows``: the whole query is computed, and nothing is stored yet. ``no change``: no input has changed.
``changes``: the change of the result is computed from the changes of the inputs. ``replacement``: the whole query is
computed, and the result replaces the stored rows. ``comparison``: the whole query is computed, and the result is
compared with the stored rows.
"""

MAX_PREFERENCE = 3
"""Changes are preferred to a replacement up to so many times its cost: readers of the result get few rows, and a change
of an input that does not change the result writes nothing.
"""

_NEGLIGIBLE_SECONDS = 0.5
"""Seconds of CPU that a replacement must save. It takes a sequence number even if no row differs, and each reader
compares two bases.
"""


@dataclass(frozen=True)
class MaintenanceChoice:
    """The strategy of an execution.

    Args:
        reason: why it was chosen.
        cost: estimates that decided; None if the cost did not decide.
    """

    strategy: Strategy
    reason: str
    cost: MaintenanceCost | None = None

    def as_json(self) -> dict[str, Any]:
        estimates = {} if self.cost is None else {k: round(v, 2) for k, v in self.cost.as_seconds().items()}
        return {"strategy": self.strategy, "reason": self.reason, "estimated_cpu_seconds": estimates}


def choose_by_cost(cost: MaintenanceCost | None, *, prefers_changes: bool) -> MaintenanceChoice:
    """Changes or replacement, by their estimates. If the sizes are not known, the changes are computed.

    Args:
        prefers_changes: whether changes are computed unless they are estimated to be several times as expensive.
    """
    if cost is None:
        return MaintenanceChoice("changes", "the sizes of the inputs are not known")
    estimates = f"changes {cost.changes:.1f} s of CPU, replacement {cost.replacement:.1f} s"
    limit = max(MAX_PREFERENCE * cost.replacement if prefers_changes else 0, cost.replacement + _NEGLIGIBLE_SECONDS)
    if cost.changes > limit:
        return MaintenanceChoice("replacement", f"it is estimated to cost less: {estimates}", cost)
    is_dearer = cost.changes > cost.replacement
    reason = "changes are preferred" if is_dearer else "they are estimated to cost less"
    return MaintenanceChoice("changes", f"{reason}: {estimates}", cost)
