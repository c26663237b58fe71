"""Upkeep by itself, at the level of the daemon's own iterations, with a clock of the test's."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge import resources
from nova_assets.settings import load_settings
from nova_assets.store.maintenance_tick import run_maintenance_tick
from nova_assets.store.store import Store
from nova_assets_tests.dagster_bridge.daemon import Daemon

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

DEFINITIONS = """
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

DDL = "k bigint, v bigint"
often = nova.Compaction(deltas=4)
prices = nova.Channel("prices", schema=DDL, merge=nova.Upsert(key="k"), compaction=often)
alone = nova.Channel("alone", schema=DDL, merge=nova.Upsert(key="k"), compaction=None)
kept = nova.Channel("kept", schema=DDL, merge=nova.Upsert(key="k"), compaction=often, retain="1d")
changed = nova.Channel("changed", schema=DDL)

days = nova.Channel("days", schema="day string, k bigint", partitions=nova.daily("day", "2024-01-01", keep="30d"))
sums = nova.Channel("sums", schema="day string, k bigint", partitions=nova.daily("day", "2024-01-01"))

@nova.task(consumes=nova.new(days), produces=nova.delta(sums))
def add(days):
    return days

@nova.task(consumes=nova.new(prices), produces=nova.delta(changed))
def follow(prices):
    return [{"k": r["k"], "v": r["v"]} for r in prices]

by_day = nova.bind(nova.Workflowette("by_day", [add]), when=nova.on_data(days))
project = nova.Project([nova.bind(nova.Workflowette("w", [follow])), by_day], channels=[alone, kept])
defs = build_definitions(project, catalog={catalog!r}, warehouse={warehouse!r})
"""


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path, datetime.now(UTC).replace(microsecond=0))
    monkeypatch.setattr(resources, "open_store", made.opener)
    text = DEFINITIONS.replace("{catalog!r}", repr(made.catalog))
    made.file.write_text(text.replace("{warehouse!r}", repr(made.warehouse)))
    with made.held:
        yield made


def opened(it: Daemon) -> Store:
    settings = load_settings(catalog=it.catalog, warehouse=it.warehouse)
    project = runpy.run_path(str(it.file))["project"]
    store = it.opener(project, settings=settings)
    store.register(project)
    return store


def update(store: Store, channel: str, *values: int) -> None:
    for v in values:
        store.insert(channel, [{"k": 1, "v": v}, {"k": v, "v": v}])


def kinds(store: Store, channel: str) -> list[tuple[int, str]]:
    """The blocks that are there: their numbers and kinds."""
    return sorted((b.hi, b.kind) for b in store.catalog.histories.of(channel).blocks)


def rows(store: Store, channel: str, **at: Any) -> list[tuple[int, int]]:
    return sorted((r["k"], r["v"]) for r in store.read(channel, **at).to_spark())  # type: ignore[union-attr]


def files(it: Daemon) -> int:
    return sum(1 for p in Path(it.warehouse).rglob("*") if p.is_file())


def test_what_is_worth_it_is_compacted_and_what_nobody_needs_is_collected_and_later_deleted(it: Daemon) -> None:
    with opened(it) as store:
        update(store, "prices", 11, 12, 13)
        it.iterate()
        assert [status for _, status in it.runs()] == [], "three deltas are not worth it"
        update(store, "prices", 14)
        before = rows(store, "prices")
        it.later(minutes=2)
        it.iterate()
        assert [status for _, status in it.runs()] == ["SUCCESS"]
        assert kinds(store, "prices") == [(4, "base")], "nobody has read the deltas, so nobody needs them"
        assert rows(store, "prices") == before and store.catalog.definitions.channel("prices").head == 4
        there = files(it)
        it.later(minutes=30)
        it.iterate()
        assert files(it) == there, "somebody may be reading them"
        it.later(minutes=40)
        it.iterate()
        assert files(it) < there and rows(store, "prices") == before


def test_a_consumer_that_lags_keeps_its_way(it: Daemon) -> None:
    with opened(it) as store:
        update(store, "prices", 11)
        store.run("w")
        update(store, "prices", 12, 13, 14, 15)
        it.iterate()
        assert kinds(store, "prices") == [(2, "delta"), (3, "delta"), (4, "delta"), (5, "base"), (5, "delta")]
        store.run("w")
        assert rows(store, "changed")[-2:] == [(14, 14), (15, 15)]
        it.later(minutes=2)
        it.iterate()
        assert kinds(store, "prices") == [(5, "base")]


def test_dagster_hears_of_a_lag_when_it_changes_and_not_otherwise(it: Daemon) -> None:
    def heard() -> list[tuple[int, str]]:
        """Of the lag on prices, latest first, with the version that it is of."""
        found = it.instance.fetch_observations(dg.AssetKey("prices"), limit=100).records
        events = [r.asset_observation for r in found if r.asset_observation]
        return [(e.metadata["nova/lag/w"].value, e.tags["dagster/data_version"]) for e in events]  # type: ignore[misc]

    with opened(it) as store:
        update(store, "prices", 11, 12)
        it.iterate()
        assert heard() == [(2, "2")]
        store.run("w")
        for _ in range(3):
            it.later(minutes=2)
            it.iterate()
        assert heard() == [(0, "2"), (2, "2")]
        assert not it.instance.fetch_observations(dg.AssetKey("kept"), limit=1).records, "nobody reads its changes"


def test_a_channel_says_when_it_is_compacted_and_for_how_long_it_keeps_versions(it: Daemon) -> None:
    with opened(it) as store:
        for channel in ("alone", "kept"):
            update(store, channel, *range(11, 51))
        it.iterate()
        assert (40, "base") not in kinds(store, "alone"), "it is never compacted by itself"
        assert (40, "base") in kinds(store, "kept") and len(kinds(store, "kept")) == 41, "versions are kept for a day"
        assert rows(store, "kept", at=2) == [(1, 12), (11, 11), (12, 12)]
        it.later(hours=25)
        it.iterate()
        assert kinds(store, "kept") == [(40, "base")]
        with pytest.raises(nova.BlockCollected):
            store.read("kept", at=2)


def test_what_has_not_changed_is_not_looked_at_again_for_an_hour(it: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(it) as store:
        it.now = it.now.replace(minute=1)
        update(store, "prices", 11)
        first = run_maintenance_tick(store, {})
        looked: list[str] = []
        monkeypatch.setattr(Store, "collect_garbage", lambda self, channel: looked.append(channel))
        monkeypatch.setattr(Store, "compactable", lambda self, channel, force: ())
        assert run_maintenance_tick(store, first.state_digests).state_digests == first.state_digests and looked == []
        it.now = it.now.replace(minute=59)
        assert run_maintenance_tick(store, first.state_digests).state_digests == first.state_digests and looked == []


def test_a_compaction_that_fails_is_said_and_not_tried_all_the_time(
    it: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(it) as store:
        update(store, "prices", 11, 12, 13, 14)
        update(store, "kept", 11, 12, 13, 14)
        compact = Store.compact

        def broken(self: Store, channel: str, **how: Any) -> Any:
            if channel == "kept":
                raise nova.FileMissing("a file is gone", next="nova doctor")
            return compact(self, channel, **how)

        monkeypatch.setattr(Store, "compact", broken)
        it.iterate()
        assert [status for _, status in it.runs()] == ["FAILURE"]
        assert (4, "base") in kinds(store, "prices"), "the other channel is"
        for n in (15, 16, 17):
            update(store, "kept", n)
            it.later(minutes=2)
            it.iterate()
        assert len(it.runs()) == 1
        it.later(minutes=15)
        it.iterate()
        assert len(it.runs()) == 2


def test_what_is_kept_no_longer_is_dropped_and_observed_and_fires_nothing(it: Daemon) -> None:
    long_ago = {"day": "2024-01-02", "k": 1}
    with opened(it) as store:
        store.insert("days", [long_ago, {"day": f"{it.now:%Y-%m-%d}", "k": 2}])
    for _ in range(4):
        it.later(minutes=2)
        it.iterate()
    with opened(it) as store:
        assert [r["k"] for r in store.read("days").to_spark()] == [2]  # type: ignore[union-attr]
        assert store.catalog.commits.unreported() == [], "Dagster has heard"
    key = dg.AssetKey("days")
    made = it.instance.fetch_materializations(key, limit=10).records
    seen = it.instance.fetch_observations(key, limit=10).records
    assert [r.asset_materialization.metadata["nova/seq"].value for r in made] == [1, 1]  # type: ignore[union-attr]
    drops = [r.asset_observation for r in seen if "nova/kind" in r.asset_observation.metadata]  # type: ignore[union-attr]
    assert [(d.partition, d.metadata["nova/seq"].value) for d in drops] == [("2024-01-02", 2)]  # type: ignore[union-attr]
    assert {job for job in (r.job_name for r in it.instance.get_runs())} <= {"nova_upkeep", "by_day"}
    with opened(it) as store:
        assert [f.n for d in ("day=2024-01-02",) if (f := store.catalog.firings.last("by_day", d))] == [1]
