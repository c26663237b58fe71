"""What the catalog costs when it holds much: 10,000 channels, a million blocks, ten million files.

    python -m benchmarks.metadata [--quick] [--json FILE] [--postgresql URL]

Planning and committing on channels with histories of 10, 1,000 and 100,000 numbers, over SQLite and PostgreSQL: a
server of its own, that syncs what it commits, or the empty database at URL. Nothing lies in the warehouse: the engine
here reads nothing and writes nothing, everything else is real.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nova_assets as nova
from benchmarks import catalogs, measure
from benchmarks.bulk import Bulk
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.execution.warehouse_identity import check_or_adopt_warehouse
from nova_assets.model.block import DataFile, Manifest, StagedBlock
from nova_assets.model.block_options import NO_OPTIONS, BlockOptions
from nova_assets.model.channel import Channel
from nova_assets.model.schema import Schema
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests import postgres
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

ROUNDS = 25
WARM_UP = 4
LIMIT = 0.050
HELD = ("plan new", "read(since=head-1)", "plan all", "read()", "begin", "commit")
"""To the limit. An insert is a begin, a task and a commit; a task is as long as it works."""

SYNCED = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "1GB"}


class NoFiles(StubEngine):
    """Takes no time: whatever is read is one row, and whatever is written ten files that are not there."""

    def read(self, read: Any) -> list[Row]:
        return [{"id": 1}]

    def schema_of(self, frame: list[Row]) -> Schema:
        assert self.default is not None
        return self.default

    def write(
        self,
        frame: list[Row],
        staged: StagedBlock,
        channel: Channel | None,
        schema: Schema,
        *,
        digest: bool = False,
        options: BlockOptions = NO_OPTIONS,
    ) -> Manifest:
        ranges = {"id": (1, 1_000_000)}
        files = (DataFile(f"{staged.folder}/part-{n:05d}.parquet", 2_000, 40_000, ranges) for n in range(10))
        return Manifest(tuple(files), schema)


class World:
    """A catalog that was filled, and the seconds that everything took."""

    def __init__(self, url: str, root: Path, size: catalogs.Size) -> None:
        project = catalogs.project(size.lengths)
        settings = load_settings(start_folder=root, catalog=url, warehouse=str(root / "wh"))
        self.size, self.url = size, url
        engine = NoFiles(root / "wh", catalogs.SCHEMA)
        self.filled = self._fill(project, engine)
        self.store = Store(settings, project, open_catalog(url), engine)
        self.times: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))

    def _fill(self, project: nova.Project, engine: NoFiles) -> Mapping[str, int]:
        catalog = open_catalog(self.url)
        catalog.definitions.register(project.channels, project.bindings)
        check_or_adopt_warehouse(catalog, engine)
        catalog.close()
        bulk = Bulk(self.url)
        catalogs.fill(bulk, self.size)
        bulk.close()
        return bulk.counts

    def round(self, length: int, counts: bool) -> None:
        """Something new comes, is planned, read and consumed."""
        facts, new, runtime = f"facts_{length}", f"new_{length}", self.store.runtime

        def timed(what: str, work: Callable[[], Any]) -> Any:
            started = time.perf_counter()
            found = work()
            if counts:
                self.times[what][length].append(time.perf_counter() - started)
            return found

        commit = timed("insert", lambda: self.store.insert(facts, [{"id": 1}]))
        timed("plan new", lambda: self.store.plan(new))
        timed("read(since=head-1)", lambda: self.store.read(facts, since=commit.seq - 1))
        timed("plan all", lambda: self.store.plan(f"all_{length}"))
        timed("read()", lambda: self.store.read(facts))
        execution = timed("begin", lambda: runtime.begin(new))
        timed("task: plan, stage", lambda: runtime.run_task(execution, f"new_to_totals_{length}"))
        timed("commit", lambda: runtime.commit(execution))

    def visits(self, counts: bool) -> None:
        """The same of a channel with many partitions."""
        head = self.store.catalog.definitions.channel("visits").head
        one = {"dt": "2023-01-03", "region": "r3"}
        works: dict[str, Callable[[], Any]] = {
            "plan new": lambda: self.store.plan("new_visits"),
            "read(since=head-1)": lambda: self.store.read("visits", since=head - 1),
            "read(), one partition": lambda: self.store.read("visits", partition=one),
            "read()": lambda: self.store.read("visits"),
        }
        for what, work in works.items():
            started = time.perf_counter()
            work()
            if counts:
                self.times[f"partitions: {what}"][0].append(time.perf_counter() - started)


@contextmanager
def databases(root: Path, given: str | None) -> Iterator[dict[str, str]]:
    """Empty ones, by their names."""
    found = {"SQLite": f"sqlite:///{root}/catalog.db"}
    if given is not None:
        yield {**found, "PostgreSQL": given}
        return
    with postgres.server(**SYNCED) as server, postgres.fresh_database(server) as url:
        yield {**found, "PostgreSQL": url}


def measured(name: str, url: str, root: Path, size: catalogs.Size, rounds: int) -> dict[str, Any]:
    started = time.perf_counter()
    world = World(url, root, size)
    took = time.perf_counter() - started
    for n in range(rounds + WARM_UP):
        for length in size.lengths if n % 2 else size.lengths[::-1]:
            world.round(length, n >= WARM_UP)
    for n in range(rounds // 4 + 1):
        world.visits(n > 0)
    world.store.close()
    medians = {w: {n: statistics.median(t) for n, t in by.items()} for w, by in world.times.items()}
    _show(f"{name}, filled in {took:.0f} s", medians, size)
    return {"filled": dict(world.filled), "medians": medians}


def _show(title: str, medians: Mapping[str, Mapping[int, float]], size: catalogs.Size) -> None:
    rows = []
    for what, by in medians.items():
        if 0 not in by:
            shown = [f"{by[n] * 1e3:.1f}" for n in size.lengths]
            rows.append((what, *shown, f"{by[size.lengths[-1]] / by[size.lengths[0]]:.2f}"))
    measure.show(f"{title}: ms, medians", ("", *(f"{n:,} numbers" for n in size.lengths), "ratio"), rows)
    partitions = [(w.removeprefix("partitions: "), f"{by[0] * 1e3:.1f}") for w, by in medians.items() if 0 in by]
    measure.show(f"{size.days * 10:,} partitions: ms, medians", ("", "ms"), partitions)


def main() -> None:
    given = measure.options("What the catalog costs when it holds much.", postgresql="an empty database, as superuser")
    size, rounds = (catalogs.QUICK, 8) if given.quick else (catalogs.FULL, ROUNDS)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="metadata-") as folder, databases(Path(folder), given.postgresql) as urls:
        for name, url in urls.items():
            figures[name] = measured(name, url, Path(folder), size, rounds)
    measure.keep(given.json, figures)
    print("metadata: " + "; ".join(f"{name} {_headline(of, size)}" for name, of in figures.items()))


def _headline(of: Mapping[str, Any], size: catalogs.Size) -> str:
    flat = {w: by for w, by in of["medians"].items() if w in HELD}
    slowest, seconds = max(((w, max(by.values())) for w, by in flat.items()), key=lambda found: found[1])
    shortest, longest = (sum(by[n] for by in flat.values()) for n in (size.lengths[0], size.lengths[-1]))
    kept = "within" if seconds <= LIMIT else "beyond"
    most = f"{slowest} {seconds * 1e3:.1f} ms"
    return f"{kept} {LIMIT * 1e3:.0f} ms ({most}), longest / shortest history {longest / shortest:.2f}"


if __name__ == "__main__":
    main()
