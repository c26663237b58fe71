"""Dagster's side of repair, on real instances: what it lacks, what it has too much, and firings without a run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge import build_definitions, resources, unreported_commits
from nova_assets.dagster_bridge.repair import DagsterRepair, open_existing_instance
from nova_assets.dagster_bridge.unreported_commits import TickLimits, collect_missing_events
from nova_assets.model.damage import Damage
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

DDL = "k bigint, v bigint"
source = nova.Channel("source", schema=DDL)
copy = nova.Channel("copy", schema=DDL)
days = nova.Channel("days", schema="day string, k bigint", partitions=[nova.dynamic("day")])


@nova.task(consumes=nova.new(source), produces=nova.delta(copy))
def mirror(source: list[Row]) -> list[Row]:
    return source


binding = nova.bind(nova.Workflowette("w", [mirror]), when=nova.on_data("source"))
project = nova.Project([binding], channels=[days])


class World:
    """A deployment on the stub engine, whose catalog's clock is set by hand, and a Dagster instance of its own."""

    def __init__(self, root: Path, catalog: str = "c") -> None:
        self.now = datetime.now(UTC) - timedelta(hours=2)
        self.settings = load_settings(catalog=f"sqlite:///{root}/{catalog}.db", warehouse=str(root / "wh"))
        made = open_catalog(self.settings.catalog, clock=lambda: self.now)
        self.store = Store(self.settings, project, made, StubEngine(self.settings.warehouse))
        self.instance = dg.DagsterInstance.ephemeral()
        self.store.register(project)

    @property
    def side(self) -> DagsterRepair:
        return DagsterRepair(self.store, self.instance)

    def insert(self, *keys: int, channel: str = "source", **values: Any) -> None:
        self.later(milliseconds=1)
        self.store.insert(channel, [{"k": k, **({"v": 0} if channel != "days" else values)} for k in keys])

    def later(self, **by: float) -> None:
        self.now += timedelta(**by)

    def tick(self) -> None:
        """What the sensor nova_publish does, until it has nothing more to say."""
        while events := collect_missing_events(self.store, self.instance):
            for event in events:
                self.instance.report_runless_asset_event(event)

    def found(self) -> list[Damage]:
        """Found, and nothing changed by that: neither in Dagster nor in the catalog."""
        before = (self.seqs("source"), len(self.store.catalog.commits.unreported()))
        first = list(self.side.find_damages().damages)
        assert list(self.side.find_damages().damages) == first
        assert (self.seqs("source"), len(self.store.catalog.commits.unreported())) == before
        return first

    def mend(self) -> list[bool]:
        return [o.mended for o in self.side.repair_damages(self.found())]

    def seqs(self, channel: str) -> list[tuple[int, str | None]]:
        """Numbers and partitions as Dagster has them, oldest first."""
        records = self.instance.fetch_materializations(dg.AssetKey(channel), limit=1000).records
        events = [r.asset_materialization for r in reversed(records)]
        return [(e.metadata["nova/seq"].value, e.partition) for e in events if e is not None]  # type: ignore[misc]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()


def test_a_commit_that_dagster_has_not_heard_of_is_told_and_published_once(world: World) -> None:
    world.insert(1)
    assert world.found() == [], "the sensor has a minute to do so"
    world.later(minutes=2)
    world.insert(2)
    [damage] = world.found()
    assert (damage.kind, damage.cure) == ("unpublished", "publish") and "source 1" in damage.what
    assert world.mend() == [True] and world.found() == []
    assert world.seqs("source") == [(1, None), (2, None)] and world.store.catalog.commits.unreported() == []
    world.later(minutes=2)
    world.tick()
    assert world.seqs("source") == [(1, None), (2, None)], "each is told once"


def test_a_commit_over_many_partitions_is_reported_in_several_ticks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other commit waits for it, but those on its channel keep their order. Each event comes once, also if Dagster
    has stored the events of a tick and not its cursor, or loses the cursor."""
    monkeypatch.setattr(unreported_commits, "MAX_EVENTS_OF_COMMIT", 3)
    days = [f"2024-01-{n:02}" for n in range(1, 11)]
    world.store.insert("days", [{"k": n, "day": day} for n, day in enumerate(days)])
    world.insert(1, channel="days", day=days[0])
    world.insert(1)
    world.later(minutes=2)
    cursors: list[str | None] = [None]
    reported: list[list[tuple[str, str | None]]] = []
    for tick in range(20):
        limits = TickLimits(None if tick == 4 else cursors[-1])
        events = collect_missing_events(world.store, world.instance, limits=limits)
        for event in events:
            world.instance.report_runless_asset_event(event)
        reported.append([(e.asset_key.path[-1], e.partition) for e in events if isinstance(e, dg.AssetMaterialization)])
        cursors += [] if tick == 2 else [limits.cursor]
    assert reported[0] == [("source", None), *(("days", day) for day in days[:3])]
    assert max(map(len, reported)) <= 4
    assert world.seqs("days") == [*((1, day) for day in days), (2, days[0])] and world.seqs("source") == [(1, None)]
    assert world.store.catalog.commits.unreported() == [] and cursors[-1] == "{}"


def test_a_tick_ends_after_its_limit_and_forgets_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreported_commits, "MAX_EVENTS_OF_COMMIT", 2)
    monkeypatch.setattr(unreported_commits, "MAX_EVENTS_PER_TICK", 3)
    monkeypatch.setattr(unreported_commits, "MAX_BLOCKS_PER_TICK", 6)
    days = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"]
    world.store.insert("days", [{"k": n, "day": day} for n, day in enumerate(days)])
    for n in range(5):
        world.insert(n)
    world.later(minutes=2)
    cursor, sizes = None, []
    for _ in range(12):
        limits = TickLimits(cursor)
        events = collect_missing_events(world.store, world.instance, limits=limits)
        for event in events:
            world.instance.report_runless_asset_event(event)
        cursor = limits.cursor
        sizes.append(len(events))
    assert max(sizes) <= 4 and sum(sizes) == 10
    assert sorted(world.seqs("days")) == [(1, day) for day in days]
    assert world.seqs("source") == [(n, None) for n in range(1, 6)]
    assert world.store.catalog.commits.unreported() == []


def test_many_commits_are_published_in_their_order(world: World) -> None:
    for n in range(130):
        world.insert(n)
    world.later(minutes=2)
    assert len(world.found()) == 130 and all(world.mend())
    assert [seq for seq, _ in world.seqs("source")] == list(range(1, 131))
    assert world.store.catalog.commits.unreported() == []


def test_r17_events_of_a_catalog_that_is_gone_are_replaced_by_what_this_one_has(world: World, tmp_path: Path) -> None:
    other = World(tmp_path, "lost")
    other.instance = world.instance
    for n in range(3):
        other.insert(n)
    other.insert(9, channel="copy")
    other.tick()
    other.store.close()
    world.insert(1)
    world.insert(2, channel="days", day="mon")
    world.later(minutes=2)
    world.tick()
    assert world.seqs("source") == [(1, None), (2, None), (3, None), (1, None)]

    damages = {d.subject: d for d in world.found()}
    assert set(damages) == {"source", "copy"} and all(d.kind == "event" for d in damages.values())
    assert damages["source"].what.startswith(
        "Dagster has 3 materializations of source from commits that the catalog does not contain"
    )
    assert world.mend() == [True, True] and world.found() == []
    assert world.seqs("source") == [(1, None)] and world.seqs("copy") == []
    assert world.seqs("days") == [(1, "mon")], "other channels are left alone"


def test_what_dagster_has_lost_is_told_again_in_its_order(world: World) -> None:
    world.insert(1)
    world.insert(2, channel="days", day="mon")
    world.insert(3)
    world.later(minutes=2)
    world.tick()
    world.instance.wipe_assets([dg.AssetKey("source")])
    [damage] = world.found()
    assert damage.cure == "rebuild" and "lost 2 commits of source" in damage.what
    assert world.mend() == [True] and world.found() == []
    assert world.seqs("source") == [(1, None), (2, None)] and world.seqs("days") == [(1, "mon")]


class Killed(BaseException):
    """As by SIGKILL, for an instance that lives in this process."""


@pytest.mark.parametrize("point", ["repair.unmarked", "repair.wiped"])
@pytest.mark.parametrize("sensor_comes_in_between", [False, True])
def test_r17_one_that_dies_between_wiping_and_telling_loses_nothing(
    world: World, tmp_path: Path, point: str, sensor_comes_in_between: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = World(tmp_path, "lost")
    other.instance = world.instance
    other.insert(7)
    other.tick()
    other.store.close()
    world.insert(1)
    world.insert(2)
    world.later(minutes=2)
    world.tick()

    def die(name: str) -> None:
        crash_point(name)
        if name == point:
            raise Killed

    monkeypatch.setattr("nova_assets.dagster_bridge.repair.crash_point", die)
    with pytest.raises(Killed):
        world.side.repair_damages(world.found())
    monkeypatch.undo()
    if sensor_comes_in_between:
        world.tick()
    while world.found():
        assert all(world.mend())
    assert world.seqs("source") == [(1, None), (2, None)] and world.store.catalog.commits.unreported() == []


def test_a_firing_whose_run_dagster_does_not_have_is_told(world: World) -> None:
    firing = world.store.catalog.firings.record("w", 0, {}, why="source is at 1")
    assert firing is not None and world.found() == []
    world.later(minutes=61)
    [damage] = world.found()
    assert (damage.kind, damage.wrong, damage.cure) == ("firing", False, None) and damage.subject == "w#1#1"
    defs = build_definitions(project, catalog=world.settings.catalog, warehouse=world.settings.warehouse)
    key = (world.settings.catalog, world.settings.warehouse, resources.register_project(project))
    resources._stores[key] = world.store
    tags = {"nova/firing": firing.id, "dagster/run_key": firing.run_key}
    defs.resolve_job_def("w").execute_in_process(instance=world.instance, tags=tags)
    assert [d for d in world.found() if d.kind == "firing"] == []


@pytest.mark.core
def test_a_home_that_nothing_has_run_in_is_not_made_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    for said in ("not set", "home", "home"):
        with pytest.raises(nova.NotSupported, match=said), open_existing_instance():
            pass
        home.mkdir(exist_ok=True)
        monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert list(home.iterdir()) == []
    (home / "dagster.yaml").write_text("storage: nonsense\n")
    with pytest.raises(nova.NotSupported, match="cannot be opened"), open_existing_instance():
        pass
