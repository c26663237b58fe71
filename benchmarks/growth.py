"""What a batch costs as the state grows: 10,000 rows onto channels of 0.25, 1 and 2.5 million.

    python -m benchmarks.growth [--quick] [--json FILE]

Inserts and executions that read only what is new should not notice; one that reads ``all`` does, and is shown beside.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import nova_assets as nova
from benchmarks import measure
from nova_assets.engine.session.lazy_session import LazySparkSession

BATCH = 10_000
SIZES = (250_000, 1_000_000, 2_500_000)
ROUNDS = 7

facts = nova.Channel("facts", merge=nova.Upsert(key="id"), schema="id bigint, shop bigint, amount bigint")
doubled = nova.Channel("doubled", merge=nova.Upsert(key="id"), schema="id bigint, shop bigint, amount bigint")
totals = nova.Channel("totals", merge=nova.Upsert(key="shop"))


@nova.task(consumes=nova.new(facts), produces=nova.delta(doubled))
def double(facts: Any) -> Any:
    return facts.withColumn("amount", facts["amount"] * 2)


@nova.task(consumes=nova.all(facts), produces=nova.base(totals))
def total(facts: Any) -> Any:
    return facts.groupBy("shop").sum("amount").toDF("shop", "amount")


project = nova.Project([nova.bind(nova.Workflowette("new", [double])), nova.bind(nova.Workflowette("whole", [total]))])


def rows(start: int, count: int) -> pa.Table:
    ids = pa.array(range(start, start + count), pa.int64())
    return pa.table({"id": ids, "shop": pa.array([i % 500 for i in range(count)], pa.int64()), "amount": ids})


class World:
    """A channel of so many rows, consumed up to its head."""

    def __init__(self, root: Path, size: int, spark: Any) -> None:
        self.store = nova.open(project, f"sqlite:///{root}/c{size}.db", root / f"wh{size}", spark)
        self.store.insert(facts, rows(0, size), kind="base")
        self.store.run("new")
        self.next = size

    def insert(self) -> None:
        """Half of the batch is new, half of it replaces what is there."""
        self.store.insert(facts, rows(self.next - BATCH // 2, BATCH))
        self.next += BATCH // 2

    def run_new(self) -> None:
        self.store.run("new")

    def run_whole(self) -> None:
        self.store.run("whole")


def main() -> None:
    given = measure.options("What a batch costs as the state grows.")
    sizes, rounds = ((25_000, 100_000, 250_000), 3) if given.quick else (SIZES, ROUNDS)
    spark = LazySparkSession().get()
    root = Path(tempfile.mkdtemp(prefix="growth-"))
    worlds = {size: World(root, size, spark) for size in sizes}
    costs: dict[str, dict[int, list[measure.Cost]]] = {w: {s: [] for s in sizes} for w in ("insert", "new", "all")}

    def measured(n: int, what: str, size: int, work: Callable[[], None]) -> None:
        cost = measure.cost_of(work)
        if n >= 2:  # the first two warm up
            costs[what][size].append(cost)

    # Inserts by themselves: what Spark tidies up after a query would be counted as theirs.
    for n in range(2 * rounds + 2):
        for size in sizes if n % 2 else sizes[::-1]:
            measured(n, "insert", size, worlds[size].insert)
    for world in worlds.values():
        world.run_new()
    for n in range(rounds + 2):
        for size in sizes if n % 2 else sizes[::-1]:
            worlds[size].insert()
            measured(n, "new", size, worlds[size].run_new)
            measured(n, "all", size, worlds[size].run_whole)
    shown, figures = [], {}
    for what, by_size in costs.items():
        medians = [measure.median(by_size[s]) for s in sizes]
        r = measure.ratio(by_size[sizes[-1]], by_size[sizes[0]])
        shown.append((what, *(m.wall for m in medians), r.wall, *(m.cpu for m in medians), r.cpu))
        figures[what] = {"wall": [m.wall for m in medians], "ratio": r.wall, "cpu_ratio": r.cpu}
    names = [f"{s / 1e6:g} M" for s in sizes]
    columns = ("", *(f"{n} s" for n in names), "ratio", *(f"{n} CPU s" for n in names), "CPU ratio")
    measure.show(f"A batch of {BATCH:,} rows, medians of {rounds} rounds", columns, shown)
    measure.keep(given.json, figures)
    print("growth: " + ", ".join(f"{s[0]} {s[4]:.2f} x wall, {s[8]:.2f} x CPU" for s in shown))


if __name__ == "__main__":
    main()
