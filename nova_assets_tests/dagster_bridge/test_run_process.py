"""A run process builds the steps of its own job only. Everything else is as in the code server."""

from __future__ import annotations

import json
import multiprocessing
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.impl import start_run_in_subprocess
from dagster._grpc.types import ExecuteExternalJobArgs
from dagster._serdes import serialize_value

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions, definitions
from nova_assets.dagster_bridge.run_process import job_of_run_process
from nova_assets_tests.dagster_bridge.daemon import HOME

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

KEYS = [dg.AssetKey(f"target{n}") for n in range(4)]

FILE = """
import json
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import resources
from nova_assets.store.store import Store
from nova_assets_tests.dagster_bridge.test_run_process import bindings_with_steps, define
from nova_assets_tests.stub_engine import StubEngine

resources.open_store = lambda project=None, spark=None, settings=None: Store(
    settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse, "day string, k bigint")
)
defs = define({root!r})
with open({root!r} + "/loaded.json", "w") as file:
    json.dump(bindings_with_steps(defs), file)
"""


def define(root: str | Path) -> dg.Definitions:
    """Four bindings with partitions and a check, and a schedule of the user that selects one of their assets."""
    days = nova.daily("day", start="2026-01-01")
    bindings = []
    for n in range(4):
        source, target = (
            nova.Channel(f"{name}{n}", schema="day string, k bigint", partitions=days) for name in ("source", "target")
        )
        step = nova.task(name="step", consumes=nova.new(source, as_="rows"), produces=nova.delta(target))(_step)
        checks = [nova.checks.not_null(target, "k", blocking=False)]
        bindings.append(nova.bind(nova.Workflowette(f"b{n}", [step], checks=checks), when=nova.on_data(source)))
    made = build_definitions(nova.Project(bindings), catalog=f"sqlite:///{root}/c.db", warehouse=f"{root}/wh")
    daily = dg.define_asset_job("daily", selection=dg.AssetSelection.groups("b3"))
    schedule = dg.build_schedule_from_partitioned_job(daily)
    return dg.Definitions.merge(made, dg.Definitions(jobs=[daily], schedules=[schedule]))


def _step(rows: object) -> object:
    return rows


def bindings_with_steps(defs: dg.Definitions) -> list[str]:
    """Names of the bindings whose steps were built."""
    assets = defs.get_repository_def().assets_defs_by_key.values()
    graphs = {a.node_def.name for a in assets if a.is_executable and isinstance(a.node_def, dg.GraphDefinition)}
    return sorted(name.removesuffix("__steps") for name in graphs)


def started_in(root: Path, job_name: str, partition: str | None) -> dg.DagsterRunStatus:
    """Status of a run that a process carries out, as Dagster's code server starts it."""
    (root / "home").mkdir()
    (root / "home" / "dagster.yaml").write_text(HOME)
    (root / "pipeline.py").write_text(FILE.format(root=str(root)))
    tags = {} if partition is None else {"dagster/partition": partition}
    with dg.DagsterInstance.from_config(str(root / "home")) as instance:
        run = instance.create_run_for_job(define(root).resolve_job_def(job_name), tags=tags)
        repository = ReconstructableRepository.for_file(str(root / "pipeline.py"), "defs", str(root))
        location = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file=str(root / "pipeline.py")), "location")
        origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job_name)
        arguments = serialize_value(
            ExecuteExternalJobArgs(job_origin=origin, run_id=run.run_id, instance_ref=instance.get_ref())
        )
        context = multiprocessing.get_context("spawn")
        events, termination = context.Queue(), context.Event()
        process = context.Process(
            target=start_run_in_subprocess,
            args=[arguments, repository.get_reconstructable_job(job_name), events, termination],
        )
        process.start()
        process.join(120)
        ended = instance.get_run_by_id(run.run_id)
        assert ended is not None
        return ended.status


@pytest.mark.slow
def test_a_run_builds_the_steps_of_its_binding_only(tmp_path: Path) -> None:
    assert started_in(tmp_path, "b1", "2026-01-01") == dg.DagsterRunStatus.SUCCESS
    assert json.loads((tmp_path / "loaded.json").read_text()) == ["b1"]


@pytest.mark.parametrize(
    ("job", "built"),
    [
        (None, ["b0", "b1", "b2", "b3"]),  # a code server
        ("b2", ["b2"]),
        ("nova_upkeep", []),
        ("daily", ["b0", "b1", "b2", "b3"]),  # a job of the user, which may select any asset
        ("__ASSET_JOB", ["b0", "b1", "b2", "b3"]),
    ],
)
def test_the_job_of_the_run_decides_what_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str | None, built: list[str]
) -> None:
    complete = define(tmp_path).resolve_asset_graph()
    monkeypatch.setattr(definitions, "job_of_run_process", lambda: job)
    made = define(tmp_path)
    assert bindings_with_steps(made) == built
    graph = made.resolve_asset_graph()
    for key in complete.get_all_asset_keys():  # selections of the user give the same
        assert graph.get(key).to_asset_spec() == complete.get(key).to_asset_spec()
    assert graph.asset_check_keys == complete.asset_check_keys
    assert made.resolve_schedule_def("daily_schedule").job_name == "daily"
    assert {j.name for j in made.get_repository_def().get_all_jobs()} >= {"b0", "b1", "b2", "b3", "nova_upkeep"}


def test_an_asset_without_steps_says_so_if_it_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "job_of_run_process", lambda: "b2")
    job = define(tmp_path).resolve_job_def("b1")
    with pytest.raises(nova.NotSupported, match="has not loaded the steps"):
        job.execute_in_process(partition_key="2026-01-01")


def test_a_container_is_told_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_RUN_JOB_NAME", "b2")
    assert job_of_run_process() is None  # whoever set the variable, this is no run
    monkeypatch.setattr(sys, "argv", ["dagster", "api", "execute_run", "{}"])
    assert job_of_run_process() == "b2"
    monkeypatch.delenv("DAGSTER_RUN_JOB_NAME")
    assert job_of_run_process() is None
