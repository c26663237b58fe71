"""Many bindings under one daemon: loading definitions, ticks of sensors, from an insert to its commit, and idling.

    python -m benchmarks.daemon [--quick] [--json FILE] [--sizes 10,100,1000] [--sensors grouped]

Each binding reads a channel of its own, and fires on its data. The engine is a stub, so that everything that is
measured is Dagster, the catalog and the bridge.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import measure
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.dagster_dev import ROOT, dagster_dev, waited_for
from nova_assets_tests.stub_engine import StubEngine

DDL = "id bigint, amount double"
SECONDS_OF_A_DAY = 86_400

PIPELINE = """
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions, resources
from benchmarks.daemon import DDL, opened

resources.open_store = lambda project=None, spark=None, settings=None: opened(project, settings)

def step(rows):
    return rows

def project():
    bindings = []
    for n in range({size}):
        source, target = (nova.Channel(f"{{name}}{{n}}", schema=DDL) for name in ("source", "target"))
        task = nova.task(name="step", consumes=nova.new(source, as_="rows"), produces=nova.delta(target))(step)
        bindings.append(nova.bind(nova.Workflowette(f"b{{n}}", [task]), when=nova.on_data(source)))
    return nova.Project(bindings)

def definitions():
    return build_definitions(project(), catalog={catalog!r}, warehouse={warehouse!r}{sensors})

defs = definitions()
"""

PROBE = """
import json, time
from time import process_time as cpu
began = cpu()
import dagster as dg
from nova_assets.dagster_bridge import definitions as bridge
from sqlalchemy import event
imported = cpu()
import pipeline

def loaded(defs):
    repository = defs.get_repository_def()
    repository.get_all_jobs()
    return repository

repository = loaded(pipeline.defs)
first = cpu()
loaded(pipeline.definitions())
again = cpu()

queries = [0]
process_of_definitions = bridge.job_of_run_process
bridge.job_of_run_process = lambda: "b0"
began_run = cpu()
pipeline.definitions().get_repository_def().get_job("b0")
run = cpu() - began_run
bridge.job_of_run_process = process_of_definitions

store = pipeline.defs.resources["nova"].store()
count = lambda *_: queries.__setitem__(0, queries[0] + 1)
event.listen(store.catalog.database.engine, "before_cursor_execute", count)
instance = dg.DagsterInstance.get()
rounds = []
for _ in range(12):  # a grouped sensor needs several ticks for its first look at many bindings
    ticks = cpu(), time.perf_counter()
    rate = 0.0
    for sensor in repository.sensor_defs:
        if sensor.minimum_interval_seconds >= 3600:
            continue
        queries[0] = 0  # of this sensor
        with dg.build_sensor_context(
            instance_ref=instance.get_ref(), repository_def=repository, sensor_name=sensor.name
        ) as context:
            sensor.evaluate_tick(context)
        rate += queries[0] / sensor.minimum_interval_seconds
    rounds.append({"cpu": cpu() - ticks[0], "wall": time.perf_counter() - ticks[1], "queries": rate})
    if len(rounds) > 2 and rate > 0.9 * rounds[-2]["queries"]:
        break
loads = {"imports": imported - began, "first": first - imported, "again": again - first, "run": run}
print(json.dumps({**loads, "rounds": rounds}))
"""


def opened(project: Any, settings: Any) -> Store:
    """A store without Spark."""
    return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse, DDL))


class Deployment:
    """A folder with a pipeline of so many bindings."""

    def __init__(self, size: int, sensors: str | None) -> None:
        self.size = size
        self.folder = Path(tempfile.mkdtemp(prefix=f"daemon-{size}-"))
        self.catalog, self.warehouse = f"sqlite:///{self.folder}/c.db", str(self.folder / "wh")
        text = PIPELINE.format(
            size=size,
            catalog=self.catalog,
            warehouse=self.warehouse,
            sensors=f", sensors={sensors!r}" if sensors else "",
        )
        (self.folder / "pipeline.py").write_text(text)
        self.environment = {"PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]), "PYTHONWARNINGS": "ignore"}

    def probed(self) -> dict[str, Any]:
        """CPU seconds of loading the definitions and of a round of ticks in which nothing is new."""
        home = self.folder / "probe"
        home.mkdir()
        environment = {**os.environ, **self.environment, "DAGSTER_HOME": str(home)}
        command = [sys.executable, "-c", PROBE]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=self.folder)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def under_the_daemon(self, rounds: int, idle: float) -> dict[str, Any]:
        """Seconds from inserts to commits, then what an idle daemon adds to its log and its storage."""
        settings = load_settings(catalog=self.catalog, warehouse=self.warehouse)
        home = self.folder / "home"
        with (
            opened(None, settings) as store,
            dagster_dev(home, ["-f", "pipeline.py"], cwd=self.folder, environment=self.environment),
        ):
            waited_for(
                lambda: len(store.catalog.definitions.bindings()) == self.size, "all bindings in the catalog", 900
            )
            rng = random.Random(self.size)
            took = []
            for n in range(rounds + 1):
                time.sleep(5 * (n % 7) / 7)  # the sensor is met at any moment of its pace
                took.append(self._insert_to_commit(store, rng.randrange(self.size), n))
            time.sleep(15)  # the last run is reported, and ends
            log, before = self.folder / "dagster.log", self._amounts()
            cpu = measure.cpu_seconds()
            time.sleep(idle)
            cpu = (measure.cpu_seconds() - cpu) / idle
            lines, stored = (a - b for a, b in zip(self._amounts(), before, strict=True))
            assert log.exists()
        per_day = SECONDS_OF_A_DAY / idle
        return {"commits": took[1:], "lines": lines * per_day, "bytes": stored * per_day, "idle": cpu}

    def _insert_to_commit(self, store: Store, binding: int, number: int) -> float:
        began = time.time()
        store.insert(f"source{binding}", [{"id": number, "amount": 1.0}])
        head = store.catalog.scheduler.heads()[f"source{binding}"]
        waited_for(
            lambda: [c.seq for c in store.catalog.cursors.find(f"b{binding}")] == [head], "the commit", 600, 0.05
        )
        execution = store.catalog.executions.find(f"b{binding}", 1)[0]
        return store.catalog.commits.by_id(execution.commit_id or "").at.timestamp() - began

    def _amounts(self) -> tuple[int, int]:
        lines = len((self.folder / "dagster.log").read_text().splitlines())
        return lines, sum(f.stat().st_size for f in (self.folder / "home").rglob("*.db*"))


def main() -> None:
    given = measure.options(
        "Many bindings under one daemon.",
        sizes="numbers of bindings, such as 10,100",
        sensors="grouped or per_binding; by default as many bindings make it",
    )
    sizes = [int(n) for n in (given.sizes or ("10,100" if given.quick else "10,100,1000")).split(",")]
    rounds, idle = (4, 30.0) if given.quick else (15, 120.0)
    found: dict[int, dict[str, Any]] = {}
    for size in sizes:
        deployment = Deployment(size, given.sensors)
        found[size] = {**deployment.probed(), **deployment.under_the_daemon(rounds, idle)}
    report(given, found)


def report(given: Any, found: dict[int, dict[str, Any]]) -> None:
    p50 = {size: statistics.median(f["commits"]) for size, f in found.items()}
    rows = {
        "definitions, first load, CPU s": [f["first"] for f in found.values()],
        "definitions, loaded again, CPU s": [f["again"] for f in found.values()],
        "definitions, loaded by a run, CPU s": [f["run"] for f in found.values()],
        "first round of ticks, CPU s": [f["rounds"][0]["cpu"] for f in found.values()],
        "idle round of ticks, CPU s": [f["rounds"][-1]["cpu"] for f in found.values()],
        "idle round of ticks, wall s": [f["rounds"][-1]["wall"] for f in found.values()],
        "idle catalog queries a second": [f["rounds"][-1]["queries"] for f in found.values()],
        "insert to commit, p50 s": list(p50.values()),
        "insert to commit, p95 s": [_p95(f["commits"]) for f in found.values()],
        "idle deployment, processors": [f["idle"] for f in found.values()],
        "idle lines of log a day": [int(f["lines"]) for f in found.values()],
        "idle growth of storage, MB a day": [f["bytes"] / 1e6 for f in found.values()],
    }
    measure.show("Bindings", ("", *map(str, found)), [(name, *values) for name, values in rows.items()])
    measure.keep(given.json, {str(size): f for size, f in found.items()})
    few, many = min(found), max(found)
    print(
        f"daemon: {many} bindings load again in {found[many]['again']:.1f} s of CPU; insert to commit p50 "
        f"{p50[many]:.1f} s, {p50[many] / p50[few]:.2f} times that of {few}; "
        f"idle {found[many]['lines']:,.0f} lines of log a day"
    )


def _p95(values: list[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


if __name__ == "__main__":
    main()
