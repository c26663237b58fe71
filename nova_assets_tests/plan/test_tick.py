"""The scheduler's tick: what runs, what waits, what goes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nova_assets.model.scheduler_state import MaterializedPartition, RunningTask, TaskFailures
from nova_assets.plan.staleness import TaskInputs, check_staleness
from nova_assets.plan.tick import Batch, Policy, SchedulerState, Tick, decide_from_staleness

NOW = datetime(2022, 4, 1, tzinfo=UTC)
RUNNING = RunningTask("host:1:2", NOW + timedelta(seconds=90), "e1")

TASKS = {"stores": ["1/a", "1/b", "2/a", "2/b"], "products": ["1", "2"], "weekly": [""]}


def needs(dataset: str, partition: str) -> Sequence[tuple[str, Collection[str]]]:
    if dataset == "stores":
        return [("tickets", [partition])]
    if dataset == "products":
        return [("stores", [p for p in TASKS["stores"] if p.startswith(partition)])]
    return [("products", TASKS["products"])]


def facts(**given: Any) -> SchedulerState:
    return SchedulerState(**{"now": NOW, "existing_partitions": {}, **given})


def decide_tick(
    tasks: dict[str, list[str]], inputs: TaskInputs, state: SchedulerState, policy: Policy | None = None
) -> Tick:
    """The tick after every dataset was checked."""
    policy, existing = policy or Policy(), state.existing_partitions
    late = {d: policy.late.get(d, True) for d in tasks}
    checked = {d: check_staleness(d, tasks[d], inputs, existing, late_data_is_stale=late[d]) for d in tasks}
    return decide_from_staleness(tasks, checked, inputs, state, policy)


def made(*partitions: str, seq: int = 1, **read: int) -> dict[str, MaterializedPartition]:
    return {p: MaterializedPartition(seq, read) for p in partitions}


ALL = {
    "tickets": made(*TASKS["stores"]),
    "stores": made(*TASKS["stores"], seq=1, tickets=1),
    "products": made(*TASKS["products"], seq=1, stores=1),
    "weekly": made("", seq=1, products=1),
}


def test_what_is_missing_is_made_oldest_first_and_what_follows_waits() -> None:
    found = decide_tick(TASKS, needs, facts(), Policy(at_once=3))
    assert found.run == (Batch("stores", ("1/a", "1/b", "2/a"), ("missing",) * 3),)
    assert {(w.dataset, w.partition, w.waits_for) for w in found.waits} == {
        ("stores", "2/b", "tasks that come first"),
        ("products", "1", "stores/1/a"),
        ("products", "2", "stores/2/a"),
        ("weekly", "", "products/1"),
    }


def test_what_comes_from_outside_is_waited_for() -> None:
    found = decide_tick(TASKS, needs, facts(is_complete=lambda channel, partition: partition.startswith("1")))
    assert [b.partitions for b in found.run] == [("1/a", "1/b")]
    assert [(w.partition, w.waits_for) for w in found.waits if w.dataset == "stores"] == [
        ("2/a", "tickets/2/a"),
        ("2/b", "tickets/2/b"),
    ]


def test_when_all_is_there_nothing_is_done() -> None:
    assert decide_tick(TASKS, needs, facts(existing_partitions=ALL)) == decide_tick({}, needs, facts())


def test_a_dirty_partition_is_made_again_and_its_dependents_wait() -> None:
    found = decide_tick(
        TASKS, needs, facts(existing_partitions=ALL, dirty_priorities={"stores": {"2/b": 0}, "products": {"2": 0}})
    )
    assert found.run == (Batch("stores", ("2/b",), ("dirty",)),)
    assert [(w.dataset, w.partition, w.why, w.waits_for) for w in found.waits] == [
        ("products", "2", "dirty", "stores/2/b")
    ]


def test_late_data_makes_stale_what_was_made_without_it_unless_that_does_not_matter() -> None:
    late = {**ALL, "tickets": {**ALL["tickets"], "1/b": MaterializedPartition(2)}}
    assert decide_tick(TASKS, needs, facts(existing_partitions=late)).run == (
        Batch("stores", ("1/b",), ("late data",)),
    )
    assert decide_tick(TASKS, needs, facts(existing_partitions=late), Policy(late={"stores": False})).run == ()


def test_nothing_is_rewritten_while_it_is_read() -> None:
    found = decide_tick(
        TASKS,
        needs,
        facts(
            existing_partitions=ALL, dirty_priorities={"stores": {"1/a": 0}}, running_tasks={("products", "1"): RUNNING}
        ),
    )
    assert found.run == ()
    assert found.waits[0].waits_for == "a running task that reads its current data"


def test_what_runs_is_not_run_twice() -> None:
    assert decide_tick(TASKS, needs, facts(running_tasks={("stores", "1/a"): RUNNING}), Policy(at_once=2)).run == (
        Batch("stores", ("1/b",), ("missing",)),
    )


def test_a_task_that_runs_is_shown_with_its_owner_and_its_lease() -> None:
    found = decide_tick(TASKS, needs, facts(running_tasks={("stores", "1/a"): RUNNING}))
    [waiting] = [w for w in found.waits if (w.dataset, w.partition) == ("stores", "1/a")]
    assert (waiting.why, waiting.waits_for) == (
        "missing",
        "its execution by host:1:2, whose lease lasts until 2022-04-01 00:01:30",
    )


def test_a_task_that_failed_is_tried_again_later_and_in_the_end_not() -> None:
    def after(times: int, seconds: float) -> Any:
        failed = {("stores", "1/a"): TaskFailures(times, NOW - timedelta(seconds=seconds))}
        return decide_tick({"stores": ["1/a"]}, needs, facts(failures_by_task=failed))

    assert after(1, 29).run == () and after(1, 31).run and after(2, 31).run == () and after(2, 61).run
    assert after(3, 10**6).waits[0].waits_for == "a person, after 3 failures"


def test_partitions_without_a_task_are_dropped_but_not_very_many_at_once() -> None:
    there = made(*(str(n) for n in range(100)), stores=1)
    kept = {"products": [str(n) for n in range(1, 100)]}
    assert decide_tick(kept, needs, facts(existing_partitions={"products": there})).drop == {"products": ("0",)}
    found = decide_tick({"products": ["1"]}, needs, facts(existing_partitions={"products": there}))
    assert (found.drop, len(found.held["products"])) == ({}, 99)


# a deployment that is simulated: whatever is killed, it comes to the same end, and nothing is run for nothing


class Deployment:
    """What a catalog would hold; the scheduler itself keeps nothing."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, MaterializedPartition]] = {"tickets": dict(made(*TASKS["stores"]))}
        self.heads: dict[str, int] = {"tickets": 1}
        self.running: dict[tuple[str, str], dict[str, int]] = {}
        self.runs: list[tuple[str, str, str]] = []
        self.dirty: dict[str, dict[str, int]] = {}

    def tick(self) -> bool:
        found = decide_tick(
            TASKS,
            needs,
            facts(
                existing_partitions=self.made,
                dirty_priorities=self.dirty,
                running_tasks=dict.fromkeys(self.running, RUNNING),
            ),
            Policy(at_once=3),
        )
        for batch in found.run:
            for partition, why in zip(batch.partitions, batch.why, strict=True):
                self.running[batch.dataset, partition] = dict(self.heads)
                self.runs.append((batch.dataset, partition, why))
        return bool(found.run or self.running)

    def end(self, nth: int, killed: bool) -> None:
        """One of the running tasks commits, or dies."""
        if not self.running:
            return
        key = sorted(self.running)[nth % len(self.running)]
        pinned = self.running.pop(key)
        if killed:
            return
        dataset, partition = key
        self.heads[dataset] = self.heads.get(dataset, 0) + 1
        read = {name: pinned.get(name, 0) for name, _ in needs(dataset, partition)}
        self.made.setdefault(dataset, {})[partition] = MaterializedPartition(self.heads[dataset], read)
        self.dirty.get(dataset, {}).pop(partition, None)

    def arrive(self, partition: str) -> None:
        self.heads["tickets"] += 1
        self.made["tickets"][partition] = MaterializedPartition(self.heads["tickets"])

    def in_order(self) -> bool:
        """What everything made again would give: each partition newer than all that it is made of."""
        return all(
            p in self.made.get(d, {})
            and all(self.made[r][q].seq <= self.made[d][p].read_versions[r] for r, qs in needs(d, p) for q in qs)
            for d, ps in TASKS.items()
            for p in ps
        )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.just(0)),
        st.tuples(st.sampled_from(["commit", "kill"]), st.integers(0, 5)),
        st.tuples(st.just("arrive"), st.integers(0, 3)),
        st.tuples(st.just("dirty"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(STEPS)
@settings(deadline=None, max_examples=200)
def test_whatever_happens_it_ends_in_order_and_then_rests(steps: list[tuple[str, int]]) -> None:
    world = Deployment()
    for what, n in steps:
        if what == "tick":
            world.tick()
        elif what == "arrive":
            world.arrive(TASKS["stores"][n])
        elif what == "dirty":
            world.dirty.setdefault("stores", {})[TASKS["stores"][n]] = 0
        else:
            world.end(n, killed=what == "kill")
    for _ in range(100):
        if not world.tick():
            break
        while world.running:
            world.end(0, killed=False)
    assert world.in_order()
    assert not any(world.dirty.values())
    runs = len(world.runs)
    assert not world.tick() and len(world.runs) == runs


def test_undisturbed_each_task_runs_once() -> None:
    world = Deployment()
    while world.tick():
        world.end(0, killed=False)
    assert sorted(world.runs) == sorted((d, p, "missing") for d, ps in TASKS.items() for p in ps)


def test_what_is_wanted_soonest_is_run_first() -> None:
    there = {**ALL, "stores": made("1/a", "1/b", "2/a", seq=1, tickets=1)}
    low, high = ({"stores": {"1/a": by}} for by in (-1, 1))
    first = [
        decide_tick(TASKS, needs, facts(existing_partitions=there, dirty_priorities=d), Policy(at_once=1))
        .run[0]
        .partitions
        for d in (low, high)
    ]
    assert first == [("2/b",), ("1/a",)]


def test_what_a_backfill_has_made_does_not_make_its_readers_stale() -> None:
    of_backfill = {
        **ALL,
        "stores": {**made(*TASKS["stores"], seq=1, tickets=1), "1/a": MaterializedPartition(5, {"tickets": 1}, 1)},
    }
    assert not decide_tick(TASKS, needs, facts(existing_partitions=of_backfill)).run
    late = {**of_backfill, "stores": {**of_backfill["stores"], "1/a": MaterializedPartition(6, {"tickets": 1}, 6)}}
    assert [b.dataset for b in decide_tick(TASKS, needs, facts(existing_partitions=late)).run] == ["products"]


def test_a_paused_dataset_is_neither_made_nor_dropped_and_its_readers_wait() -> None:
    late = {**ALL, "tickets": {**ALL["tickets"], "1/b": MaterializedPartition(2)}}
    gone = {**late, "stores": {**ALL["stores"], "9/z": MaterializedPartition(1)}}
    assert decide_tick(TASKS, needs, facts(existing_partitions=gone)).drop == {"stores": ("9/z",)}
    found = decide_tick(TASKS, needs, facts(existing_partitions=gone, paused_datasets={"stores": "ann paused it"}))
    assert (found.run, found.drop) == ((), {})
    assert [(w.dataset, w.partition, w.waits_for) for w in found.waits] == [("stores", "1/b", "ann paused it")]
