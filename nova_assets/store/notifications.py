"""Notifications of a deployment: delivery, tests of notifiers, and the outbox."""

from __future__ import annotations

import time
from collections.abc import Generator

from nova_assets.errors import CatalogUnavailable, NotificationFailed, SettingsError
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.notification import Notification, QueuedNotification
from nova_assets.model.notify_settings import NotifierConfig, NotifySettings, parse_notify_settings
from nova_assets.notify.notifier import Notifier, open_notifier
from nova_assets.nova_error import NovaError
from nova_assets.settings import Settings
from nova_assets.store.lateness import notify_of_lateness
from nova_assets.store.notification_delivery import DeliveryReport, NotificationDelivery
from nova_assets.suggestions import did_you_mean

log = get_logger("nova_assets.notify")


class StoreNotifications:
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
        return self._pass(NotificationDelivery(self.runtime.catalog, self._open), time_limit)

    def follow_notifications(self, interval: float = 5.0) -> Generator[DeliveryReport, None, None]:
        """Deliver notifications until the caller stops. Yields the report of each pass in which something happened.

        Args:
            interval: seconds between two passes.
        """
        delivery = NotificationDelivery(self.runtime.catalog, self._open)
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
        return self.runtime.catalog.queued_notifications(limit)

    def retry_notifications(self) -> int:
        """Make all waiting and undeliverable notifications due at once. Returns their number."""
        return self.runtime.catalog.retry_notifications()

    def forget_notifier(self, notifier: str) -> bool:
        """Delete a notifier that was removed from the settings, with its undelivered notifications.

        Returns:
            Whether the catalog had it.
        """
        return self.runtime.catalog.forget_notifier(notifier)

    def _pass(self, delivery: NotificationDelivery, time_limit: float | None) -> DeliveryReport:
        settings = self._settings()
        self.runtime.catalog.register_notifiers([c.subscription for c in settings.notifiers])
        notify_of_lateness(self.runtime, settings)
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
