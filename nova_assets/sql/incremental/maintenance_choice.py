"""How an execution brings a stored result up to date, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from nova_assets.sql.incremental.maintenance_cost import MaintenanceCost

Strategy: TypeAlias = Literal["first rows", "no change", "changes", "comparison"]
"""``first rows``: the whole query is computed, and nothing is stored yet. ``no change``: no input has changed.
``changes``: the change of the result is computed from the changes of the inputs. ``comparison``: the whole query is
computed, and the result is compared with the stored rows.
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


def choose_by_cost(cost: MaintenanceCost | None) -> MaintenanceChoice:
    """The cheaper strategy. If the sizes are not known, the changes are computed."""
    if cost is None:
        return MaintenanceChoice("changes", "the sizes of the inputs are not known")
    estimates = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in cost.as_seconds().items())
    strategy: Strategy = "changes" if cost.changes <= cost.comparison else "comparison"
    return MaintenanceChoice(strategy, f"it is estimated to be cheaper: {estimates} of CPU", cost)
