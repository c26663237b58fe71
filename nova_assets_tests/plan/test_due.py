"""Triggers in their simple form, and composed, and what follows for firings: pure decisions over facts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.model.channel_state import UnreadData
from nova_assets.model.execution import Firing, FiringRun
from nova_assets.plan.due import (
    DueState,
    DueStep,
    TriggerDecision,
    TriggerState,
    decide_due,
    decide_trigger,
    next_attempt_time,
)
from nova_assets_tests.effort import examples

START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)


def facts(minutes: float = 0, **known: Any) -> TriggerState:
    return TriggerState(now=START + timedelta(minutes=minutes), registered_at=START, **known)


def judge(trigger: Any, positions: Any, f: TriggerState) -> TriggerDecision:
    return decide_trigger(trigger, positions, f)


def test_on_data_fires_once_per_new_head() -> None:
    t = nova.on_data("a")
    assert not judge(t, {}, facts(heads={"a": 0})).due
    first = judge(t, {}, facts(heads={"a": 3}))
    assert first.due and first.why == "a is at 3"
    assert not judge(t, first.positions, facts(heads={"a": 3})).due
    assert judge(t, first.positions, facts(heads={"a": 4})).due


def test_on_data_passes_over_what_the_binding_has_read_already() -> None:
    assert not judge(nova.on_data("a"), {}, facts(heads={"a": 3}, cursors={"a": 3})).due


def test_on_data_of_several_channels_fires_for_any() -> None:
    assert judge(nova.on_data("a", "b"), {}, facts(heads={"a": 0, "b": 1})).due


def test_every_fires_at_once_and_then_each_period() -> None:
    t = nova.every("1h")
    first = judge(t, {}, facts())
    assert first.due
    assert not judge(t, first.positions, facts(59)).due
    assert judge(t, first.positions, facts(60)).due


def test_ticks_missed_make_one_catch_up() -> None:
    t = nova.every("1h")
    first = judge(t, {}, facts())
    late = judge(t, first.positions, facts(60 * 24))
    assert late.due and not judge(t, late.positions, facts(60 * 24 + 1)).due


def test_cron_waits_for_its_time_in_its_zone() -> None:
    t = nova.cron("0 6 * * *", tz="America/New_York")  # 11:00 UTC in winter
    assert not judge(t, {}, facts()).due
    next_day = judge(t, {}, facts(23 * 60))
    assert next_day.due and not judge(t, next_day.positions, facts(23 * 60 + 5)).due
    assert judge(t, next_day.positions, facts(47 * 60)).due


def test_after_fires_per_execution_of_the_other_binding() -> None:
    t = nova.after("other", status="failed")
    assert not judge(t, {}, facts(finished={("other", "succeeded"): 4})).due
    first = judge(t, {}, facts(finished={("other", "failed"): 1}))
    assert first.due and not judge(t, first.positions, facts(finished={("other", "failed"): 1})).due


def test_enough_is_any_of_what_is_asked_for() -> None:
    t = nova.on_data("a", rows=100, bytes=1000, older_than="1h")
    little = UnreadData(2, 10, 50, START)

    def found(minutes: float, some: UnreadData) -> TriggerDecision:
        return judge(t, {}, facts(minutes, heads={"a": 7}, unread=lambda channel, after: some))

    assert not found(59, little).due and found(60, little).due
    assert found(1, UnreadData(2, 100, 50, START)).due and found(1, UnreadData(2, 10, 1000, START)).due
    assert not found(600, UnreadData()).due, "nothing is never enough"
    assert found(1, little).why == "a has 2 blocks, 10 rows, 50 bytes, the oldest for 60 s unread"


def test_unread_is_what_came_after_the_cursor_and_after_the_last_firing() -> None:
    asked: list[tuple[str, int]] = []

    def unread(channel: str, after: int) -> UnreadData:
        asked.append((channel, after))
        return UnreadData(1, 1, 1, START)

    t = nova.on_data("a", blocks=1)
    first = judge(t, {}, facts(heads={"a": 7}, cursors={"a": 3}, unread=unread))
    assert first.due and first.positions == {"on_data(a, blocks=1)": 7}
    judge(t, first.positions, facts(heads={"a": 8}, cursors={"a": 3}, unread=unread))
    assert asked == [("a", 3), ("a", 7)]


def test_two_thresholds_on_one_channel_keep_positions_of_their_own() -> None:
    t = nova.on_data("a", blocks=2) & nova.on_data("a", rows=1)
    one = facts(heads={"a": 1}, unread=lambda channel, after: UnreadData(1 - after, 1 - after, 1, START))
    assert not judge(t, {}, one).due
    two = facts(heads={"a": 2}, unread=lambda channel, after: UnreadData(2 - after, 2 - after, 1, START))
    decided = judge(t, {}, two)
    assert decided.due and set(decided.positions) == {"on_data(a, blocks=2)", "on_data(a, rows=1)"}


def test_how_often_a_time_has_come_is_said() -> None:
    hourly = judge(nova.cron("0 * * * *"), {}, facts(60 * 5))
    assert hourly.why == ("cron(0 * * * *, UTC) was due 5 times since 2024-01-01 12:00 UTC, which gives one firing")
    every = judge(nova.every("1m"), {"every(1m)": START.isoformat()}, facts(60 * 24))
    assert every.due and "100 times or more" in every.why
    waiting = judge(nova.cron("0 6 * * *", tz="Europe/Paris"), {}, facts())
    assert not waiting.due and waiting.why.endswith("is next due at 2024-01-02 06:00:00 CET")


def test_and_fires_once_when_every_part_has_fired_since_the_last_firing() -> None:
    t = nova.on_data("a") & nova.on_data("b")
    assert not judge(t, {}, facts(heads={"a": 5, "b": 0})).due
    both = judge(t, {}, facts(heads={"a": 5, "b": 1}))
    assert both.due
    assert not judge(t, both.positions, facts(heads={"a": 9, "b": 1})).due
    assert judge(t, both.positions, facts(heads={"a": 9, "b": 2})).due


def test_or_fires_for_each_part_and_moves_only_what_fired() -> None:
    t = nova.on_data("a") | nova.every("1h")
    first = judge(t, {}, facts(heads={"a": 0}))
    assert first.due
    second = judge(t, first.positions, facts(1, heads={"a": 1}))
    assert second.due and not judge(t, second.positions, facts(59, heads={"a": 1})).due
    assert judge(t, second.positions, facts(61, heads={"a": 1})).due


def test_operators_flatten() -> None:
    t = nova.on_data("a") & nova.every("1h") & nova.after("x")
    assert str(t) == "on_data(a) & every(1h) & after(x, succeeded)"
    assert len(list(t.simple_triggers())) == 3


def test_on_sealed_fires_once_for_each_seal() -> None:
    t = nova.on_sealed("a")
    assert judge(t, {}, facts(sealed={"a": 0})) == TriggerDecision(False, {}, "a has no new seal")
    first = judge(t, {}, facts(sealed={"a": 1}))
    assert first.due and not judge(t, first.positions, facts(sealed={"a": 1})).due
    assert judge(t, first.positions, facts(sealed={"a": 2})).due, "it was sealed anew"


# firings and their attempts

SOURCE = nova.Channel("c", schema="k bigint")


@nova.task(name="step", consumes=nova.new(SOURCE, as_="rows"))
def read(rows: Any) -> None: ...


BINDING = nova.bind(nova.Workflowette("b", [read]), when=nova.on_data("c"))


def firing(**known: Any) -> Firing:
    return Firing(
        "f", "b", **{"n": 1, "positions": {"on_data(c)": 1}, "attempt": 1, "state": "requested", "at": START} | known
    )


def failed(kind: Any, minutes: float = 0, **known: Any) -> FiringRun:
    ended_at = START + timedelta(minutes=minutes)
    return FiringRun(kind, f"{kind}{minutes}", "failed", ended_at, **{"failures": 1} | known)


def step(minutes: float, last: Firing | None, *runs: FiringRun, head: int = 1, **known: Any) -> DueStep:
    return decide_due(BINDING, "", DueState(facts(minutes, heads={"c": head}), last, runs, **known))


def test_attempts_of_sensors_and_of_other_processes_count_together() -> None:
    runs = (failed("run", 0, run_key="b#1#1"), failed("execution", 10), failed("run", 20, run_key="b#1#3"))
    assert step(10, firing(attempt=2), *runs[:2]).why == (
        "execution execution10 of firing 1 failed; the next attempt comes at 12:11:00 UTC"
    )
    assert step(11, firing(attempt=2), *runs[:2]).action == "retry"
    gone = step(20, firing(attempt=3), *runs)
    assert gone.action == "none" and gone.end is not None and gone.firing is not None
    assert gone.end.state == "abandoned" and gone.end.why == "3 runs failed, the last of them run20"
    told = gone.end.describe(gone.firing)
    assert told.startswith("firing 1 of b is abandoned after 3 failed runs, the last of them run20; after a repair")


def test_an_execution_that_was_planned_again_after_a_conflict_is_no_failed_attempt() -> None:
    planned_again = failed("execution", 0, failures=0)
    assert step(0, firing(), planned_again).action == "run"
    assert step(1, firing(), planned_again, failed("execution", 0)).action == "retry"
    assert step(9, firing(attempt=3), *(failed("execution", n, failures=n % 2) for n in range(5))).action == "run"


def test_after_killed_runs_each_failure_of_another_process_is_followed_by_a_delay() -> None:
    failures = (failed("execution", 10), failed("execution", 20))  # and two runs that were killed before they began
    for n, minutes in ((1, 10), (2, 20)):
        assert "the next attempt comes at" in step(minutes, firing(attempt=3), *failures[:n]).why
        assert step(minutes + 1, firing(attempt=3), *failures[:n]).action == "run"


def test_a_run_that_may_have_been_requested_is_waited_for() -> None:
    soon = timedelta(seconds=90)
    assert step(1, firing(), run_appears_within=soon).why == "the run of firing 1 has just been requested"
    assert step(2, firing(), run_appears_within=soon).action == "run"
    assert step(1, firing()).action == "run"


def test_the_next_firing_comes_once_the_last_has_ended() -> None:
    done = replace(failed("run", 0, run_key="b#1#1", failures=0), state="succeeded")
    assert step(0, firing(), replace(done, state="active"), head=2).why == "run run0 of firing 1 is under way"
    next_one = step(0, firing(), done, head=2)
    assert next_one.action == "fire" and next_one.end is not None and next_one.end.state == "committed"
    canceled = step(0, firing(), replace(done, state="canceled"), live="execution x is alive", head=2)
    assert canceled.action == "wait" and canceled.end is None, "its execution may still commit"
    canceled = step(0, firing(), replace(done, state="canceled"), head=2)
    assert canceled.action == "fire" and canceled.end is not None and canceled.end.why == "run run0 was canceled"


def test_a_pause_is_told_only_where_something_is_due() -> None:
    assert step(0, None, head=0, off="b is paused").action == "none"
    paused = step(0, None, off="b is paused")
    assert (paused.action, paused.why) == ("wait", "b is paused")
    assert paused.decide_again_at == START + timedelta(seconds=30), "the catalog counts no pauses"
    assert step(0, firing(), off="b is paused").action == "wait"


@pytest.mark.parametrize(("failures", "delay"), [(1, 30), (2, 60), (7, 1920), (8, 3600), (99, 3600), (100, None)])
def test_the_delay_doubles_up_to_an_hour(failures: int, delay: int | None) -> None:
    again_at = next_attempt_time(failures, START, attempts=100, backoff=30)
    assert again_at == (None if delay is None else START + timedelta(seconds=delay))


@dataclass
class Outcomes:
    """Naive record of a firing: when its attempts failed, and whether it was committed or canceled."""

    failed_at: list[datetime] = field(default_factory=list)
    killed: int = 0
    committed: bool = False
    canceled: bool = False


class Deployment:
    """A binding under a sensor and under ``nova run --due`` at once, as the catalog and Dagster record it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.head = self.cursor = self.pinned = 0
        self.firings: list[Firing] = []
        self.executions: list[FiringRun] = []
        self.dagster_runs: list[FiringRun] = []
        self.in_progress: FiringRun | None = None
        self.outcomes: list[Outcomes] = []
        self.run_keys: list[str] = []

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def decide(self, by_sensor: bool) -> DueStep:
        begun = {r.id for r in self.dagster_runs}
        runs = [*self.dagster_runs, *(e for e in self.executions if e.run_id not in begun)]
        live = "an execution is alive" if self.in_progress is not None else ""
        trigger = facts(self.seconds / 60, heads={"c": self.head}, cursors={"c": self.cursor})
        last = self.firings[-1] if self.firings else None
        return decide_due(BINDING, "", DueState(trigger, last, tuple(runs if by_sensor else self.executions), live))

    def act(self, by_sensor: bool, killed: bool = False) -> None:
        """One tick: the decision is carried out, and what it asks for begins, or is killed before it begins."""
        step = self.decide(by_sensor)
        if step.end is not None:
            self.check_end(step)
            self.firings[-1] = replace(self.firings[-1], state=step.end.state)
        if step.action == "fire":
            assert not self.firings or self.firings[-1].positions["on_data(c)"] < self.head, "no head fires twice"
            self.firings.append(firing(n=len(self.firings) + 1, positions=step.positions, at=self.now))
            self.outcomes.append(Outcomes())
            self.executions, self.dagster_runs = [], []
        elif step.action == "retry":
            last, failures = self.firings[-1], self.outcomes[-1].failed_at
            assert len(failures) < BINDING.attempts
            assert not by_sensor or not self.outcomes[-1].canceled, "only Dagster knows who canceled a run"
            self.outcomes[-1].canceled = False
            if failures and not self.outcomes[-1].killed:
                delay = 30 * 2 ** (len(failures) - 1)
                assert self.now >= failures[-1] + timedelta(seconds=delay)
            self.firings[-1] = replace(last, attempt=last.attempt + 1)
        if not step.is_execution:
            return
        assert self.in_progress is None, "one at a time"
        assert all(self.now >= at + timedelta(seconds=30) for at in self.outcomes[-1].failed_at), "also if killed"
        key = self.firings[-1].run_key
        if by_sensor:
            assert key not in self.run_keys, "Dagster would ignore the request"
            self.run_keys.append(key)
            run = FiringRun("run", key, "failed" if killed else "active", self.now, 0, key, key)
            self.dagster_runs.append(run)
            self.outcomes[-1].killed += killed
        if not (killed and by_sensor):
            self.in_progress = FiringRun(
                "execution", f"e{len(self.executions)}", "open", self.now, 0, key if by_sensor else None
            )
            self.executions.append(self.in_progress)
            self.pinned = self.head

    def check_end(self, step: DueStep) -> None:
        assert step.end is not None
        found = self.outcomes[-1]
        if step.end.state == "committed":
            assert found.committed
        else:
            assert found.canceled or len(found.failed_at) == BINDING.attempts

    def end(self, how: str) -> None:
        execution = self.in_progress
        if execution is None:
            return
        self.seconds += 1  # no two runs end at once
        self.executions.remove(execution)
        failures = int(how in ("fail", "cancel"))
        self.executions.append(replace(execution, state="failed", failures=failures, ended_at=self.now))
        if how == "conflict":  # the same run plans it again
            self.in_progress = replace(execution, id=f"{execution.id}+")
            self.executions.append(self.in_progress)
            return
        self.in_progress = None
        is_run = execution.run_id is not None
        if how == "commit":
            self.executions.pop()
            self.cursor = self.pinned
            self.outcomes[-1].committed = True
            self.firings[-1] = replace(self.firings[-1], state="committed")
        else:
            self.outcomes[-1].failed_at.append(self.now)
            self.outcomes[-1].canceled = how == "cancel" and is_run
        if is_run:
            state: Any = {"commit": "succeeded", "fail": "failed", "cancel": "canceled"}[how]
            [run] = [r for r in self.dagster_runs if r.id == execution.run_id]
            self.dagster_runs.remove(run)
            self.dagster_runs.append(replace(run, state=state, ended_at=self.now, failures=failures))

    def check_both_decide_alike(self) -> None:
        """What only Dagster knows aside: runs that were canceled, or killed before they began."""
        if self.in_progress is None and not (
            self.outcomes and (self.outcomes[-1].killed or self.outcomes[-1].canceled)
        ):
            sensor, process = self.decide(True), self.decide(False)
            assert (sensor.action, sensor.positions) == (process.action, process.positions)
            assert (sensor.end is None) == (process.end is None)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.just(0)),
        st.tuples(st.just("later"), st.sampled_from([1, 31, 61, 4000])),
        st.tuples(st.sampled_from(["sensor", "process", "killed"]), st.just(0)),
        st.tuples(st.sampled_from(["commit", "fail", "fail", "cancel", "conflict"]), st.just(0)),
    ),
    min_size=30,
    max_size=90,
)


@given(ACTS)
@settings(deadline=None, max_examples=examples(100, 2000))
def test_sensors_and_processes_together_lose_no_firing_and_repeat_none(acts: list[tuple[str, int]]) -> None:
    world = Deployment()
    for what, n in acts:
        if what == "data":
            world.head += 1
        elif what == "later":
            world.seconds += n
        elif what in ("sensor", "process", "killed"):
            world.act(what != "process", what == "killed")
        else:
            world.end(what)
        world.check_both_decide_alike()
    for _ in range(10):  # all is repaired: what is due is read
        world.end("commit")
        world.seconds += 4000
        world.act(by_sensor=len(acts) % 2 == 0)
    assert world.in_progress is None and all(f.state != "requested" for f in world.firings)
    lost = [f for f, o in zip(world.firings, world.outcomes, strict=True) if not o.committed]
    assert world.cursor == world.head or world.firings[-1] in lost
    assert all(f.state == ("abandoned" if f in lost else "committed") for f in world.firings)
