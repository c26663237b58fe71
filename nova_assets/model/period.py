"""Time periods as text: ``30s``, ``5m``, ``6h``, ``7d``, ``2w``, or in words: ``10 minutes``."""

from __future__ import annotations

import re

from nova_assets.errors import DefinitionError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

_PERIOD = re.compile(r"(\d+)\s*([smhdw]|seconds?|minutes?|hours?|days?|weeks?)")

EXPECTED_PERIOD = 'a number and a unit: "30s", "5m", "6h", "7d", "2w", or in words: "10 minutes"'


def period_seconds(period: object) -> int | None:
    """Length of a period in seconds; None for an invalid or empty period."""
    return period_seconds_or_zero(period) or None


def period_seconds_or_zero(period: object) -> int | None:
    """Length of a period in seconds, where ``"0s"`` is 0; None for an invalid period."""
    match = _PERIOD.fullmatch(period) if isinstance(period, str) else None
    return int(match[1]) * _UNITS[match[2][0]] if match is not None else None


def check_keep_period(column: str, keep: str | None) -> str | None:
    """The period for which partitions are kept, as written. Raises DefinitionError if it is no period."""
    if keep is not None and period_seconds(keep) is None:
        raise DefinitionError(
            f"keep of the partitions of {column!r} is not a period", found=repr(keep), expected=EXPECTED_PERIOD
        )
    return keep
