"""Which triggers a tick evaluates: those for which something has changed, and those whose time has come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import nova_assets as nova
from nova_assets.model.channel_state import UnreadData
from nova_assets.plan.due import TriggerState, decide_trigger
from nova_assets.plan.trigger_watch import MIN_REST, CatalogCounters, TriggerWatch

START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
a, b = nova.Channel("a", schema="k bigint"), nova.Channel("b", schema="k bigint")


def binding(name: str, when: Any) -> nova.Binding:
    task = nova.task(name="step", consumes=nova.new(a, as_="rows"))(lambda rows: None)
    return nova.bind(nova.Workflowette(name, [task]), name=name, when=when)


def watch(**triggers: Any) -> TriggerWatch:
    made = TriggerWatch([binding(name, when) for name, when in triggers.items()])
    assert made.observe(CatalogCounters(), START) == sorted(n for n, t in triggers.items() if t is not None)
    for name, when in triggers.items():
        if when is not None:
            made.rest(name, None, START)
    return made


def test_only_what_depends_on_a_change_is_evaluated() -> None:
    it = watch(
        one=nova.on_data("a"),
        two=nova.on_data("b") & nova.on_data("a"),
        sealed=nova.on_sealed("a"),
        cascade=nova.after("one"),
        by_hand=None,
    )
    assert it.observe(CatalogCounters(heads={"a": 0, "b": 1}), START) == ["one", "sealed", "two"]
    for name in ("one", "sealed", "two"):
        it.rest(name, None, START)
    assert it.observe(CatalogCounters(heads={"a": 0, "b": 1}), START) == []
    assert it.observe(CatalogCounters({"a": 0, "b": 2}), START) == ["two"]
    it.rest("two", None, START)
    seen = CatalogCounters({"a": 0, "b": 2}, {"a": 1})
    assert it.observe(seen, START) == ["one", "sealed", "two"], "a seal is a change of its channel"
    for name in ("one", "sealed", "two"):
        it.rest(name, None, START)
    finished = {("one", "succeeded"): 1, ("one", "failed"): 1}
    assert it.observe(CatalogCounters(seen.heads, seen.seals, finished), START) == ["cascade"]


def test_who_was_not_evaluated_comes_first_next_time() -> None:
    it = watch(x=nova.on_data("a"), y=nova.on_data("a"), z=nova.on_data("b"))
    assert it.observe(CatalogCounters({"a": 1}), START) == ["x", "y"]
    it.rest("x", START + timedelta(seconds=4), START)  # there was no time for y
    later = START + timedelta(seconds=5)
    assert it.observe(CatalogCounters({"a": 1, "b": 1}), later) == ["y", "x", "z"]


def test_a_binding_at_rest_is_evaluated_now_and_then() -> None:
    it = watch(x=nova.on_data("a"))
    assert it.observe(CatalogCounters(), START + MIN_REST - timedelta(seconds=1)) == []
    assert it.observe(CatalogCounters(), START + 2 * MIN_REST) == ["x"]


def test_a_decision_says_when_time_alone_makes_it_due() -> None:
    def due_at(trigger: Any, **known: Any) -> datetime | None:
        return decide_trigger(trigger, {}, TriggerState(now=START, registered_at=START, **known)).due_at

    tomorrow = START.replace(day=2, hour=6)
    oldest = START - timedelta(minutes=4)
    unread = UnreadData(rows=1, bytes=1, blocks=1, oldest=oldest)
    waiting = {"heads": {"a": 1}, "unread": lambda channel, after: unread}
    assert due_at(nova.on_data("a")) is None
    assert due_at(nova.cron("0 6 * * *")) == tomorrow
    assert due_at(nova.on_data("a", rows=5), **waiting) is None
    assert due_at(nova.on_data("a", rows=5, older_than="10m"), **waiting) == START + timedelta(minutes=6)
    either = nova.on_data("a", rows=5, older_than="10m") | nova.cron("0 6 * * *")
    assert due_at(either, **waiting) == START + timedelta(minutes=6)
    assert due_at(nova.on_data("a") & nova.cron("0 6 * * *"), heads={"a": 1}) == tomorrow
