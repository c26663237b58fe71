"""Settings of notifications: ``[tool.nova.notify]`` in pyproject.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, get_args

from nova_assets.errors import SettingsError
from nova_assets.model.notification import NOTIFICATION_EVENTS, NotificationEvent, NotifierSubscription
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.suggestions import did_you_mean

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
