"""Addresses of HTTP services, as settings and arguments name them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from nova_assets.errors import SettingsError

_ADDRESS_SEPARATOR = re.compile(r"[,\s]+(?=https?://)", re.IGNORECASE)


def split_addresses(addresses: str | Sequence[str]) -> tuple[str, ...]:
    """Single addresses of a list, or of a text such as ``http://a:8765,http://b:8765``, each once."""
    texts = _ADDRESS_SEPARATOR.split(addresses) if isinstance(addresses, str) else addresses
    return tuple(dict.fromkeys(str(text).strip().rstrip(",").strip().rstrip("/") for text in texts))


def check_http_address(setting_name: str, value: Any) -> str:
    """The address, if it is one of HTTP.

    Raises:
        SettingsError.
    """
    with suppress(ValueError):  # raised for an invalid port
        parts = urlsplit(str(value))
        is_http, host = parts.scheme in ("http", "https"), parts.hostname or ""
        if is_http and host and "," not in host and parts.port != 0:
            return str(value)
    raise SettingsError(f"setting {setting_name!r} is not an address", found=repr(value), expected='"http://host:port"')
