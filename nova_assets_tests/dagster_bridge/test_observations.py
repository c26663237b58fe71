"""Observation of channels that are fed from outside, as Dagster's button *Observe* starts it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets_tests.dagster_bridge.asset_deployment import DELTA, LISTED, NEW, ORDERS, Deploy, Deployment, failure

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@dg.asset(key="listed", metadata=DELTA, ins=NEW, automation_condition=dg.AutomationCondition.eager())
def list_orders(orders: pa.Table) -> pa.Table:
    return orders


def observe(world: Deployment) -> dict[str, Any]:
    """Observe the channel ``orders``, and return what Dagster shows then."""
    result = world.run("orders")
    assert result.success, failure(result)
    [event] = result.get_asset_observation_events()
    observation = event.asset_observation_data.asset_observation
    shown = {name: value.value for name, value in observation.metadata.items()}
    return {**shown, "version": observation.tags["dagster/data_version"]}


def test_an_observation_shows_the_head_and_what_dagster_lacked(deploy: Deploy) -> None:
    world = deploy(list_orders)
    assert observe(world)["version"] == "0"
    world.insert(1, 2)
    world.insert(3)
    shown = observe(world)
    assert (shown["version"], shown["nova/seq"], shown["dagster/row_count"]) == ("2", 2, 3)
    records = world.instance.fetch_materializations(dg.AssetKey("orders"), limit=9).records
    assert len(records) == 2, "the commits are reported, too"
    observe(world)
    assert len(world.instance.fetch_materializations(dg.AssetKey("orders"), limit=9).records) == 2, "each once"
    assert world.store.timeline("listed") == []


def test_conditions_see_an_observed_change_once(deploy: Deploy) -> None:
    world = deploy(list_orders)
    cursor: Any = None

    def requested() -> int:
        nonlocal cursor
        result = dg.evaluate_automation_conditions(world.defs, world.instance, cursor=cursor)
        cursor = result.cursor
        return result.total_requested

    observe(world)
    requested()
    world.insert(1)
    observe(world)
    assert requested() == 1 and world.run("listed").success
    observe(world)
    assert requested() == 0, "nothing has changed since"


@pytest.mark.core
def test_files_that_wait_are_counted_and_stay(deploy: Deploy, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    orders = nova.Channel("orders", schema=ORDERS.schema, source=nova.files(str(tmp_path / "inbox"), format="json"))
    world = deploy(channels=[orders, LISTED])
    (tmp_path / "inbox" / "a.json").write_text('{"shop": "a", "amount": 1}\n')
    os.utime(tmp_path / "inbox" / "a.json", (0, 0))  # a new file might still grow, so it is not waiting yet
    assert observe(world)["nova/waiting_files"] == 1
    assert world.store.timeline("orders") == [] and len(world.store.arriving("orders")) == 1


def test_an_external_table_is_listed_again(deploy: Deploy, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    table = pa.table({"shop": ["a", "b"], "amount": [1, 2]})
    pq.write_table(table, folder / "1.parquet")
    world = deploy(channels=[nova.Channel("orders", schema=ORDERS.schema, external=nova.external(str(folder))), LISTED])
    assert observe(world)["dagster/row_count"] == 2
    assert (observe(world)["version"], observe(world)["nova/changed_partitions"]) == ("1", 0)
    pq.write_table(table, folder / "2.parquet")
    shown = observe(world)
    assert (shown["version"], shown["dagster/row_count"], shown["nova/changed_partitions"]) == ("2", 4, 1)


def test_only_channels_without_partitions_and_without_a_writer_are_observable(deploy: Deploy) -> None:
    day = nova.daily("day", start="2026-01-01")
    world = deploy(list_orders, channels=[ORDERS, LISTED, nova.Channel("clicks", schema="day date", partitions=day)])
    graph = world.defs.resolve_asset_graph()
    assert {k.to_user_string() for k in graph.observable_asset_keys} == {"orders"}
    assert graph.get(dg.AssetKey("clicks")).is_external and graph.get(dg.AssetKey("orders")).is_external
