"""From an insert to the last commit of a chain of five bindings, with everything warm.

    python -m benchmarks.follow [--quick] [--json FILE]

Three ways: five sensors under ``dg dev``, where each binding waits for its sensor and has a run; one run for all
(``build_definitions(sensors="together")``); and ``store.run_due(follow=True)`` in the inserting process, without
Dagster. Spark is a server that stays warm, used by all of them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nova_assets as nova
from benchmarks import measure
from nova_assets_tests.dagster_dev import ROOT, dagster_dev, waited_for

LENGTH = 5
PIPELINE = """
import os

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

channels = [nova.Channel(f"c{n}", schema="k bigint, v bigint") for n in range(6)]

def bound(n):
    task = nova.task(name="step", consumes=nova.new(channels[n], as_="rows"), produces=nova.delta(channels[n + 1]))
    return nova.bind(nova.Workflowette(f"b{n}", [task(lambda rows: rows)]), when=nova.on_data(channels[n]))

project = nova.Project([bound(n) for n in range(5)])
defs = build_definitions(project, sensors=os.environ["SENSORS"])
"""


def main() -> None:
    given = measure.options(__doc__ or "")
    rounds = 2 if given.quick else 10
    found = {layout: _under_dagster(layout, rounds) for layout in ("per_binding", "together")}
    found["own process"] = _in_a_folder(lambda store, folder: _times(store, rounds, lambda: store.run_due(follow=True)))
    columns = ("way", "median", "longest")
    rows = [(way, statistics.median(seconds), max(seconds)) for way, seconds in found.items()]
    measure.show(f"Insert to the last commit of {LENGTH} bindings, seconds, {rounds} rounds each", columns, rows)
    measure.keep(given.json, {"seconds": found})


def _under_dagster(layout: str, rounds: int) -> list[float]:
    def measured(store: nova.Store, folder: Path) -> list[float]:
        env = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), "SENSORS": layout}
        with dagster_dev(folder / "home", ["-f", "pipeline.py"], cwd=folder, environment=env):
            return _times(store, rounds, lambda: None)

    return _in_a_folder(measured)


def _in_a_folder(measured: Callable[[nova.Store, Path], list[float]]) -> list[float]:
    folder = Path(tempfile.mkdtemp(prefix="follow-"))
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "pyproject.toml").write_text('[tool.nova]\nproject = "pipeline:project"\nspark = "server"\n')
    os.chdir(folder)
    os.environ["SENSORS"] = "per_binding"
    sys.modules.pop("pipeline", None)
    try:
        with nova.open() as store:
            store.register(store.project)
            return measured(store, folder)
    finally:
        subprocess.run([str(Path(sys.executable).with_name("nova")), "spark", "stop"], cwd=folder)


def _has_reached(store: nova.Store, head: int) -> bool:
    return store.catalog.definitions.channel(f"c{LENGTH}").head == head


def _times(store: nova.Store, rounds: int, run: Callable[[], Any]) -> list[float]:
    """Seconds from before an insert to the last commit. The first round warms up."""
    seconds: list[float] = []
    for n in range(rounds + 1):
        time.sleep(5 * (n % 7) / 7)  # a sensor is met at any moment of its pace
        began = time.time()
        head = store.insert("c0", [{"k": n, "v": n}]).blocks[0].hi
        run()
        waited_for(partial(_has_reached, store, head), "the last commit", 300, 0.05)
        seconds.append(time.time() - began)
    return seconds[1:]


if __name__ == "__main__":
    main()
