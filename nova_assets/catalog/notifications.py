"""Notifiers, the delivery of their outboxes, and the problems that last."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.notification_outbox import (
    add_notifications,
    notifications,
    notifiers,
    problems,
    subscriptions_to,
)
from nova_assets.model.notification import (
    Notification,
    NotifierStatus,
    NotifierSubscription,
    ProblemEvent,
    QueuedNotification,
)

_SEEN_RENEWAL = timedelta(minutes=1)
_MAX_SUBJECTS_PER_PASS = 500


class Notifications(CatalogPart):
    """Outbox of notifications: at least once, and in order for each subject."""

    def register_notifiers(self, subscriptions: Sequence[NotifierSubscription]) -> None:
        """Record that this process is ready to deliver for these notifiers. They get events from now on."""
        now = self.database.clock()
        renewed_after = now - _SEEN_RENEWAL

        def register(c: Connection) -> None:
            existing = _read_subscriptions(c, renewed_after)
            for s in subscriptions:
                if existing.get(s.notifier) != s:
                    _write_subscription(c, s, now)

        current = self.database.read(lambda c: _read_subscriptions(c, renewed_after))
        if any(current.get(s.notifier) != s for s in subscriptions):
            self.database.write(register)

    def notifiers(self) -> list[NotifierStatus]:
        """All notifiers of the catalog, with the sizes of their outboxes."""
        n = notifications.c
        totals = select(n.notifier, n.state, func.count(), func.min(n.at)).group_by(n.notifier, n.state)

        def read(c: Connection) -> list[NotifierStatus]:
            counts = {(name, state): (count, oldest) for name, state, count, oldest in c.execute(totals)}
            rows = c.execute(select(notifiers).order_by(notifiers.c.name)).mappings().all()
            return [
                NotifierStatus(
                    r["name"],
                    r["seen_at"],
                    r["owner"],
                    counts.get((r["name"], "waiting"), (0, None))[0],
                    counts.get((r["name"], "undeliverable"), (0, None))[0],
                    counts.get((r["name"], "waiting"), (0, None))[1],
                    r["dropped"],
                )
                for r in rows
            ]

        return self.database.read(read)

    def forget_notifier(self, name: str) -> bool:
        """Delete a notifier with its outbox. Returns whether it existed."""

        def forget(c: Connection) -> bool:
            c.execute(delete(notifications).where(notifications.c.notifier == name))
            return bool(c.execute(delete(notifiers).where(notifiers.c.name == name)).rowcount)

        return self.database.write(forget)

    def claim_notifier(self, name: str, owner: str, lease_seconds: float, dead_owners: Collection[str] = ()) -> bool:
        """Claim or renew the right to deliver for a notifier. Deliveries by two processes would mix their order.

        Args:
            dead_owners: owners that are known to be dead; their leases are not awaited.

        Returns:
            False if another process holds the lease.
        """
        now, n = self.database.clock(), notifiers.c
        is_free = or_(n.owner.is_(None), n.owner == owner, n.lease_until < now, n.owner.in_(sorted(dead_owners)))
        claim = update(notifiers).where(n.name == name, is_free)
        values = {"owner": owner, "lease_until": now + timedelta(seconds=lease_seconds)}
        return bool(self.database.write(lambda c: c.execute(claim.values(**values)).rowcount))

    def release_notifier(self, name: str, owner: str) -> None:
        """End a claim."""
        held = update(notifiers).where(notifiers.c.name == name, notifiers.c.owner == owner)
        self.database.write(lambda c: c.execute(held.values(owner=None, lease_until=None)))

    def first_waiting(self, notifier: str) -> list[QueuedNotification]:
        """Oldest waiting notification of each subject, oldest first, without those that wait for a retry."""
        n, now = notifications.c, self.database.clock()
        first = select(func.min(n.n)).where(n.notifier == notifier, n.state == "waiting").group_by(n.subject)
        is_due = or_(n.retry_at.is_(None), n.retry_at <= now)
        return self._read_queue(and_(n.n.in_(first), is_due), _MAX_SUBJECTS_PER_PASS)

    def queued(self, limit: int = 100, *, undeliverable: bool | None = None) -> list[QueuedNotification]:
        """Notifications that are not delivered, oldest first.

        Args:
            undeliverable: only those whose delivery was given up, or only the others.
        """
        states = {None: ("waiting", "undeliverable"), True: ("undeliverable",), False: ("waiting",)}
        return self._read_queue(notifications.c.state.in_(states[undeliverable]), limit)

    def mark_delivered(self, queued: QueuedNotification) -> None:
        """Delete a delivered notification from its outbox."""
        self.database.write(lambda c: c.execute(delete(notifications).where(*_row_of(queued))))

    def record_failed_delivery(self, queued: QueuedNotification, error: str, retry_at: datetime | None) -> None:
        """Record a failed attempt.

        Args:
            retry_at: time of the next attempt; None if the delivery is given up.
        """
        state = "undeliverable" if retry_at is None else "waiting"
        values = {"state": state, "attempts": queued.attempts + 1, "retry_at": retry_at, "error": error}
        self.database.write(lambda c: c.execute(update(notifications).where(*_row_of(queued)).values(**values)))

    def drop_oldest(self, notifier: str, kept: int) -> int:
        """Delete the oldest notifications of a notifier beyond a number, and count them. Returns their number."""
        n = notifications.c
        size = select(func.count()).where(n.notifier == notifier)

        def excess(c: Connection) -> int:
            return int(c.execute(size).scalar_one()) - kept

        def drop(c: Connection) -> int:
            oldest = select(n.n).where(n.notifier == notifier).order_by(n.n).limit(max(0, excess(c)))
            dropped = c.execute(delete(notifications).where(n.n.in_(oldest))).rowcount
            counted = update(notifiers).where(notifiers.c.name == notifier)
            c.execute(counted.values(dropped=notifiers.c.dropped + dropped))
            return dropped

        return self.database.write(drop) if self.database.read(excess) > 0 else 0

    def retry(self) -> int:
        """Make all waiting and undeliverable notifications due at once. Returns their number."""
        is_held = or_(notifications.c.state == "undeliverable", notifications.c.retry_at.is_not(None))
        values = {"state": "waiting", "attempts": 0, "retry_at": None}
        return self.database.write(lambda c: c.execute(update(notifications).where(is_held).values(**values)).rowcount)

    def start_problem(self, event: ProblemEvent, problem: str, notification: Notification) -> bool:
        """Record a problem that lasts, and notify of it.

        Args:
            problem: identifies the problem among those of the same event.

        Returns:
            False if the problem was known already, or if no notifier wants to know of it.
        """

        def start(c: Connection) -> bool:
            row = {"event": event, "subject": problem, "since": self.database.clock()}
            subscriptions = subscriptions_to(c, self.database.clock(), [event])
            if (
                not subscriptions
                or c.execute(select(problems.c.since).where(*_is_problem(event, problem))).first() is not None
            ):
                return False
            try:
                with c.begin_nested():
                    c.execute(insert(problems).values(**row))
            except IntegrityError:  # another process has recorded it at the same time
                return False
            add_notifications(c, [notification], subscriptions)
            return True

        return problem not in self.open_problems(event) and self.database.write(start)

    def end_problem(self, event: ProblemEvent, problem: str) -> bool:
        """Record that a problem is over. Returns whether it was open."""
        ended = delete(problems).where(*_is_problem(event, problem))
        return problem in self.open_problems(event) and bool(self.database.write(lambda c: c.execute(ended).rowcount))

    def open_problems(self, event: ProblemEvent) -> dict[str, datetime]:
        """Problem -> time at which it began."""
        query = select(problems.c.subject, problems.c.since).where(problems.c.event == event)
        return {problem: since for problem, since in self.database.read(lambda c: c.execute(query).all())}

    def _read_queue(self, condition: ColumnElement[bool], limit: int) -> list[QueuedNotification]:
        query = select(notifications).where(condition).order_by(notifications.c.n).limit(limit)
        rows = self.database.read(lambda c: c.execute(query).mappings().all())
        return [_queued_from_row(r) for r in rows]


def _row_of(queued: QueuedNotification) -> tuple[ColumnElement[bool], ...]:
    return (notifications.c.n == queued.n, notifications.c.id == queued.notification.id)


def _is_problem(event: str, problem: str) -> tuple[ColumnElement[bool], ...]:
    return (problems.c.event == event, problems.c.subject == problem)


def _read_subscriptions(c: Connection, seen_after: datetime) -> dict[str, NotifierSubscription]:
    """Subscriptions of the notifiers that were seen since a time."""
    query = select(notifiers.c.name, notifiers.c.events, notifiers.c.bindings).where(notifiers.c.seen_at > seen_after)
    return {name: NotifierSubscription(name, tuple(e), tuple(b)) for name, e, b in c.execute(query)}


def _write_subscription(c: Connection, subscription: NotifierSubscription, now: datetime) -> None:
    values = {"events": list(subscription.events), "bindings": list(subscription.bindings), "seen_at": now}
    is_notifier = notifiers.c.name == subscription.notifier
    if not c.execute(update(notifiers).where(is_notifier).values(**values)).rowcount:
        with suppress(IntegrityError), c.begin_nested():  # another process may have just registered it
            c.execute(insert(notifiers).values(name=subscription.notifier, **values))


def _queued_from_row(row: RowMapping) -> QueuedNotification:
    return QueuedNotification(
        row["notifier"],
        row["n"],
        Notification.from_json(row["body"]),
        row["attempts"],
        row["retry_at"],
        row["error"],
        row["state"] == "undeliverable",
    )
