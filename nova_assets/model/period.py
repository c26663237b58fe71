"""Time periods as text: ``30s``, ``5m``, ``6h``, ``7d``, ``2w``."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

EXPECTED_PERIOD = 'a number and a unit: "30s", "5m", "6h", "7d", "2w"'


def period_seconds(period: object) -> int | None:
    """Length of a period in seconds; None for an invalid or empty period."""
    return period_seconds_or_zero(period) or None


def period_seconds_or_zero(period: object) -> int | None:
    """Length of a period in seconds, where ``"0s"`` is 0; None for an invalid period."""
    match = re.fullmatch(r"(\d+)\s*([smhdw])", period) if isinstance(period, str) else None
    return int(match[1]) * _UNITS[match[2]] if match is not None else None
