"""How an execution brings a stored result up to date, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

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


Strategy: TypeAlias = Literal["first rows", "no change", "changes", "replacement", "comparison"]
"""``first rows``: the whole query is computed, and nothing is stored yet. ``no change``: no input has changed, or no
value that the query uses.
``changes``: the change of the result is computed from the changes of the inputs. ``replacement``: the whole query is
computed, and the result replaces the stored rows. ``comparison``: the whole query is computed, and the result is
compared with the stored rows, which costs 4 to 7 times as much as a replacement (measured with 400,000 rows).
"""

MAX_PREFERENCE = 3
"""Changes are preferred to a replacement up to so many times its cost: readers of the result get few rows, and a change
of an input that does not change the result writes nothing.
"""

_SHORT_SECONDS, _SHORT_SAVING_SECONDS, _SAVING_SHARE = 1.0, 0.5, 0.1
"""Seconds of CPU that a replacement of a whole result must save: half a second if it takes less than one, and otherwise
a tenth of what it takes. It takes a sequence number even if no row differs, and each reader compares two bases. The
readers of a partition mostly read it as a whole.
"""

_NETTING_SHARE = 0.1
"""Share of a replacement's cost that may be spent on finding out that the changes of the inputs do not concern it."""


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


@dataclass(frozen=True)
class ResultState:
    """State of a stored result and of its inputs, as far as it decides how the result is brought up to date.

    Args:
        channel: channel of the result.
        has_deletions: whether rows can be removed from this channel.
        is_partition: whether the result is one partition of a dataset. A partition is replaced rather than compared.
        reason_for_base: why the channel takes a base only, such as a changed merge model (R18); empty if it takes a
            delta.
        is_backfill: whether the whole result is to be computed, because a backfill requests it.
        has_run: whether all inputs were read before, and their changes are known.
        reason_without_change: why the changes of an input are not known; empty if they are, or if inputs have cursors.
        is_changed: whether an input may have a change.
        is_redefined: whether the columns or the merge model of an input have changed.
        reason_without_operators: why the operators cannot give the change of the result; None if they can.
        has_stored_rows: whether the channel has rows.
        reason_to_distrust: why the stored rows may not be the result of this query; None if they are.
        may_replace: whether the result may be replaced, without effects beyond its rows.
        estimate: estimates the cost; None if the sizes of the inputs are not known.
        nets_to_nothing: finds out whether the changes of all values that the query uses add up to nothing.
        has_frozen_rows: whether changes of some rows are left out once rows are stored.
    """

    channel: str
    has_deletions: bool
    is_partition: bool
    reason_for_base: str
    is_backfill: bool
    has_run: bool
    reason_without_change: str
    is_changed: bool
    is_redefined: bool
    reason_without_operators: Callable[[], str | None]
    has_stored_rows: Callable[[], bool]
    reason_to_distrust: Callable[[], str | None]
    may_replace: Callable[[], bool]
    estimate: Callable[[], MaintenanceCost | None]
    nets_to_nothing: Callable[[], bool]
    has_frozen_rows: bool = False


def choose_strategy(state: ResultState, *, prefers_changes: bool) -> MaintenanceChoice:
    """How an execution brings a result up to date.

    Args:
        prefers_changes: whether readers of the result should get changes although a replacement costs less.
    """
    computed_as_whole: Strategy = "replacement" if state.is_partition else "comparison"
    if state.reason_for_base and state.may_replace():
        return MaintenanceChoice("replacement", state.reason_for_base)
    if state.is_backfill:
        return MaintenanceChoice(computed_as_whole, "a backfill was requested")
    if state.reason_without_change:
        return MaintenanceChoice(computed_as_whole, state.reason_without_change)
    if not state.has_run and state.has_stored_rows():
        return MaintenanceChoice(computed_as_whole, "rows were stored before the first execution")
    if not state.has_run:
        return MaintenanceChoice("first rows", "this is the first execution")
    if reason := state.reason_to_distrust():
        return MaintenanceChoice(computed_as_whole, reason)
    if state.is_redefined:
        return MaintenanceChoice(computed_as_whole, "the definition of an input has changed")
    if not state.is_changed:
        return MaintenanceChoice("no change", "no input has changed")
    if state.has_frozen_rows and state.has_deletions and not state.has_stored_rows():
        # The changes of frozen rows were left out before. They count now that nothing is frozen, and are missing.
        return MaintenanceChoice(computed_as_whole, "no row is stored, so no row is frozen")
    if reason := state.reason_without_operators():
        is_replaced = not prefers_changes and state.may_replace()
        return MaintenanceChoice("replacement" if is_replaced else computed_as_whole, reason)
    if not state.has_deletions:
        return MaintenanceChoice("changes", "the channel takes added rows only")
    choice = choose_by_cost(state.estimate(), prefers_changes=prefers_changes, is_partition=state.is_partition)
    if choice.strategy == "replacement" and not state.may_replace():
        return MaintenanceChoice("changes", f"a replacement of {state.channel} would have effects beyond its rows")
    if choice.strategy == "replacement" and _is_netting_cheap(choice.cost) and state.nets_to_nothing():
        return MaintenanceChoice("no change", "no value that the query uses has changed", choice.cost)
    return choice


def choose_by_cost(
    cost: MaintenanceCost | None, *, prefers_changes: bool, is_partition: bool = False
) -> MaintenanceChoice:
    """Changes or replacement, by their estimates. If the sizes are not known, the changes are computed.

    Args:
        prefers_changes: whether changes are computed unless they are estimated to be several times as expensive.
        is_partition: whether the result is one partition of a dataset.
    """
    if cost is None:
        return MaintenanceChoice("changes", "the sizes of the inputs are not known")
    estimates = f"changes {cost.changes:.1f} s of CPU, replacement {cost.replacement:.1f} s"
    estimates += ", corrected by what earlier executions cost" if cost.is_corrected else ""
    saving = 0.0 if is_partition else _least_saving(cost.replacement)
    if cost.changes > max(MAX_PREFERENCE * cost.replacement if prefers_changes else 0, cost.replacement + saving):
        return MaintenanceChoice("replacement", f"it is estimated to cost less: {estimates}", cost)
    is_dearer = cost.changes > cost.replacement
    reason = "changes are preferred" if is_dearer else "they are estimated to cost less"
    return MaintenanceChoice("changes", f"{reason}: {estimates}", cost)


def _is_netting_cheap(cost: MaintenanceCost | None) -> bool:
    return cost is not None and cost.netting <= _NETTING_SHARE * cost.replacement


def _least_saving(replacement_seconds: float) -> float:
    """Seconds that a replacement must save."""
    return _SHORT_SAVING_SECONDS if replacement_seconds < _SHORT_SECONDS else _SAVING_SHARE * replacement_seconds
