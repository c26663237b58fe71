"""What a batch costs when its table is ten times larger: one whose keys come in ranges of time, and one that is
de-duplicated against all keys ever seen.

    python -m benchmarks.tenfold [--quick] [--json FILE] [--rows N]

The first is an upsert into the newest days of a channel that is clustered by day, with the compaction that makes a base
of it again; the larger table has more days. The second is a binding that reads a batch as ``new`` and looks its keys up
with ``nova.matching``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import nova_assets as nova
from benchmarks import measure
from nova_assets.engine.session.lazy_session import LazySparkSession

ROWS = 1_000_000
DAY = 20_000
"""Rows of a day."""

BATCH = 5_000
ROUNDS = 7
START = date(2020, 1, 1)
_PRIME = 0x9E3779B97F4A7C15

events = nova.Channel(
    "events",
    merge=nova.Upsert(key=["day", "id"]),
    cluster_by="day",
    schema="day date, id bigint, amount double, note string",
)
arrived = nova.Channel("arrived", merge=nova.Append(), schema="hash bigint, url string")
seen = nova.Channel("seen", merge=nova.Upsert(key="hash"), schema="hash bigint")
unique = nova.Channel("unique", merge=nova.Append(), schema="hash bigint, url string")


@nova.task(
    consumes=[nova.new(arrived), nova.matching(seen, keys_of=arrived, as_="known")],
    produces=[nova.delta(unique), nova.delta(seen)],
)
def drop_seen(arrived: Any, known: Any) -> Any:
    fresh = arrived.join(known, "hash", "left_anti").dropDuplicates(["hash"])
    return {"unique": fresh, "seen": fresh.select("hash")}


project = nova.Project([nova.bind(nova.Workflowette("dedup", [drop_seen]))], channels=[events])


def hashed(numbers: Any) -> Any:
    return (np.asarray(numbers).astype(np.uint64) * np.uint64(_PRIME)).view(np.int64)


class World:
    """Both tables, filled with so many rows."""

    def __init__(self, root: Path, rows: int, spark: Any) -> None:
        self.store = nova.open(project, f"sqlite:///{root}/c{rows}.db", root / f"wh{rows}", spark)
        self.rng = np.random.default_rng(1)
        self.rows = self.known = rows
        ids = spark.range(0, rows)
        day = f"date_add(date'{START}', cast(id div {DAY} as int)) day"
        note = "concat('note ', cast(id % 1009 as string)) note"
        self.store.insert(events, ids.selectExpr(day, "id", "id * 0.5d amount", note), kind="base")
        known = spark.createDataFrame(pa.table({"hash": hashed(np.arange(rows))}))
        self.store.insert(seen, known, kind="base")

    def upsert(self) -> None:
        """Into the last two days: most replaces what is there."""
        ids = self.rng.choice(np.arange(self.rows - 2 * DAY, self.rows + BATCH), BATCH, replace=False)
        days = [START + timedelta(days=int(i) // DAY) for i in ids]
        table = pa.table({"day": days, "id": ids, "amount": ids * 1.5, "note": ["again"] * BATCH})
        self.store.insert(events, table)
        self.store.compact("events")

    def arrive(self) -> None:
        """Half has been seen."""
        old = self.rng.choice(self.known, BATCH // 2, replace=False)
        new = np.arange(self.known, self.known + BATCH // 2)
        self.known += BATCH // 2
        hashes = hashed(np.concatenate([old, new]))
        self.store.insert(
            arrived, pa.table({"hash": hashes, "url": [f"https://a.example/{h}" for h in hashes.tolist()]})
        )

    def dedup(self) -> None:
        self.store.run("dedup")


def main() -> None:
    given = measure.options("What a batch costs when its table is ten times larger.", rows=ROWS)
    least, rounds = (given.rows // 10, 3) if given.quick else (given.rows, ROUNDS)
    sizes = (least, 10 * least)
    spark = LazySparkSession().get()
    with tempfile.TemporaryDirectory(prefix="tenfold-") as root:
        worlds = {size: World(Path(root), size, spark) for size in sizes}
        costs = measured(worlds, rounds)
    shown, figures = [], {}
    for what, by_size in costs.items():
        small, large = (measure.median(by_size[s]) for s in sizes)
        r = measure.ratio(by_size[sizes[1]], by_size[sizes[0]])
        shown.append((what, small.wall, large.wall, r.wall, small.cpu, large.cpu, r.cpu))
        figures[what] = {"wall": [small.wall, large.wall], "ratio": r.wall, "cpu_ratio": r.cpu}
    first, second = (f"{s / 1e6:g} M" for s in sizes)
    columns = ("", f"{first} s", f"{second} s", "ratio", f"{first} CPU s", f"{second} CPU s", "CPU ratio")
    measure.show(f"A batch of {BATCH:,} rows, medians of {rounds} rounds", columns, shown)
    measure.keep(given.json, figures)
    print("tenfold: " + ", ".join(f"{s[0]} {s[3]:.2f} x wall, {s[6]:.2f} x CPU" for s in shown))


def measured(worlds: dict[int, World], rounds: int) -> dict[str, dict[int, list[measure.Cost]]]:
    costs: dict[str, dict[int, list[measure.Cost]]] = {w: {s: [] for s in worlds} for w in ("upsert", "dedup")}
    for n in range(rounds + 2):  # the first two warm up
        for size in list(worlds) if n % 2 else list(worlds)[::-1]:
            works: list[tuple[str, Callable[[], None]]] = [
                ("upsert", worlds[size].upsert),
                ("dedup", worlds[size].dedup),
            ]
            worlds[size].arrive()
            for what, work in works:
                cost = measure.cost_of(work)
                if n >= 2:
                    costs[what][size].append(cost)
    return costs


if __name__ == "__main__":
    main()
