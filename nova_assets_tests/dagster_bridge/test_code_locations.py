"""Several code locations on one catalog: each commit is shown once, by the location that owns the channel (R17)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.catalog.dagster_publishers import CLAIM_EXPIRY
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge.code_locations import claim_channels_for_location
from nova_assets.dagster_bridge.repair import DagsterRepair
from nova_assets.dagster_bridge.unreported_commits import collect_missing_events
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

DDL = "day string, k bigint"
DAY = nova.daily("day", start="2024-01-01")
source = nova.Channel("source", schema=DDL)
days, sums = (nova.Channel(n, schema=DDL, partitions=DAY) for n in ("days", "sums"))


@nova.task(consumes=nova.new(source), produces=nova.delta(days))
def split(source: list[Row]) -> list[Row]:
    return source


@nova.task(consumes=[nova.new(days), nova.all(source)], produces=nova.delta(sums))
def add(days: list[Row], source: list[Row]) -> list[Row]:
    return days


splitting = nova.Project([nova.bind(nova.Workflowette("splitting", [split]), partitions=[])])
adding = nova.Project([nova.bind(nova.Workflowette("adding", [add]))])


class Deployment:
    """Two code locations, which share a catalog, a warehouse and a Dagster instance."""

    def __init__(self, root: Path) -> None:
        self.now = datetime.now(UTC) - timedelta(hours=2)
        settings = load_settings(catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
        self.instance = dg.DagsterInstance.ephemeral()
        self.stores = {
            name: Store(
                settings,
                project,
                open_catalog(settings.catalog, clock=lambda: self.now),
                StubEngine(settings.warehouse, DDL),
            )
            for name, project in (("adding", adding), ("splitting", splitting))
        }
        for store in self.stores.values():
            store.register(store.project)

    def insert(self, channel: str, *days: int) -> None:
        rows = [{"day": f"2024-01-{d:02}", "k": d} for d in days]
        self.stores["adding"].insert(channel, rows)

    def ticks(self, *locations: str) -> None:
        """Ticks of ``nova_publish`` in several locations at the same time: all look before any event is written."""
        events = [
            collect_missing_events(store, self.instance, channels=claim_channels_for_location(store, name))
            for name, store in self.stores.items()
            if name in locations
        ]
        for event in [e for of_location in events for e in of_location]:
            self.instance.report_runless_asset_event(event)

    def shown(self) -> Counter[tuple[str, str | None, Any]]:
        """Channel, Dagster's partition and number of each materialization."""
        found: Counter[tuple[str, str | None, Any]] = Counter()
        for channel in ("source", "days", "sums", "stranger"):
            for record in self.instance.fetch_materializations(dg.AssetKey(channel), limit=100).records:
                event = record.asset_materialization
                assert event is not None
                found[channel, event.partition, event.metadata["nova/seq"].value] += 1
        return found


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    yield made
    for store in made.stores.values():
        store.close()


def test_each_commit_is_shown_once_by_the_location_that_owns_the_channel(deployment: Deployment) -> None:
    both = ("adding", "splitting")
    deployment.insert("source", 1, 2)
    deployment.stores["splitting"].run("splitting")
    deployment.stores["adding"].run("adding", "day=2024-01-01")
    deployment.ticks(*both)
    deployment.insert("days", 3)
    deployment.ticks(*both)
    deployment.ticks(*both)
    assert deployment.shown() == {
        ("source", None, 1): 1,
        ("days", None, 1): 1,  # its binding runs unpartitioned, so Dagster sees it so
        ("days", None, 2): 1,
        ("sums", "2024-01-01", 1): 1,
    }
    assert deployment.stores["adding"].catalog.commits.unreported() == []


@pytest.mark.slow
def test_a_channel_of_no_location_is_not_shown_and_keeps_nothing_else_from_being_shown(deployment: Deployment) -> None:
    deployment.stores["adding"].register(nova.Channel("stranger", schema=DDL))
    for n in range(1, 105):  # more than a tick looks at
        deployment.insert("stranger", n % 28 + 1)
    deployment.insert("source", 1)
    deployment.ticks("splitting")
    assert deployment.shown() == {("source", None, 1): 1}


def test_a_location_that_is_gone_leaves_its_channels_to_another(deployment: Deployment) -> None:
    deployment.ticks("adding")
    deployment.insert("source", 1)
    deployment.ticks("splitting")
    assert deployment.shown() == {}, "the other location has it"
    deployment.now += CLAIM_EXPIRY
    deployment.ticks("splitting")
    assert deployment.shown() == {("source", None, 1): 1}


def test_repair_in_one_location_says_nothing_of_the_other(deployment: Deployment) -> None:
    deployment.ticks("adding", "splitting")
    deployment.insert("days", 1)
    deployment.now += timedelta(minutes=5)
    mends = {name: DagsterRepair(store, deployment.instance) for name, store in deployment.stores.items()}
    assert [d.kind for d in mends["splitting"].find_damages().damages] == ["unpublished"]
    assert mends["adding"].find_damages().damages == ()
    assert all(o.mended for o in mends["splitting"].repair_damages(mends["splitting"].find_damages().damages))
    assert deployment.shown() == {("days", None, 1): 1}
