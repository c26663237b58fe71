"""One sensor for many bindings: the daemon's own iterations over triggers of every kind, and ticks of the sensor."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorStatus
from sqlalchemy import event

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, launch_due, resources
from nova_assets.dagster_bridge.triggers import evaluate_trigger
from nova_assets.store.store import Store
from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import insert, opened, write_definitions
from nova_assets_tests.stub_engine import StubEngine

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
"""Where the clock stands at first: the minutes that pass bring no other day, which would seal another partition."""

EVERY_KIND = """
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

source, other = (nova.Channel(n, schema="k bigint, v bigint") for n in ("source", "other"))
days = nova.daily("day", start="{first_day}")
daily = nova.Channel("daily", schema="day string, k bigint", partitions=days, seal=nova.seal("day"))

def bound(name, reads, when, **more):
    target = nova.Channel(f"{name}_out", schema=reads.schema, partitions=reads.partitions)
    task = nova.task(name="step", consumes=nova.new(reads, as_="rows"), produces=nova.delta(target))(step)
    return nova.bind(nova.Workflowette(name, [task]), when=when, **more)

def step(rows):
    return rows

project = nova.Project([
    bound("data", source, nova.on_data(source)),
    bound("both", source, nova.on_data(source) & nova.on_data(other)),
    bound("either", source, nova.on_data(source) | nova.on_data(other)),
    bound("rows", source, nova.on_data(source, rows=3)),
    bound("old", source, nova.on_data(source, rows=100, older_than="30m")),
    bound("hourly", source, nova.every("1h")),
    bound("cascade", source, nova.after("data")),
    bound("by_day", daily, nova.on_data(daily)),
    bound("sealed", daily, nova.on_sealed(daily), partitions=[]),
], channels=[other])
defs = build_definitions(project, catalog={catalog!r}, warehouse={warehouse!r}, sensors="grouped")
"""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path, NOON)
    write_definitions(made, EVERY_KIND, monkeypatch, first_day=day(2))
    with made.held:
        yield made


def day(days_ago: int) -> str:
    return (NOON - timedelta(days=days_ago)).date().isoformat()


def run_counts(daemon: Daemon) -> Counter[str]:
    assert {status for _, status in daemon.runs()} <= {"SUCCESS"}
    run_keys = [key for key, _ in daemon.runs()]
    assert len(run_keys) == len(set(run_keys))
    return Counter(key.partition("#")[0] for key in run_keys)


def after_some_ticks(daemon: Daemon, ticks: int = 2) -> Counter[str]:
    """Runs of these ticks, by binding and partition. Each tick is enough to request, or to see how a run ended."""
    before = run_counts(daemon)
    for _ in range(ticks):
        daemon.later(seconds=11)
        daemon.iterate()
    return run_counts(daemon) - before


@pytest.mark.slow
def test_each_kind_of_trigger_fires_once_per_block(daemon: Daemon) -> None:
    assert after_some_ticks(daemon) == {"hourly": 1}
    insert(daemon, "source", 1)
    daemon.forgets()  # Dagster's cursor is lost, and the first iteration of every sensor comes again
    assert after_some_ticks(daemon) == {"data": 1, "either": 1, "cascade": 1}
    insert(daemon, "other", 1)
    insert(daemon, "source", 2, 3)
    assert after_some_ticks(daemon) == {"both": 1, "data": 1, "either": 1, "cascade": 1, "rows": 1}
    insert(daemon, "daily", 1, day=day(2))
    insert(daemon, "daily", 2, day=day(1))
    with opened(daemon) as store:
        store.runtime.project = runpy.run_path(str(daemon.file))["project"]
        assert store.seal("daily")
        store.compact("source", force=True)
        store.collect_garbage("source")
    assert after_some_ticks(daemon) == {
        f"by_day[day={day(2)}]": 1,
        f"by_day[day={day(1)}]": 1,
        "sealed": 1,
    }
    daemon.later(minutes=31)
    assert after_some_ticks(daemon) == {"old": 1}
    daemon.later(minutes=31)
    assert after_some_ticks(daemon) == {"hourly": 1}
    assert all(tags["dagster/priority"] == "10" for tags in daemon.tags()), "firings pass backfills in the queue"


@pytest.mark.slow
def test_sensors_and_run_due_fire_a_trigger_once_between_them(daemon: Daemon) -> None:
    def run_due() -> list[str]:
        with opened(daemon) as store:
            store.runtime.project = runpy.run_path(str(daemon.file))["project"]
            return [r.binding for r in store.run_due(["data"]) if r.execution is not None]

    after_some_ticks(daemon)
    insert(daemon, "source", 1)
    assert run_due() == ["data"]
    assert after_some_ticks(daemon) == {"either": 1, "cascade": 1}
    insert(daemon, "source", 2)
    assert after_some_ticks(daemon)["data"] == 1
    assert run_due() == []


@pytest.mark.slow
def test_a_binding_that_is_switched_off_fires_once_it_is_switched_on(daemon: Daemon) -> None:
    after_some_ticks(daemon, 1)
    states = daemon.instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    by_name = {s.instigator_name: s for s in states}
    assert {"nova_triggers", "data_sensor", "both_sensor", "hourly_sensor"} <= set(by_name)
    daemon.instance.update_instigator_state(by_name["data_sensor"].with_status(InstigatorStatus.STOPPED))
    insert(daemon, "source", 1)
    assert after_some_ticks(daemon) == {"either": 1}
    with opened(daemon) as store:
        store.runtime.project = runpy.run_path(str(daemon.file))["project"]
        assert launch_due(store, ["source"], instance=daemon.instance, url="http://127.0.0.1:9") == {}
    daemon.instance.update_instigator_state(by_name["data_sensor"].with_status(InstigatorStatus.RUNNING))
    daemon.later(seconds=30)
    assert after_some_ticks(daemon)["data"] == 1


class Ticks:
    """Ticks of the grouped sensor of bindings ``b0``, ``b1`` …, each on the data of its own channel."""

    def __init__(self, root: Path, size: int, monkeypatch: pytest.MonkeyPatch, *, is_registered: bool = True) -> None:
        def opener(project: Any = None, spark: Any = None, settings: Any = None) -> Store:
            return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse))

        def bound(n: int) -> nova.Binding:
            channel = nova.Channel(f"c{n}", schema="k bigint, v bigint")
            task = nova.task(name="step", consumes=nova.new(channel, as_="rows"))(lambda rows: None)
            return nova.bind(nova.Workflowette(f"b{n}", [task]), when=nova.on_data(channel))

        monkeypatch.setattr(resources, "open_store", opener)
        project = nova.Project([bound(n) for n in range(size)])
        self.instance = dg.DagsterInstance.local_temp(str(root))
        self.definitions = build_definitions(project, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
        self.store = self.definitions.resources["nova"].store()
        if is_registered:
            self.store.register(project)
        self.queries: list[str] = []
        event.listen(self.store.catalog.database.engine, "before_cursor_execute", self._count)

    def tick(self) -> list[str]:
        """Run keys that one tick requests."""
        self.queries.clear()
        with dg.build_sensor_context(
            instance=self.instance, definitions=self.definitions, sensor_name="nova_triggers"
        ) as context:
            found = self.definitions.get_sensor_def("nova_triggers").evaluate_tick(context)
        return [str(r.run_key) for r in found.run_requests or []]

    def insert(self, *bindings: int) -> None:
        for n in bindings:
            self.store.insert(f"c{n}", [{"k": 1, "v": 1}])

    def _count(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self.queries.append(statement)


@pytest.fixture
def ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticks]:
    made = Ticks(tmp_path, 12, monkeypatch)  # more than have a sensor of their own
    yield made
    made.store.close()
    made.instance.dispose()


def test_a_tick_costs_what_has_changed(ticks: Ticks) -> None:
    assert ticks.tick() == []
    first = len(ticks.queries)
    assert ticks.tick() == [] and len(ticks.queries) <= 2 < first, "an idle tick asks for the heads"
    ticks.insert(3)
    assert ticks.tick() == ["b3#1#1"] and len(ticks.queries) < first / 3, "one binding of twelve"


def test_new_bindings_are_registered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Ticks(tmp_path, 12, monkeypatch, is_registered=False)
    assert new.tick() == []
    assert len(new.store.catalog.definitions.bindings()) == 12
    assert sum(q.startswith("BEGIN IMMEDIATE") for q in new.queries) <= 1, "one transaction"
    assert new.tick() == [] and len(new.queries) <= 2, "the registration is no change that triggers depend on"
    new.store.close()
    new.instance.dispose()


def test_a_binding_that_cannot_be_registered_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Ticks(tmp_path, 12, monkeypatch, is_registered=False)
    new.store.register(nova.Channel("c1", schema="k string"))  # another definition
    new.insert(2)
    assert new.tick() == ["b2#1#1"]
    assert set(new.store.catalog.definitions.bindings()) == {f"b{n}" for n in range(12)} - {"b1"}
    new.store.close()
    new.instance.dispose()


def test_the_error_of_a_binding_does_not_stop_the_others(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks.tick()
    last_firing = ticks.store.catalog.firings.last

    def broken(binding: str, partition: str = "") -> Any:
        if binding == "b1":
            raise ValueError("its row is damaged")
        return last_firing(binding, partition)

    monkeypatch.setattr(ticks.store.catalog.firings, "last", broken)
    ticks.insert(0, 1, 2)
    assert ticks.tick() == ["b0#1#1", "b2#1#1"]
    ticks.insert(1)
    with pytest.raises(Exception, match="its row is damaged"):  # nothing else to request: Dagster shows the tick failed
        ticks.tick()


def test_a_definition_that_another_process_has_replaced_uses_up_no_attempts(ticks: Ticks) -> None:
    ticks.tick()
    ticks.store.register(nova.Channel("c1", schema="k bigint, v bigint, w bigint"), replace=True)
    ticks.insert(2)
    ticks.store.insert("c1", [{"k": 1, "v": 1, "w": 1}])
    assert ticks.tick() == ["b2#1#1"]
    assert [f.binding for f in ticks.store.catalog.firings.find()] == ["b2"], "a run of b1 would fail"
    binding = ticks.store.project.binding("b1")
    with pytest.raises(nova.DefinitionConflict):
        evaluate_trigger(binding, ticks.store, ticks.instance)
    assert [f.binding for f in ticks.store.catalog.firings.find()] == ["b2"]


def test_a_binding_that_is_paused_or_removed_requests_nothing_until_that_is_taken_back(ticks: Ticks) -> None:
    ticks.store.pause("binding", "b1")
    ticks.store.pause("trigger", "b3")
    ticks.store.remove("binding", "b2")
    ticks.insert(0, 1, 2, 3)
    binding = ticks.store.project.binding("b2")
    answer = evaluate_trigger(binding, ticks.store, ticks.instance)
    assert isinstance(answer, dg.SkipReason) and "binding b2 is removed by" in str(answer.skip_message)
    run = ticks.definitions.resolve_job_def("b2").execute_in_process(instance=ticks.instance, raise_on_error=False)
    [failure] = [e for e in run.all_events if e.is_step_failure]
    assert "binding b2 was removed" in failure.step_failure_data.error.to_string()  # type: ignore[union-attr]
    assert ticks.tick() == ["b0#1#1"]
    ticks.store.resume("binding", "b1")
    ticks.store.resume("trigger", "b3")
    ticks.store.undo_removal("binding", "b2")
    ticks.insert(1, 2, 3)
    assert ticks.tick() == ["b1#1#1", "b2#1#1", "b3#1#1"]


@pytest.mark.slow
def test_a_tick_that_is_full_leaves_the_rest_to_the_next(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_assets.dagster_bridge.grouped_triggers.MAX_REQUESTS_PER_TICK", 5)
    ticks.insert(*range(12))
    requested = [ticks.tick() for _ in range(4)]
    assert [len(r) for r in requested] == [5, 5, 2, 0]
    assert len({key for r in requested for key in r}) == 12


def test_up_to_ten_bindings_evaluate_their_triggers_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = Ticks(tmp_path, 10, monkeypatch)
    intervals = {s.name: s.minimum_interval_seconds for s in few.definitions.sensors or [] if s.name.startswith("b")}
    assert len(intervals) == 10 and set(intervals.values()) == {5}
    few.store.close()
    few.instance.dispose()
