"""When a notification is delivered, tried again and given up, and which bindings are late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from nova_assets.errors import SettingsError
from nova_assets.model.channel_state import Cursor
from nova_assets.model.notification import (
    DEFAULT_EVENTS,
    LatenessBound,
    Notification,
    QueuedNotification,
    parse_notify_settings,
)
from nova_assets.plan.notifications import (
    MAX_ATTEMPTS,
    UnreadInput,
    changed_lateness,
    due_notifications,
    next_attempt_at,
    reason_of_lateness,
)

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)


def queued(n: int, retry_in: float | None = None) -> QueuedNotification:
    retry_at = None if retry_in is None else NOW + timedelta(seconds=retry_in)
    return QueuedNotification("ops", n, Notification("failed", NOW, "x", binding="b"), retry_at=retry_at)


def pause(failed_attempts: int, randomness: float = 0.5, requested: float | None = None) -> float | None:
    at = next_attempt_at(failed_attempts, NOW, randomness, requested)
    return None if at is None else (at - NOW).total_seconds()


def test_what_waits_for_a_retry_is_not_due_before() -> None:
    due = due_notifications([queued(3), queued(2, retry_in=1), queued(1, retry_in=0)], NOW)
    assert [q.n for q in due] == [1, 3]


def test_pauses_double_up_to_an_hour_and_end() -> None:
    assert [pause(n) for n in (1, 2, 3, 9, 10, 15)] == [10, 20, 40, 2560, 3600, 3600]
    assert pause(MAX_ATTEMPTS) is None
    assert (pause(1, 0.0), pause(1, 1.0)) == (8, 12)


def test_a_receiver_may_ask_for_a_longer_pause_of_at_most_an_hour() -> None:
    assert pause(1, requested=100) == 100 and pause(3, requested=1) == 40 and pause(1, requested=1e9) == 3600


def unread(channel: str, seq: int, head: int, age: float | None = None) -> UnreadInput:
    return UnreadInput(Cursor("b", channel, seq, head), None if age is None else NOW - timedelta(seconds=age))


def test_a_binding_is_late_beyond_its_bound_only() -> None:
    bound = LatenessBound(lag=2)
    assert reason_of_lateness([unread("a", 1, 3)], bound, NOW) is None
    reason = reason_of_lateness([unread("a", 1, 3), unread("z", 0, 4)], bound, NOW)
    assert reason == "4 commits of z are unread, more than 2"


def test_a_binding_is_late_by_the_age_of_its_oldest_unread_data() -> None:
    bound = LatenessBound(freshness=timedelta(minutes=1))
    inputs = [unread("a", 1, 2, age=30), unread("z", 0, 1, age=61)]
    assert reason_of_lateness(inputs, bound, NOW) == "data of z has been unread for 61 s, more than 60 s"
    assert reason_of_lateness(inputs[:1], bound, NOW) is None
    assert reason_of_lateness([unread("a", 2, 2, age=900)], bound, NOW) is None, "nothing is unread"


def test_lateness_is_new_once_and_ends_once() -> None:
    assert changed_lateness({"a": "r", "b": "r", "c": None}, ["b", "c", "other"]) == ({"a": "r"}, ["c"])


def test_settings_of_notifiers() -> None:
    settings = parse_notify_settings(
        {
            "late": {"lag": 5, "bindings": {"slow": {"freshness": "2h"}}},
            "to": {"ops": {"kind": "webhook", "url": "http://x"}, "log": {"kind": "command", "events": ["late"]}},
        }
    )
    assert settings.bound_of("any") == LatenessBound(5) and settings.bound_of("slow").lag is None
    ops, log = settings.notifiers
    assert ops.subscription.events == DEFAULT_EVENTS and "launched" not in DEFAULT_EVENTS
    assert dict(ops.options) == {"url": "http://x"} and log.subscription.events == ("late",)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("text", r"\[tool.nova.notify\] is no table"),
        ({"too": {}}, "unknown settings; did you mean 'to'"),
        ({"to": {"x": {"kind": "webhok"}}}, "did you mean 'webhook'"),
        ({"to": {"x": {"kind": "smtp"}}}, "is now 'apprise'"),
        ({"to": {"x": {"kind": "apprise", "events": ["fialed"]}}}, "did you mean 'failed'"),
        ({"to": {"x": {"kind": "apprise", "events": "failed"}}}, "events is no list"),
        ({"to": {"a b": {"kind": "apprise"}}}, "unusable name"),
        ({"late": {"lag": 0}}, "lag is invalid"),
        ({"late": {"freshness": "soon"}}, "freshness is no period"),
    ],
)
def test_wrong_settings_say_what_is_wrong(table: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_notify_settings(table)  # type: ignore[arg-type]
