"""From an insert to the commit of what it fires, under ``dagster dev`` with everything warm, by stage.

    python -m benchmarks.latency [--quick] [--json FILE]

Three ways: the daemon's sensor finds the new data; the run is launched at insert time (``nova insert --launch``,
``launch_due``); the binding is run by the inserting process itself (``store.run``), without Dagster. Spark is a server
that stays warm (``spark = "server"``), used by all of them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import nova_assets as nova
from benchmarks import measure
from nova_assets_tests.dagster_dev import ROOT, dagster_dev, waited_for

STAGES = ("insert", "until it fires", "until its run starts", "until it begins", "read, task, commit", "in all")
PACE = 0.05  # seconds between two looks
WAYS = ("sensor", "launched", "own process")

PIPELINE = """
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

orders = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id bigint, amount double")
doubled = nova.Channel("doubled", merge=nova.Upsert(key="id"), schema="id bigint, amount double")

@nova.task(consumes=nova.new(orders), produces=nova.delta(doubled))
def double(orders):
    return orders.withColumn("amount", orders["amount"] * 2)

project = nova.Project([nova.bind(nova.Workflowette("double", [double]), when=nova.on_data(orders))])
defs = build_definitions(project)
"""


class World:
    """The pipeline's deployment, and the ways in which an insert can lead to a commit."""

    def __init__(self, store: nova.Store, instance: Any, url: str) -> None:
        self.store, self.instance, self.url = store, instance, url
        self.inserted = 0

    def by_sensor(self) -> list[float]:
        return self._through_dagster(lambda: None)

    def launched(self) -> list[float]:
        from nova_assets.dagster_bridge import launch_due

        return self._through_dagster(lambda: launch_due(self.store, ["orders"], instance=self.instance, url=self.url))

    def by_itself(self) -> list[float]:
        """While no daemon looks."""
        began = time.time()
        inserted = self._insert()
        done = self.store.run("double")
        started, commit = done.started_at.timestamp(), done.commit
        assert commit is not None
        committed = commit.at.timestamp()
        return [inserted - began, started - inserted, 0.0, 0.0, committed - started, committed - began]

    def _through_dagster(self, then: Callable[[], object]) -> list[float]:
        began = time.time()
        inserted = self._insert()
        then()
        cursor = self.inserted
        waited_for(lambda: [c.seq for c in self.store.cursors("double")] == [cursor], "the commit", 180, PACE)
        done = self.store.executions("double", 1)[0]
        firing = self.store.catalog.firings.get(done.firing_id or "")
        assert firing is not None
        record = self.instance.get_run_record_by_id(done.run_id)
        commit = self.store.catalog.commits.by_id(done.commit_id or "")
        waited_for(lambda: self.instance.get_run_by_id(done.run_id).is_finished, "the end of the run", 180, PACE)
        moments = (
            inserted,
            firing.at.timestamp(),
            record.start_time,
            done.started_at.timestamp(),
            commit.at.timestamp(),
        )
        steps = [later - earlier for earlier, later in pairwise(moments)]
        return [inserted - began, *steps, moments[-1] - began]

    def _insert(self) -> float:
        self.inserted += 1
        at: datetime = self.store.insert("orders", [{"id": self.inserted, "amount": 1.0}]).at
        return at.timestamp()


def main() -> None:
    given = measure.options("From an insert to the commit of what it fires, by stage.")
    rounds = 4 if given.quick else 20
    folder = Path(tempfile.mkdtemp(prefix="latency-"))
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "pyproject.toml").write_text('[tool.nova]\nproject = "pipeline:project"\nspark = "server"\n')
    os.chdir(folder)
    os.environ["DAGSTER_HOME"] = str(folder / "home")
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    costs: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    try:
        with nova.open() as store:
            from dagster import DagsterInstance

            store.register(store.project)
            with dagster_dev(folder / "home", ["-f", "pipeline.py"], cwd=folder, environment=env) as url:
                world = World(store, DagsterInstance.get(), url)
                works = {"sensor": world.by_sensor, "launched": world.launched}
                for n in range(rounds + 1):  # the first warms up
                    for way, work in works.items():
                        time.sleep(5 * (n % 7) / 7)  # the sensor is met at any moment of its pace
                        costs[way].append(work())
            costs["own process"] = [world.by_itself() for _ in range(rounds + 1)]
            costs = {way: took[1:] for way, took in costs.items()}
    finally:
        subprocess.run(
            [str(Path(sys.executable).with_name("nova")), "spark", "stop"], env={**os.environ, **env}, cwd=folder
        )
    report(given, costs, rounds)


def report(given: Any, costs: dict[str, list[list[float]]], rounds: int) -> None:
    columns = ("", *(f"{way} {p}" for way in WAYS for p in ("p50", "p95")))
    lines = []
    for n, stage in enumerate(STAGES):
        figures = [(statistics.median(r[n] for r in costs[w]), _p95([r[n] for r in costs[w]])) for w in WAYS]
        lines.append((stage, *(value for pair in figures for value in pair)))
    measure.show(f"Insert to commit, seconds, {rounds} rounds each", columns, lines)
    measure.keep(given.json, {"rounds": costs})
    total = lines[-1]
    slowest = max(range(len(STAGES) - 1), key=lambda n: statistics.median(r[n] for r in costs["sensor"]))
    print(
        f"latency: by the sensor {total[1]:.1f} s (p95 {total[2]:.1f}), launched at insert {total[3]:.1f} s "
        f"(p95 {total[4]:.1f}), in its own process {total[5]:.2f} s; most of the first is '{STAGES[slowest]}'"
    )


def _p95(values: list[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


if __name__ == "__main__":
    main()
