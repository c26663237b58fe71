"""How a maintenance is done: by changes or by a replacement, decided from sizes alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
from sqlglot import exp

from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.sql.incremental.accumulation import accumulation_of
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.maintenance_choice import (
    MaintenanceChoice,
    ResultState,
    choose_by_cost,
    choose_strategy,
)
from nova_assets.sql.incremental.maintenance_cost import DatasetSize, MaintenanceCost, estimate_maintenance
from nova_assets.sql.incremental.operators import Operator
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText

FACTS: Schema = parse_ddl("id int, k int, amount int")
JOIN = "SELECT f.id, d.amount FROM facts f JOIN sides d ON f.k = d.id"
GROUP = "SELECT k, COUNT(*) AS n, SUM(amount) AS total FROM facts GROUP BY k"


def operators_of(sql: str) -> Operator:
    sources = {name: SourceTable(FACTS, ("id",)) for name in ("facts", "sides")}
    text = SqlText("query", sql)
    tree = parse_statement(text)
    assert isinstance(tree, exp.Query)
    return build_operators(resolve_query(text, tree, {n: s.schema for n, s in sources.items()}), sources)


def chosen(sql: str, rows: int, changed: int, *, prefers_changes: bool = False, **options: Any) -> MaintenanceChoice:
    sizes = {"facts": DatasetSize(rows, changed, True), "sides": DatasetSize(rows // 10, 0, True)}
    is_small = changed <= 200_000
    root = operators_of(sql)
    options = {"accumulation": accumulation_of(root), **options}
    cost = estimate_maintenance(root, sizes, rows // 10, is_change_small=is_small, **options)
    return choose_by_cost(cost, prefers_changes=prefers_changes)


@pytest.mark.parametrize("sql", [JOIN, GROUP])
def test_a_small_change_of_many_rows_is_computed_alone(sql: str) -> None:
    assert chosen(sql, 20_000_000, 1_000).strategy == "changes"


@pytest.mark.parametrize("sql", [JOIN, GROUP])
def test_a_change_of_most_rows_replaces_the_result(sql: str) -> None:
    choice = chosen(sql, 20_000_000, 15_000_000)
    assert choice.strategy == "replacement"
    assert "changes" in choice.reason and "replacement" in choice.reason and "s of CPU" in choice.reason
    assert choice.as_json()["estimated_cpu_seconds"].keys() == {"changes", "replacement"}


def test_groups_without_stored_accumulators_are_dearer() -> None:
    estimates = [chosen(GROUP, 20_000_000, 1_000, is_accumulated=a).cost for a in (True, False)]
    complete, incomplete = (e.changes for e in estimates if e is not None)
    assert 1.5 * complete < incomplete


def test_incremental_prefers_changes_up_to_a_limit() -> None:
    def choice(changes: float) -> str:
        return choose_by_cost(MaintenanceCost(changes, 1.0), prefers_changes=True).strategy

    assert [choice(s) for s in (0.9, 2.9, 3.1)] == ["changes", "changes", "replacement"]


def test_auto_computes_changes_that_cost_a_tenth_more_than_a_replacement_or_half_a_second_if_it_is_short() -> None:
    def choice(changes: float, replacement: float) -> str:
        return choose_by_cost(MaintenanceCost(changes, replacement), prefers_changes=False).strategy

    assert [choice(s, 0.8) for s in (1.2, 1.4)] == ["changes", "replacement"]
    assert [choice(s, 1.0) for s in (1.09, 1.2)] == ["changes", "replacement"]
    assert [choice(s, 8.0) for s in (8.7, 8.9)] == ["changes", "replacement"]
    assert choose_by_cost(None, prefers_changes=False).strategy == "changes"


@pytest.mark.parametrize(
    ("netting", "nets_to_nothing", "strategy"),
    [
        (0.7, True, "no change"),
        (0.7, False, "replacement"),
        (0.9, True, "replacement"),
        (math.inf, True, "replacement"),
    ],
)
def test_a_replacement_is_spared_if_it_is_cheap_to_see_that_nothing_changed(
    netting: float, nets_to_nothing: bool, strategy: str
) -> None:
    state = ResultState(
        channel="result",
        has_deletions=True,
        is_partition=False,
        reason_for_base="",
        is_backfill=False,
        has_run=True,
        reason_without_change="",
        is_changed=True,
        is_redefined=False,
        reason_without_operators=lambda: None,
        has_stored_rows=lambda: True,
        reason_to_distrust=lambda: None,
        may_replace=lambda: True,
        estimate=lambda: MaintenanceCost(20.0, 8.0, netting),
        nets_to_nothing=lambda: nets_to_nothing,
    )
    assert choose_strategy(state, prefers_changes=False).strategy == strategy


def test_readers_of_changes_make_a_replacement_dearer() -> None:
    sizes = {"facts": DatasetSize(1_000, 10, True), "sides": DatasetSize(100, 0, True)}
    costs = [
        estimate_maintenance(operators_of(GROUP), sizes, 1_000_000, is_change_small=True, readers=n) for n in range(3)
    ]
    assert costs[0].changes == costs[2].changes
    assert costs[0].replacement < costs[1].replacement < costs[2].replacement


def test_an_input_without_a_change_costs_nothing_to_look_up() -> None:
    def changes(sides: int) -> float:
        sizes = {"facts": DatasetSize(1_000_000, 10, True), "sides": DatasetSize(100_000, sides, True)}
        return estimate_maintenance(operators_of(JOIN), sizes, 1_000_000, is_change_small=True).changes

    assert changes(0) < changes(1) < changes(50_000)


def test_partners_that_are_found_by_their_key_are_cheaper_than_others() -> None:
    """Only these rows of a changed dataset are merged with its changes."""

    def cost(key: frozenset[str]) -> MaintenanceCost:
        sizes = {"facts": DatasetSize(5_000_000, 10, True), "sides": DatasetSize(5_000_000, 10, True, key=key)}
        return estimate_maintenance(operators_of(JOIN), sizes, 5_000_000, is_change_small=True)

    by_key, by_other_column = cost(frozenset({"id"})), cost(frozenset({"amount"}))
    assert by_key.changes < by_other_column.changes
    assert by_key.replacement == by_other_column.replacement


def test_few_groups_of_many_rows_are_computed_again_as_a_whole() -> None:
    """If each group has many rows, a change of few rows computes most rows again."""
    averages = operators_of("SELECT k, AVG(amount) AS mean FROM facts GROUP BY k")
    sizes = {"facts": DatasetSize(20_000_000, 1_000, True), "sides": DatasetSize(100, 0, True)}
    few, many = (estimate_maintenance(averages, sizes, groups, is_change_small=True) for groups in (4, 5_000_000))
    assert few.changes > many.changes
    assert choose_by_cost(few, prefers_changes=False).strategy == "replacement"
