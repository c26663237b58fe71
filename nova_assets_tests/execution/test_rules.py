"""R1 to R7, as the users of one store (or two) see them: real catalog, stub engine."""

from __future__ import annotations

from typing import Any

import pytest

import nova_assets as nova
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.execution.rule_channels import DDL, bound, dedup, fresh, keys, read, rows, seen, source, table
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow


def test_r1_numbers_have_no_holes_and_an_empty_delta_takes_none(opened: Opener) -> None:
    store = opened(bound(dedup))
    assert store.insert("source", rows(1, 2)).seq == 1
    assert store.insert("source", []).seq == 1
    assert store.insert("source", rows(2)).seq == 2
    store.run("w")
    again = store.run("w")
    assert again.commit is not None and again.commit.numbers == {}
    store.insert("source", rows(1))
    third = store.run("w")
    assert (
        third.commit is not None
        and third.commit.numbers == {}
        and {c.channel: c.seq for c in store.cursors()}["source"] == 3
    )
    assert [i.seq for i in store.timeline("source")] == [1, 2, 3]


def test_r1_an_empty_base_takes_a_number(opened: Opener) -> None:
    store = opened()
    store.register(table)
    store.insert("table", rows(1))
    assert store.insert("table", [], kind="base").seq == 2
    assert read(store, "table") == [] and keys(read(store, "table", at=1)) == [1]


def test_r2_a_commit_publishes_on_all_channels_and_moves_all_cursors(opened: Opener) -> None:
    store = opened(bound(dedup))
    store.insert("source", rows(1, 1, 2))
    done = store.run("w")
    assert done.commit is not None and dict(done.commit.numbers) == {"seen": 1, "fresh": 1}
    assert keys(read(store, "fresh")) == keys(read(store, "seen")) == [1, 2]
    assert [(c.channel, c.seq, c.lag) for c in store.cursors("w")] == [("source", 1, 0)]


def test_r3_a_failing_task_leaves_nothing_visible(opened: Opener) -> None:
    @nova.task(consumes=nova.new(source), produces=nova.delta(fresh))
    def first(source: list[Row]) -> list[Row]:
        return source

    @nova.task(consumes=nova.new(fresh), produces=nova.delta(seen))
    def second(fresh: list[Row]) -> list[Row]:
        raise ValueError("no")

    store = opened(bound(first, second))
    store.insert("source", rows(1))
    with pytest.raises(nova.TaskFailed, match="task 'second' of binding 'w' raised ValueError: no"):
        store.run("w")
    assert read(store, "fresh") == [] and {s.channel.name: s.head for s in store.channels()}["fresh"] == 0
    assert all(c.seq == 0 for c in store.cursors())


def test_r3_staged_files_of_a_superseded_execution_are_swept(opened: Opener, clock: TestClock) -> None:
    fail = [True]

    @nova.task(consumes=nova.new(source), produces=nova.delta(fresh))
    def copy(source: list[Row]) -> list[Row]:
        return source

    @nova.task(consumes=nova.new(fresh), produces=nova.delta(seen))
    def then(fresh: list[Row]) -> list[Row]:
        if fail:
            raise ValueError(fail.pop())
        return fresh

    store = opened(bound(copy, then))
    store.insert("source", rows(1))
    with pytest.raises(nova.TaskFailed):
        store.run("w")
    store.run("w")
    clock.advance(10_000)
    store.runtime.delete_dead_staging()
    on_disk = {p.parent.name for p in store.engine.root.glob("blocks/*/*")}  # type: ignore[attr-defined]
    listed = {b.id for c in ("source", "fresh", "seen") for i in store.timeline(c) for b in i.blocks}
    assert on_disk == listed


def test_r4_a_resumed_execution_keeps_its_pins_and_staged_blocks(opened: Opener) -> None:
    calls: list[str] = []

    @nova.task(consumes=nova.new(source), produces=nova.delta(fresh))
    def copy(source: list[Row]) -> list[Row]:
        calls.append(f"copy {keys(source)}")
        return source

    @nova.task(consumes=nova.new(fresh), produces=nova.delta(seen))
    def then(fresh: list[Row]) -> list[Row]:
        calls.append(f"then {keys(fresh)}")
        if len(calls) == 2:
            raise ValueError("once")
        return fresh

    store = opened(bound(copy, then))
    store.insert("source", rows(1))
    with pytest.raises(nova.TaskFailed) as met:
        store.run("w")
    store.insert("source", rows(2))
    store.run("w", resume=met.value.execution_id)
    assert calls == ["copy [1]", "then [1]", "then [1]"]
    store.run("w")
    assert keys(read(store, "seen")) == [1, 2]


def test_r4_resuming_a_superseded_execution_is_refused(opened: Opener) -> None:
    fail = [True]

    @nova.task(consumes=nova.new(source), produces=nova.delta(fresh))
    def copy(source: list[Row]) -> list[Row]:
        if fail:
            raise ValueError(fail.pop())
        return source

    store = opened(bound(copy))
    store.insert("source", rows(1))
    with pytest.raises(nova.TaskFailed) as met:
        store.run("w")
    store.run("w")
    with pytest.raises(nova.ExecutionNotLive):
        store.run("w", resume=met.value.execution_id)
    assert keys(read(store, "fresh")) == [1]


def test_r4_retries_use_the_same_pins(opened: Opener) -> None:
    saw: list[list[int]] = []

    @nova.task(consumes=nova.new(source), produces=nova.delta(fresh), retries=2)
    def copy(source: list[Row]) -> list[Row]:
        saw.append(keys(source))
        if len(saw) < 3:
            store.insert("source", rows(len(saw) + 1))
            raise ValueError("again")
        return source

    store = opened(bound(copy))
    store.insert("source", rows(1))
    store.run("w")
    assert saw == [[1], [1], [1]]


def test_r5_an_outside_insert_into_a_channel_that_the_running_workflowette_writes(opened: Opener) -> None:
    """It is neither lost nor read twice: the commit conflicts, and the new plan reads it once (R5, R6)."""
    saw: list[list[int]] = []

    @nova.task(consumes=nova.new(source), produces=nova.delta(fresh))
    def copy(source: list[Row]) -> list[Row]:
        return source

    @nova.task(consumes=nova.new(fresh), produces=nova.delta(seen))
    def then(fresh: list[Row]) -> list[Row]:
        saw.append(keys(fresh))
        if len(saw) == 1:
            store.insert("fresh", rows(99))
        return list({r["k"]: r for r in fresh}.values())

    store = opened(bound(copy, then))
    store.insert("source", rows(1))
    store.run("w")
    assert saw == [[1], [1, 99]]
    store.insert("source", rows(2))
    store.run("w")
    assert saw[2:] == [[2]]
    assert keys(read(store, "seen")) == [1, 2, 99] and keys(read(store, "fresh")) == [1, 2, 99]
    assert {c.channel: c.lag for c in store.cursors("w")} == {"source": 0, "fresh": 0}


def test_r5_a_task_reads_its_own_output_channel_as_pinned(opened: Opener) -> None:
    store = opened(bound(dedup))
    for batch in ([1, 2], [2, 3], [3, 4]):
        store.insert("source", rows(*batch))
        store.run("w")
    assert keys(read(store, "fresh")) == [1, 2, 3, 4]


def test_r6_of_two_executions_that_read_all_seen_and_write_it_one_wins(opened: Opener) -> None:
    other = nova.Channel("other", schema=DDL)

    @nova.task(consumes=[nova.new(other), nova.all(seen)], produces=[nova.delta(seen)])
    def rival(other: list[Row], seen: list[Row]) -> list[Row]:
        return other

    one, two = opened(bound(dedup, name="one")), opened(bound(rival, name="two"))
    one.insert("source", rows(1, 2))
    two.insert(other, rows(2, 3))
    first, second = one.runtime.begin("one"), two.runtime.begin("two")
    one.runtime.run_task(first, "dedup")
    two.runtime.run_task(second, "rival")
    one.runtime.commit(first)
    with pytest.raises(nova.CommitConflict) as met:
        two.runtime.commit(second)
    assert met.value.fields["channel"] == "seen"
    two.run("two")
    assert keys(read(one, "seen")) == [1, 2, 3]


def test_r6_a_paused_execution_that_wakes_after_its_lease(opened: Opener, clock: TestClock) -> None:
    sleeper, other = opened(bound(dedup), owner="elsewhere:1:1"), opened(bound(dedup))
    sleeper.insert("source", rows(1))
    paused = sleeper.runtime.begin("w")
    sleeper.runtime.run_task(paused, "dedup")
    with pytest.raises(nova.ExecutionInProgress, match="w"):
        other.run("w")
    clock.advance(101)
    other.run("w")
    with pytest.raises(nova.CommitConflict):
        sleeper.runtime.commit(paused)
    assert keys(read(other, "fresh")) == [1]


def test_r6_as_long_as_nobody_took_over_a_late_commit_is_good(opened: Opener, clock: TestClock) -> None:
    store = opened(bound(dedup))
    store.insert("source", rows(1))
    paused = store.runtime.begin("w")
    store.runtime.run_task(paused, "dedup")
    clock.advance(10_000)
    store.runtime.commit(paused)
    assert keys(read(store, "fresh")) == [1]


def test_r6_a_base_conflicts_with_what_was_committed_meanwhile(opened: Opener) -> None:
    tries: list[int] = []

    @nova.task(consumes=nova.all(source), produces=nova.base(table))
    def rebuild(source: list[Row]) -> list[Row]:
        tries.append(len(source))
        if len(tries) == 1:
            store.insert("table", rows(7))
        return source

    store = opened(bound(rebuild))
    store.insert("source", rows(1))
    store.run("w")
    assert len(tries) == 2 and keys(read(store, "table")) == [1]


def test_r7_an_unknown_outcome_is_looked_up_before_anything_else(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(bound(dedup))
    store.insert("source", rows(1))
    really = store.catalog.commits.commit

    def lost_after(request: Any) -> Any:
        really(request)
        raise nova.CommitOutcomeUnknown("connection lost")

    monkeypatch.setattr(store.catalog.commits, "commit", lost_after)
    done = store.run("w")
    assert done.state == "committed" and done.commit is not None and keys(read(store, "fresh")) == [1]

    def lost_before(request: Any) -> Any:
        monkeypatch.setattr(store.catalog.commits, "commit", really)
        raise nova.CommitOutcomeUnknown("connection lost")

    monkeypatch.setattr(store.catalog.commits, "commit", lost_before)
    store.insert("source", rows(2))
    store.run("w")
    assert keys(read(store, "fresh")) == [1, 2]
