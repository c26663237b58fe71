"""Notifications: events of a deployment that people or other programs are told about."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from nova_assets.masking import mask
from nova_assets.model.partitions import WHOLE
from nova_assets.model.quarantine import quarantine_channel_name
from nova_assets.model.text_format import pluralize
from nova_assets.short_repr import short_repr

NotificationEvent = Literal[
    "launched", "finished", "failed", "late", "set_aside", "upkeep_failing", "publication_failing", "test"
]
"""Kind of an event. Only ``nova notify --test`` sends ``test``."""

NOTIFICATION_EVENTS: tuple[NotificationEvent, ...] = tuple(e for e in get_args(NotificationEvent) if e != "test")

ProblemEvent = Literal["late", "upkeep_failing", "publication_failing"]
"""Events that last. They are notified once, when they begin."""

MAX_TEXT_LENGTH = 4000
"""Maximum number of characters of a text. An error of Spark may have many more."""


def new_notification_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Notification:
    """One event, as notifiers get it.

    Secrets are masked in all its texts.

    Args:
        id: equal in repeated deliveries and for all notifiers, so that receivers can count an event once.
        at: time of the event.
        text: what happened. The first line is readable without the others.
        binding, partition: the binding concerned, and the partition of its execution.
        channel: the channel concerned, if no binding is.
        execution_id: the execution concerned.
        run_id: its Dagster run.
        details: further facts, as JSON values.
    """

    __repr__ = short_repr

    event: NotificationEvent
    at: datetime
    text: str
    binding: str | None = None
    partition: str = WHOLE
    channel: str | None = None
    execution_id: str | None = None
    run_id: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=new_notification_id)

    @property
    def subject(self) -> str:
        """Name of what the event is about. The notifications of one subject are delivered in order."""
        if self.binding is not None:
            return f"binding {self.binding}"
        return "the deployment" if self.channel is None else f"channel {self.channel}"

    @property
    def title(self) -> str:
        """First line of the text."""
        return self.text.partition("\n")[0]

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "event": self.event,
            "at": self.at.isoformat(),
            "text": self.text,
            "binding": self.binding,
            "partition": self.partition or None,
            "channel": self.channel,
            "execution": self.execution_id,
            "run": self.run_id,
            "details": dict(self.details),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Notification:
        return cls(
            event=value["event"],
            at=datetime.fromisoformat(value["at"]),
            text=value["text"],
            binding=value["binding"],
            partition=value["partition"] or WHOLE,
            channel=value["channel"],
            execution_id=value["execution"],
            run_id=value["run"],
            details=value["details"],
            id=value["id"],
        )


@dataclass(frozen=True, slots=True)
class NotifierSubscription:
    """Events that one notifier wants.

    Args:
        notifier: its name, unique in a catalog.
        bindings: names of the only bindings whose events it wants. Empty for all. Events of channels are not filtered.
    """

    notifier: str
    events: tuple[NotificationEvent, ...]
    bindings: tuple[str, ...] = ()

    def wants(self, notification: Notification) -> bool:
        is_selected = not self.bindings or notification.binding is None or notification.binding in self.bindings
        return is_selected and notification.event in self.events


@dataclass(frozen=True, slots=True)
class NotifierStatus:
    """A notifier as recorded in the catalog.

    Args:
        seen_at: last time at which a process was ready to deliver its notifications.
        owner: the process that delivers now.
        waiting: number of notifications to deliver.
        undeliverable: number of notifications whose delivery was given up.
        oldest: time of the oldest notification to deliver.
        dropped: number of notifications that were dropped since the notifier exists, because too many waited.
    """

    name: str
    seen_at: datetime
    owner: str | None = None
    waiting: int = 0
    undeliverable: int = 0
    oldest: datetime | None = None
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class QueuedNotification:
    """A notification in the outbox of one notifier.

    Args:
        n: order in the outbox.
        attempts: number of failed deliveries.
        retry_at: time of the next attempt; None for at once.
        error: why the last attempt failed.
        is_undeliverable: no further attempt is made.
    """

    notifier: str
    n: int
    notification: Notification
    attempts: int = 0
    retry_at: datetime | None = None
    error: str | None = None
    is_undeliverable: bool = False


def shorten_text(text: str) -> str:
    """Text with masked secrets, of limited length, that every database can store."""
    masked = mask(text.replace("\x00", "").encode("utf-8", "backslashreplace").decode("utf-8"))
    return masked if len(masked) <= MAX_TEXT_LENGTH else f"{masked[: MAX_TEXT_LENGTH - 1]}…"


def describe_binding(binding: str, partition: str) -> str:
    return f"{binding} {partition}".rstrip()


def describe_set_aside(channel: str, files: int, records: int, reason: str | None) -> str:
    """Text about arrived data that a commit has put into quarantine.

    Args:
        files: number of files that were refused as a whole.
        records: number of records.
        reason: why one of them was set aside.
    """
    counts = [pluralize(records, "record") if records else "", pluralize(files, "whole file") if files else ""]
    what = " and ".join(c for c in counts if c)
    because = f"\nfor example: {reason}" if reason else ""
    return shorten_text(f"{channel}: {what} set aside in {quarantine_channel_name(channel)}{because}")
