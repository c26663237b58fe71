"""Executions that share rows: the same channels, cursors and firings as one by one, and less work."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.effort import examples
from nova_assets_tests.execution import merged_worker
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.forked import run_python
from nova_assets_tests.stub_engine import StubEngine

DDL = "k bigint, v bigint"


def channel(name: str) -> nova.Channel:
    return nova.Channel(name, schema=DDL)


class World:
    """Bindings that begin with the function ``parse``, or read channels as they are. Some fail for now.

    Args:
        inputs: binding -> the channel that it reads, and whether it begins with ``parse``.
    """

    def __init__(self, inputs: dict[str, tuple[str, bool]]) -> None:
        self.inputs = inputs
        self.broken: set[str] = set()
        self.calls = Counter[str]()
        self.parsers = {source: self._parser(source) for source in {s for s, _ in inputs.values()}}
        bindings = [self._binding(name, *of) for name, of in inputs.items()]
        self.project = nova.Project(bindings, channels=[channel("a"), channel("b")])

    def _parser(self, source: str) -> nova.Task:
        def parse(rows: Any) -> Any:
            self.calls[f"parse {source}"] += 1
            if f"parse {source}" in self.broken:
                raise ValueError("cannot parse")
            return [{**row, "v": row["v"] + 1} for row in rows]

        return nova.task(name="parse", consumes=nova.new(channel(source), as_="rows"), produces=nova.delta("parsed"))(
            parse
        )

    def _binding(self, name: str, source: str, is_parsed: bool) -> nova.Binding:
        def write(rows: Any) -> Any:
            self.calls[name] += 1
            if name in self.broken:
                raise ValueError("still broken")
            return list(rows)

        port: Any = "parsed" if is_parsed else channel(source)
        last = nova.task(name="write", consumes=nova.new(port, as_="rows"), produces=nova.delta(channel(name)))(write)
        tasks = [self.parsers[source], last] if is_parsed else [last]
        return nova.bind(nova.Workflowette(name, tasks), when=nova.on_data(source))


def insert(store: Store, name: str, *ks: int) -> None:
    store.insert(name, [{"k": k, "v": k} for k in ks])


def rows_of(store: Store, name: str) -> list[tuple[int, int]]:
    rows: Any = store.read(name).to_spark()
    return sorted((row["k"], row["v"]) for row in rows)


def state_of(store: Store, world: World) -> dict[str, Any]:
    """What people see of a deployment: rows, numbers, cursors and firings."""
    return {
        name: (
            rows_of(store, name),
            store.catalog.definitions.channel(name).head,
            sorted((c.channel, c.seq) for c in store.catalog.cursors.find(name)),
            sorted((f.n, f.state, f.attempt) for f in store.catalog.firings.find(name)),
        )
        for name in world.inputs
    }


@pytest.mark.slow
def test_a_function_is_called_once_for_all_bindings_that_begin_with_it(opened: Opener) -> None:
    world = World({"x": ("a", True), "y": ("a", True), "z": ("b", True)})
    store = opened(world.project)
    store.register(world.project)
    insert(store, "a", 1, 2)
    insert(store, "b", 7)
    planned = store.plan_due()
    assert [s.name for s in planned.steps] == ["x", "y", "z"]
    assert [s.executions for s in planned.shared] == [("x", "y")]
    assert "task parse over a Δ(0→1)" in str(planned.shared[0]) or "task parse over a" in str(planned.shared[0])
    assert not world.calls, "planning calls no function"
    done = store.run_due()
    assert [r.binding for r in done] == ["x", "y", "z"] and all(r.execution for r in done)
    assert world.calls["parse a"] == 1 and world.calls["parse b"] == 1
    assert rows_of(store, "x") == rows_of(store, "y") == [(1, 2), (2, 3)] and rows_of(store, "z") == [(7, 8)]
    facts = [t.facts for r in done[:2] for t in r.execution.tasks if t.task == "parse"]
    assert all(f["shared_rows"][0]["shared"] and f["shared_rows"][0]["executions"] == ["x", "y"] for f in facts)
    insert(store, "a", 3)
    store.run_due()
    assert world.calls["parse a"] == 2 and rows_of(store, "y") == [(1, 2), (2, 3), (3, 4)], "nothing stays from before"


def test_what_depends_on_more_than_its_blocks_is_called_for_each(opened: Opener) -> None:
    calls = Counter[str]()

    def bound(name: str) -> nova.Binding:
        task = nova.task(name="label", consumes=nova.new(channel("a"), as_="rows"), produces=nova.delta(channel(name)))
        return nova.bind(
            nova.Workflowette(name, [task(label)]), when=nova.on_data("a"), params={"add": 10 if name == "x" else 20}
        )

    def label(rows: Any, ctx: nova.Context) -> Any:
        calls["label"] += 1
        return [{**row, "v": row["v"] + ctx.params["add"]} for row in rows]

    project = nova.Project([bound("x"), bound("y")], channels=[channel("a")])
    store = opened(project)
    store.register(project)
    insert(store, "a", 1)
    store.run_due()
    assert calls["label"] == 2 and rows_of(store, "x") == [(1, 11)] and rows_of(store, "y") == [(1, 21)]


def test_an_execution_that_reads_other_blocks_computes_its_own_rows(opened: Opener) -> None:
    world = World({"x": ("a", True), "y": ("a", True)})
    store = opened(world.project)
    store.register(world.project)
    insert(store, "a", 1)

    def meanwhile(event: str, subject: Any) -> None:
        if event == "commit" and not rows_of(store, "y"):
            insert(store, "a", 2)

    store.run_due(observer=meanwhile)
    assert rows_of(store, "x") == [(1, 2)] and rows_of(store, "y") == [(1, 2), (2, 3)]
    assert world.calls["parse a"] == 2


@pytest.mark.slow
def test_a_failure_of_one_leaves_the_others_alone(opened: Opener, clock: TestClock) -> None:
    world = World({"x": ("a", True), "y": ("a", True), "z": ("a", True)})
    store = opened(world.project)
    store.register(world.project)
    world.broken = {"y"}
    insert(store, "a", 1)
    x, y, z = store.run_due()
    assert x.execution is not None and y.error is not None and z.execution is not None
    world.broken = set()
    clock.advance(31)
    assert [r.binding for r in store.run_due()] == ["y"] and rows_of(store, "y") == [(1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(4, 10)))
def test_merged_equals_one_by_one(tmp_path: Path, clock: TestClock, seed: int) -> None:
    """Random bindings and failures, in two deployments: in one all bindings run at once, in the other one by one."""
    inputs = _random_inputs(random.Random(seed))
    at_once = _play(tmp_path / "at_once", clock, inputs, seed, lambda store, world: store.run_due())
    one_by_one = _play(
        tmp_path / "one_by_one",
        clock,
        inputs,
        seed,
        lambda store, world: [store.run_due([b.name]) for b in world.project.bindings],
    )
    assert at_once[0] == one_by_one[0]
    assert sum(at_once[1].values()) <= sum(one_by_one[1].values())


def _random_inputs(rng: random.Random) -> dict[str, tuple[str, bool]]:
    """Bindings in the order of their channels."""
    inputs: dict[str, tuple[str, bool]] = {}
    for n in range(rng.randint(2, 6)):
        inputs[f"c{n}"] = (rng.choice(["a", "a", "b", *inputs]), rng.random() < 0.7)
    return inputs


def _play(
    root: Path, clock: TestClock, inputs: dict[str, tuple[str, bool]], seed: int, run: Callable[[Store, World], object]
) -> tuple[dict[str, Any], Counter[str]]:
    rng, world = random.Random(seed), World(inputs)
    root.mkdir()
    settings = load_settings(start_folder=root, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
    catalog = open_catalog(settings.catalog, clock=clock)
    with Store(settings, world.project, catalog, StubEngine(settings.warehouse, DDL)) as store:
        store.register(world.project)
        for k in range(rng.randint(2, 6)):
            insert(store, rng.choice(["a", "b"]), k)
            breakable = [*inputs, *(f"parse {s}" for s in sorted({s for s, _ in inputs.values()}))]
            world.broken = set(rng.sample(breakable, rng.randint(0, 2))) if rng.random() < 0.5 else set()
            run(store, world)
            clock.advance(rng.choice([1, 40, 4000]))
        world.broken = set()
        for _ in range(8):
            clock.advance(4000)
            run(store, world)
        return state_of(store, world), world.calls


POINTS = ["fire.before", "fire.after", "begin.after", "task.after", "commit.before", "commit.after"]


@pytest.mark.long
@pytest.mark.parametrize("point", [f"{p}{n}" for p in POINTS for n in ("", ":2")])
def test_a_process_killed_anywhere_ends_like_one_that_was_not(tmp_path: Path, point: str) -> None:
    with merged_worker.open_store(tmp_path) as store:
        store.register(store.project)
        store.insert("source", [{"k": k, "v": k} for k in (1, 2, 3, 4)])
    killed = run_python(["-m", merged_worker.__name__], {"TEST_ROOT": str(tmp_path), "NOVA_CRASH_AT": point})
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    with merged_worker.open_store(tmp_path) as store:
        for _ in range(3):
            store.run_due(follow=True)
        assert rows_of(store, "even") == rows_of(store, "later") == [(2, 3), (4, 5)]
        assert rows_of(store, "odd") == [(1, 2), (3, 4)]
        ended = sorted((f.binding, f.n, f.state) for f in store.catalog.firings.find())
        assert ended == [("evens", 1, "committed"), ("follows", 1, "committed"), ("odds", 1, "committed")]
