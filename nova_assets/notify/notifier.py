"""Notifiers: their protocol, and how the notifier of a configuration is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from nova_assets.model.notification import Notification, NotifierConfig
from nova_assets.notify.notifier_options import NotifierOptions


class Notifier(Protocol):
    """Delivers notifications to one receiver."""

    def deliver(self, notification: Notification) -> None:
        """Deliver one notification. It may have been delivered before.

        Raises:
            NotificationFailed: the receiver does not have it.
        """


def open_notifier(config: NotifierConfig, root: Path) -> Notifier:
    """Notifier with all its options and secrets. The modules of other kinds are not imported.

    Args:
        root: folder of the project.

    Raises:
        SettingsError: an option or a secret is missing or invalid, or a package is not installed.
    """
    options = NotifierOptions(config.name, config.options, root)
    if config.kind in ("webhook", "apprise"):
        try:
            if config.kind == "webhook":
                from nova_assets.notify.webhook import open_webhook

                return open_webhook(options)
            from nova_assets.notify.apprise_services import open_apprise
        except ModuleNotFoundError as error:
            missing = f"a notifier of kind {config.kind} needs a package that is not installed: {error.name}"
            raise options.error(missing, next="pip install 'nova-assets[notify]'") from error
        return open_apprise(options)
    if config.kind == "command":
        from nova_assets.notify.command import open_command

        return open_command(options)
    from nova_assets.notify.python_function import open_function

    return open_function(options)
