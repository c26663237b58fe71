"""Users' own assets and runs from failure: real Dagster, real SQLite, stub engine."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import resources
from nova_assets.dagster_bridge.unreported_commits import collect_missing_events
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.dagster_bridge.consumer_world import World, rows, sink, source
from nova_assets_tests.stub_engine import StubEngine

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def test_the_job_has_the_bindings_name(world: World) -> None:
    assert world.defs.resolve_job_def("w").name == "w"


def test_a_binding_that_writes_nothing_loads_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, nova.Project([nova.bind(nova.Workflowette("lone", [sink]))]), monkeypatch)
    world.store.insert("other", rows(1))
    (name,) = [n for n in world.defs.resolve_all_job_defs() if n.name.startswith("lone")]
    assert name.execute_in_process(instance=world.instance).success
    assert [c.seq for c in world.store.cursors("lone")] == [1]


def test_a_users_asset_reads_a_channel_that_a_binding_writes_as_documented_in_design_8(world: World) -> None:
    got: list[Any] = []

    @dg.asset(ins={"x": dg.AssetIn("copy", metadata={"nova/mode": "new"})})
    def report(x: list) -> None:  # type: ignore[type-arg]
        got.append(sorted(r["k"] for r in x))

    world.store.insert("source", rows(1))
    assert world.run().success
    assert world.run("report", [report]).success and got == [[1]]


def test_an_asset_of_several_outputs_has_one_cursor_for_them(world: World) -> None:
    got: list[Any] = []
    failing = [True]

    @dg.multi_asset(
        outs={"small": dg.AssetOut(), "large": dg.AssetOut()},
        ins={"x": dg.AssetIn("source", metadata={"nova/mode": "new"}), "y": dg.AssetIn("other")},
    )
    def parts(x: list, y: list) -> Iterator[Any]:  # type: ignore[type-arg]
        got.append((sorted(r["k"] for r in x), len(y)))
        yield dg.Output(len(x), "small")
        if failing:
            raise ValueError(failing.pop())
        yield dg.Output(len(y), "large")

    for k in (1, 2):
        world.store.insert("source", rows(k))
        world.run("small,large", [parts])
    world.store.insert("other", rows(7))
    assert world.run("small,large", [parts]).success
    # The first run materialized one of two and failed: its step did not succeed, so it is given the same again.
    assert got == [([1], 0), ([1, 2], 0), ([], 1)]
    world.run("small,large", [parts])
    assert {c.binding: c.seq for c in world.store.cursors()} == {"asset:large+small": 2}


def test_what_a_check_on_an_asset_of_ones_own_says_stops_its_cursor(world: World) -> None:
    """A result without a value, with a blocking check that failed: the step failed, so nothing was consumed."""
    got: list[Any] = []
    passes = [False, True]

    @dg.asset(
        ins={"x": dg.AssetIn("source", metadata={"nova/mode": "new"})},
        check_specs=[dg.AssetCheckSpec("fine", asset="checked", blocking=True)],
    )
    def checked(x: list) -> dg.MaterializeResult:  # type: ignore[type-arg]
        got.append(sorted(r["k"] for r in x))
        return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=passes.pop(0), check_name="fine")])

    world.store.insert("source", rows(1))
    assert not world.run("checked", [checked]).success
    world.store.insert("source", rows(2))
    assert world.run("checked", [checked]).success
    assert got == [[1], [1, 2]]


def test_a_weekly_consumers_cursor_moves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []

    @dg.asset(ins={"x": dg.AssetIn("source", metadata={"nova/mode": "new"})})
    def weekly(x: list) -> None:  # type: ignore[type-arg]
        got.append(sorted(r["k"] for r in x))

    database = world.store.catalog.database
    for week in (1, 2):
        world.store.insert("source", rows(week))
        assert world.run("weekly", [weekly]).success
        sensor = next(s for s in world.defs.sensors if s.name == "nova_publish")
        with dg.build_sensor_context(instance=world.instance) as context:
            sensor.evaluate_tick(context)
        late = datetime.now(UTC) + timedelta(days=7, hours=1) * week
        monkeypatch.setattr(database, "clock", lambda late=late: late)
        world.store.runtime.delete_dead_staging()
    assert got == [[1], [2]], "what it was given a week ago it has"


EPHEMERAL = """
import sys
import dagster as dg
import nova_assets as nova
from nova_assets.dagster_bridge import NovaIOManager, NovaResource, resources
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine

def opener(project=None, spark=None, settings=None):
    return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse))

resources.open_store = opener
root, times = sys.argv[1], int(sys.argv[2])
project = nova.Project([], channels=[nova.Channel("source", schema="k bigint, v bigint")])

@dg.asset(ins={"x": dg.AssetIn("source", metadata={"nova/mode": "new"})})
def report(x: list) -> None:
    print("read", sorted(r["k"] for r in x), flush=True)

from nova_assets.dagster_bridge import build_definitions
defs = build_definitions(project, catalog=f"sqlite:///{root}/c.db", warehouse=f"{root}/wh")
all_of_it = dg.Definitions.merge(defs, dg.Definitions(assets=[report]))
for _ in range(times):
    job = all_of_it.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(asset_selection=[dg.AssetKey("report")]).success
"""


def test_runs_under_ephemeral_instances_hold_nothing_once_they_are_over(tmp_path: Path) -> None:
    """In one process after another, and several times in one process: nobody waits for a lease."""
    store = Store(
        load_settings(tmp_path, catalog=f"sqlite:///{tmp_path}/c.db", warehouse=f"{tmp_path}/wh"),
        None,
        open_catalog(f"sqlite:///{tmp_path}/c.db"),
        StubEngine(tmp_path / "wh"),
    )
    store.register(source)
    store.insert("source", rows(1))
    for times in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", EPHEMERAL, str(tmp_path), str(times)], capture_output=True, text=True, timeout=250
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count("read [1]") >= 1, "what nobody has evidence of is given again"
    (last,) = store.open_executions()
    assert last.holder == "gone" and last.execution.owner.startswith("dagster:") and "@" in last.execution.owner
    assert (last.execution.lease_until - last.execution.started_at) < timedelta(minutes=10)
    store.close()


def test_what_dagster_has_is_not_published_again_however_many_came_after(world: World) -> None:
    commit = world.store.insert("source", rows(0))
    (event,) = collect_missing_events(world.store, world.instance)
    world.instance.report_runless_asset_event(event)
    for n in range(120):
        later = dg.AssetMaterialization("source", metadata={"nova/seq": n + 2, "nova/commit": f"later{n}"})
        world.instance.report_runless_asset_event(later)
    events = collect_missing_events(world.store, world.instance)
    assert [e for e in events if e.metadata["nova/commit"].value == commit.id] == []


def test_lines_of_ctx_log_reach_dagster(world: World) -> None:
    world.store.insert("source", rows(1))
    run_id = world.run().run_id
    assert any("a line of the task" in e.user_message for e in world.instance.all_logs(run_id))


def test_two_inputs_of_one_asset_share_one_consumer_asset_key(world: World) -> None:
    @dg.asset(
        ins={
            "x": dg.AssetIn("source", metadata={"nova/mode": "new"}),
            "y": dg.AssetIn("other", metadata={"nova/mode": "new"}),
        }
    )
    def both(x: list, y: list) -> None: ...  # type: ignore[type-arg]

    world.store.insert("source", rows(1))
    world.store.insert("other", rows(1))
    assert world.run("both", [both]).success
    assert {e.binding for e in world.store.executions() if (e.binding or "").startswith("asset:")} == {"asset:both"}


@pytest.mark.parametrize(
    ("annotation", "seen"),
    [
        (Any, list),
        (pa.Table, lambda x: x.to_pylist()),
        (pd.DataFrame, lambda x: x.to_dict("records")),
        (nova.View, lambda x: x.new),
    ],
)
def test_an_input_is_what_it_is_annotated_with(world: World, annotation: Any, seen: Any) -> None:
    got: list[Any] = []

    def typed(x: Any) -> None:
        got.append(seen(x))

    typed.__annotations__["x"] = annotation
    asset = dg.asset(ins={"x": dg.AssetIn("source")})(typed)
    world.store.insert("source", rows(1))
    assert world.run("typed", [asset]).success and got == [rows(1)]


@pytest.mark.core
def test_an_annotation_that_cannot_be_given_is_refused_by_name(world: World) -> None:
    @dg.asset(ins={"x": dg.AssetIn("source")})
    def odd(x: int) -> None: ...

    world.store.insert("source", rows(1))
    failed = world.run("odd", [odd])
    told = " ".join(str(e.event_specific_data.error) for e in failed.all_events if e.is_step_failure)
    assert not failed.success and "NOVA-DEFINITION" in told


def test_each_partition_of_an_asset_has_a_cursor_of_its_own(world: World) -> None:
    got: list[Any] = []

    @dg.asset(
        ins={"x": dg.AssetIn("source", metadata={"nova/mode": "new"})},
        partitions_def=dg.StaticPartitionsDefinition(["m", "n"]),
    )
    def parts(x: list) -> None:  # type: ignore[type-arg]
        got.append(len(x))

    world.store.insert("source", rows(1))
    for key in ("m", "m", "n"):
        world.run("parts", [parts], partition_key=key)
    assert got == [1, 0, 1]


def test_the_resource_is_the_same_in_every_process_that_loads_the_definitions(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        textwrap.dedent("""
        import sys; junk = [object() for _ in range(int(sys.argv[1]))]
        import nova_assets as nova
        from nova_assets.dagster_bridge import build_definitions
        a, b = nova.Channel("a", schema="k int"), nova.Channel("b", schema="k int")
        @nova.task(consumes=nova.new(a), produces=nova.delta(b))
        def t(a): return a
        print(build_definitions(nova.Project([nova.bind(nova.Workflowette("w", [t]))])).resources["nova"].project)
        """)
    )
    said = {subprocess.check_output([sys.executable, str(tmp_path / "p.py"), n], text=True) for n in ("1", "90000")}
    assert len(said) == 1, said


PIPELINE = """
import os
import dagster as dg
import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, resources
from nova_assets.crash_points import crash_point
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine

def opener(project=None, spark=None, settings=None):
    return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse))
resources.open_store = opener
ROOT = os.environ["REVIEW_ROOT"]
source, copy, last = (nova.Channel(n, schema="k bigint, v bigint") for n in ("source", "copy", "last"))

@nova.task(consumes=nova.new(source), produces=nova.delta(copy))
def mirror(source):
    open(ROOT + "/mirrored", "a").write("x")
    return source

@nova.task(consumes=nova.new(copy), produces=nova.delta(last))
def again(copy):
    if os.path.exists(ROOT + "/broken"):
        raise ValueError("broken")
    return copy

project = nova.Project([nova.bind(nova.Workflowette("w", [mirror, again]))])
defs = build_definitions(project, catalog=f"sqlite:///{ROOT}/c.db", warehouse=ROOT + "/wh")

def the_job():
    return defs.resolve_job_def("w")
"""


@pytest.fixture
def persisted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pipeline in a module, an instance on disk: what a re-execution needs."""
    (tmp_path / "home").mkdir()
    name = f"review_pipeline_{uuid.uuid4().hex}"  # Dagster keeps a job by its module's name
    (tmp_path / f"{name}.py").write_text(PIPELINE)
    monkeypatch.setenv("REVIEW_ROOT", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(resources, "open_store", resources.open_store)
    module = importlib.import_module(name)
    store = module.defs.resources["nova"].store()
    store.register(module.project)
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        yield module, store, instance, tmp_path


def test_r4_a_run_from_failure_keeps_pins_and_what_was_staged(persisted: Any) -> None:
    module, store, instance, root = persisted
    job = dg.reconstructable(module.the_job)
    store.insert("source", rows(1))
    (root / "broken").touch()
    with dg.execute_job(job, instance) as first:
        assert not first.success and [s.head for s in store.channels() if s.channel.name != "source"] == [0, 0]
    store.insert("source", rows(2))
    (root / "broken").unlink()
    options = dg.ReexecutionOptions.from_failure(first.run_id, instance)
    with dg.execute_job(job, instance, reexecution_options=options) as second:
        assert second.success
    assert store.read("copy").to_spark() == rows(1), "the pin is the old one"
    assert (root / "mirrored").read_text() == "x", "what was staged was not made again"


def test_a_run_that_died_between_commit_and_publishing_reports_the_same_commit_again(
    persisted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nova_assets.dagster_bridge import commit_outputs

    module, store, instance, _ = persisted
    job = dg.reconstructable(module.the_job)
    store.insert("source", rows(1))

    def die(name: str) -> None:
        if name == "publish.before":
            raise RuntimeError("died")

    with monkeypatch.context() as dying:
        dying.setattr(commit_outputs, "crash_point", die)
        with dg.execute_job(job, instance) as first:
            assert not first.success
    assert store.catalog.definitions.channel("last").head == 1 and not instance.get_latest_materialization_event(
        dg.AssetKey("last")
    )
    options = dg.ReexecutionOptions.from_failure(first.run_id, instance)
    with dg.execute_job(job, instance, reexecution_options=options) as second:
        assert second.success
    assert [i.seq for i in store.timeline("last")] == [1], "committed once"
    told = instance.get_latest_materialization_event(dg.AssetKey("last")).asset_materialization.metadata
    assert told["nova/commit"].value == store.timeline("last")[0].commit_id


def test_the_shell_materializes_a_binding_whole(persisted: Any) -> None:
    module, store, _, root = persisted
    store.insert("source", rows(1))
    program = [str(Path(sys.executable).with_name("dagster")), "asset", "materialize", "--select", "copy,last"]
    env = {**os.environ, "DAGSTER_HOME": str(root / "home"), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [*program, "-m", module.__name__, "-d", str(root)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert store.read("last").to_spark() == rows(1)


def test_materializations_carry_seconds_and_the_commit_as_a_tag(world: World) -> None:
    world.store.insert("source", rows(1))
    (event,) = [e.materialization for e in world.run().get_asset_materialization_events()]
    assert any("seconds" in k for k in event.metadata) and event.tags.get("nova/commit")
