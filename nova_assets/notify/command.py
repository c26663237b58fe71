"""Notifications as calls of a command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from nova_assets.errors import NotificationFailed
from nova_assets.masking import mask
from nova_assets.model.notification import Notification
from nova_assets.notify.notifier_options import NotifierOptions

_MAX_ERROR_BYTES = 500


class CommandNotifier:
    """Calls a command for each notification, without a shell.

    The command gets the notification as JSON on standard input, and its main parts as ``NOVA_NOTIFY_…`` variables. Exit
    code 0 means that it is delivered.

    Args:
        arguments: the command and its arguments.
        folder: folder in which it is called.
        timeout: seconds after which the command is killed, with all processes that it has started.
    """

    def __init__(self, name: str, arguments: tuple[str, ...], folder: Path, timeout: float) -> None:
        self.name = name
        self.arguments = arguments
        self.folder = folder
        self.timeout = timeout

    def deliver(self, notification: Notification) -> None:
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as body:
            body.write(json.dumps(notification.as_json()).encode())
            body.seek(0)
            try:
                process = subprocess.Popen(
                    self.arguments,
                    stdin=body,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    cwd=self.folder,
                    env={**os.environ, **_variables(notification)},
                    start_new_session=True,
                )
            except OSError as error:
                raise self._failure(f"{type(error).__name__}: {error}", unavailable=True) from error
            try:
                exit_code = process.wait(self.timeout)
            except BaseException as error:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise self._failure(f"no end within {self.timeout:g} s", unavailable=False) from error
            if exit_code != 0:
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - _MAX_ERROR_BYTES))
                said = " ".join(errors.read().decode("utf-8", "replace").split())
                raise self._failure(mask(f"exit code {exit_code}: {said}".rstrip(": ")), unavailable=False)

    def _failure(self, found: str, *, unavailable: bool) -> NotificationFailed:
        return NotificationFailed(
            f"the command of {self.name} has not delivered a notification",
            found=found,
            next=f"nova notify --test {self.name}",
            unavailable=unavailable,
        )


def open_command(options: NotifierOptions) -> CommandNotifier:
    """Command with the options of a notifier. Raises SettingsError."""
    notifier = CommandNotifier(options.name, options.texts("command"), options.root, options.timeout())
    options.check_all_read()
    return notifier


def _variables(notification: Notification) -> dict[str, str]:
    parts = {
        "ID": notification.id,
        "EVENT": notification.event,
        "TEXT": notification.text,
        "BINDING": notification.binding or "",
        "PARTITION": notification.partition,
        "CHANNEL": notification.channel or "",
    }
    return {f"NOVA_NOTIFY_{name}": value for name, value in parts.items()}
