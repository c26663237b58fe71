"""Triggers in their simple form, and composed: pure decisions over facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import nova_assets as nova
from nova_assets.model.channel_state import UnreadData
from nova_assets.plan.due import TriggerDecision, TriggerState, decide_trigger

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
