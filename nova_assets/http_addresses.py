"""Addresses of HTTP services, pools of addresses of equal services, and the certificates that are trusted there."""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nova_assets.errors import SettingsError

if TYPE_CHECKING:
    import ssl

PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds for which a failed address is avoided: at first, and at most. The pause doubles with each failure."""

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


@dataclass
class _AddressHealth:
    """Health of one address.

    Args:
        pause_seconds: length of the next pause.
        paused_at: time of the failure that began the last pause.
        paused_until: time from which the address is used again.
    """

    pause_seconds: float = field(default_factory=lambda: PAUSE)
    paused_at: float = float("-inf")
    paused_until: float = float("-inf")


class AddressPool:
    """Addresses in rotation, from a random one on. Threads may share a pool.

    Args:
        addresses: at least one address.
        clock: returns monotonic seconds.
    """

    def __init__(self, addresses: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.addresses = tuple(addresses)
        self._clock = clock
        self._turns = itertools.count(random.randrange(len(self.addresses)))
        self._health = {address: _AddressHealth() for address in self.addresses}
        self._lock = threading.Lock()

    def available(self) -> list[str]:
        """Addresses that are not avoided, in the order in which the next call should try them."""
        return self._in_turn()[0]

    def candidates(self) -> list[str]:
        """All addresses in the order in which the next call should try them. Avoided addresses come last."""
        available, paused = self._in_turn()
        return available + sorted(paused, key=lambda address: self._health[address].paused_until)

    def _in_turn(self) -> tuple[list[str], list[str]]:
        turn, now = next(self._turns) % len(self.addresses), self._clock()
        rotated = self.addresses[turn:] + self.addresses[:turn]
        paused = [a for a in rotated if self._health[a].paused_until > now]
        return [a for a in rotated if a not in paused], paused

    def record_failure(self, address: str, started_at: float) -> bool:
        """Avoid an address for a while. Of several simultaneous failures, one counts.

        Args:
            started_at: time at which the failed call began.

        Returns:
            Whether this is the first failure since the address last answered.
        """
        with self._lock:
            health = self._health[address]
            if started_at < health.paused_at:
                return False
            is_first = health.pause_seconds == PAUSE
            health.paused_at = self._clock()
            health.paused_until = health.paused_at + health.pause_seconds * random.uniform(0.8, 1.2)
            health.pause_seconds = min(health.pause_seconds * 2, LONGEST_PAUSE)
            return is_first

    def record_success(self, address: str) -> bool:
        """Use an address without restriction again.

        Returns:
            Whether the address had failed.
        """
        with self._lock:
            has_failed = self._health[address].pause_seconds > PAUSE
            if has_failed:
                self._health[address] = _AddressHealth()
            return has_failed


def trusted_ssl_context() -> ssl.SSLContext:
    """SSL context with the certificate authorities of this machine and of certifi.

    It also trusts the certificates in the file ``SSL_CERT_FILE`` or the folder ``SSL_CERT_DIR``.
    """
    import ssl

    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
