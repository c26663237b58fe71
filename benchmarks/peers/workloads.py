"""What is done to each table, step by step, and what must then be there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.data import Data
from benchmarks.peers.expected import Expected
from benchmarks.peers.meter import Step, metered
from benchmarks.peers.system import Answer, Layout, System

UNIFORM, CLUSTERED = Layout("uniform"), Layout("clustered")

FOLLOWED = 3
"""So many upserts are followed."""

ASKED_BEFORE = 10
ASKED_SECONDS = 60
"""So often their follower has asked already, or for so long, of ten million rows; of fewer for less."""

SMALL = 1_000
"""Rows of a small commit."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything.

    Args:
        rows: of the base.
        series: upserts in a row.
        small: small commits.
    """

    rows: int
    series: int = 10
    small: int = 50

    @property
    def asked_seconds(self) -> float:
        """For how long a follower asks before it is measured."""
        return ASKED_SECONDS * min(1.0, self.rows / 10_000_000)


class Run:
    """One workload on one table: its steps are measured, its answers compared."""

    def __init__(self, system: System, data: Data, sizes: Sizes, expected: Expected) -> None:
        self.system = system
        self.data = data
        self.sizes = sizes
        self.expected = expected
        self.steps: dict[str, Step] = {}
        self.wrong: list[str] = []

    def step(self, name: str, work: Callable[[], object]) -> None:
        """Measure a call; several of one name are added up."""
        self.steps[name] = self.steps.get(name, Step()) + metered(work, self.system.folder)

    def read(self, name: str, right: Callable[[], Answer]) -> None:
        answers: list[Answer] = []
        self.step(name, lambda: answers.append(self.system.read()))
        self.compare(name, answers[0], right())

    def compare(self, name: str, found: Answer, right: Answer) -> None:
        if found != right:
            self.wrong.append(f"{name}: {' '.join(found)} instead of {' '.join(right)}")

    def batch(self, share: float, *, of: str = "one", nth: int = 0) -> Path:
        """A batch of a share of the base; of several in a row, the nth."""
        clustered, rows = self.system.layout.clustered, max(10, int(self.data.rows * share))
        new = nth * (rows - int(rows * 0.8))
        name = f"{self.system.layout.name}-{of}-{share:g}-{nth}"
        return self.data.batch(name, rows, clustered=clustered, new_from=new)

    def series(self) -> list[Path]:
        return [self.batch(0.01, of="series", nth=n) for n in range(self.sizes.series)]

    def answer(self, batches: Sequence[Path], deleted: Path | None = None) -> Callable[[], Answer]:
        return lambda: self.expected.after(self.system.digest, batches, deleted)


@dataclass(frozen=True)
class Workload:
    """A name, what it says in the tables, and what is done.

    Args:
        total: the steps that are added up to compare systems by.
    """

    name: str
    title: str
    layout: Layout
    total: tuple[str, ...]
    run: Callable[[Run], None]


def _upsert(share: float) -> Callable[[Run], None]:
    def run(run: Run) -> None:
        batch = run.batch(share)
        run.step("write", lambda: run.system.upsert(batch))
        run.read("read", run.answer([batch]))

    return run


def _series(run: Run) -> None:
    batches = run.series()
    for batch in batches:
        run.step("write", lambda batch=batch: run.system.upsert(batch))  # type: ignore[misc]
        run.step("upkeep", run.system.upkeep)
    run.read("read", run.answer(batches))


def _compact(run: Run) -> None:
    """After as many upserts without upkeep; who merges by himself does so with all of them at once."""
    batches = run.series()
    if type(run.system).merge_at_once is not System.merge_at_once:
        run.step("compact", lambda: run.system.merge_at_once(batches))
    else:
        for batch in batches:
            run.system.upsert(batch)
        run.read("read before", run.answer(batches))
        run.step("compact", lambda: run.system.upkeep(force=True))
    run.read("read", run.answer(batches))


def _changes(run: Run) -> None:
    """Somebody follows the table: after each upsert but the first, its changes are aggregated, and then collected."""
    first, *others = run.series()[: 1 + FOLLOWED]
    since = run.system.position()
    run.system.upsert(first)
    _asked(run, since)
    for batch in others:
        _follow(run, batch, run.system.position())


def _asked(run: Run, since: Any) -> None:
    end = time.monotonic() + run.sizes.asked_seconds
    for _ in range(ASKED_BEFORE):
        if time.monotonic() < end:
            run.system.changes(since)
            run.system.collected(since)


def _follow(run: Run, batch: Path, since: Any) -> None:
    run.system.upsert(batch)
    answers: list[Answer] = []
    rows: list[int] = []
    run.step("changes", lambda: answers.append(run.system.changes(since)))
    run.step("collected", lambda: rows.append(run.system.collected(since)))
    run.compare("changes", answers[0], run.expected.of(run.system.digest, batch))
    run.compare("collected", [str(rows[0])], answers[0][:1])


def _delete(run: Run) -> None:
    keys = run.data.keys("delete", max(10, run.data.rows // 100))
    run.step("write", lambda: run.system.delete(keys))
    run.read("read", run.answer([], keys))


def _small(run: Run) -> None:
    share = min(SMALL / run.data.rows, 0.01)
    batches = [run.batch(share, of="small", nth=n) for n in range(run.sizes.small)]
    for batch in batches:
        run.step("write", lambda batch=batch: run.system.upsert(batch))  # type: ignore[misc]
        run.step("upkeep", run.system.upkeep)
    if type(run.system).plan is not System.plan:
        run.step("plan", run.system.plan)
    run.read("read", run.answer(batches))


_WRITTEN: tuple[str, ...] = ("write", "read")
_SHARES: dict[str, float] = {"0.1": 0.001, "1": 0.01, "10": 0.1}

ALL: tuple[Workload, ...] = (
    *(
        Workload(f"upsert-{layout.name}-{percent}", f"Upsert of {percent} %, {layout.name} keys", layout, _WRITTEN, run)
        for layout in (UNIFORM, CLUSTERED)
        for percent, run in ((p, _upsert(s)) for p, s in _SHARES.items())
    ),
    Workload("series", "Upserts of 1 % in a row, uniform keys", UNIFORM, ("write", "upkeep", "read"), _series),
    Workload("compact", "Compaction after as many, without upkeep before", UNIFORM, ("compact", "read"), _compact),
    Workload("changes", "What three upserts of 1 % have changed", UNIFORM, ("changes", "collected"), _changes),
    Workload("delete", "Deletion of 1 % of the keys", UNIFORM, _WRITTEN, _delete),
    Workload("small", "Commits of 1,000 rows in a row", UNIFORM, ("write", "upkeep", "plan", "read"), _small),
)


_GROUPS = ("upsert", "upsert-uniform", "upsert-clustered")


def named(names: Sequence[str]) -> list[Workload]:
    """Workloads by their names; those of a group by its name, such as ``upsert``."""
    found = [w for w in ALL if any(_is(w, n) for n in names)] if names else list(ALL)
    unknown = [n for n in names if not any(_is(w, n) for w in ALL)]
    if unknown:
        raise SystemExit(f"no workload {', '.join(unknown)}; there are {', '.join(w.name for w in ALL)}")
    return found


def _is(workload: Workload, name: str) -> bool:
    return workload.name == name or (workload.name.startswith(f"{name}-") and name in _GROUPS)
