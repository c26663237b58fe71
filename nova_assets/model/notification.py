"""Notifications: events of a deployment that people or other programs are told about."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from nova_assets.errors import SettingsError
from nova_assets.masking import mask
from nova_assets.model.partitions import WHOLE
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.model.quarantine import quarantine_channel_name
from nova_assets.model.text_format import pluralize
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean

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


NotifierKind = Literal["webhook", "apprise", "command", "python"]

DEFAULT_EVENTS: tuple[NotificationEvent, ...] = tuple(
    e for e in NOTIFICATION_EVENTS if e not in ("launched", "finished")
)
"""Events of a notifier without ``events``: everything that deserves attention."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class LatenessBound:
    """Bound beyond which a binding is late.

    Args:
        lag: greatest number of unread sequence numbers of a channel; None for any number.
        freshness: greatest age of unread data; None for any age.
    """

    lag: int | None = None
    freshness: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NotifierConfig:
    """Configuration of one notifier.

    Args:
        options: options of its kind, not yet checked.
    """

    kind: NotifierKind
    subscription: NotifierSubscription
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.subscription.notifier


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Notifiers, and the bounds beyond which bindings are late.

    Args:
        late: bound of each binding without its own.
        late_by_binding: binding -> its own bound.
    """

    notifiers: tuple[NotifierConfig, ...] = ()
    late: LatenessBound = LatenessBound()
    late_by_binding: Mapping[str, LatenessBound] = field(default_factory=dict)

    def bound_of(self, binding: str) -> LatenessBound:
        return self.late_by_binding.get(binding, self.late)


def parse_notify_settings(table: Mapping[str, Any]) -> NotifySettings:
    """Settings from the table ``[tool.nova.notify]``. An empty table has no notifier.

    Raises:
        SettingsError: the table is invalid. The options of notifiers are checked when the notifiers are opened.
    """
    values = _check_table("notify", table, ("to", "late"))
    late = _check_table("notify.late", values.get("late", {}), ("lag", "freshness", "bindings"))
    by_binding = _check_table("notify.late.bindings", late.get("bindings", {}))
    notifiers = _check_table("notify.to", values.get("to", {}))
    return NotifySettings(
        tuple(_parse_notifier(name, notifiers[name]) for name in notifiers),
        _parse_bound("notify.late", late),
        {b: _parse_bound(f"notify.late.bindings.{b}", by_binding[b]) for b in by_binding},
    )


def _parse_notifier(name: str, table: object) -> NotifierConfig:
    place = f"notify.to.{name}"
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"[tool.nova.{place}]: a notifier has an unusable name", expected="letters, digits and _ . -, at most 128"
        )
    values = _check_table(place, table)
    kinds: tuple[NotifierKind, ...] = get_args(NotifierKind)
    kind = values.get("kind")
    if kind == "smtp":
        raise SettingsError(
            f"[tool.nova.{place}]: kind 'smtp' is now 'apprise', with an address in place of the other options",
            found='kind = "smtp"',
            expected='kind = "apprise" and url_env = "VARIABLE", such as mailtos://HOST?from=SENDER&to=RECIPIENT',
        )
    if kind not in kinds:
        raise SettingsError(
            f"[tool.nova.{place}] has no valid kind{did_you_mean(str(kind), kinds)}",
            found=repr(kind),
            expected=", ".join(kinds),
        )
    events = _parse_names(place, "events", values.get("events", DEFAULT_EVENTS))
    unknown = [e for e in events if e not in NOTIFICATION_EVENTS]
    if unknown:
        raise SettingsError(
            f"[tool.nova.{place}] names an unknown event{did_you_mean(unknown[0], NOTIFICATION_EVENTS)}",
            found=unknown[0],
            expected=", ".join(NOTIFICATION_EVENTS),
        )
    subscription = NotifierSubscription(
        name,
        tuple(e for e in NOTIFICATION_EVENTS if e in events),
        _parse_names(place, "bindings", values.get("bindings", ())),
    )
    options = {n: v for n, v in values.items() if n not in ("kind", "events", "bindings")}
    return NotifierConfig(kind, subscription, options)


def _parse_bound(place: str, table: object) -> LatenessBound:
    values = _check_table(place, table, ("lag", "freshness", "bindings"))
    lag, freshness = values.get("lag"), values.get("freshness")
    if lag is not None and (not isinstance(lag, int) or isinstance(lag, bool) or lag < 1):
        raise SettingsError(f"[tool.nova.{place}]: lag is invalid", found=repr(lag), expected="a number such as 100")
    seconds = period_seconds(freshness)
    if freshness is not None and seconds is None:
        raise SettingsError(
            f"[tool.nova.{place}]: freshness is no period", found=repr(freshness), expected=EXPECTED_PERIOD
        )
    return LatenessBound(lag, None if seconds is None else timedelta(seconds=seconds))


def _check_table(place: str, table: object, allowed: Iterable[str] | None = None) -> Mapping[str, Any]:
    """The table, if it is one and has only allowed keys; None allows all keys."""
    if not isinstance(table, Mapping):
        raise SettingsError(
            f"[tool.nova.{place}] is no table", found="another value, not shown", expected="a table of settings"
        )
    names = None if allowed is None else tuple(allowed)
    unknown = [] if names is None else [n for n in table if n not in names]
    if names is not None and unknown:
        raise SettingsError(
            f"[tool.nova.{place}] has unknown settings{did_you_mean(unknown[0], names)}",
            found=", ".join(unknown),
            expected=", ".join(names),
        )
    return table


def _parse_names(place: str, setting: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return tuple(value)
    raise SettingsError(
        f"[tool.nova.{place}]: {setting} is no list of names", found=repr(value), expected='["failed", "late"]'
    )
