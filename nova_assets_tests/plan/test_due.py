"""Triggers in their simple form, and composed: pure decisions over facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import nova_assets as nova
from nova_assets.plan.due import Decision, Facts, decide

START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)


def facts(minutes: float = 0, **known: Any) -> Facts:
    return Facts(now=START + timedelta(minutes=minutes), since=START, **known)


def judge(trigger: Any, positions: Any, f: Facts) -> Decision:
    return decide(trigger, positions, f)


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
    assert len(list(t.leaves())) == 3
