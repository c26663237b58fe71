"""Where a small execution spends its time: 1,000 rows, a warm session.

    python -m benchmarks.small [--quick] [--json FILE]

The time of each part is taken where the runtime calls it. Spark's own part is building frames, evaluating and writing;
everything else is ours: catalog, plan, files looked at after they were written, and under Dagster its steps and events.
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
from nova_assets.engine.session.spark_session import LazySparkSession
from nova_assets.engine.write import spark_writer

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
    parts.watch(spark_writer, "_write_parquet_files", "write (Spark)")
    return parts


SPARK = ("read (Spark)", "task (Spark)", "write (Spark)")


def under_dagster(root: Path, spark: Any) -> Callable[[], None]:
    import dagster as dg

    from nova_assets.dagster_bridge import build_definitions

    defs = build_definitions(project, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
    job = defs.resolve_job_def("small")
    home = root / "dagster"
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
        dagster = under_dagster(root, spark)
        with_dagster = []
        for n in range(rounds + 2):
            store.insert(source, rows)
            start = time.perf_counter()
            dagster()
            if n >= 2:
                with_dagster.append(time.perf_counter() - start)
    added = statistics.median(with_dagster) - wall
    measure.show(
        f"An execution of {ROWS:,} rows, warm: medians of {rounds}, milliseconds",
        ("part", "ms"),
        [
            *((p, s * 1000) for p, s in found.items()),
            ("whole", wall * 1000),
            ("Dagster, in process, adds", added * 1000),
        ],
    )
    measure.keep(given.json, {**found, "whole": wall, "ours": ours, "dagster": added})
    print(f"small: {ours * 1000:.0f} ms of {wall * 1000:.0f} ms are not Spark's; Dagster adds {added * 1000:.0f} ms")


if __name__ == "__main__":
    main()
