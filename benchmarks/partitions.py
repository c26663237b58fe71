"""What three partitions cost on a channel that has 100,000, beside one that has ten.

    python -m benchmarks.partitions [--quick] [--json FILE]

The many are made in the catalog alone, by one commit whose files nobody reads; what is measured reads and writes three.
"""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import nova_assets as nova
from benchmarks import measure
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.model.block import DataFile, Manifest
from nova_assets.model.commit import AddBlock, CommitRequest

COUNTS = (10, 100_000)
ROUNDS = 7

source = nova.Channel("source", schema="p bigint, v bigint", partitions=nova.dynamic("p"))
table = nova.Channel(
    "table", merge=nova.Keyed("p", {"v": "sum"}), schema="p bigint, v bigint", partitions=nova.dynamic("p")
)


@nova.task(consumes=nova.new(source), produces=nova.delta(table))
def add(source: Any) -> Any:
    return source.groupBy("p").sum("v").toDF("p", "v")


project = nova.Project(
    [
        nova.bind(nova.Workflowette("whole", [add]), name="whole", partitions=[]),
    ]
)


class World:
    """Channels of so many partitions, consumed up to their head."""

    def __init__(self, root: Path, count: int, spark: Any) -> None:
        self.store = nova.open(project, f"sqlite:///{root}/c{count}.db", root / f"wh{count}", spark)
        self.store.register(project)
        self.store.insert(source, [{"p": -1, "v": 1}])
        self.store.run("whole")
        for channel in (source, table):
            self._fill(channel, count)
        self.next = 0

    def _fill(self, channel: nova.Channel, count: int) -> None:
        assert channel.schema is not None
        execution = self.store.runtime.channel_writer.begin(channel.name)
        blocks = []
        for n in range(count):
            block_id = uuid.uuid4().hex
            files = (DataFile(f"blocks/{block_id}/part.parquet", 1, 700),)
            manifest = Manifest(files, channel.schema)
            blocks.append(AddBlock(block_id, channel.name, "delta", manifest, channel.merge, f"p={n}", "insert"))
        self.store.catalog.commits.commit(
            CommitRequest(uuid.uuid4().hex, execution.id, execution.epoch, None, tuple(blocks))
        )

    def skip_what_was_made_up(self) -> None:
        """Move the cursor past the made-up blocks, which cannot be read."""
        from nova_assets.model.commit import MoveCursor
        from nova_assets.model.execution import BeginRequest

        store = self.store
        (cursor,) = store.cursors("whole")
        begun = store.catalog.executions.begin(
            BeginRequest(uuid.uuid4().hex, "whole", ("source",), ("source",), owner="benchmark")
        )
        moved = MoveCursor("whole", "source", cursor.seq, begun.pins["source"].head)
        request = CommitRequest(uuid.uuid4().hex, begun.id, begun.epoch, "whole", (), cursors=(moved,))
        store.catalog.commits.commit(request)

    def insert(self) -> None:
        self.next += 3
        self.store.insert(source, [{"p": self.next + n, "v": 1} for n in range(3)])

    def run(self) -> None:
        done = self.store.run("whole")
        assert done.commit is not None and len(done.commit.blocks) == 3


def main() -> None:
    given = measure.options("Three partitions of many.")
    counts, rounds = ((10, 5_000), 3) if given.quick else (COUNTS, ROUNDS)
    spark = LazySparkSession().get()
    root = Path(tempfile.mkdtemp(prefix="partitions-"))
    worlds = {count: World(root, count, spark) for count in counts}
    costs: dict[str, dict[int, list[measure.Cost]]] = {w: {c: [] for c in counts} for w in ("insert", "run")}
    for world in worlds.values():
        world.skip_what_was_made_up()
    for n in range(rounds + 2):
        for count in counts if n % 2 else counts[::-1]:
            for what, work in (("insert", worlds[count].insert), ("run", worlds[count].run)):
                cost = measure.cost_of(work)
                if n >= 2:
                    costs[what][count].append(cost)
    shown, figures = [], {}
    for what, by_count in costs.items():
        few, many = (measure.median(by_count[c]) for c in counts)
        r = measure.ratio(by_count[counts[1]], by_count[counts[0]])
        shown.append((what, few.wall, many.wall, r.wall, few.cpu, many.cpu, r.cpu))
        figures[what] = {"few": few.wall, "many": many.wall, "ratio": r.wall, "cpu_ratio": r.cpu}
    columns = (
        "three partitions",
        *(f"of {c:,} s" for c in counts),
        "ratio",
        *(f"of {c:,} CPU s" for c in counts),
        "CPU ratio",
    )
    measure.show(f"Medians of {rounds} rounds", columns, shown)
    measure.keep(given.json, figures)
    print("partitions: " + ", ".join(f"{s[0]} {s[3]:.2f} x wall, {s[6]:.2f} x CPU" for s in shown))


if __name__ == "__main__":
    main()
