"""Notifications: which deliveries are due, when a failed one is retried or given up, and which bindings are late.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from nova_assets.model.channel_state import Cursor
from nova_assets.model.notification import LatenessBound, QueuedNotification

MAX_ATTEMPTS = 16
"""Failed attempts after which a notification is undeliverable. With the pauses between them: about ten hours."""

MAX_QUEUED = 10_000
"""Notifications that are kept for one notifier, undeliverable ones included. The oldest ones beyond are dropped."""

_FIRST_PAUSE_SECONDS = 10.0
_MAX_PAUSE_SECONDS = 3600.0
_JITTER = 0.2
"""Largest relative change of a pause, so that deliveries that failed together are not retried together."""


def due_notifications(first_of_subjects: Iterable[QueuedNotification], now: datetime) -> list[QueuedNotification]:
    """Notifications to deliver now, oldest first.

    Args:
        first_of_subjects: the oldest waiting notification of each subject. The later ones of a subject wait for it, so
            that each subject keeps its order.
    """
    due = (q for q in first_of_subjects if not q.is_undeliverable and (q.retry_at is None or q.retry_at <= now))
    return sorted(due, key=lambda q: q.n)


def next_attempt_at(
    failed_attempts: int, now: datetime, randomness: float, requested_pause: float | None = None
) -> datetime | None:
    """Time of the next attempt; None if the delivery is given up.

    Args:
        failed_attempts: number of attempts that have failed, this one included.
        randomness: a random number from 0 to 1.
        requested_pause: seconds that the receiver has asked for (HTTP ``Retry-After``).
    """
    if failed_attempts >= MAX_ATTEMPTS:
        return None
    pause = min(_FIRST_PAUSE_SECONDS * 2 ** (failed_attempts - 1), _MAX_PAUSE_SECONDS)
    pause *= 1 + _JITTER * (2 * randomness - 1)
    return now + timedelta(seconds=max(pause, min(requested_pause or 0.0, _MAX_PAUSE_SECONDS)))


# late bindings


@dataclass(frozen=True, slots=True)
class UnreadInput:
    """Unread data of one input of a binding.

    Args:
        oldest: commit time of the oldest unread data; None if it is not needed, or if nothing is unread.
    """

    cursor: Cursor
    oldest: datetime | None = None


def reason_of_lateness(inputs: Iterable[UnreadInput], bound: LatenessBound, now: datetime) -> str | None:
    """Why a binding is late, by its worst input; None if it is not.

    Args:
        inputs: all inputs of the binding that it reads as ``new``, with their partitions.
    """
    lagging = [i for i in inputs if i.cursor.lag > 0]
    if bound.lag is not None and (worst := max(lagging, key=lambda i: i.cursor.lag, default=None)) is not None:
        lag = worst.cursor.lag
        if lag > bound.lag:
            return f"{lag} commits of {_describe_input(worst)} are unread, more than {bound.lag}"
    dated = [(i.oldest, i) for i in lagging if i.oldest is not None]
    if bound.freshness is not None and dated:
        oldest, worst = min(dated, key=lambda d: d[0])
        if now - oldest > bound.freshness:
            age = f"{(now - oldest).total_seconds():.0f} s, more than {bound.freshness.total_seconds():.0f} s"
            return f"data of {_describe_input(worst)} has been unread for {age}"
    return None


def changed_lateness(
    reason_by_binding: Mapping[str, str | None], known_late: Iterable[str]
) -> tuple[dict[str, str], list[str]]:
    """Bindings that have become late, with the reasons, and those that are late no more.

    Args:
        reason_by_binding: each examined binding -> why it is late; None if it is not.
        known_late: bindings that were late before. Those that were not examined stay late.
    """
    known = set(known_late)
    became_late = {b: reason for b, reason in reason_by_binding.items() if reason is not None and b not in known}
    return became_late, sorted(b for b in known if b in reason_by_binding and reason_by_binding[b] is None)


def _describe_input(unread: UnreadInput) -> str:
    return f"{unread.cursor.channel} {unread.cursor.channel_partition}".rstrip()
