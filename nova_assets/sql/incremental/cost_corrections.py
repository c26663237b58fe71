"""Corrections of estimates by what earlier executions cost. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nova_assets.model.task import LastExecution
from nova_assets.sql.incremental.maintenance_cost import MaintenanceCost

_MAX_ERROR = 2
"""An estimate counts as wrong if the cost differs from it by more than this factor. On a shared machine, CPU times of
equal work differ by up to two times, and corrections of that would let two strategies take turns."""

_MAX_FACTOR = 50

_FIXED_SECONDS = 5.0
"""Seconds of CPU by which costs may differ from estimates, whatever the sizes are: the first statements of a session
take longer, and later ones less. They tell nothing about executions of other sizes.
"""

_DECAY = 0.8
"""Exponent by which the factor of a strategy approaches 1 each time that another strategy is chosen, so that a strategy
that was expensive once is tried again some day.
"""


@dataclass(frozen=True)
class CostCorrections:
    """How many times its estimate each strategy costs.

    Args:
        factors: strategy -> factor. A strategy that is left out costs what is estimated.
    """

    factors: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def after(last_execution: LastExecution, channel: str) -> CostCorrections:
        """The corrections that follow from what the last execution recorded about the result in a channel."""
        recorded = zip(last_execution.reports, last_execution.cpu_seconds, strict=True)
        for report, cpu_seconds in recorded:
            maintenance = report.get("maintenance")
            if maintenance is None or report.get("result", {}).get("channel") != channel:
                continue
            corrections = CostCorrections(maintenance.get("corrections", {}))
            strategy = maintenance["strategy"]
            estimated = maintenance["estimated_cpu_seconds"].get(strategy)
            if not estimated or cpu_seconds is None:
                return corrections
            return corrections.after_execution(strategy, estimated, cpu_seconds)
        return CostCorrections()

    def correct(self, cost: MaintenanceCost) -> MaintenanceCost:
        """The estimates, corrected."""
        changes, replacement = (self.factors.get(strategy, 1.0) for strategy in ("changes", "replacement"))
        return replace(
            cost,
            changes=changes * cost.changes,
            replacement=replacement * cost.replacement,
            is_corrected=bool(self.factors),
        )

    def as_json(self) -> dict[str, Any]:
        return {"corrections": dict(self.factors)} if self.factors else {}

    def after_execution(self, strategy: str, corrected_seconds: float, cpu_seconds: float) -> CostCorrections:
        """The corrections after an execution.

        Args:
            strategy: the strategy that the execution chose.
            corrected_seconds: its estimate, with these corrections.
            cpu_seconds: what the execution cost.
        """
        factors = {other: factor**_DECAY for other, factor in self.factors.items() if other != strategy}
        factor = self.factors.get(strategy, 1.0)
        if cpu_seconds - _FIXED_SECONDS > _MAX_ERROR * corrected_seconds:
            factor *= (cpu_seconds - _FIXED_SECONDS) / corrected_seconds
        elif (cpu_seconds + _FIXED_SECONDS) * _MAX_ERROR < corrected_seconds:
            factor *= (cpu_seconds + _FIXED_SECONDS) / corrected_seconds
        factors[strategy] = min(max(factor, 1 / _MAX_FACTOR), _MAX_FACTOR)
        return CostCorrections({s: round(f, 2) for s, f in factors.items() if round(f, 1) != 1.0})
