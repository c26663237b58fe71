"""One system in a process of its own: a warm session, then workloads, each on the loaded table as it was.

python -m benchmarks.peers.worker KEYS.json WORK RESULTS
"""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

from benchmarks.peers import registry
from benchmarks.peers.data import Data
from benchmarks.peers.expected import Expected
from benchmarks.peers.meter import metered, on_disk
from benchmarks.peers.results import Key, Result, Results
from benchmarks.peers.system import CannotDo, Layout, System
from benchmarks.peers.workloads import UNIFORM, Run, Sizes, Workload, named

WARM_ROWS = 2_000
WARM_UPSERTS = 3
WARM_READS = 5
WARM_SCANS = 2
REHEARSED = 0.01
"""Of the table's rows so many are upserted before the measured workload."""


class Worker:
    """The tables of one system: a loaded one for each layout, restored before each workload."""

    def __init__(self, name: str, work: Path, sizes: Sizes) -> None:
        self.system = registry.system(name)
        self.work = work
        self.sizes = sizes
        self.data = Data(work / "data" / str(sizes.rows), sizes.rows)
        self._rehearsed: set[Layout] = set()

    def warm_up(self) -> None:
        """Everything, on a tiny table. Reads run several times: who writes without Spark has warmed it up by nothing
        else."""
        tiny = Data(self.work / "data" / str(WARM_ROWS), WARM_ROWS)
        table = self._table("warm", UNIFORM, WARM_ROWS)
        table.clear()
        run = Run(table, tiny, Sizes(WARM_ROWS), Expected(tiny))
        table.load(tiny.base)
        batches = run.series()[: WARM_UPSERTS + 1]
        for batch in batches[:WARM_UPSERTS]:
            table.upsert(batch)
            table.read()
        try:
            table.plan()
            since = table.position()
            table.upsert(batches[-1])
            for _ in range(WARM_READS):
                table.changes(since)
                table.collected(since)
        except CannotDo:
            pass
        table.delete(tiny.keys("delete", 20))
        table.upkeep(force=True)
        for _ in range(WARM_READS):
            table.read()
        table.renew()

    def run(self, workload: Workload, key: Key) -> Result:
        try:
            self._rehearse(workload.layout)
            table = self._restored(workload.layout)
            table.read()
            run = Run(table, self.data, self.sizes, Expected(self.data))
            about: dict[str, Any] = {"versions": table.versions(), "settings": table.settings()}
            try:
                workload.run(run)
            except CannotDo:
                return Result(key, cannot=True, **about)
            files, size = table.live()
            live = {"files": files, "bytes": size, "disk": on_disk(table.folder)}
            return Result(key, {n: s.as_json() for n, s in run.steps.items()}, live, run.wrong, **about)
        except Exception as error:
            traceback.print_exc()
            return Result(key, error=f"{type(error).__name__}: {str(error).strip()}"[:2000])

    def _rehearse(self, layout: Layout) -> None:
        """An upsert into the loaded table, and readings of it: what is measured afterwards is not the first."""
        if layout in self._rehearsed:
            return
        self._rehearsed.add(layout)
        table = self._restored(layout)
        table.upsert(Run(table, self.data, self.sizes, Expected(self.data)).batch(REHEARSED, of="rehearsal"))
        for _ in range(WARM_SCANS):
            table.read()

    def _restored(self, layout: Layout) -> System:
        """The loaded table, at the path where it was loaded."""
        table, kept = self._table("live", layout, self.sizes.rows), self._kept(layout)
        if not kept.is_dir():
            self._load(table, kept)
        shutil.rmtree(table.folder, ignore_errors=True)
        shutil.copytree(kept, table.folder)
        table.renew()
        return table

    def _load(self, table: System, kept: Path) -> None:
        table.clear()
        cost = metered(lambda: table.load(self.data.base), table.folder)
        table.renew()
        part = kept.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(table.folder, part)
        part.rename(kept)
        kept.with_suffix(".json").write_text(json.dumps(cost.as_json()))

    def _kept(self, layout: Layout) -> Path:
        folder = self.work / "loaded" / str(self.sizes.rows)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.system.name}-{layout.name}"

    def _table(self, where: str, layout: Layout, rows: int) -> System:
        folder = self.work / "live" / self.system.name / f"{layout.name}_{rows}_{where}"
        return self.system(folder, layout, rows)


def main() -> None:
    keys = [Key(**k) for k in json.loads(Path(sys.argv[1]).read_text())]
    work, results = Path(sys.argv[2]), Results(Path(sys.argv[3]))
    first = keys[0]
    worker = Worker(first.system, work, Sizes(first.rows, first.series, first.small))
    worker.warm_up()
    for key in keys:
        workload = named([key.workload])[0]
        results.add(worker.run(workload, key))


if __name__ == "__main__":
    main()
