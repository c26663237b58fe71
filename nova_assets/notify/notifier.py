"""Protocol of notifiers, and the failure of a delivery."""

from __future__ import annotations

from typing import Protocol

from nova_assets.model.notification import Notification

DELIVERY_TIMEOUT = 10.0
"""Seconds to wait for a receiver, where the configuration names no other ``timeout``."""


class Notifier(Protocol):
    """Delivers notifications to one receiver."""

    def deliver(self, notification: Notification) -> None:
        """Deliver one notification. It may have been delivered before.

        Raises:
            NotificationFailed: the receiver does not have it.
        """
