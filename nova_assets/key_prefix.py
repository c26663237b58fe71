"""Prefix of a project's asset keys, from an argument, a setting or YAML."""

from __future__ import annotations

import re
from typing import Any

from nova_assets.errors import SettingsError

_PART = re.compile(r"[A-Za-z0-9_-]+\Z")


def parse_key_prefix(value: Any) -> tuple[str, ...]:
    """Parts of a key prefix. A text is one or more parts, separated by ``/``. None and an empty value mean no prefix.

    Raises:
        SettingsError: a part cannot be a part of Dagster's names.
    """
    parts = tuple(value.split("/")) if isinstance(value, str) and value else tuple(value or ())
    if all(isinstance(part, str) and _PART.match(part) for part in parts):
        return parts
    raise SettingsError(
        "setting 'key_prefix' is no prefix of asset keys",
        found=repr(value),
        expected='"eu", "eu/shop" or ["eu", "shop"], of letters, digits, _ and -',
    )
