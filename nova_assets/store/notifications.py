"""Notifications: delivery, tests of notifiers, the outbox, and late bindings.

    due (plan) ─► deliver (notifier) ─► delete from the outbox (catalog)

A process that dies between the last two delivers again: at least once. A process holds a lease on a notifier while it
delivers, so that two processes do not mix the order.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from nova_assets.catalog.catalog import Catalog
from nova_assets.crash_points import crash_point
from nova_assets.errors import CatalogUnavailable, NotificationFailed, SettingsError
from nova_assets.execution.lease import is_owner_dead, this_process
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.channel_state import Cursor
from nova_assets.model.notification import (
    LatenessBound,
    Notification,
    NotifierConfig,
    NotifySettings,
    QueuedNotification,
    parse_notify_settings,
    shorten_text,
)
from nova_assets.notify.notifier import Notifier, open_notifier
from nova_assets.nova_error import NovaError
from nova_assets.plan.notifications import (
    MAX_QUEUED,
    UnreadInput,
    changed_lateness,
    due_notifications,
    next_attempt_at,
    reason_of_lateness,
)
from nova_assets.plan.timeline_chart import cursors_of_unrun_bindings
from nova_assets.settings import Settings
from nova_assets.suggestions import did_you_mean
from nova_assets.user_code_errors import summarize_user_error

log = get_logger("nova_assets.notify")

LEASE_SECONDS = 140.0
"""Time for which other processes leave a notifier alone after its claim. A delivery of more than two minutes may be
overtaken by the next."""

_CLAIM_RENEWAL_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """Result of one pass.

    Args:
        delivered: number of delivered notifications.
        failed: number of failed deliveries, which are tried again later.
        given_up: number of notifications that have become undeliverable.
        errors: notifier -> its last error.
        busy: notifiers that another process serves.
        dropped: number of the oldest notifications that were dropped, because more than ``MAX_QUEUED`` waited.
    """

    delivered: int = 0
    failed: int = 0
    given_up: int = 0
    errors: tuple[tuple[str, str], ...] = ()
    busy: tuple[str, ...] = ()
    dropped: int = 0

    def __add__(self, other: DeliveryReport) -> DeliveryReport:
        return DeliveryReport(
            self.delivered + other.delivered,
            self.failed + other.failed,
            self.given_up + other.given_up,
            tuple({**dict(self.errors), **dict(other.errors)}.items()),
            tuple(dict.fromkeys((*self.busy, *other.busy))),
            self.dropped + other.dropped,
        )


class DeploymentNotifications:
    """Store methods that deliver notifications."""

    def __init__(self, runtime: Runtime, settings: Settings) -> None:
        self.runtime = runtime
        self.settings = settings

    def notify(self, *, time_limit: float | None = None) -> DeliveryReport:
        """Deliver the notifications that are due to the notifiers of ``[tool.nova.notify]``.

        The first call registers the notifiers: they get the events from then on. Bindings beyond a bound of
        ``[tool.nova.notify.late]`` are notified, too.

        Args:
            time_limit: seconds after which no further delivery begins.

        Raises:
            SettingsError: the table is invalid. A notifier with an invalid option, or without its secret, is an error
                of the report instead. Its notifications wait.
        """
        return self._pass(_Deliverer(self.runtime.catalog, self._open), time_limit)

    def follow_notifications(self, interval: float = 5.0) -> Generator[DeliveryReport, None, None]:
        """Deliver notifications until the caller stops. Yields the report of each pass in which something happened.

        Args:
            interval: seconds between two passes.
        """
        delivery = _Deliverer(self.runtime.catalog, self._open)
        while True:
            try:
                report = self._pass(delivery, None)
                if report.delivered or report.failed or report.given_up or report.dropped:
                    yield report
            except CatalogUnavailable as error:
                log.error("%s", error)
            time.sleep(interval)

    def test_notifiers(self, notifier: str | None = None) -> dict[str, str | None]:
        """Send a test notification to each notifier. Nothing is recorded, and nothing is tried again.

        Args:
            notifier: only to this one.

        Returns:
            Notifier -> why it failed; None for success.

        Raises:
            SettingsError: the settings are invalid, or have no such notifier.
        """
        text = "this is a test: notifications of nova_assets arrive here"
        results: dict[str, str | None] = {}
        for config in self._selected(notifier):
            try:
                self._open(config).deliver(Notification("test", self.runtime.catalog.now(), text))
                results[config.name] = None
            except NotificationFailed as failure:
                results[config.name] = f"{failure.what}: {failure.found}"
            except NovaError as error:
                results[config.name] = error.what + (f": {error.found}" if error.found is not None else "")
        return results

    def notifications(self, limit: int = 100) -> list[QueuedNotification]:
        """Notifications that are not delivered, oldest first, including the undeliverable ones."""
        return self.runtime.catalog.notifications.queued(limit)

    def retry_notifications(self) -> int:
        """Make all waiting and undeliverable notifications due at once. Returns their number."""
        return self.runtime.catalog.notifications.retry()

    def forget_notifier(self, notifier: str) -> bool:
        """Delete a notifier that was removed from the settings, with its undelivered notifications.

        Returns:
            Whether the catalog had it.
        """
        return self.runtime.catalog.notifications.forget_notifier(notifier)

    def _pass(self, delivery: _Deliverer, time_limit: float | None) -> DeliveryReport:
        settings = self._settings()
        self.runtime.catalog.notifications.register_notifiers([c.subscription for c in settings.notifiers])
        _notify_of_lateness(self.runtime, settings)
        return delivery.deliver(settings.notifiers, time_limit)

    def _selected(self, notifier: str | None) -> list[NotifierConfig]:
        configs = self._settings().notifiers
        names = [c.name for c in configs]
        if not configs or notifier not in (None, *names):
            raise SettingsError(
                "no notifier is configured"
                if notifier is None or not configs
                else f"no notifier is called {notifier!r}{did_you_mean(notifier, names)}",
                found=", ".join(names) or None,
                expected="[tool.nova.notify.to.NAME] in pyproject.toml",
            )
        return [c for c in configs if notifier in (None, c.name)]

    def _settings(self) -> NotifySettings:
        return parse_notify_settings(self.settings.notify)

    def _open(self, config: NotifierConfig) -> Notifier:
        return open_notifier(config, self.settings.root)


class _Deliverer:
    """Delivers the waiting notifications of some notifiers.

    Args:
        open_notifier: opens a notifier; raises SettingsError.
    """

    def __init__(self, catalog: Catalog, open_notifier: Callable[[NotifierConfig], Notifier]) -> None:
        self.catalog = catalog
        self.open_notifier = open_notifier
        self._owner = f"{uuid.uuid4().hex[:8]}@{this_process()}"

    def deliver(self, configs: tuple[NotifierConfig, ...], time_limit: float | None = None) -> DeliveryReport:
        """Deliver everything that is due. A failing notifier does not stop the others.

        Args:
            time_limit: seconds after which no further delivery begins.
        """
        deadline = None if time_limit is None else time.monotonic() + time_limit
        report = DeliveryReport()
        for config in configs:
            for step in (partial(self._deliver_to, config, deadline), partial(self._drop_excess, config)):
                try:
                    report += step()
                except NovaError as error:
                    log.error("%s: %s", config.name, error)
                    report += DeliveryReport(errors=((config.name, str(error)),))
        return report

    def _drop_excess(self, config: NotifierConfig) -> DeliveryReport:
        """Drop the oldest notifications of a notifier that were not delivered, if too many wait."""
        dropped = self.catalog.notifications.drop_oldest(config.name, MAX_QUEUED)
        if dropped:
            log.warning(
                "%s: dropped the oldest %d notifications, since only %d are kept", config.name, dropped, MAX_QUEUED
            )
        return DeliveryReport(dropped=dropped)

    def _deliver_to(self, config: NotifierConfig, deadline: float | None) -> DeliveryReport:
        """Deliver what is due to one notifier, until it does not answer.

        Raises:
            SettingsError: the notifier cannot be opened. Its notifications keep waiting.
        """
        report = DeliveryReport()
        if not self._due(config):
            return report
        notifier = self.open_notifier(config)
        with self._lease(config) as is_held:
            if not is_held:
                return DeliveryReport(busy=(config.name,))
            claimed_at = time.monotonic()
            while due := self._due(config):
                for queued in due:
                    if deadline is not None and time.monotonic() >= deadline:
                        return report
                    if time.monotonic() - claimed_at > _CLAIM_RENEWAL_SECONDS:
                        claimed_at = time.monotonic()
                        if not self._claim(config):
                            return report
                    delivery = self._deliver_one(config, notifier, queued)
                    report += delivery.report
                    if delivery.is_unavailable:
                        return report
        return report

    def _due(self, config: NotifierConfig) -> list[QueuedNotification]:
        return due_notifications(self.catalog.notifications.first_waiting(config.name), self.catalog.now())

    def _deliver_one(self, config: NotifierConfig, notifier: Notifier, queued: QueuedNotification) -> _Delivery:
        try:
            notifier.deliver(queued.notification)
        except NotificationFailed as failure:
            return self._record_failure(config, queued, failure)
        except Exception as error:  # one notification must not stop all others
            found = summarize_user_error(error).message
            unexpected = NotificationFailed(f"{config.name} has not delivered a notification", found=found)
            return self._record_failure(config, queued, unexpected)
        crash_point("notify.delivered")
        self.catalog.notifications.mark_delivered(queued)
        return _Delivery(DeliveryReport(delivered=1))

    def _record_failure(
        self, config: NotifierConfig, queued: QueuedNotification, failure: NotificationFailed
    ) -> _Delivery:
        retry_at = next_attempt_at(
            queued.attempts + 1, self.catalog.now(), random.random(), failure.fields.get("retry_after")
        )
        error = shorten_text(f"{failure.what}: {failure.found}")
        self.catalog.notifications.record_failed_delivery(queued, error, retry_at)
        log.warning("%s: %s", queued.notification.title, error)
        counts = DeliveryReport(
            failed=int(retry_at is not None), given_up=int(retry_at is None), errors=((config.name, error),)
        )
        return _Delivery(counts, bool(failure.fields.get("unavailable")))

    def _claim(self, config: NotifierConfig, dead_owners: Collection[str] = ()) -> bool:
        return self.catalog.notifications.claim_notifier(config.name, self._owner, LEASE_SECONDS, dead_owners)

    @contextmanager
    def _lease(self, config: NotifierConfig) -> Iterator[bool]:
        """Lease on a notifier while the body runs. Yields False if another process holds it."""
        owners = {
            s.owner for s in self.catalog.notifications.notifiers() if s.name == config.name and s.owner is not None
        }
        is_held = self._claim(config, [owner for owner in owners if is_owner_dead(owner)])
        try:
            yield is_held
        finally:
            if is_held:
                with suppress(NovaError):  # it expires
                    self.catalog.notifications.release_notifier(config.name, self._owner)


@dataclass(frozen=True, slots=True)
class _Delivery:
    """Result of one attempt.

    Args:
        is_unavailable: the receiver does not answer, so that further attempts would fail, too.
    """

    report: DeliveryReport
    is_unavailable: bool = False


def _notify_of_lateness(runtime: Runtime, settings: NotifySettings) -> None:
    """Notify of the bindings that have become late.

    Examines the bindings of the project. Without a project, it examines all that have a cursor.
    """
    if settings.late == LatenessBound() and not settings.late_by_binding:
        return
    catalog, now = runtime.catalog, runtime.catalog.now()
    reasons = {
        binding: _reason_of_lateness(runtime, cursors, settings.bound_of(binding), now)
        for binding, cursors in _cursors_by_binding(runtime).items()
    }
    became_late, caught_up = changed_lateness(reasons, catalog.notifications.open_problems("late"))
    for binding, reason in became_late.items():
        text = shorten_text(f"{binding} is late: {reason}")
        catalog.notifications.start_problem("late", binding, Notification("late", now, text, binding))
    for binding in caught_up:
        catalog.notifications.end_problem("late", binding)


def _cursors_by_binding(runtime: Runtime) -> dict[str, list[Cursor]]:
    """Cursors of each binding, at 0 for those that have not run."""
    catalog, bindings = runtime.catalog, runtime.project.bindings
    stored = catalog.cursors.find()
    by_binding: dict[str, list[Cursor]] = {b.name: [] for b in bindings}
    for cursor in (*stored, *cursors_of_unrun_bindings(bindings, stored, catalog.scheduler.heads())):
        if cursor.binding in by_binding or not bindings:
            by_binding.setdefault(cursor.binding, []).append(cursor)
    return by_binding


def _reason_of_lateness(runtime: Runtime, cursors: Iterable[Cursor], bound: LatenessBound, now: datetime) -> str | None:
    inputs = []
    for cursor in cursors:
        oldest = None
        if bound.freshness is not None and cursor.lag > 0:
            with suppress(NovaError):  # the channel may have been removed meanwhile
                oldest = runtime.catalog.histories.unread_data(
                    cursor.channel, cursor.seq, cursor.channel_partition
                ).oldest
        inputs.append(UnreadInput(cursor, oldest))
    return reason_of_lateness(inputs, bound, now)
