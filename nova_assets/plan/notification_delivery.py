"""Deliveries of notifications: which are due, when a failed one is retried, and when it is given up. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from nova_assets.model.notification import QueuedNotification

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
