"""``plan`` promises nothing that ``run`` refuses: in generated situations both raise the same error, or both go ahead.

NOVA_FUZZ_STEPS sets how many situations are tried; by default 90 over each catalog.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets_tests.effort import examples
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "p string, k bigint, v bigint"
STEPS = examples(30, 90)


def defined(**how: Any) -> nova.Project:
    """Three bindings on one source: per partition with a trigger, per partition by hand, and whole."""
    merge = how.pop("merge", nova.Upsert(key=["p", "k"]))
    source = nova.Channel("source", schema=how.pop("source", DDL), partitions=nova.dynamic("p"))
    tables = [nova.Channel(n, merge=merge, schema=DDL, partitions=nova.dynamic("p")) for n in ("t", "h", "w")]

    def bound(name: str, table: nova.Channel, **more: Any) -> nova.Binding:
        @nova.task(name=f"copy_{name}", consumes=nova.new(source), produces=nova.delta(table))
        def copy(source: list[Row]) -> list[Row]:
            return source

        return nova.bind(nova.Workflowette(name, [copy]), **more)

    return nova.Project(
        [
            bound("triggered", tables[0], when=nova.on_data(source)),
            bound("by_hand", tables[1]),
            bound("whole", tables[2], when=nova.on_data(source), partitions=[]),
        ]
    )


PROJECTS: list[Callable[[], nova.Project]] = [
    defined,
    lambda: defined(merge=nova.Append()),
    lambda: defined(source="p string, k bigint, v bigint, more string"),
]


def outcome(call: Callable[[], Any]) -> tuple[str, str] | Any:
    """What a call gives; of an error, its code and first sentence without the ids of executions."""
    try:
        return call()
    except nova.NovaError as error:
        return error.code, error.what


def disturb(rng: random.Random, store: Store, held: list[Any], clock: TestClock) -> None:
    """Bring the catalog into a state that may refuse a run."""
    kind = rng.randrange(8)
    partition = rng.choice("abc")
    if kind < 3:
        outcome(lambda: store.insert("source", [{"p": partition, "k": rng.randrange(10**9), "v": rng.randrange(9)}]))
    elif kind == 3:
        name = rng.choice(["triggered", "by_hand", "whole"])
        where = "" if name == "whole" else rng.choice(["", f"p={partition}"])
        begun = outcome(lambda: store.runtime.begin(name, where, whole=not where))
        held += [] if isinstance(begun, tuple) else [begun]
    elif kind == 4 and held:
        begun = held.pop(rng.randrange(len(held)))
        end = rng.choice(
            [lambda: store.runtime.abort(begun, "enough"), lambda: store.runtime.fail(begun, OSError("x"))]
        )
        outcome(end)
    elif kind == 5:
        clock.advance(rng.choice([1, 60, 200]))
    elif kind == 6:
        outcome(lambda: store.register(rng.choice(PROJECTS)(), replace=rng.random() < 0.5))
    else:
        outcome(lambda: store.switch(rng.choice(["triggered", "by_hand"]), rng.choice(["whole", "partitions"])))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_in_generated_situations_plan_and_run_agree(opened: Opener, clock: TestClock, seed: int) -> None:
    rng, held = random.Random(seed), []
    met: set[str] = set()
    stores = [opened(p(), owner=f"elsewhere:{n}", schema=DDL) for n, p in enumerate(PROJECTS)]
    for _ in range(STEPS // 3):
        disturb(rng, stores[0], held, clock)
        store = rng.choice(stores)
        name = rng.choice(["triggered", "by_hand", "whole", "none"])
        where = rng.choice([None, None, "a", "p=b", {"p": "c"}, "q=1"])
        whole = rng.random() < 0.3
        planned = outcome(partial(store.plan, name, where, whole=whole))
        ran = outcome(partial(store.run, name, where, whole=whole))
        if isinstance(planned, tuple) or isinstance(ran, tuple):
            assert planned == ran
            met.add(planned[0])
            continue
        planned_reads = {r.channel: (r.since, r.at) for r in planned.recorded_reads(planned.pins)}
        assert planned_reads == ran.commit.consumed
        assert planned.partition == ran.partition
    if STEPS >= 90:
        assert {"NOVA-PARTITION", "NOVA-BINDING-NOT-FOUND"} <= met


@pytest.mark.parametrize("how", ["plan", "run"])
def test_what_a_run_refuses_its_plan_refuses(opened: Opener, how: str) -> None:
    store = opened(defined(), owner="elsewhere:1")

    def ask(store: Store, *arguments: Any, **more: Any) -> Any:
        return getattr(store, how)(*arguments, **more)

    store.insert("source", [{"p": "a", "k": 1, "v": 1}])
    store.run("by_hand", "a")
    with pytest.raises(nova.PartitionError, match="has run for single partitions"):
        ask(store, "by_hand")
    store.runtime.begin("by_hand", "p=a")
    with pytest.raises(nova.ExecutionInProgress):
        ask(store, "by_hand", "a")
    with pytest.raises(nova.DefinitionConflict, match="channel 'source' is registered with another definition"):
        ask(opened(defined(source="p string, k bigint")), "by_hand", "a")
    changed = defined(merge=nova.Append())
    store.insert("t", [{"p": "a", "k": 1, "v": 1}])
    store.register(changed, replace=True)
    with pytest.raises(nova.ModelChanged, match="merge model of channel 't' was changed"):
        ask(opened(changed), "triggered", "a")
