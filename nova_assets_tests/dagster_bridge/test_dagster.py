"""Bindings under Dagster: real instances, a real catalog; a stub engine, but for the last test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, resources
from nova_assets.dagster_bridge.triggers import evaluate_trigger
from nova_assets.dagster_bridge.unreported_commits import collect_missing_events
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

DDL = "k bigint, v bigint"
source = nova.Channel("source", schema=DDL, owners=["data@example.com"], description="What arrives.")
copy = nova.Channel("copy", schema=DDL, tags={"tier": "raw"}, fresh_within="25h")
seen = nova.Channel("seen", merge=nova.Upsert(key="k"), schema=DDL)

failing: list[str] = []
calls: list[str] = []


@nova.task(consumes=nova.new(source), produces=nova.delta(copy, columns={"k": "source.k"}))
def mirror(source: list[Row]) -> list[Row]:
    calls.append("mirror")
    return source


@nova.task(consumes=[nova.new(copy), nova.all(seen)], produces=nova.delta(seen))
def remember(copy: list[Row], seen: list[Row]) -> list[Row]:
    calls.append("remember")
    if failing:
        raise ValueError(failing.pop())
    known = {r["k"] for r in seen}
    return list({r["k"]: r for r in copy if r["k"] not in known}.values())


binding = nova.bind(nova.Workflowette("w", [mirror, remember]), when=nova.on_data("source"))
project = nova.Project([binding])


class World:
    """A store with a stub engine, as the Dagster resource finds it."""

    def __init__(self, root: Path, steps: Any = "per_task") -> None:
        catalog, warehouse = f"sqlite:///{root}/c.db", str(root / "wh")
        settings = load_settings(catalog=catalog, warehouse=warehouse)
        self.store = Store(settings, project, open_catalog(catalog), StubEngine(warehouse))
        resources._stores[settings.catalog, settings.warehouse, resources.register_project(project)] = self.store
        self.defs = build_definitions(project, catalog=catalog, warehouse=warehouse, steps=steps)
        self.job = self.defs.resolve_job_def("w")
        self.instance = dg.DagsterInstance.ephemeral()
        self.store.register(project)

    def run(self, **how: Any) -> dg.ExecuteInProcessResult:
        return self.job.execute_in_process(instance=self.instance, **how)

    def seqs(self, channel: str) -> list[int]:
        found = self.instance.fetch_materializations(dg.AssetKey(channel), limit=100).records
        return [r.asset_materialization.metadata["nova/seq"].value for r in reversed(found)]  # type: ignore[union-attr, misc]


@pytest.fixture(params=["per_task", "one"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    failing.clear()
    calls.clear()
    made = World(tmp_path, request.param)
    yield made
    made.store.close()


def rows(*keys: int) -> list[Row]:
    return [{"k": k, "v": 0} for k in keys]


@pytest.mark.core
def test_lineage_follows_the_tasks_and_channels_are_dressed(world: World) -> None:
    graph = world.defs.resolve_asset_graph()
    parents = {
        n: {p.to_user_string() for p in graph.get(dg.AssetKey(n)).parent_keys} for n in ("source", "copy", "seen")
    }
    assert parents == {"source": set(), "copy": {"source"}, "seen": {"copy"}}
    assert graph.get(dg.AssetKey("source")).is_external and not graph.get(dg.AssetKey("copy")).is_external
    assert graph.get(dg.AssetKey("source")).owners == ["data@example.com"]
    assert graph.get(dg.AssetKey("copy")).tags["tier"] == "raw" and graph.get(dg.AssetKey("copy")).group_name == "w"
    assert graph.get(dg.AssetKey("seen")).kinds == {"spark", "parquet"}
    links = graph.get(dg.AssetKey("copy")).metadata["dagster/code_references"].code_references
    code = [(Path(link.file_path).name, link.label) for link in links]
    assert code == [("test_dagster.py", "mirror"), ("test_dagster.py", "remember")]
    line = Path(__file__).read_text().splitlines()[links[0].line_number - 1]
    assert line.startswith("@nova.task(consumes=nova.new(source)") or line.startswith("def mirror")
    policy = graph.get(dg.AssetKey("copy")).freshness_policy
    assert policy is not None and policy == dg.FreshnessPolicy.time_window(timedelta(hours=25))


def test_each_block_is_a_materialization_with_its_facts(world: World) -> None:
    world.store.insert("source", rows(1, 2))
    events = {
        e.asset_key.to_user_string(): e.materialization
        for e in world.run().get_asset_materialization_events()
        if e.asset_key
    }
    assert set(events) == {"copy", "seen"}
    facts = {k: getattr(v, "value", v) for k, v in events["seen"].metadata.items()}
    shown = {k: facts[k] for k in ("nova/seq", "nova/kind", "nova/range", "dagster/row_count", "nova/deletes")}
    assert shown == {
        "nova/seq": 1,
        "nova/kind": "delta",
        "nova/range": "Δ(0→1)",
        "dagster/row_count": 2,
        "nova/deletes": 0,
    }
    assert facts["nova/consumed"]["source"] == {"cursor": 0, "head": 1} and facts["nova/bytes"] > 0
    assert [c.name for c in facts["dagster/column_schema"].columns] == ["k", "v"]
    assert facts["dagster/uri"].startswith(world.store.settings.warehouse)
    assert events["seen"].tags["dagster/data_version"] == "1"
    lineage: Any = events["copy"].metadata["dagster/column_lineage"].value
    assert dict(lineage.deps_by_column) == {"k": [dg.TableColumnDep(dg.AssetKey("source"), "k")]}
    assert "dagster/column_lineage" not in events["seen"].metadata  # of which nothing was declared


def test_an_empty_delta_is_no_materialization(world: World) -> None:
    world.store.insert("source", rows(1))
    world.run()
    world.store.insert("source", rows(1))
    events = [e.asset_key.to_user_string() for e in world.run().get_asset_materialization_events() if e.asset_key]
    assert events == ["copy"]
    assert {c.channel: c.lag for c in world.store.cursors("w")} == {"source": 0, "copy": 0}


def test_r4_going_on_from_a_failure_keeps_the_pins_and_what_was_staged(world: World) -> None:
    world.store.insert("source", rows(1))
    failing.append("once")
    first = world.run(raise_on_error=False)
    assert not first.success and world.seqs("copy") == []
    assert all(s.head == 0 for s in world.store.channels() if s.channel.name != "source"), "nothing is visible"
    world.store.insert("source", rows(2))
    runtime = world.store.runtime
    execution = world.store.executions("w")[0]
    assert execution.state == "failed"
    # what the steps do that a run from failure repeats: they attach by the description that Dagster kept
    again = runtime.attach_to_execution(execution.id)
    runtime.run_task(again, "remember")
    runtime.commit(again)
    assert calls == ["mirror", "remember", "remember"]
    assert sorted(r["k"] for r in world.store.read("copy").to_spark()) == [1]  # type: ignore[union-attr]


def test_on_data_fires_once_for_each_new_head(world: World) -> None:
    def tick(later: int = 0) -> Any:
        now = world.store.catalog.now() + timedelta(seconds=later)
        return evaluate_trigger(binding, world.store, world.instance, now)

    assert isinstance(tick(), dg.SkipReason)
    world.store.insert("source", rows(1))
    request = tick()
    assert request.run_key == "w#1#1"
    assert isinstance(tick(), dg.SkipReason), "whoever requested it is about to"
    repeated = tick(later=20)
    assert repeated.run_key == "w#1#1", "a daemon that died before it asked asks again, under the same key"
    world.run(tags={**request.tags, "dagster/run_key": request.run_key})
    assert isinstance(tick(), dg.SkipReason)
    assert world.store.catalog.firings.last("w").state == "committed"  # type: ignore[union-attr]
    world.store.insert("source", rows(2))
    assert tick().run_key == "w#2#1"


def test_a_failed_run_of_a_firing_is_tried_again_and_then_abandoned(world: World) -> None:
    def tick(later: int = 0) -> Any:
        return evaluate_trigger(binding, world.store, world.instance, datetime.now(UTC) + timedelta(minutes=later))

    world.store.insert("source", rows(1))
    for attempt in (1, 2, 3):
        request = tick(attempt)
        assert request.run_key == f"w#1#{attempt}"
        failing.append("again")
        world.run(tags={**request.tags, "dagster/run_key": request.run_key}, raise_on_error=False)
    gone = tick()
    assert isinstance(gone, dg.SkipReason) and "abandoned after 3 failed runs" in str(gone.skip_message)
    assert world.store.catalog.firings.last("w").state == "abandoned"  # type: ignore[union-attr]


def test_attempts_of_nova_run_due_count_with_those_of_the_sensor(world: World) -> None:
    def tick(later: int = 0) -> Any:
        return evaluate_trigger(binding, world.store, world.instance, datetime.now(UTC) + timedelta(minutes=later))

    world.store.insert("source", rows(1))
    failing.append("again")
    [by_hand] = world.store.run_due()
    assert by_hand.error is not None
    assert "of firing 1 failed; the next attempt comes at" in str(tick().skip_message)
    for attempt in (2, 3):
        request = tick(attempt)
        assert request.run_key == f"w#1#{attempt}"
        failing.append("again")
        world.run(tags={**request.tags, "dagster/run_key": request.run_key}, raise_on_error=False)
    assert "abandoned after 3 failed runs" in str(tick().skip_message)


def test_runs_that_never_began_are_no_attempts(world: World) -> None:
    def tick(later: int) -> Any:
        return evaluate_trigger(binding, world.store, world.instance, datetime.now(UTC) + timedelta(hours=later))

    world.store.insert("source", rows(1))
    for n in range(1, 8):
        request = tick(n)
        if n <= 4:  # its process is killed while it starts, or before its execution began; nova_janitor reports that
            run = dg.DagsterRun("w", tags={**request.tags, "dagster/run_key": request.run_key})
            world.instance.add_run(run)
            if n > 2:
                world.instance.report_dagster_event(dg.DagsterEvent("PIPELINE_START", "w"), run.run_id)
            world.instance.report_run_failed(run, "its process is gone")
        else:
            failing.append("again")
            world.run(tags={**request.tags, "dagster/run_key": request.run_key}, raise_on_error=False)
        assert request.run_key == f"w#1#{n}"
    assert "abandoned after 3 failed runs" in str(tick(8).skip_message)


def test_r17_an_outside_insert_is_published_once_even_if_the_tick_is_repeated(world: World) -> None:
    world.store.insert("source", rows(1))
    events = collect_missing_events(world.store, world.instance)
    assert [e.metadata["nova/seq"].value for e in events] == [1]  # type: ignore[union-attr]
    again = collect_missing_events(world.store, world.instance)
    assert len(again) == 1, "Dagster has not got it yet"
    for event in events:
        world.instance.report_runless_asset_event(event)
    assert collect_missing_events(world.store, world.instance) == [] and world.store.catalog.commits.unreported() == []
    assert world.seqs("source") == [1]


def test_what_a_run_published_is_not_published_again(world: World) -> None:
    world.store.insert("source", rows(1))
    world.run()
    left = {c.binding for c in world.store.catalog.commits.unreported()}
    assert left == {None}, "only the insert"


@pytest.mark.core
def test_a_conflict_is_planned_again_within_the_commit_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.store.insert("source", rows(1))
    really = world.store.catalog.commits.commit
    tried: list[int] = []

    def rival(request: Any) -> Any:
        if request.binding == "w" and not tried:
            tried.append(1)
            monkeypatch.setattr(world.store.catalog.commits, "commit", really)
            world.store.insert("copy", rows(9))
        return really(request)

    monkeypatch.setattr(world.store.catalog.commits, "commit", rival)
    assert world.run().success
    assert sorted(r["k"] for r in world.store.read("seen").to_spark()) == [1, 9]  # type: ignore[union-attr]


@pytest.mark.core
def test_a_users_asset_reads_what_is_new_and_its_cursor_moves_on_evidence(world: World) -> None:
    got: list[Any] = []
    broken: list[int] = []

    @dg.asset(ins={"changes": dg.AssetIn("copy", metadata={"nova/mode": "new"}, input_manager_key="nova_io_manager")})
    def report(changes: Any) -> dg.MaterializeResult:  # type: ignore[type-arg]
        got.append(sorted(r["k"] for r in changes))
        if broken:
            raise ValueError(broken.pop())
        return dg.MaterializeResult()

    defs = dg.Definitions.merge(world.defs, dg.Definitions(assets=[report], jobs=[dg.define_asset_job("r", "report")]))
    job = defs.resolve_job_def("r")

    def run() -> None:
        job.execute_in_process(instance=world.instance, raise_on_error=False)

    world.store.insert("copy", rows(1))
    broken.append(1)
    run()
    run()
    world.store.insert("copy", rows(2))
    run()
    run()
    assert got == [[1], [1], [2], []], "given again until the asset was materialized, then only what is new"


PIPELINE = """
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

source = nova.Channel("source", schema="k bigint, v bigint")
big = nova.Channel("big")

@nova.task(consumes=nova.new(source), produces=nova.delta(big))
def pick(source):
    return source.filter("v > 10")

project = nova.Project([nova.bind(nova.Workflowette("picking", [pick]))])
defs = build_definitions(project)
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.exhaustive
def test_dagster_asset_materialize_runs_a_binding_whole(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    home = tmp_path / "home"
    home.mkdir()
    catalog = f"sqlite:///{tmp_path}/c.db"
    env = {**os.environ, "DAGSTER_HOME": str(home), "NOVA_CATALOG": catalog, "NOVA_WAREHOUSE": str(tmp_path / "wh")}
    with nova.open(catalog=catalog, warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("source", schema=DDL))
        store.insert("source", [{"k": 1, "v": 5}, {"k": 2, "v": 50}])
        program = str(Path(sys.executable).with_name("dagster"))
        command = [program, "asset", "materialize", "--select", "big", "-f", str(tmp_path / "pipeline.py")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        assert [i.seq for i in store.timeline("big")] == [1]
        assert store.timeline("big")[0].blocks[0].rows == 1
