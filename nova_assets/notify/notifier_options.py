"""Options of one notifier, checked as they are read. Secrets come from the environment or from a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nova_assets.errors import SettingsError
from nova_assets.masking import remember_whole_secret
from nova_assets.suggestions import did_you_mean

DELIVERY_TIMEOUT = 10.0
"""Seconds to wait for a receiver, where the configuration names no other ``timeout``."""


class NotifierOptions:
    """Reads the options of a notifier. ``check_all_read`` then rejects those that nobody has read.

    Args:
        name: name of the notifier.
        root: folder to which files of secrets are relative.
    """

    def __init__(self, name: str, values: Mapping[str, Any], root: Path) -> None:
        self.name = name
        self.root = root
        self._values = values
        self._read_names: list[str] = []

    def error(self, what: str, found: object = None, expected: object = None, next: str | None = None) -> SettingsError:
        return SettingsError(f"[tool.nova.notify.to.{self.name}]: {what}", found=found, expected=expected, next=next)

    def has(self, option: str) -> bool:
        return option in self._values

    def text(self, option: str, default: str | None = None) -> str:
        """Raises SettingsError unless it is a text on one line."""
        value = self._get(option, default)
        if isinstance(value, str) and value and value.isprintable():
            return value
        raise self.error(f"{option} is " + ("missing" if value is None else "no text"), expected=f'{option} = "…"')

    def texts(self, option: str) -> tuple[str, ...]:
        """One text, or a list of texts."""
        value = self._get(option)
        values = [value] if isinstance(value, str) else value
        if isinstance(values, list) and values and all(isinstance(v, str) and v for v in values):
            return tuple(values)
        raise self.error(f"{option} is " + ("missing" if value is None else "no list of texts"), expected='["…"]')

    def number(self, option: str, default: float) -> float:
        value = self._get(option, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return value
        raise self.error(f"{option} is no positive number", repr(value))

    def timeout(self) -> float:
        """Seconds to wait for the receiver."""
        return self.number("timeout", DELIVERY_TIMEOUT)

    def table(self, option: str) -> Mapping[str, Any]:
        value = self._get(option, {})
        if isinstance(value, Mapping):
            return value
        raise self.error(f"{option} is no table", expected="{ name = value }")

    def has_secret(self, option: str) -> bool:
        return any(self.has(f"{option}{suffix}") for suffix in ("", "_env", "_file"))

    def secret(self, option: str) -> str:
        """Secret from the variable that ``<option>_env`` names, or from the file that ``<option>_file`` names.

        Raises:
            SettingsError: it is missing, or it stands in the configuration itself.
        """
        expected = f'{option}_env = "VARIABLE" or {option}_file = "/run/secrets/NAME"'
        if self.has(option):
            raise self.error(f"{option} is a secret, and does not belong into pyproject.toml", expected=expected)
        if self.has(f"{option}_env"):
            variable = self.text(f"{option}_env")
            secret, source = os.environ.get(variable, "").strip(), f"the environment variable {variable}"
        elif self.has(f"{option}_file"):
            file = self.root / self.text(f"{option}_file")
            source = f"the file {file}"
            try:
                secret = file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise self.error(f"{source} cannot be read", type(error).__name__) from error
        else:
            raise self.error(f"{option} is missing", expected=expected)
        if not secret:
            raise self.error(f"{source} is empty, and it should hold the {option}")
        remember_whole_secret(secret)  # a file may have changed since the settings were loaded
        return secret

    def check_all_read(self) -> None:
        """Raises SettingsError for an option that does not exist."""
        unknown = sorted(set(self._values) - set(self._read_names))
        if unknown:
            valid = sorted({*self._read_names, "kind", "events", "bindings"})
            raise self.error(f"unknown option{did_you_mean(unknown[0], valid)}", ", ".join(unknown), ", ".join(valid))

    def _get(self, option: str, default: Any = None) -> Any:
        self._read_names.append(option)
        return self._values.get(option, default)
