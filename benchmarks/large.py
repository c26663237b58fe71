"""A keyed channel of a hundred million rows, once: loading, an upsert of 1 %, reading, looking up, compaction; how
long each takes and how much memory all processes have at once.

    python -m benchmarks.large [--quick] [--json FILE] [--rows N]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import nova_assets as nova
from benchmarks import measure
from benchmarks.peers.meter import Step, metered
from nova_assets.engine.session.lazy_session import LazySparkSession

ROWS = 100_000_000
LOOKED_UP = 5_000
DDL = "id bigint, customer string, amount double, quantity int, at timestamp"

facts = nova.Channel("facts", merge=nova.Upsert(key="id"), schema=DDL)


def rows(ids: Any, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    n = len(ids)
    return pa.table(
        {
            "id": ids,
            "customer": pa.array(rng.integers(0, 100_000, n)).cast(pa.string()),
            "amount": np.round(rng.random(n) * 1000, 2),
            "quantity": rng.integers(0, 100, n).astype(np.int32),
            "at": pa.array(rng.integers(1_600_000_000, 1_700_000_000, n) * 1_000_000).cast(pa.timestamp("us", "UTC")),
        }
    )


class World:
    """The channel, and what is done to it."""

    def __init__(self, root: Path, size: int, spark: Any) -> None:
        self.size = size
        self.spark = spark
        self.warehouse = root / "wh"
        self.rng = np.random.default_rng(1)
        self.store = nova.open(nova.Project(channels=[facts]), f"sqlite:///{root}/c.db", self.warehouse, spark)
        self.store.register(facts)
        self.warehouse.mkdir(exist_ok=True)

    def load(self) -> None:
        frame = self.spark.range(0, self.size).selectExpr(
            "xxhash64(id) id",
            "cast(id % 100003 as string) customer",
            "round(rand(1) * 1000, 2) amount",
            "cast(id % 100 as int) quantity",
            "timestamp_seconds(1600000000 + pmod(xxhash64(id), 100000000)) at",
        )
        self.store.insert("facts", frame, kind="base")

    def ids(self, count: int) -> Any:
        """Keys that are there."""
        numbers = pa.table({"n": self.rng.choice(self.size, count, replace=False)})
        return self.store.engine.frames.to_arrow(self.spark.createDataFrame(numbers).selectExpr("xxhash64(n) id"))["id"]

    def upsert(self) -> Callable[[], None]:
        batch = rows(self.ids(self.size // 100), 2)
        return lambda: void(self.store.insert("facts", batch))

    def read(self) -> None:
        self.store.read("facts").to_spark().selectExpr("count(*)", "sum(xxhash64(*) % 1000003)").collect()

    def look_up(self) -> Callable[[], None]:
        keys = pa.table({"id": self.ids(LOOKED_UP)})

        def look_up() -> None:
            assert self.store.read("facts", keys=keys).to_arrow().num_rows == LOOKED_UP

        return look_up

    def compact(self) -> None:
        self.store.compact("facts")

    def changes(self) -> None:
        self.store.read("facts", since=1).to_spark().selectExpr("count(*)").collect()


def void(_: object) -> None:
    """Nothing is made of it."""


def main() -> None:
    given = measure.options("A keyed channel of a hundred million rows.", rows=ROWS)
    size = given.rows // 100 if given.quick else given.rows
    spark = LazySparkSession().get()
    steps: dict[str, Step] = {}
    with tempfile.TemporaryDirectory(prefix="large-") as root:
        world = World(Path(root), size, spark)
        spark.range(1000).count()
        steps["load from a frame"] = metered(world.load, world.warehouse)
        steps["read all, no deltas"] = metered(world.read, world.warehouse)
        steps["upsert of 1 %"] = metered(world.upsert(), world.warehouse)
        steps["read all, with the delta"] = metered(world.read, world.warehouse)
        steps["changes since"] = metered(world.changes, world.warehouse)
        steps[f"look {LOOKED_UP:,} keys up"] = metered(world.look_up(), world.warehouse)
        steps["compact"] = metered(world.compact, world.warehouse)
    shown = [
        (name, s.wall, s.cpu, f"{s.peak / 2**30:.1f}", f"{s.written / 2**20:,.0f}", s.files)
        for name, s in steps.items()
    ]
    columns = ("", "s", "CPU s", "most memory, GiB", "written, MiB", "files")
    measure.show(f"{size:,} rows, keys from anywhere", columns, shown)
    measure.keep(given.json, {name: s.as_json() for name, s in steps.items()})
    most = max(s.peak for s in steps.values())
    merge = steps["compact"].cpu / steps["load from a frame"].cpu
    print(f"large: at most {most / 2**30:.1f} GiB; a merge of 1 % costs {merge:.2f} x the CPU of loading")


if __name__ == "__main__":
    main()
