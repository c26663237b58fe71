"""A day of logs that arrive carelessly: into right-sized files of 300 actions, sealed soon after midnight.

    python -m benchmarks.day [--quick] [--json FILE] [--svg FILE]

2,880 files, one every 30 seconds, with 300 actions of a long tail; 5 % of them come up to 20 minutes late, 2 % twice,
and 0.1 % of the records are corrupt. They are replayed fast: every 15 minutes of the day's clock, what has come is
received, and upkeep does what it does by itself. Beside it stands one plain Spark batch over the whole day. Afterwards,
the day is published as a folder. Spark and DuckDB read the folder beside the files of the batch, each in the same way:
the whole day, and its most frequent action. Spark reads the channel itself, too. The reads take turns, and the ratio is
the median over the turns.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nova_assets as nova
from benchmarks import measure
from benchmarks.hours import svg
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.settings import load_settings

FILES, ROWS = 2_880, 1_000
QUICK_FILES = 96
ACTIONS = 300
LATE, TWICE, CORRUPT = 0.05, 0.02, 0.001
LATENESS = timedelta(minutes=20)
SLOT = timedelta(minutes=15)
DAY = datetime(2024, 1, 1, tzinfo=UTC)
TARGET = 2 * 1024 * 1024
"""Small beside the default of 128 MiB, as this day is beside a real one."""

BUSIEST = "action_000"

DDL = "at timestamp NOT NULL, action string NOT NULL, user string, amount double, note string, dt date"
_WORDS = "red green blue black white small large round light heavy early late warm cold quick slow".split()


@dataclass(frozen=True)
class Letter:
    """A file, and when it comes."""

    name: str
    content: bytes
    comes: datetime


class Post:
    """All files of the day, in the order in which they come.

    Args:
        files: so many of the day's; the whole day is spread over them.
    """

    def __init__(self, files: int) -> None:
        rng = random.Random(1)
        weights = [1 / (n + 1) for n in range(ACTIONS)]
        step = timedelta(days=1) / files
        self.letters: list[Letter] = []
        self.right = 0
        for n in range(files):
            start = DAY + n * step
            lines = []
            for action in rng.choices(range(ACTIONS), weights, k=ROWS):
                at = start + step * rng.random()
                row = {
                    "at": at.isoformat(),
                    "action": f"action_{action:03d}",
                    "user": f"{rng.getrandbits(40):010x}",
                    "amount": rng.random() * 100,
                    "note": " ".join(rng.choices(_WORDS, k=8)),
                }
                text = json.dumps(row)
                corrupt = rng.random() < CORRUPT
                self.right += not corrupt
                lines.append(text[: len(text) // 2] if corrupt else text)
            content = gzip.compress("\n".join(lines).encode(), compresslevel=1)
            late = LATENESS * rng.random() if rng.random() < LATE else timedelta(0)
            letter = Letter(f"{start:%Y-%m-%d/%H}/{n:05d}.json.gz", content, start + step + late)
            self.letters.append(letter)
            if rng.random() < TWICE:
                self.letters.append(Letter(letter.name, content, letter.comes + timedelta(minutes=1)))
        self.letters.sort(key=lambda found: found.comes)


class Day:
    """The channel, and the clock of the day."""

    def __init__(self, root: Path, spark: Any) -> None:
        self.landing = root / "landing"
        self.landing.mkdir()
        self.channel = nova.Channel(
            "actions",
            schema=DDL,
            partitions=[nova.daily("dt", start="2024-01-01", of="at"), nova.dynamic("action")],
            source=nova.files(str(self.landing), hours="%Y-%m-%d/%H", look_back="2h", min_age="1s"),
            seal=nova.seal("dt", lateness="20m"),
            compaction=nova.Compaction(target=TARGET),
            publish=nova.hive(str(root / "exports" / "actions")),
        )
        config = load_settings(
            start_folder=root, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"), gc_grace=1e-6
        )
        self.store = nova.open(nova.Project(channels=[self.channel]), spark=spark, settings=config)
        self.now = DAY
        self.store.catalog.database.clock = lambda: self.now

    def deliver(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            path = self.landing / letter.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(letter.content)
            os.utime(path, (DAY.timestamp(),) * 2)

    def work(self) -> None:
        """What happens by itself: receive, and upkeep."""
        self.store.receive("actions")
        self.store.compact("actions", force=False)
        self.store.collect_garbage("actions")
        self.store.delete_collected()

    def finish(self) -> list[nova.Seal]:
        self.store.receive("actions")
        return [s for s in self.store.seal("actions") if s.group == f"{DAY:%Y-%m-%d}"]


def batch(spark: Any, landing: Path, into: Path) -> None:
    """One plain Spark batch over the whole day."""
    from pyspark.sql import functions as F

    rows = spark.read.schema(DDL.replace(", dt date", "").replace(" NOT NULL", "")).json(
        str(landing / "*" / "*" / "*.json.gz")
    )
    rows = rows.where("at IS NOT NULL AND action IS NOT NULL").withColumn("dt", F.to_date("at"))
    rows.repartition(ACTIONS, "dt", "action").write.partitionBy("dt", "action").mode("overwrite").parquet(str(into))


class Readers:
    """The same questions to the published day, to the files of the batch, and to the channel. Each reader opens the
    day anew.
    """

    def __init__(self, day: Day, spark: Any, published: Path, batch_folder: Path) -> None:
        self.day, self.spark, self.published, self.batch_folder = day, spark, published, batch_folder

    def spark_reads_channel(self) -> list[tuple[Any, ...]]:
        return self._ask_spark(self.day.store.read("actions").to_spark())

    def spark_reads_published(self) -> list[tuple[Any, ...]]:
        return self._ask_spark(self.spark.read.parquet(os.path.realpath(self.published)))

    def spark_reads_batch(self) -> list[tuple[Any, ...]]:
        return self._ask_spark(self.spark.read.parquet(str(self.batch_folder)))

    def duckdb_reads_published(self) -> list[tuple[Any, ...]]:
        return self._ask_duckdb(Path(os.path.realpath(self.published)))

    def duckdb_reads_batch(self) -> list[tuple[Any, ...]]:
        return self._ask_duckdb(self.batch_folder)

    def _ask_spark(self, rows: Any) -> list[tuple[Any, ...]]:
        from pyspark.sql import functions as F

        asked = (F.count("*"), F.round(F.sum("amount"), 3), F.max("note"), F.min("user"))
        whole = rows.groupBy("action").agg(*asked).collect()
        [busiest] = rows.where(f"action = '{BUSIEST}'").agg(*asked).collect()
        return [*sorted(map(tuple, whole)), tuple(busiest)]

    def _ask_duckdb(self, folder: Path) -> list[tuple[Any, ...]]:
        import duckdb

        rows = duckdb.read_parquet(str(folder / "*" / "*" / "*.parquet"), hive_partitioning=True)
        asked = "count(*), round(sum(amount), 3), max(note), min(user)"
        whole = rows.aggregate(f"action, {asked}", "action").fetchall()
        return [*sorted(whole), *rows.filter(f"action = '{BUSIEST}'").aggregate(asked).fetchall()]


def read_costs(readers: Readers, rounds: int) -> dict[str, list[measure.Cost]]:
    """Costs of each reader. All readers must give the same answer."""
    works = {
        "Spark, published": readers.spark_reads_published,
        "Spark, batch": readers.spark_reads_batch,
        "Spark, channel": readers.spark_reads_channel,
        "DuckDB, published": readers.duckdb_reads_published,
        "DuckDB, batch": readers.duckdb_reads_batch,
    }
    [first, *others] = [work() for work in works.values()]
    assert all(_nearly_equal(first, answer) for answer in others), "the readers do not agree"
    return dict(zip(works, measure.interleaved(rounds, *works.values()), strict=True))


def _nearly_equal(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> bool:
    return len(one) == len(other) and all(
        math.isclose(a, b, abs_tol=0.01) if isinstance(a, float) else a == b
        for row, other_row in zip(one, other, strict=True)
        for a, b in zip(row, other_row, strict=True)
    )


def replay(day: Day, post: Post) -> tuple[list[measure.Cost], measure.Cost, nova.Seal]:
    """Cost of each hour of the day, cost from the last file to the seal, and the seal."""
    hours: list[measure.Cost] = []
    waiting = list(post.letters)
    last = max(letter.comes for letter in post.letters)
    while day.now < DAY + timedelta(days=1):
        spent: list[measure.Cost] = []
        for _ in range(4):
            day.now += SLOT
            come = [letter for letter in waiting if letter.comes <= day.now]
            waiting = waiting[len(come) :]
            day.deliver(come)
            spent.append(measure.cost_of(day.work))
        hours.append(measure.Cost(sum(c.wall for c in spent), sum(c.cpu for c in spent)))
    day.deliver(waiting)
    day.now = max(last, DAY + timedelta(days=1) + LATENESS) + timedelta(seconds=1)
    sealed: list[nova.Seal] = []
    after = measure.cost_of(lambda: sealed.extend(day.finish()))
    [seal] = sealed
    return hours, after, seal


def compare_readers(readers: Readers, rounds: int) -> dict[str, measure.Cost]:
    """Cost of reading the finished day, by tool, as a multiple of reading the files of the batch."""
    costs = read_costs(readers, rounds)
    compared = {"Spark": "Spark, published", "DuckDB": "DuckDB, published", "Spark by nova": "Spark, channel"}
    ratios = {
        tool: measure.ratio(costs[ours], costs[f"{ours.partition(',')[0]}, batch"]) for tool, ours in compared.items()
    }
    measure.show(
        "reading the finished day",
        ["", "wall s", "CPU s"],
        [
            *([name, measure.median(all_).wall, measure.median(all_).cpu] for name, all_ in costs.items()),
            *([f"{tool} / batch", ratio.wall, ratio.cpu] for tool, ratio in ratios.items()),
        ],
    )
    return ratios


def main() -> None:
    given = measure.options(__doc__.splitlines()[0], svg="a file into which the work of each hour is drawn")
    files = QUICK_FILES if given.quick else FILES
    with tempfile.TemporaryDirectory(prefix="nova-day-") as folder:
        root = Path(folder)
        post = Post(files)
        spark = LazySparkSession().get()
        day = Day(root, spark)
        hours, after, seal = replay(day, post)
        plain = [measure.cost_of(lambda: batch(spark, day.landing, root / "batch")) for _ in range(3)]
        held = day.store.catalog.histories.of("actions").blocks
        sizes: dict[str, int] = {}
        for block in held:
            if block.kind == "base":
                sizes[block.partition] = block.bytes
        least = sum(math.ceil(size / TARGET) for size in sizes.values())
        whole = measure.median(plain)
        assert seal.rows == post.right, f"{seal.rows} rows instead of {post.right}"
        measure.show(
            f"a day of {files} files, {seal.rows:,} rows, {len(sizes)} partitions",
            ["", "wall s", "CPU s"],
            [
                *([f"hour {n}", c.wall, c.cpu] for n, c in enumerate(hours)),
                ["from the last file to the seal", after.wall, after.cpu],
                ["one Spark batch", whole.wall, whole.cpu],
            ],
        )
        published = measure.cost_of(lambda: day.store.publish("actions"))
        readers = Readers(day, spark, root / "exports" / "actions", root / "batch")
        ratios = compare_readers(readers, rounds=5 if given.quick else 11)
        figures = {
            "files": files,
            "rows": seal.rows,
            "hours": [c.wall for c in hours],
            "seal": after.wall,
            "batch": whole.wall,
            "files_out": seal.files,
            "files_least": least,
            "seal_of_batch": after.wall / whole.wall,
            "seal_of_batch_cpu": after.cpu / whole.cpu,
            "publish": published.wall,
            **{f"read_{tool.lower().replace(' ', '_')}": ratio.wall for tool, ratio in ratios.items()},
            **{f"read_{tool.lower().replace(' ', '_')}_cpu": ratio.cpu for tool, ratio in ratios.items()},
        }
        measure.keep(given.json, figures)
        if given.svg:
            title = f"{files:,} files of {ROWS:,} rows, {ACTIONS} actions: seconds of work in each hour of the day"
            Path(given.svg).write_text(svg(title, [c.wall for c in hours], after.wall), encoding="utf-8")
        print(
            f"day: {seal.files} files out, {seal.files / least:.2f} x the least; "
            f"sealed in {after.wall / whole.wall:.2f} x a Spark batch over the day (CPU {after.cpu / whole.cpu:.2f}); "
            + f"published in {published.wall:.1f} s; "
            + ", ".join(f"{tool} reads it in {r.wall:.2f} x (CPU {r.cpu:.2f})" for tool, r in ratios.items())
        )


if __name__ == "__main__":
    main()
