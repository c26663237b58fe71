"""Notifications as calls of a Python function, named by an entry point or by its import path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from nova_assets.errors import NotificationFailed
from nova_assets.model.notification import Notification
from nova_assets.notify.notifier_options import NotifierOptions
from nova_assets.user_code_errors import summarize_user_error

ENTRY_POINT_GROUP = "nova_assets.notifiers"
"""Group in which packages register functions that deliver notifications."""


class FunctionNotifier:
    """Calls a function with each notification. An exception means that it is not delivered.

    Args:
        keywords: further arguments of each call.
    """

    def __init__(self, name: str, function: Callable[..., object], keywords: Mapping[str, Any]) -> None:
        self.name = name
        self.function = function
        self.keywords = keywords

    def deliver(self, notification: Notification) -> None:
        try:
            self.function(notification, **self.keywords)
        except Exception as error:  # the function is the user's code
            raise NotificationFailed(
                f"the function of {self.name} has not delivered a notification",
                found=summarize_user_error(error).message,
                next=f"nova notify --test {self.name}",
                unavailable=False,
            ) from error


def open_function(options: NotifierOptions) -> FunctionNotifier:
    """Function with the options of a notifier. Raises SettingsError."""
    name = options.text("function")
    keywords = options.table("options")
    options.check_all_read()
    return FunctionNotifier(options.name, _load_function(options, name), keywords)


def _load_function(options: NotifierOptions, name: str) -> Callable[..., object]:
    if ":" in name:
        entry_point = EntryPoint(options.name, name, ENTRY_POINT_GROUP)
    else:
        installed = entry_points(group=ENTRY_POINT_GROUP)
        if name not in installed.names:
            raise options.error(
                f"no installed package has a notifier {name!r}",
                found=", ".join(sorted(installed.names)) or "none",
                expected=f'an entry point of the group {ENTRY_POINT_GROUP}, or "package.module:function"',
            )
        entry_point = installed[name]
    if str(options.root) not in sys.path:  # the project's own modules, as for the project
        sys.path.insert(0, str(options.root))
    try:
        function = entry_point.load()
    except Exception as error:  # the module is the user's code
        raise options.error(
            f"function {name!r} cannot be imported", summarize_user_error(error).message, "package.module:function"
        ) from error
    if not callable(function):
        raise options.error(f"{name!r} is no function", type(function).__name__)
    result: Callable[..., object] = function
    return result
