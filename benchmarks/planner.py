"""What it costs to plan very many datasets in SQL: to load them, to show a task of one, and to tick.

    python -m benchmarks.planner [--quick] [--json FILE] [--datasets N] [--partitions N]

Chains of ten datasets, each partitioned by day: the first reads a channel that is fed from outside, the others those
before them, the same day, or a week of days, or joined with the day before. All of their partitions are there; then
data comes late, to a hundred partitions at a time, and a tick decides what to make again. Nothing is run: the catalog
is a real SQLite, the engine reads and writes nothing.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import nova_assets as nova
from benchmarks import measure
from benchmarks.bulk import Bulk
from benchmarks.metadata import NoFiles
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.channel import Channel
from nova_assets.model.partition_rule import InputState
from nova_assets.plan.tick import Policy
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets.store.tick import DatasetScheduler

FULL, QUICK = (10_000, 1_000), (200, 100)
CHAIN = 10
CHANGED = 100
ROUNDS = 7
NOW = datetime(2024, 6, 1, 12, tzinfo=UTC)
_SCHEMA = "customer string, price bigint, day string"
_AT = 1_700_000_000_000_000

_HEAD = """FOR t IN TIMESERIES(start => '{start}')
LET d = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE {name} PARTITION (day = d)
"""
_QUERIES = (
    "SELECT a.customer, SUM(a.price) AS price FROM {read} a WHERE a.day = :d AND a.price > 0 GROUP BY a.customer",
    "SELECT a.customer, MAX(a.price) AS price FROM {read} a\n"
    "WHERE a.day BETWEEN CAST(DATE_SUB(:d, 6) AS STRING) AND :d GROUP BY a.customer",
    "SELECT a.customer, SUM(a.price - COALESCE(b.price, 0)) AS price FROM {read} a\n"
    "LEFT JOIN {read} b ON a.customer = b.customer AND b.day = CAST(DATE_SUB(a.day, 1) AS STRING)\n"
    "WHERE a.day = :d GROUP BY a.customer",
)


@dataclass(frozen=True)
class Loaded:
    """How long it took, and how many of the datasets were understood before."""

    seconds: float
    recalled: int


def loaded(folder: Path, feeds: list[Channel]) -> Loaded:
    """Load a project, once."""
    found, seconds = timed(lambda: nova.datasets(folder, channels=feeds))
    _, more = timed(lambda: nova.Project(found))
    return Loaded(seconds + more, found.graph.cache_hits)


class World:
    """Datasets in a folder, and a catalog in which all of their partitions are.

    Args:
        partitions: of each dataset: so many days, up to today.
    """

    def __init__(self, root: Path, datasets: int, partitions: int) -> None:
        self.start = NOW.date() - timedelta(days=partitions - 1)
        self.days = [str(self.start + timedelta(days=n)) for n in range(partitions)]
        self.feeds = [self._feed(n) for n in range(-(-datasets // CHAIN))]
        self.folder = root / "sql"
        self.folder.mkdir()
        self.reads: dict[str, str] = {}
        for n in range(datasets):
            self._write(n)
        os.environ["NOVA_CACHE"] = str(root / "kept")
        self.anew, self.changed, self.kept = self._load(), self._load_changed(), self._load()
        self.loaded = nova.Project(nova.datasets(self.folder, channels=self.feeds))
        url = f"sqlite:///{root}/catalog.db"
        settings = load_settings(start_folder=root, catalog=url, warehouse=str(root / "wh"))
        catalog = open_catalog(url, lambda: NOW)
        _, self.registered = timed(lambda: catalog.definitions.register(self.loaded.channels, self.loaded.bindings))
        catalog.close()
        _, self.filled = timed(lambda: self._fill(url))
        self.store = Store(settings, self.loaded, open_catalog(url, lambda: NOW), NoFiles(root / "wh", _SCHEMA))

    def _load(self) -> Loaded:
        """In a process of its own, as everybody does who loads a project."""
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(loaded, self.folder, self.feeds).result()

    def _load_changed(self) -> Loaded:
        """With another type in the first of a chain, which is that of all that follow from it."""
        file = self.folder / "d_00000.sql"
        before = file.read_text()
        file.write_text(before.replace("SUM(a.price)", "CAST(SUM(a.price) AS DOUBLE)"))
        try:
            return self._load()
        finally:
            file.write_text(before)

    def _feed(self, n: int) -> Channel:
        return Channel(f"feed_{n:04d}", schema=_SCHEMA, partitions=nova.daily("day", start=str(self.start)))

    def _write(self, n: int) -> None:
        name = f"d_{n:05d}"
        first = n % CHAIN == 0
        self.reads[name] = self.feeds[n // CHAIN].name if first else f"d_{n - 1:05d}"
        query = _QUERIES[(0, 0, 1, 0, 2)[n % 5]]
        text = _HEAD.format(start=self.start, name=name) + query.format(read=self.reads[name])
        (self.folder / f"{name}.sql").write_text(text)

    def _fill(self, url: str) -> None:
        bulk = Bulk(url)
        merge = json.dumps(nova.Append().as_json())
        schema = json.dumps(self.feeds[0].schema.as_json() if self.feeds[0].schema else [])
        for name in (*(c.name for c in self.feeds), *self.reads):
            commit, read = uuid.uuid4().hex, self.reads.get(name)
            consumed = {} if read is None else {read: [None, 1]}
            given = (commit, uuid.uuid4().hex, name, _AT, json.dumps({name: 1}), json.dumps(consumed), "{}", _AT)
            bulk.add("nova_commits", given)
            bulk.add("nova_numbers", (commit, name, 1))
            bulk.heads[name] = 1
            for day in self.days:
                of = (uuid.uuid4().hex, name, f"day={day}", "base", 1, 1, 1000, 20000, 0, schema, "parquet", False)
                bulk.add("nova_blocks", (*of, None, None, merge, "task", commit, None, None))
        bulk.close()

    def come_late(self, channels: int, nth: int) -> None:
        """Data comes to a hundred partitions: of so many channels, each time of the same, and to other days."""
        each = CHANGED // channels
        for n in range(channels):
            days = [self.days[-(2 + (nth * each + k) % (len(self.days) - 2))] for k in range(each)]
            self._commit(self.feeds[-(1 + n * 7 % len(self.feeds))], days)

    def _commit(self, channel: Channel, days: list[str]) -> None:
        """What an insert leaves in the catalog."""
        from nova_assets.model.block import Manifest
        from nova_assets.model.commit import AddBlock, CommitRequest

        execution = self.store.runtime.channel_writer.begin(channel.name)
        assert channel.schema is not None
        some = Manifest((), channel.schema)
        publish = [
            AddBlock(uuid.uuid4().hex, channel.name, "base", some, channel.merge, f"day={d}", "insert") for d in days
        ]
        self.store.catalog.commits.commit(
            CommitRequest(uuid.uuid4().hex, execution.id, execution.epoch, None, tuple(publish))
        )


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started


@dataclass(frozen=True)
class Ticks:
    """Ticks before each of which data came late to a hundred partitions.

    Args:
        first: seconds of the first one, whose datasets nobody had asked about before.
        median: seconds of the others, for which data came to the same channels.
        judged: so many tasks, each time.
    """

    first: float
    median: float
    judged: int


def ticks(world: World, scheduling: DatasetScheduler, channels: int) -> Ticks:
    seconds, judged = [], scheduling.staleness_tracker.checked_task_count
    for n in range(ROUNDS + 1):
        world.come_late(channels, n)
        found, took = timed(lambda: scheduling.next_tick(Policy(at_once=10_000)))
        assert sum(len(b.partitions) for b in found.run), "data that came late is made something of"
        seconds.append(took)
    return Ticks(
        seconds[0],
        statistics.median(seconds[1:]),
        (scheduling.staleness_tracker.checked_task_count - judged) // (ROUNDS + 1),
    )


def shows(world: World) -> tuple[float, float]:
    """What ``nova show`` computes of one task: for the first time, and again."""
    bindings = [b for b in world.loaded.bindings if b.name in world.reads]
    first: list[float] = []
    again: list[float] = []
    for binding in bindings[:: max(1, len(bindings) // 20)]:
        query: Any = binding.tasks[0].scoped
        for times in (first, again):
            at = f"day={world.days[-2]}"
            times.append(timed(partial(_show, query, at))[1])
    return statistics.median(first), statistics.median(again)


def _show(query: Any, partition: str) -> None:
    """What ``nova show`` asks of one task."""
    query.scope(partition, NOW)
    query.required_reads(partition, NOW, InputState())
    assert query.runnable.display_sql


def measured(datasets: int, partitions: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="planner-") as folder:
        world = World(Path(folder), datasets, partitions)
        scheduling = DatasetScheduler(world.store.runtime, world.store._external, world.store._retention)
        settled, look = timed(scheduling.next_tick)
        assert not settled.run, "all is there"
        _, idle = timed(scheduling.next_tick)
        first, again = shows(world)
        spread = ticks(world, scheduling, min(CHANGED, len(world.feeds)))
        one = ticks(world, scheduling, 1)
        graph: Any = world.loaded.bindings[0].tasks[0].scoped
        kept = graph.graph.reads_cache
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        world.store.close()
    return {
        "load": world.anew.seconds,
        "load again": world.kept.seconds,
        "recalled": world.kept.recalled,
        "load changed": world.changed.seconds,
        "anew": datasets - world.changed.recalled,
        "register": world.registered,
        "first look": look,
        "idle tick": idle,
        "show": first,
        "show again": again,
        "tick": spread.median,
        "tick, first": spread.first,
        "tick, one channel": one.median,
        "tick, one channel, first": one.first,
        "judged": spread.judged,
        "judged, one channel": one.judged,
        "hits": kept.hits,
        "misses": kept.misses,
        "peak GB": peak,
    }


def main() -> None:
    given = measure.options(
        "What it costs to plan very many datasets.", datasets="so many datasets", partitions="of each, so many"
    )
    datasets, partitions = QUICK if given.quick else FULL
    datasets, partitions = int(given.datasets or datasets), int(given.partitions or partitions)
    found = measured(datasets, partitions)
    rows = [
        (
            "load all definitions, of which nothing is known",
            f"{found['load']:.1f} s",
            f"{found['load'] / datasets * 1e3:.1f} ms a dataset",
        ),
        ("load them again", f"{found['load again']:.1f} s", f"{found['recalled']} known"),
        ("after the first of a chain was changed", f"{found['load changed']:.1f} s", f"{found['anew']} anew"),
        ("register them", f"{found['register']:.1f} s", ""),
        ("first tick of a process", f"{found['first look']:.1f} s", "judges every task"),
        ("a tick without news", f"{found['idle tick'] * 1e3:.0f} ms", ""),
        (
            f"a tick after {CHANGED} partitions, each of a channel",
            f"{found['tick'] * 1e3:.0f} ms",
            f"judges {found['judged']}; the first {found['tick, first'] * 1e3:.0f} ms",
        ),
        (
            f"a tick after {CHANGED} partitions of one channel",
            f"{found['tick, one channel'] * 1e3:.0f} ms",
            f"judges {found['judged, one channel']}; the first {found['tick, one channel, first'] * 1e3:.0f} ms",
        ),
        ("show a task", f"{found['show'] * 1e3:.1f} ms", f"again {found['show again'] * 1e3:.2f} ms"),
        ("dependencies kept", f"{found['hits']} of {found['hits'] + found['misses']}", ""),
        ("peak memory", f"{found['peak GB']:.1f} GB", ""),
    ]
    measure.show(f"{datasets:,} datasets of {partitions:,} partitions", ("", "", ""), rows)
    measure.keep(given.json, {**found, "datasets": datasets, "partitions": partitions})
    within = "within" if found["tick"] <= 0.2 and found["show"] <= 0.2 else "beyond"
    print(f"planner: tick {found['tick'] * 1e3:.0f} ms, show {found['show'] * 1e3:.1f} ms, {within} 200 ms")


if __name__ == "__main__":
    main()
