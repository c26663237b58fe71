"""Delivery of notifications: one pass over the outboxes of this deployment's notifiers.

    due (plan) ─► deliver (notifier) ─► delete from the outbox (catalog)

A process that dies between the last two delivers again: at least once. A process holds a lease on a notifier while it
delivers, so that two processes do not mix the order.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from nova_assets.catalog.catalog import Catalog
from nova_assets.crash_points import crash_point
from nova_assets.errors import NotificationFailed
from nova_assets.execution.lease import is_owner_dead, this_process
from nova_assets.masking import get_logger
from nova_assets.model.notification import QueuedNotification, shorten_text
from nova_assets.model.notify_settings import NotifierConfig
from nova_assets.notify.notifier import Notifier
from nova_assets.nova_error import NovaError
from nova_assets.plan.notifications import MAX_QUEUED, due_notifications, next_attempt_at
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


class NotificationDelivery:
    """Delivers the waiting notifications of some notifiers.

    Args:
        open_notifier: opens a notifier; raises SettingsError.
        random_number: returns a random number from 0 to 1.
    """

    def __init__(
        self,
        catalog: Catalog,
        open_notifier: Callable[[NotifierConfig], Notifier],
        random_number: Callable[[], float] = random.random,
    ) -> None:
        self.catalog = catalog
        self.open_notifier = open_notifier
        self.random_number = random_number
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
            queued.attempts + 1, self.catalog.now(), self.random_number(), failure.fields.get("retry_after")
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
