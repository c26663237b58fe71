"""Rows of 100 kB to 1 MB, and every verb that reads or writes them, in a Java process of 2 GB: how long each takes, and
the most memory that all processes have at once.

    python -m benchmarks.wide [--quick] [--json FILE] [--rows N]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import nova_assets as nova
from benchmarks import measure
from benchmarks.peers.meter import Step, metered
from nova_assets.engine.session.spark_session import get_or_build_session

ROWS = 10_000
NARROWEST, WIDEST = 100_000, 1_000_000
"""Bytes of a row: most rows are at the lower end, as pages are."""

DDL = "id bigint, at timestamp, html string"
WORDS = 20_000

pages = nova.Channel("pages", merge=nova.Append(), schema=DDL)
current = nova.Channel("current", merge=nova.Upsert(key="id"), schema=DDL)
lines = nova.Channel("lines", merge=nova.Append(), schema="id bigint, lines array<string>, words int")


def _lines(html: str) -> list[str]:
    return [html[n : n + 1000] for n in range(0, len(html), 1000)]


@nova.task(consumes=nova.new(pages), produces=nova.delta(lines), retries=1)
def cut(pages: DataFrame) -> DataFrame:
    """A function of Arrow that gives as much as it takes."""
    split = F.udf(_lines, "array<string>", useArrow=True)
    return pages.select("id", split("html").alias("lines")).withColumn("words", F.size("lines"))


@nova.task(consumes=nova.new(pages), produces=nova.delta(current))
def keep(pages: DataFrame) -> DataFrame:
    """The rows as they are, by their keys, through ``mapInArrow``."""

    def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return pages.mapInArrow(as_they_are, DDL)


PROJECT = nova.Project(
    bindings=[nova.bind(nova.Workflowette("cut", [cut])), nova.bind(nova.Workflowette("keep", [keep]))]
)


def rows(first: int, count: int, seed: int) -> pa.Table:
    """Pages of words, which compress about as text does."""
    rng = np.random.default_rng(seed)
    words = np.append(rng.integers(97, 123, (WORDS, 9)), np.full((WORDS, 1), 32), axis=1).astype(np.uint8)
    sizes = NARROWEST + ((WIDEST - NARROWEST) * rng.random(count) ** 3).astype(int)
    text = [words[rng.integers(0, WORDS, size // 10)].tobytes().decode("ascii") for size in sizes]
    at = pa.array(rng.integers(1_600_000_000, 1_700_000_000, count) * 1_000_000).cast(pa.timestamp("us", "UTC"))
    return pa.table({"id": np.arange(first, first + count), "at": at, "html": pa.array(text, pa.large_string())})


def files(folder: Path, size: int) -> list[Path]:
    """The rows, in files as somebody else would write them: nobody has thought of their width."""
    found = []
    each = max(1, size // 20)
    for n, first in enumerate(range(0, size, each)):
        found.append(folder / f"{n:03d}.parquet")
        table = rows(first, min(each, size - first), n)
        pq.write_table(table.set_column(2, "html", table["html"].cast(pa.string())), found[-1], compression="zstd")
    return found


class World:
    """The channels, and what is done to them."""

    def __init__(self, root: Path, size: int) -> None:
        self.root = root
        self.size = size
        self.warehouse = root / "wh"
        self.warehouse.mkdir()
        self.spark = get_or_build_session(extra_settings={"spark.driver.memory": "2g"})
        self.store = nova.open(PROJECT, f"sqlite:///{root}/c.db", self.warehouse, self.spark)
        self.store.register(PROJECT)
        self.batch = rows(0, max(1, size // 20), 99)  # of rows that are there already

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Every verb, with what carries it out."""
        store, given = self.store, files(self.root, self.size)
        yield "insert files, append", lambda: store.insert("pages", [str(f) for f in given])
        yield "run, Arrow UDF to array<string>", lambda: store.run("cut")
        yield "run, mapInArrow onto keys", lambda: store.run("keep")
        yield "read all with Spark", lambda: self._sum("pages")
        yield "stream all as batches", self._stream
        yield "insert a table, upsert of 5 %", lambda: store.insert("current", self.batch)
        yield "insert a table, append 5 %", lambda: store.insert("pages", self.batch)
        yield "read, merging the upsert", lambda: self._sum("current")
        yield "changes since", lambda: self._sum("current", since=1)
        yield "look 100 keys up", lambda: store.read("current", keys=[{"id": n} for n in range(100)]).to_arrow()
        yield "compact keys", lambda: store.compact("current")
        yield "compact appended", lambda: store.compact("pages")
        yield "insert a base, compared", lambda: store.insert("current", [str(f) for f in given[:-1]], kind="base")
        yield "restore", lambda: store.restore("current", 2)
        yield "run on the 5 %", lambda: store.run("cut")

    def _sum(self, channel: str, since: int | None = None) -> None:
        """All rows, to their last character."""
        frame = self.store.read(channel, since=since).to_spark()
        [[count, _]] = frame.selectExpr("count(*)", "sum(crc32(html))").collect()
        assert count > 0

    def _stream(self) -> None:
        with self.store.pin("pages") as pinned, pinned.read("pages").to_batches() as reader:
            assert sum(batch.num_rows for batch in reader) == self.size


def main() -> None:
    given: Any = measure.options("Rows of 100 kB to 1 MB in a Java process of 2 GB.", rows=ROWS)
    size = min(given.rows, 400) if given.quick else given.rows
    steps: dict[str, Step] = {}
    with tempfile.TemporaryDirectory(prefix="wide-") as root:
        world = World(Path(root), size)
        for name, work in world.steps():
            print(name, flush=True)
            steps[name] = metered(work, world.warehouse)
        world.store.close()
    shown = [(name, s.wall, s.cpu, f"{s.peak / 2**30:.1f}", f"{s.written / 2**20:,.0f}") for name, s in steps.items()]
    columns = ("", "s", "CPU s", "most memory, GiB", "written, MiB")
    measure.show(f"{size:,} rows of {NARROWEST // 1000} kB to {WIDEST // 1_000_000} MB", columns, shown)
    measure.keep(given.json, {name: s.as_json() for name, s in steps.items()})
    most = max(s.peak for s in steps.values())
    wall = sum(s.wall for s in steps.values())
    print(f"wide: every verb in a Java process of 2 GB; {wall:.0f} s, at most {most / 2**30:.1f} GiB of all processes")


if __name__ == "__main__":
    main()
