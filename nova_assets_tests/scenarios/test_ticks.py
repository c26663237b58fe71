"""The scheduler keeps nothing of its own: killed at any point, and gone on with by another process, it comes to the
same end, and nothing is made twice for nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_assets.crash_points import CRASH_POINTS
from nova_assets.plan.tick import Policy
from nova_assets.store.store import Store
from nova_assets_tests.effort import EXHAUSTIVE
from nova_assets_tests.forked import run_python
from nova_assets_tests.scenarios.tick_worker import DAYS, LEASE, STORES, TASKS, open_store

pytestmark = pytest.mark.slow

POINTS = [p for p in CRASH_POINTS if p.startswith(("begin", "stage", "task", "commit"))]
SOON = Policy(backoff=0.1)  # what was killed counts as failed
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
KILLED: list[Any] = [
    pytest.param("sqlite", point, 3, marks=() if point == "stage.written" else EXHAUSTIVE) for point in POINTS
]
KILLED += [
    pytest.param("postgres", point, 6, marks=[pytest.mark.postgres, *(() if point == "commit.inside" else EXHAUSTIVE)])
    for point in POINTS
]


class Deployment:
    def __init__(self, catalog: str, folder: Path) -> None:
        self.given = (catalog, str(folder / "wh"), str(folder / "sql"))
        (folder / "sql").mkdir()
        self.store: Store = open_store(*self.given)
        self.store.insert("tickets", [{"price": 2, "day": d, "store": s} for d in DAYS for s in STORES])

    def tick_until_killed(self, at: str | None = None) -> bool:
        """Ticks in a process of their own. Gives whether it was killed."""
        command = ["-m", "nova_assets_tests.scenarios.tick_worker", *self.given]
        done = run_python(command, {"NOVA_CRASH_AT": at or ""})
        assert done.returncode in (0, -9), done.stderr[-3000:]
        return done.returncode == -9

    def tick_to_the_end(self) -> None:
        until = time.monotonic() + 30
        while (found := self.store.next_tick(SOON)).run or found.waits:
            assert time.monotonic() < until, found
            self.store.tick(found)
            time.sleep(0 if found.run else LEASE / 4)  # one that was killed holds its lease for a moment

    def made(self) -> Counter[tuple[str, str]]:
        """How often each task was committed."""
        done = self.store.executions(limit=1000)
        return Counter((e.binding or "", e.partition) for e in done if e.state == "committed" and e.binding)

    def revenue(self) -> list[int]:
        return [row["revenue"] for row in self.store.read("total").to_spark()]


@pytest.fixture
def deployment(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    sqlite = f"sqlite:///{tmp_path}/c.db"
    made = Deployment(sqlite if kind == "sqlite" else request.getfixturevalue("postgres_catalog_url"), tmp_path)
    yield made
    made.store.close()


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "point", "n"), KILLED)
def test_killed_anywhere_it_comes_to_the_same_end(deployment: Deployment, point: str, n: int) -> None:
    assert deployment.tick_until_killed(f"{point}:{n}")
    deployment.tick_to_the_end()
    assert deployment.revenue() == [8]
    assert deployment.made() == Counter(TASKS)

    deployment.store.insert("tickets", [{"price": 5, "day": DAYS[1], "store": "Paris"}])
    again = [("store_sales", f"day={DAYS[1]}/store=Paris"), ("day_sales", f"day={DAYS[1]}"), ("total", "")]
    deployment.tick_to_the_end()
    assert deployment.revenue() == [13]
    assert deployment.made() == Counter(TASKS) + Counter(again), "what the late data is no part of is left alone"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_task_under_a_lease_is_shown_and_run_if_its_process_is_dead(deployment: Deployment) -> None:
    (dataset, partition), (_, other) = TASKS[:2]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = deployment.store
    for owner, scope in ((f"{socket.gethostname()}:{ended.pid}:1", partition), ("another.host:1:1", other)):
        execution = store.runtime.with_owner(owner).begin(dataset, scope)
        assert store.catalog.executions.renew_lease(execution.id, execution.epoch, 600)
    found = store.next_tick()
    assert partition in [p for b in found.run for p in b.partitions], "its lease is taken over"
    [waiting] = [w for w in found.waits if w.partition == other]
    assert "its execution by another.host:1:1, whose lease lasts until" in waiting.waits_for
    assert (dataset, partition) in [(r.dataset, r.partition) for r in store.tick(found) if r.error is None]


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["sqlite", POSTGRES])
def test_killed_again_and_again(deployment: Deployment) -> None:
    kills = 0
    while deployment.tick_until_killed("commit.after"):  # after each single task
        kills += 1
        time.sleep(LEASE / 2)
    deployment.tick_to_the_end()
    assert kills == len(TASKS)
    assert deployment.made() == Counter(TASKS)
    assert deployment.revenue() == [8]


@pytest.mark.parametrize("kind", ["sqlite", POSTGRES])
def test_ticks_of_several_processes_at_once_make_everything_once(deployment: Deployment) -> None:
    command = [sys.executable, "-m", "nova_assets_tests.scenarios.tick_worker", *deployment.given]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(3)]
    assert [p.wait(60) for p in running] == [0, 0, 0], [p.stderr.read() for p in running if p.stderr]
    deployment.tick_to_the_end()
    assert deployment.made() == Counter(TASKS)
    assert deployment.revenue() == [8]
