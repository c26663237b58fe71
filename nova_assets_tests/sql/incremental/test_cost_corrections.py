"""Estimates are corrected by what executions cost."""

from __future__ import annotations

from typing import Any

import pytest

from nova_assets.model.task import LastExecution
from nova_assets.sql.incremental.maintenance_choice import CostCorrections, choose_by_cost
from nova_assets.sql.incremental.maintenance_cost import MaintenanceCost


def simulate(estimated: MaintenanceCost, true: MaintenanceCost, executions: int) -> list[str]:
    """The strategies that executions choose one after the other, if they cost something else than estimated."""
    corrections, chosen = CostCorrections(), []
    for _ in range(executions):
        cost = corrections.correct(estimated)
        strategy = choose_by_cost(cost, prefers_changes=False).strategy
        chosen.append(strategy)
        seconds = getattr(true, strategy)
        corrections = corrections.after_execution(strategy, cost.as_seconds()[strategy], seconds)
    return chosen


def test_a_wrong_choice_is_corrected_by_the_next_execution() -> None:
    chosen = simulate(MaintenanceCost(3, 10), MaintenanceCost(60, 11), 2)
    assert chosen == ["changes", "replacement"]


def test_a_replacement_that_is_dearer_than_estimated_is_corrected() -> None:
    chosen = simulate(MaintenanceCost(12, 10), MaintenanceCost(13, 90), 2)
    assert chosen == ["replacement", "changes"]


def test_a_strategy_that_was_dear_is_tried_again_seldom() -> None:
    chosen = simulate(MaintenanceCost(3, 10), MaintenanceCost(60, 11), 40)
    assert 2 <= chosen.count("changes") <= 10


@pytest.mark.parametrize("seconds", [0.1, 0.9, 3, 8])
def test_small_differences_and_the_start_of_spark_correct_nothing(seconds: float) -> None:
    """A small execution tells nothing about a large one."""
    assert CostCorrections().after_execution("changes", 1.7, seconds) == CostCorrections()


def test_an_estimate_that_is_right_again_stays_corrected() -> None:
    once = CostCorrections().after_execution("changes", 3, 65)
    assert once.factors == {"changes": 20}
    assert once.after_execution("changes", 60, 62) == once
    assert once.after_execution("changes", 60, 7).factors == {"changes": 4}


def test_a_machine_that_is_slower_throughout_keeps_its_choices() -> None:
    chosen = simulate(MaintenanceCost(5, 20), MaintenanceCost(30, 120), 30)
    assert chosen.count("changes") >= 29


def test_corrections_come_from_the_record_of_the_last_execution() -> None:
    maintenance: dict[str, Any] = {"strategy": "changes", "estimated_cpu_seconds": {"changes": 3, "replacement": 9}}
    other = {"result": {"channel": "other"}, "maintenance": maintenance}
    report = {"result": {"channel": "totals"}, "maintenance": maintenance}
    unmeasured = LastExecution([report], [None])
    assert CostCorrections.after(LastExecution([other, {}, report], [99, 99, 65]), "totals").factors == {"changes": 20}
    assert CostCorrections.after(unmeasured, "totals") == CostCorrections()
    assert CostCorrections.after(LastExecution(), "totals") == CostCorrections()


def test_corrections_pass_through_executions_that_are_not_chosen_by_cost() -> None:
    corrections = CostCorrections({"changes": 4})
    maintenance = {"strategy": "no change", "estimated_cpu_seconds": {}, **corrections.as_json()}
    report: dict[str, Any] = {"result": {"channel": "totals"}, "maintenance": maintenance}
    assert CostCorrections.after(LastExecution([report], [1]), "totals") == corrections


def test_a_corrected_choice_says_so() -> None:
    cost = CostCorrections({"changes": 4}).correct(MaintenanceCost(3, 10))
    choice = choose_by_cost(cost, prefers_changes=False)
    assert choice.reason.startswith(
        "it is estimated to cost less: changes 12.0 s of CPU, replacement 10.0 s, corrected"
    )
