"""Checks that a project gives to channels, as Dagster shows them: for plain assets, and for rows from outside."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge.unreported_commits import collect_missing_events
from nova_assets.errors import CheckFailed, DefinitionError
from nova_assets_tests.dagster_bridge.asset_deployment import DELTA, LISTED, NEW, ORDERS, Deploy, failure

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.spark]

SMALL = nova.checks.expression(LISTED, "amount < 10", name="small")
FEW = nova.checks.row_count_between(LISTED, 0, 2, blocking=False)
POSITIVE = nova.checks.expression(ORDERS, "amount > 0", name="positive")


def evaluations(result: Any) -> dict[str, bool]:
    events = [e for e in result.all_events if e.event_type_value == "ASSET_CHECK_EVALUATION"]
    return {e.asset_check_evaluation_data.check_name: e.asset_check_evaluation_data.passed for e in events}


def test_a_plain_asset_has_the_checks_of_its_channel(deploy: Deploy) -> None:
    @dg.asset(key="listed", metadata=DELTA, ins=NEW, check_specs=[dg.AssetCheckSpec("own", asset="listed")])
    def listed(orders: pa.Table):  # type: ignore[no-untyped-def]
        return dg.MaterializeResult(value=orders, check_results=[dg.AssetCheckResult(passed=True)])

    world = deploy(listed, checks=[SMALL, FEW])
    checks = world.defs.get_repository_def().asset_graph.asset_check_keys
    assert {k.name for k in checks} == {"own", "small", "row_count"}
    world.insert(1, 2)
    assert evaluations(world.run("listed")) == {"own": True, "small": True, "row_count": True}
    job = world.defs.resolve_implicit_global_asset_job_def()
    with_checks = job.get_subset(asset_selection={dg.AssetKey("listed")}, asset_check_selection=checks)
    again = with_checks.execute_in_process(instance=world.instance, resources=world.defs.resources)
    assert again.success and evaluations(again) == {"own": True, "small": True, "row_count": True}
    world.insert(3)
    assert evaluations(world.run("listed")) == {"own": True, "small": True, "row_count": False}
    world.insert(11)
    failed = world.run("listed")
    assert not failed.success and "small" in failure(failed) and not evaluations(failed)["small"]
    assert world.amounts() == [1, 2, 3]
    [rows] = world.store.failing_rows("listed", "small")
    assert rows.rows is not None and [r["amount"] for r in rows.rows.collect()] == [11]


@pytest.mark.core
def test_names_of_checks_that_clash_are_refused(deploy: Deploy) -> None:
    @dg.asset(key="listed", metadata=DELTA, ins=NEW, check_specs=[dg.AssetCheckSpec("small", asset="listed")])
    def listed(orders: pa.Table):  # type: ignore[no-untyped-def]
        return dg.MaterializeResult(value=orders, check_results=[dg.AssetCheckResult(passed=True)])

    with pytest.raises(DefinitionError, match="'listed' and the project both have a check 'small'"):
        deploy(listed, checks=[SMALL])


@pytest.mark.core
def test_rows_from_outside_are_checked_before_the_insert_and_on_demand(deploy: Deploy) -> None:
    world = deploy(checks=[POSITIVE])
    key = dg.AssetCheckKey(dg.AssetKey("orders"), "positive")
    world.insert(1, 2)
    reported = collect_missing_events(world.store, world.instance)
    [evaluation] = [e for e in reported if isinstance(e, dg.AssetCheckEvaluation)]
    assert evaluation.asset_check_key == key and evaluation.passed
    with pytest.raises(CheckFailed):
        world.insert(-1)
    job = world.defs.resolve_implicit_global_asset_job_def()
    selection = job.get_subset(asset_selection=set(), asset_check_selection={key})
    result = selection.execute_in_process(instance=world.instance, resources=world.defs.resources)
    assert evaluations(result) == {"positive": True}
