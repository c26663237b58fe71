"""One run for what is due (``sensors="together"``): the daemon's own iterations, and what Dagster shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorStatus

import nova_assets as nova
from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import insert, keys, opened, write_definitions

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

DEFINITIONS = """
import pathlib

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

folder = pathlib.Path(__file__).parent
source, even, odd, later = (nova.Channel(n, schema="k bigint, v bigint") for n in ("source", "even", "odd", "later"))


@nova.task(consumes=nova.new(source), produces=nova.delta("parsed"))
def parse(source):
    with (folder / "parsed").open("a") as file:
        file.write("x")
    return source


@nova.task(consumes=nova.new("parsed"), produces=nova.delta(even))
def keep_even(parsed):
    return [row for row in parsed if row["k"] % 2 == 0]


@nova.task(consumes=nova.new("parsed"), produces=nova.delta(odd))
def keep_odd(parsed):
    if (folder / "broken").exists():
        raise ValueError("still broken")
    return [row for row in parsed if row["k"] % 2]


@nova.task(consumes=nova.new(even), produces=nova.delta(later))
def follow(even):
    return even


project = nova.Project([
    nova.bind(nova.Workflowette("evens", [parse, keep_even]), when=nova.on_data(source)),
    nova.bind(nova.Workflowette("odds", [parse, keep_odd]), when=nova.on_data(source)),
    nova.bind(nova.Workflowette("follows", [follow]), when=nova.on_data(even)),
])
defs = build_definitions(project, catalog={catalog!r}, warehouse={warehouse!r}, sensors="together")
"""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path, datetime.now(UTC).replace(microsecond=0))
    write_definitions(made, DEFINITIONS, monkeypatch)
    with made.held:
        yield made


def runs_of_ticks(daemon: Daemon, ticks: int = 2, seconds: float = 11) -> list[tuple[str, str]]:
    """Job and state of the runs that these ticks bring."""
    before = {r.run_id for r in daemon.instance.get_runs()}
    for _ in range(ticks):
        daemon.later(seconds=seconds)
        daemon.iterate()
    return [(r.job_name, r.status.value) for r in daemon.instance.get_runs() if r.run_id not in before]


def materialized(daemon: Daemon, asset: str) -> list[str]:
    """Ids of the runs that have materialized an asset, oldest first."""
    records = daemon.instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
    return [r.run_id for r in reversed(records)]


def test_one_run_for_what_is_due_and_what_follows(daemon: Daemon) -> None:
    assert runs_of_ticks(daemon) == []
    insert(daemon, "source", 1, 2, 3, 4)
    assert runs_of_ticks(daemon) == [("nova_due", "SUCCESS")]
    assert (keys(daemon, "even"), keys(daemon, "odd"), keys(daemon, "later")) == ([2, 4], [1, 3], [2, 4])
    [run] = daemon.instance.get_runs()
    assert all(materialized(daemon, asset) == [run.run_id] for asset in ("even", "odd", "later")), "one run shows all"
    assert (daemon.root / "parsed").read_text() == "x", "two bindings begin with one function"
    with opened(daemon) as store:
        executions = [store.executions(b)[0] for b in ("evens", "odds", "follows")]
        assert {e.run_id for e in executions} == {run.run_id} and len({e.commit_id for e in executions}) == 3
        assert [f.state for f in store.catalog.firings.find()] == ["committed"] * 3
    assert runs_of_ticks(daemon) == []


def test_a_failure_fails_the_run_and_not_the_others(daemon: Daemon) -> None:
    (daemon.root / "broken").touch()
    insert(daemon, "source", 1, 2)
    assert runs_of_ticks(daemon, 1) == [("nova_due", "FAILURE")]
    assert keys(daemon, "later") == [2] and keys(daemon, "odd") == []
    assert runs_of_ticks(daemon, 1) == [], "the failed binding waits for its next attempt"
    (daemon.root / "broken").unlink()
    assert runs_of_ticks(daemon, 2, seconds=40) == [("nova_due", "SUCCESS")]
    assert keys(daemon, "odd") == [1] and keys(daemon, "even") == [2]


def test_a_binding_that_is_switched_off_waits(daemon: Daemon) -> None:
    runs_of_ticks(daemon, 1)
    states = daemon.instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    by_name = {s.instigator_name: s for s in states}
    assert {"nova_due_sensor", "evens_sensor", "odds_sensor", "follows_sensor"} <= set(by_name)
    daemon.instance.update_instigator_state(by_name["odds_sensor"].with_status(InstigatorStatus.STOPPED))
    insert(daemon, "source", 1, 2)
    assert runs_of_ticks(daemon) == [("nova_due", "SUCCESS")]
    assert keys(daemon, "odd") == [] and keys(daemon, "later") == [2]
    daemon.instance.update_instigator_state(by_name["odds_sensor"].with_status(InstigatorStatus.RUNNING))
    assert runs_of_ticks(daemon, 2, seconds=31) == [("nova_due", "SUCCESS")] and keys(daemon, "odd") == [1]


def test_a_binding_that_cannot_be_registered_stops_no_other(daemon: Daemon) -> None:
    """A channel of the first binding, and of one that follows, has got a key. A tick without another run says so."""
    with opened(daemon) as store:
        store.register(nova.Channel("even", schema="k bigint, v bigint", merge=nova.Upsert("k")), replace=True)
    insert(daemon, "source", 1, 2)
    assert runs_of_ticks(daemon, 3, seconds=31) == [("nova_due", "FAILURE")], "the run names the two that it left out"
    assert keys(daemon, "odd") == [1]
    causes = [t.error.cause.to_string() for t in ticks(daemon) if t.error is not None]
    assert causes and all("even" in c for c in causes), "Dagster shows it"


def test_a_firing_without_attempts_left_is_abandoned(daemon: Daemon) -> None:
    """Nothing else is due, so no run comes that would record it."""
    (daemon.root / "broken").touch()
    insert(daemon, "source", 1, 2)
    runs_of_ticks(daemon, 12, seconds=400)
    with opened(daemon) as store:
        firing = store.catalog.firings.last("odds")
        assert firing is not None and firing.state == "abandoned"
        assert "executions failed" in firing.why
    (daemon.root / "broken").unlink()
    insert(daemon, "source", 3)
    assert ("nova_due", "SUCCESS") in runs_of_ticks(daemon)
    assert keys(daemon, "odd") == [1, 3]


def ticks(daemon: Daemon) -> list[Any]:
    """Ticks of the sensor of all bindings."""
    states = daemon.instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    [sensor] = [s for s in states if s.instigator_name == "nova_due_sensor"]
    return list(daemon.instance.get_ticks(sensor.instigator_origin_id, sensor.selector_id))
