"""Bindings that are due, executed in this process: ``store.run_due``."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import BindingNotFound, CatalogUnavailable, TaskFailed
from nova_assets.execution.trigger_state import KnownRuns
from nova_assets.store.due_runs import find_due_steps, run_due_bindings
from nova_assets.store.store import Store
from nova_assets_tests.effort import examples
from nova_assets_tests.execution import due_worker
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.execution.due_worker import open_store
from nova_assets_tests.forked import run_python

DDL = "k bigint, v bigint"


def channel(name: str) -> nova.Channel:
    return nova.Channel(name, schema=DDL)


class Chain:
    """A project of bindings that pass on rows, and a set of bindings that fail for now.

    Args:
        edges: binding -> channels that it reads. Binding ``b`` writes channel ``b``.
    """

    def __init__(self, edges: dict[str, list[str]]) -> None:
        self.broken: set[str] = set()
        self.calls = Counter[str]()
        bindings = [nova.bind(self.workflowette(name, reads), when=WHEN(reads)) for name, reads in edges.items()]
        self.project = nova.Project(bindings, channels=[channel("source")])

    def workflowette(self, name: str, reads: list[str]) -> nova.Workflowette:
        def pass_on(**rows_by_input: Any) -> Any:
            self.calls[name] += 1
            if name in self.broken:
                raise ValueError("still broken")
            return [row for rows in rows_by_input.values() for row in rows]

        inputs = [nova.new(channel(r)) for r in reads]
        source = f"def {name}({', '.join(reads)}):\n    return pass_on({', '.join(f'{r}={r}' for r in reads)})"
        scope: dict[str, Any] = {"pass_on": pass_on}
        exec(source, scope)
        return nova.Workflowette(name, [nova.task(consumes=inputs, produces=nova.delta(channel(name)))(scope[name])])


def WHEN(reads: list[str]) -> Any:
    return nova.on_data(*reads)


def rows_of(store: Store, name: str) -> Any:
    """The rows of a channel, as the stub engine returns them."""
    return store.read(name).to_spark()


def keys(store: Store, name: str) -> Counter[int]:
    return Counter(row["k"] for row in rows_of(store, name))


def insert(store: Store, *ks: int) -> None:
    store.insert("source", [{"k": k, "v": k} for k in ks])


def names(due_runs: list[Any]) -> list[str]:
    return [f"{r.binding}{'' if r.execution else '!'}" for r in due_runs]


@pytest.mark.slow
def test_what_is_due_runs_once_in_the_order_of_the_channels(opened: Opener) -> None:
    chain = Chain({"c": ["b"], "b": ["a"], "a": ["source"], "other": ["source"]})
    store = opened(chain.project)
    store.register(chain.project)
    assert store.run_due() == []
    insert(store, 1, 2)
    assert names(store.run_due()) == ["a", "other", "b", "c"]
    assert keys(store, "c") == Counter([1, 2]) and store.run_due() == []
    assert [(f.binding, f.n, f.state) for f in store.catalog.firings.find("c")] == [("c", 1, "committed")]


@pytest.mark.slow
def test_a_selection_leaves_the_other_bindings_due(opened: Opener) -> None:
    chain = Chain({"a": ["source"], "b": ["a"], "other": ["source"]})
    store = opened(chain.project)
    store.register(chain.project)
    insert(store, 1)
    assert names(store.run_due(["a"])) == ["a"]
    insert(store, 2)
    assert names(store.run_due(["a+"], follow=True)) == ["a", "b"]
    assert names(store.run_due()) == ["other"]
    with pytest.raises(BindingNotFound, match="no binding is called 'othr'; did you mean 'other'"):
        store.run_due(["othr+"])


@pytest.mark.slow
def test_what_is_paused_waits(opened: Opener) -> None:
    chain = Chain({"a": ["source"], "b": ["a"]})
    store = opened(chain.project)
    store.register(chain.project)
    store.pause("binding", "b")
    assert store.run_due() == []
    insert(store, 1)
    a, b = store.run_due(follow=True)
    assert a.execution is not None and b.execution is None and b.waits.startswith("binding b is paused")
    store.resume("binding", "b")
    assert names(store.run_due()) == ["b"]


@pytest.mark.slow
def test_a_removed_binding_fails_nothing(opened: Opener) -> None:
    chain = Chain({"a": ["source"], "other": ["source"]})
    store = opened(chain.project)
    store.register(chain.project)
    store.remove("binding", "a")
    insert(store, 1)
    a, other = store.run_due()
    assert a.error is None and "binding a is removed by" in a.waits and other.execution is not None


@pytest.mark.slow
@pytest.mark.parametrize("error", [ValueError("its row is damaged"), CatalogUnavailable("its row is damaged")])
def test_the_error_of_a_binding_does_not_stop_the_others(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    chain = Chain({"a": ["source"], "b": ["a"], "other": ["source"]})
    store = opened(chain.project)
    store.register(chain.project)
    last_firing = store.catalog.firings.last

    def broken(binding: str, partition: str = "") -> Any:
        if binding == "a":
            raise error
        return last_firing(binding, partition)

    insert(store, 1)
    with monkeypatch.context() as damage:
        damage.setattr(store.catalog.firings, "last", broken)
        planned = {s.binding.name: (s.action, s.why) for s in store.plan_due().steps}
        assert planned["other"][0] == "fire" and planned["a"][0] == "wait" and "its row is damaged" in planned["a"][1]
        a, other = store.run_due(follow=True)
    assert a.binding == "a" and "its row is damaged" in str(a.error) and other.execution is not None
    assert names(store.run_due(follow=True)) == ["a", "b"]


@pytest.mark.slow
def test_a_binding_that_has_waited_and_then_fails_is_reported(opened: Opener) -> None:
    chain = Chain({"a": ["source"], "b": ["source"]})
    store = opened(chain.project)
    store.register(chain.project)
    store.pause("binding", "b")
    insert(store, 1)
    runs = run_due_bindings(store.runtime, chain.project.bindings, follow=True)
    a, b = next(runs), next(runs)
    assert a.execution is not None and b.waits.startswith("binding b is paused")
    store.resume("binding", "b")
    chain.broken = {"b"}
    [failed] = runs
    assert failed.binding == "b" and isinstance(failed.error, TaskFailed)


@pytest.mark.slow
def test_data_that_an_execution_by_hand_has_read_meanwhile_does_not_fire(opened: Opener) -> None:
    chain = Chain({"a": ["source"]})
    store = opened(chain.project)
    store.register(chain.project)
    insert(store, 1)

    class RunByHand(KnownRuns):
        def can_run(self, binding: nova.Binding, partitions: Any) -> Any:
            store.run("a")  # after the heads were read, and before the last firing
            return super().can_run(binding, partitions)

    [step] = find_due_steps(chain.project.binding("a"), store.catalog, RunByHand())
    assert step.action == "none"


@pytest.mark.slow
def test_a_failure_stops_what_follows_it_and_is_tried_again_after_its_delay(opened: Opener, clock: TestClock) -> None:
    chain = Chain({"a": ["source"], "b": ["a"], "other": ["source"]})
    store = opened(chain.project)
    store.register(chain.project)
    chain.broken = {"a"}
    insert(store, 1)
    a, other = store.run_due(follow=True)
    assert isinstance(a.error, TaskFailed) and other.execution is not None
    (waiting,) = store.run_due()
    assert waiting.binding == "a" and "the next attempt comes at" in waiting.waits and chain.calls["a"] == 1
    chain.broken = set()
    clock.advance(31)
    assert names(store.run_due(follow=True)) == ["a", "b"] and keys(store, "b") == Counter([1])


@pytest.mark.slow
def test_a_firing_is_abandoned_after_its_attempts(opened: Opener, clock: TestClock) -> None:
    chain = Chain({"a": ["source"]})
    store = opened(chain.project)
    store.register(chain.project)
    chain.broken = {"a"}
    insert(store, 1)
    for _ in range(6):
        store.run_due(follow=True)
        clock.advance(4000)
    assert chain.calls["a"] == 3
    firing = store.catalog.firings.last("a")
    assert firing is not None and firing.state == "abandoned" and "3 executions failed" in firing.why
    chain.broken = set()
    insert(store, 2)
    assert names(store.run_due()) == ["a"] and keys(store, "a") == Counter([1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(3, 20)))
def test_what_is_run_at_once_equals_what_is_run_one_by_one(
    opened: Opener, clock: TestClock, tmp_path: Path, seed: int
) -> None:
    """Random bindings, of which some fail for a while: at the end, each channel has each row once for each path."""
    rng = random.Random(seed)
    edges: dict[str, list[str]] = {}
    for n in range(rng.randint(2, 6)):
        edges[f"b{n}"] = rng.sample(["source", *edges], rng.randint(1, min(2, n + 1)))
    chain = Chain(edges)
    store = opened(chain.project)
    store.register(chain.project)
    inserted = Counter[int]()
    for k in range(rng.randint(2, 8)):
        insert(store, k)
        inserted[k] += 1
        chain.broken = set(rng.sample(sorted(edges), rng.randint(0, 2))) if rng.random() < 0.5 else set()
        store.run_due(follow=rng.random() < 0.5)
        clock.advance(rng.choice([1, 40, 4000]))
    chain.broken = set()
    for _ in range(12):
        clock.advance(4000)
        store.run_due(follow=True)
    paths = {"source": 1}
    for name, reads in edges.items():
        paths[name] = sum(paths[r] for r in reads)
        rows = keys(store, name)
        lost = {f.n for f in store.catalog.firings.find(name) if f.state == "abandoned"}
        if not lost:
            assert rows == Counter({k: n * paths[name] for k, n in inserted.items()}), (name, edges)
    assert all(f.state != "requested" for f in store.catalog.firings.find(limit=1000))


POINTS = ["fire.before", "fire.after", "begin.after", "task.after", "commit.before", "commit.after"]


@pytest.mark.long
@pytest.mark.parametrize("point", [f"{p}{n}" for p in POINTS for n in ("", ":2")])
def test_a_process_killed_anywhere_loses_no_firing_and_repeats_none(tmp_path: Path, point: str) -> None:
    with open_store(tmp_path) as store:
        store.register(store.project)
        store.insert("source", [{"k": 1, "v": 1}])
    killed = run_python(["-m", due_worker.__name__], {"TEST_ROOT": str(tmp_path), "NOVA_CRASH_AT": point})
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    with open_store(tmp_path) as store:
        for _ in range(3):
            store.run_due(follow=True)
        assert rows_of(store, "twice") == [{"k": 1, "v": 2}]
        firings = store.catalog.firings.find()
        ended = sorted((f.binding, f.n, f.state) for f in firings)
        assert ended == [("copy", 1, "committed"), ("double", 1, "committed")]
