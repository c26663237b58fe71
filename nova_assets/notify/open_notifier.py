"""Opens the notifier of a configuration. The modules of other kinds are not imported."""

from __future__ import annotations

from pathlib import Path

from nova_assets.model.notify_settings import NotifierConfig
from nova_assets.notify.notifier import Notifier
from nova_assets.notify.notifier_options import NotifierOptions


def open_notifier(config: NotifierConfig, root: Path) -> Notifier:
    """Notifier with all its options and secrets.

    Args:
        root: folder of the project.

    Raises:
        SettingsError: an option or a secret is missing or invalid, or a package is not installed.
    """
    options = NotifierOptions(config.name, config.options, root)
    if config.kind == "webhook":
        try:
            from nova_assets.notify.webhook import open_webhook
        except ModuleNotFoundError as error:
            missing = f"a webhook needs a package that is not installed: {error.name}"
            raise options.error(missing, next="pip install 'nova-assets[notify]'") from error
        return open_webhook(options)
    if config.kind == "smtp":
        from nova_assets.notify.smtp import open_smtp

        return open_smtp(options)
    if config.kind == "command":
        from nova_assets.notify.command import open_command

        return open_command(options)
    from nova_assets.notify.python_function import open_function

    return open_function(options)
