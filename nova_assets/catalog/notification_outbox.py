"""Outbox of notifications, filled by the transaction that the event belongs to.

A notification is a row for each notifier that wants it. It is visible with the event, or not at all. A row is deleted
once it is delivered, so that no position can pass over a row that becomes visible late.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    RowMapping,
    String,
    Table,
    Text,
    insert,
    select,
)

from nova_assets.catalog.database.column_types import UtcMicroseconds
from nova_assets.catalog.tables import executions, metadata
from nova_assets.model.arrival import ArrivalOutcome
from nova_assets.model.execution import Firing
from nova_assets.model.notification import (
    Notification,
    NotificationEvent,
    NotifierSubscription,
    describe_binding,
    describe_set_aside,
    shorten_text,
)

notifiers = Table(
    "nova_notifiers",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("events", JSON, nullable=False),
    Column("bindings", JSON, nullable=False),
    # Last time at which a process was ready to deliver.
    Column("seen_at", UtcMicroseconds, nullable=False),
    # Process that delivers now.
    Column("owner", Text),
    Column("lease_until", UtcMicroseconds),
    # Number of notifications that were dropped, because too many waited.
    Column("dropped", BigInteger, nullable=False, server_default="0"),
)

notifications = Table(
    "nova_notifications",
    metadata,
    # Order of the outbox. A delivered notification is deleted by its id, since SQLite may assign its number again.
    Column("n", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    # Equal for all notifiers of one event.
    Column("id", String(64), nullable=False),
    Column("notifier", String(128), nullable=False),
    Column("subject", String(512), nullable=False),
    Column("state", String(16), nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("body", JSON, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("retry_at", UtcMicroseconds),
    Column("error", Text),
    Index("ix_nova_notifications_notifier_state_subject_n", "notifier", "state", "subject", "n"),
)

problems = Table(
    "nova_problems",
    metadata,
    Column("event", String(32), primary_key=True),
    Column("subject", String(1024), primary_key=True),
    Column("since", UtcMicroseconds, nullable=False),
)


ABANDONED_AFTER = timedelta(days=7)
"""Time after which a notifier that no process serves gets no more notifications. Otherwise its outbox would grow for
ever."""


def subscriptions_to(c: Connection, now: datetime, events: Iterable[NotificationEvent]) -> list[NotifierSubscription]:
    """Subscriptions of notifiers that want at least one of these events."""
    query = select(notifiers.c.name, notifiers.c.events, notifiers.c.bindings)
    rows = c.execute(query.where(notifiers.c.seen_at > now - ABANDONED_AFTER)).all()
    wanted = set(events)
    return [NotifierSubscription(name, tuple(e), tuple(b)) for name, e, b in rows if wanted & set(e)]


def add_notifications(
    c: Connection, new_notifications: Iterable[Notification], subscriptions: Iterable[NotifierSubscription]
) -> None:
    """Add notifications to the outboxes of the notifiers that want them."""
    rows = [
        {
            "id": n.id,
            "notifier": s.notifier,
            "subject": n.subject,
            "state": "waiting",
            "at": n.at,
            "body": n.as_json(),
        }
        for n in new_notifications
        for s in subscriptions
        if s.wants(n)
    ]
    if rows:
        c.execute(insert(notifications), rows)


def notify_launched(c: Connection, now: datetime, execution: RowMapping) -> None:
    """Add the notification of an execution that has begun."""
    _notify_of_execution(c, now, "launched", execution, "was launched")


def notify_finished(c: Connection, now: datetime, execution: RowMapping) -> None:
    """Add the notification of an execution that has committed."""
    _notify_of_execution(c, now, "finished", execution, "has finished")


def notify_failed(c: Connection, now: datetime, execution_id: str, error: str, *, only_if_running: bool) -> None:
    """Add the notification of an execution that has failed.

    Args:
        only_if_running: the execution is about to be aborted. One that had failed before was notified then.
    """
    subscriptions = subscriptions_to(c, now, ["failed"])
    if not subscriptions:
        return
    execution = c.execute(select(executions).where(executions.c.id == execution_id)).mappings().first()
    if execution is not None and (execution["state"] == "running" or not only_if_running):
        _notify_of_execution(c, now, "failed", execution, f"has failed: {error}", subscriptions)


def notify_abandoned(c: Connection, now: datetime, firing: Firing) -> None:
    """Add the notification of a firing that no further run is requested for. Its runs may have begun no execution."""
    why = f"gave up firing {firing.n} after attempt {firing.attempt}: {firing.why}"
    text = shorten_text(f"{describe_binding(firing.binding, firing.partition)} {why}")
    details = {"firing": firing.id, "attempts": firing.attempt}
    notification = Notification("failed", now, text, firing.binding, firing.partition, details=details)
    add_notifications(c, [notification], subscriptions_to(c, now, ["failed"]))


def notify_set_aside(c: Connection, now: datetime, outcomes: Iterable[tuple[str, ArrivalOutcome]]) -> None:
    """Add a notification for each channel whose arrived data a commit has put into quarantine."""
    by_channel: dict[str, list[ArrivalOutcome]] = {}
    for channel, outcome in outcomes:
        if outcome.state in ("taken", "refused") and (outcome.bad or outcome.state == "refused"):
            by_channel.setdefault(channel, []).append(outcome)
    if not by_channel:
        return
    add_notifications(
        c, [_set_aside(channel, o, now) for channel, o in by_channel.items()], subscriptions_to(c, now, ["set_aside"])
    )


def _set_aside(channel: str, outcomes: list[ArrivalOutcome], now: datetime) -> Notification:
    refused = [o for o in outcomes if o.state == "refused"]
    records = sum(o.bad for o in outcomes if o.state == "taken")
    reason = next((o.reason for o in outcomes if o.reason), None)
    text = describe_set_aside(channel, len(refused), records, reason)
    files = [shorten_text(o.arrival.path) for o in outcomes[:20]]
    details = {"records": records, "whole_files": len(refused), "files": files}
    return Notification("set_aside", now, text, channel=channel, details=details)


def _notify_of_execution(
    c: Connection,
    now: datetime,
    event: NotificationEvent,
    execution: RowMapping,
    what: str,
    subscriptions: list[NotifierSubscription] | None = None,
) -> None:
    """Add a notification of an execution of a binding. Inserts, maintenance and readers have no notifications.

    Args:
        what: the text after the name of the binding.
        subscriptions: those to the event, if they were read before.
    """
    binding, partition = execution["binding"], execution["partition"]
    if binding is None or execution["purpose"] != "commit":
        return
    wanting = subscriptions_to(c, now, [event]) if subscriptions is None else subscriptions
    if wanting:
        text = shorten_text(f"{describe_binding(binding, partition)} {what}")
        facts = {"execution_id": execution["id"], "run_id": execution["run_id"]}
        add_notifications(c, [Notification(event, now, text, binding, partition, **facts)], wanting)
