"""Where a small execution spends its time: 1,000 rows, a warm session.

    python -m benchmarks.small [--quick] [--json FILE]

The time of each part is taken where the runtime calls it. Spark's own part is building frames, evaluating and writing;
everything else is ours: catalog, plan, files looked at after they were written, and under Dagster its steps and events.
An asset of Dagster that does nothing shows how much of that is Dagster's own. CPU seconds are those of this process, so
Spark's JVM is not among them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nova_assets as nova
from benchmarks import measure
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.write.block_writer import BlockWriter

ROWS = 1_000

source = nova.Channel("source", schema="k bigint, v bigint")
table = nova.Channel("table", merge=nova.Upsert(key="k"), schema="k bigint, v bigint")


@nova.task(consumes=nova.new(source), produces=nova.delta(table))
def work(source: Any) -> Any:
    return source.filter("v >= 0")


project = nova.Project([nova.bind(nova.Workflowette("small", [work]))])


class Parts:
    """Seconds by part; a part within another is taken out of it."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def watch(self, owner: Any, name: str, part: str) -> None:
        plain = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            self._inner.append(0.0)
            try:
                return plain(*args, **kwargs)
            finally:
                took = time.perf_counter() - start
                self.spent[part] += took - self._inner.pop()
                self._inner[-1] += took

        setattr(owner, name, timed)


def watched(store: nova.Store) -> Parts:
    parts = Parts()
    catalog, runtime, engine = store.catalog, store.runtime, store.engine
    for name in ("begin", "register", "sweepable_blocks"):
        parts.watch(catalog, name, "begin")
    for name in ("history", "execution"):
        parts.watch(catalog, name, "plan")
    for name in ("record_staged_blocks", "record_manifest", "staged_blocks", "drop_staged_blocks"):
        parts.watch(catalog, name, "stage (catalog)")
    parts.watch(catalog, "commit", "commit")
    parts.watch(catalog, "renew_lease", "commit")
    parts.watch(runtime, "run", "rest")
    parts.watch(engine, "read", "read (Spark)")
    parts.watch(engine, "schema_of", "task (Spark)")
    parts.watch(engine, "write", "files looked at")
    parts.watch(BlockWriter, "_write_frame", "write (Spark)")
    return parts


SPARK = ("read (Spark)", "task (Spark)", "write (Spark)")


def under_dagster(root: Path, steps: Any) -> Callable[[], None]:
    """Function that executes the binding in a job of Dagster.

    Args:
        steps: Dagster steps of the execution: ``per_task`` or ``one``.
    """
    from nova_assets.dagster_bridge import build_definitions

    defs = build_definitions(project, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"), steps=steps)
    job = defs.resolve_job_def("small")
    return in_process(job, root / f"dagster_{steps}")


def asset_without_work(root: Path) -> Callable[[], None]:
    """Function that materializes an asset of Dagster that does nothing. It depends on one other asset."""
    import dagster as dg

    empty = dg.asset(name="empty", deps=["source"])(lambda: None)
    job = dg.Definitions(assets=[empty], jobs=[dg.define_asset_job("empty_job", [empty])]).resolve_job_def("empty_job")
    return in_process(job, root / "dagster_empty")


def in_process(job: Any, home: Path) -> Callable[[], None]:
    """Function that executes a job in this process, with SQLite storage in a folder of its own."""
    import dagster as dg

    home.mkdir()
    instance = dg.DagsterInstance.local_temp(str(home))

    def go() -> None:
        assert job.execute_in_process(instance=instance).success

    return go


def main() -> None:
    given = measure.options(__doc__ or "")
    rounds = 5 if given.quick else 20
    spark = LazySparkSession().get()
    root = Path(tempfile.mkdtemp(prefix="small-"))
    rows = [{"k": n, "v": n} for n in range(ROWS)]
    with nova.open(project, f"sqlite:///{root}/c.db", root / "wh", spark) as store:
        each: list[dict[str, float]] = []
        walls: list[float] = []
        parts = watched(store)
        for n in range(rounds + 3):
            store.insert(source, rows)
            parts.spent.clear()
            start = time.perf_counter()
            store.run("small")
            wall = time.perf_counter() - start
            if n >= 3:
                walls.append(wall)
                each.append(dict(parts.spent))
        names = sorted({p for e in each for p in e}, key=lambda p: -statistics.median(e.get(p, 0.0) for e in each))
        found = {p: statistics.median(e.get(p, 0.0) for e in each) for p in names}
        wall = statistics.median(walls)
        ours = statistics.median(w - sum(e.get(p, 0.0) for p in SPARK) for w, e in zip(walls, each, strict=True))
        jobs = {steps: under_dagster(root, steps) for steps in ("per_task", "one")}
        calls = {"store.run": lambda: store.run("small"), **jobs, "empty": asset_without_work(root)}
        spent: dict[str, list[measure.Cost]] = {name: [] for name in calls}
        for n in range(rounds + 2):
            for name, execute in calls.items():
                if name != "empty":
                    store.insert(source, rows)
                start, cpu = time.perf_counter(), time.process_time()
                execute()
                if n >= 2:
                    spent[name].append(measure.Cost(time.perf_counter() - start, time.process_time() - cpu))
    costs = {name: measure.median(each_cost) for name, each_cost in spent.items()}
    added = {steps: costs[steps].wall - costs["store.run"].wall for steps in jobs}
    labels = {
        "store.run": "store.run",
        "per_task": "Dagster, in process",
        "one": "Dagster, in process and in one step",
        "empty": "Dagster, in process: an asset that does nothing",
    }
    measure.show(
        f"An execution of {ROWS:,} rows, warm: medians of {rounds}, milliseconds",
        ("part", "ms"),
        [
            *((p, s * 1000) for p, s in found.items()),
            ("whole", wall * 1000),
        ],
    )
    measure.show(
        "The same execution with and without Dagster, in turn, milliseconds",
        ("call", "wall", "CPU of this process"),
        [(label, costs[name].wall * 1000, costs[name].cpu * 1000) for name, label in labels.items()],
    )
    measure.keep(given.json, {**found, "whole": wall, "ours": ours, "dagster": added})
    adds = f"{added['per_task'] * 1000:.0f} ms, in one step {added['one'] * 1000:.0f} ms"
    empty = f"an asset that does nothing takes {costs['empty'].wall * 1000:.0f} ms"
    print(f"small: {ours * 1000:.0f} ms of {wall * 1000:.0f} ms are not Spark's; Dagster adds {adds}; {empty}")


if __name__ == "__main__":
    main()
