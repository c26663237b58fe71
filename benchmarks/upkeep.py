"""A keyed channel that is updated a thousand times under the default policy: what it takes up, what a reading of the
whole costs, and what upkeep costs beside the writing.

    python -m benchmarks.upkeep [--quick] [--json FILE]

After each update upkeep does what it would do by itself. Files of collected blocks are deleted at once: how long they
wait (``gc_grace``) is a matter of the clock, and a thousand updates pass here in minutes.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import nova_assets as nova
from benchmarks import measure
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.settings import load_settings

ROWS = 10_000_000
BATCH = 2_000
UPDATES = 1_000
READ_EVERY = 25

facts = nova.Channel("facts", merge=nova.Upsert(key="id"), schema="id bigint, amount double, note string")


@dataclass
class Figures:
    """What was measured, update by update."""

    space: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)
    deltas: list[int] = field(default_factory=list)
    whole: list[measure.Cost] = field(default_factory=list)
    bare: list[measure.Cost] = field(default_factory=list)
    writing: list[measure.Cost] = field(default_factory=list)
    upkeep: list[measure.Cost] = field(default_factory=list)
    made: list[str] = field(default_factory=list)


class World:
    """The channel, filled once."""

    def __init__(self, root: Path, rows: int, spark: Any) -> None:
        self.rng = random.Random(1)
        self.rows = rows
        self.spark = spark
        self.warehouse = root / "wh"
        config = load_settings(
            start_folder=root, catalog=f"sqlite:///{root}/c.db", warehouse=str(self.warehouse), gc_grace=1e-6
        )
        self.store = nova.open(nova.Project(channels=[facts]), spark=spark, settings=config)
        self.store.insert(facts, self._table(np.arange(rows)), kind="base")
        self.at_most = 0

    def update(self) -> None:
        self.store.insert(facts, self._table(np.array(self.rng.sample(range(self.rows), self.batch))))

    @property
    def batch(self) -> int:
        return BATCH * self.rows // ROWS

    def upkeep(self) -> list[str]:
        """As it happens by itself; gives what was made."""
        commit = self.store.compact(facts, force=False)
        self.at_most = self._on_disk()
        self.store.collect_garbage(facts)
        self.store.delete_collected()
        return [] if commit is None else [b.range for b in commit.blocks]

    def read_whole(self) -> None:
        self.store.read(facts).to_spark().write.format("noop").mode("overwrite").save()

    def scan_base(self) -> None:
        """The newest base alone: as many rows, and nothing to merge."""
        paths = [str(self.warehouse / f.path) for f in self._base().manifest.files]
        schema = "id bigint, amount double, note string"
        self.spark.read.schema(schema).parquet(*paths).write.format("noop").mode("overwrite").save()

    def deltas(self) -> int:
        return sum(b.kind == "delta" for b in self._blocks())

    def space(self) -> tuple[float, float]:
        """Bytes on disk, beside those of the newest base: after upkeep, and at most during it."""
        snapshot = self._base().bytes
        return self._on_disk() / snapshot, self.at_most / snapshot

    def _base(self) -> Any:
        return max((b for b in self._blocks() if b.kind == "base"), key=lambda b: b.hi)

    def _blocks(self) -> Any:
        return self.store.catalog.histories.of("facts").blocks

    def _on_disk(self) -> int:
        return sum(p.stat().st_size for p in self.warehouse.rglob("*.parquet"))

    def _table(self, ids: Any) -> pa.Table:
        rng = np.random.default_rng(self.rng.getrandbits(32))
        notes = pa.array([f"{n:016x}" for n in rng.integers(0, 2**63, len(ids))])
        return pa.table({"id": pa.array(ids, pa.int64()), "amount": rng.random(len(ids)), "note": notes})


def main() -> None:
    given = measure.options("A keyed channel, updated a thousand times under the default policy.")
    rows, updates = (ROWS // 10, UPDATES // 10) if given.quick else (ROWS, UPDATES)
    world, figures = World(Path(tempfile.mkdtemp(prefix="upkeep-")), rows, LazySparkSession().get()), Figures()
    for _ in range(3):
        world.read_whole()
        world.scan_base()
    for n in range(1, updates + 1):
        figures.writing.append(measure.cost_of(world.update))
        figures.upkeep.append(measure.cost_of(lambda: figures.made.extend(world.upkeep())))
        for ratios, ratio in zip((figures.space, figures.peak), world.space(), strict=True):
            ratios.append(ratio)
        figures.deltas.append(world.deltas())
        if n % READ_EVERY == 0:
            works = (world.read_whole, world.scan_base)
            costs = [measure.cost_of(w) for w in (works if n % (2 * READ_EVERY) else works[::-1])]
            whole, bare = costs if n % (2 * READ_EVERY) else costs[::-1]
            figures.whole.append(whole)
            figures.bare.append(bare)
    report(given, figures, rows, world.batch)


def report(given: Any, figures: Figures, rows: int, batch: int) -> None:
    ratios = [w.wall / b.wall for w, b in zip(figures.whole, figures.bare, strict=True)]
    reading = measure.ratio(figures.whole, figures.bare)
    wrote, kept = (sum(c.wall for c in costs) for costs in (figures.writing, figures.upkeep))
    wrote_cpu, kept_cpu = (sum(c.cpu for c in costs) for costs in (figures.writing, figures.upkeep))
    bases = sum(r.startswith("B") for r in figures.made)
    lines = [
        ("space / snapshot, after upkeep", statistics.median(figures.space), max(figures.space)),
        ("space / snapshot, while compacting", statistics.median(figures.peak), max(figures.peak)),
        ("deltas beside the base", statistics.median(figures.deltas), max(figures.deltas)),
        ("reading all / bare scan, wall", reading.wall, max(ratios)),
        ("reading all / bare scan, CPU", reading.cpu, ""),
        ("upkeep / writing, wall", kept / wrote, ""),
        ("upkeep / writing, CPU", kept_cpu / wrote_cpu, ""),
        ("bases made", bases, ""),
        ("chained deltas made", len(figures.made) - bases, ""),
    ]
    title = f"{len(figures.writing):,} updates of {batch:,} rows on {rows:,}"
    measure.show(title, ("", "median or sum", "most"), lines)
    measure.keep(given.json, {name: [middle, most] for name, middle, most in lines})
    print(
        f"upkeep: space {max(figures.space):.2f} x its snapshot at most ({max(figures.peak):.2f} x while compacting), "
        f"reading all {reading.wall:.2f} x a bare scan, upkeep {kept / wrote:.2f} x the writing"
    )


if __name__ == "__main__":
    main()
