"""Bindings that state how many cores they may use. The tasks of real sessions, each in a process of its own, write down
when they run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

PIPELINE = """
import os, time, uuid
from pathlib import Path
import dagster as dg
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

source = nova.Channel("source", schema="k bigint")
LOG = Path(__file__).parent / "log"

def noting(name):
    def note(batches):
        for batch in batches:
            begin = time.time()
            time.sleep(0.4)
            (LOG / f"{name}-{uuid.uuid4().hex}").write_text(f"{begin} {time.time()}")
            yield batch
    return note

def binding(name, **resources):
    @nova.task(name=name, consumes=nova.new(source), produces=nova.delta(nova.Channel(name, schema="k bigint")))
    def copy(source):
        return source.repartition(4).mapInArrow(noting(name), "k bigint")
    return nova.bind(nova.Workflowette(name, [copy]), when=nova.on_data("source"), **resources)

project = nova.Project([
    binding("free"), binding("narrow", resources=nova.Resources(max_cores=1)),
    binding("stated", resources=nova.Resources(max_cores=2, shuffle_partitions=3)),
])
defs = build_definitions(project)
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cores")
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "pyproject.toml").write_text('[tool.nova]\nproject = "pipeline:project"\n')
    (folder / "log").mkdir()
    rows = "[{'k': k} for k in range(40)]"
    run_python(folder, "-c", f"import nova_assets as nova\nwith nova.open() as s: s.insert('source', {rows})")
    return folder


@pytest.fixture
def folder(deployment: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(deployment, tmp_path / "deployment"))


def run_python(folder: Path, *words: str, fails: bool = False) -> str:
    environment = {**os.environ, "DAGSTER_HOME": str(folder), "PYTHONPATH": os.pathsep.join([str(folder), ROOT])}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout + done.stderr


ROOT = str(Path(__file__).parents[2])


def most_at_once(folder: Path, name: str) -> int:
    """Largest number of Spark tasks of a binding that ran at one moment."""
    times = [tuple(map(float, f.read_text().split())) for f in (folder / "log").glob(f"{name}-*")]
    assert len(times) >= 4
    return max(sum(begin <= moment < end for begin, end in times) for moment, _ in times)


def test_a_limit_holds(folder: Path) -> None:
    run_python(folder, "-m", "nova_assets.cli", "run", "narrow")
    assert most_at_once(folder, "narrow") == 1


@pytest.mark.exhaustive
def test_the_smallest_limit_of_what_is_due_holds_for_all(folder: Path) -> None:
    run_python(folder, "-m", "nova_assets.cli", "run", "--due")
    assert [most_at_once(folder, name) for name in ("free", "narrow", "stated")] == [1, 1, 1]


@pytest.mark.exhaustive
def test_a_limit_holds_under_dagster(folder: Path) -> None:
    run_python(folder, "-m", "dagster", "asset", "materialize", "-m", "pipeline", "-a", "defs", "--select", "narrow")
    assert most_at_once(folder, "narrow") == 1


@pytest.mark.exhaustive
def test_a_session_with_more_cores_is_refused_and_nothing_changes(folder: Path) -> None:
    program = """
import nova_assets as nova
with nova.open() as store:
    assert store.run("free").state == "committed"
    cores = store.engine.session.sparkContext.defaultParallelism
    try:
        store.run("narrow")
    except nova.EngineUnavailable as error:
        print("refused:", error)
    else:
        assert cores == 1
    assert store.run("stated").state == "committed" if cores <= 2 else True
    print("executions of narrow:", len(store.executions("narrow")))
"""
    printed = run_python(folder, "-c", program)
    assert most_at_once(folder, "free") == min(4, os.cpu_count() or 1), "others are not limited"
    if (os.cpu_count() or 1) > 1:
        assert "at most 1 cores" in printed and "nova run" in printed
        assert "executions of narrow: 0" in printed


def test_the_plan_names_the_limits(folder: Path) -> None:
    printed = run_python(folder, "-m", "nova_assets.cli", "plan", "stated")
    assert "at most 2" in printed and "3, as stated" in printed
    assert "parts of a shuffle" not in run_python(folder, "-m", "nova_assets.cli", "plan", "free")
