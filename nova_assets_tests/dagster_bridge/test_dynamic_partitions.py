"""Dynamic partitions in Dagster: their names, and those of which Dagster has not heard yet (R13, R17)."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._cli.asset import asset_cli

from nova_assets.dagster_bridge import resources
from nova_assets.dagster_bridge.triggers import evaluate_trigger
from nova_assets.store.store import Store
from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import opened, write_definitions

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

DEFINITIONS = """
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

shop = nova.dynamic("shop")
sales, totals = (nova.Channel(n, schema="shop string, k bigint", partitions=shop) for n in ("sales", "totals"))

@nova.task(consumes=nova.new(sales), produces=nova.delta(totals))
def add(sales):
    return sales

project = nova.Project([nova.bind(nova.Workflowette("adding", [add]), when=nova.on_data(sales))])
defs = build_definitions(project, catalog={catalog!r}, warehouse={warehouse!r})
"""


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path, datetime.now(UTC), "shop string, k bigint")
    monkeypatch.setenv("DAGSTER_HOME", str(made.home))
    write_definitions(made, DEFINITIONS, monkeypatch)
    with opened(made) as store:
        store.insert("sales", [{"shop": "e|f", "k": 1}, {"shop": "g/h", "k": 2}])
    with made.held:
        yield made


def materialize(it: Daemon, partition: str) -> str:
    """``dagster asset materialize`` of a partition: what it prints if it fails."""
    command = ["materialize", "--select", "totals", "--partition", partition, "-f", str(it.file)]
    done = CliRunner().invoke(asset_cli, command)
    return "" if done.exit_code == 0 else f"{done.output} {done.exception}"


def test_a_partition_that_is_not_yet_published_is_materialized_from_the_command_line(deployment: Daemon) -> None:
    assert materialize(deployment, "e|f") == ""
    event = deployment.instance.get_latest_materialization_event(dg.AssetKey("totals"))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.partition == "e|f", "as it is called in the data"
    with opened(deployment) as store:
        assert [(c.partition, c.seq) for c in store.cursors("adding")] == [("shop=e|f", 1)]


@pytest.mark.core
def test_a_partition_without_data_is_refused_and_not_made_known(deployment: Daemon) -> None:
    assert "partition key `nowhere`" in materialize(deployment, "nowhere")
    assert not deployment.instance.has_dynamic_partition("shop", "nowhere")


def test_a_trigger_fires_in_partitions_that_are_not_yet_published(deployment: Daemon) -> None:
    project = runpy.run_path(str(deployment.file))["project"]
    store: Store = deployment.opener(project, settings=resources.load_settings(catalog=deployment.catalog))
    with store:
        [binding] = project.bindings
        requests = evaluate_trigger(binding, store, deployment.instance)
    assert isinstance(requests, list) and [r.partition_key for r in requests] == ["e|f", "g%2Fh"]


def test_the_sensor_shows_partitions_under_the_same_names(deployment: Daemon) -> None:
    deployment.iterate()
    assert deployment.instance.get_materialized_partitions(dg.AssetKey("sales")) == {"e|f", "g%2Fh"}
    assert deployment.instance.get_materialized_partitions(dg.AssetKey("totals")) == {"e|f", "g%2Fh"}
    assert set(deployment.instance.get_dynamic_partitions("shop")) == {"e|f", "g%2Fh"}
