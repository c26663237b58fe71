"""How long a run may be silent before it is suspected, and then reported as lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nova_assets.model.execution import Execution

SILENCE_LIMIT = timedelta(minutes=15)
"""Time without events after which a run without a live lease is suspected.

Such a run may wait for a machine or clean up at its end."""


@dataclass(frozen=True, slots=True)
class SilenceTimeouts:
    """Timeouts after which a silent run is suspected and then reported as lost.

    Args:
        silence: time since the run's last event after which the run is suspected.
        confirmation: additional time without a change after which the suspicion is reported.
    """

    silence: timedelta
    confirmation: timedelta


def timeouts_before_start(start_timeout_seconds: float, attempt: int, check_interval_seconds: float) -> SilenceTimeouts:
    """Timeouts of a run that has not begun. Such a run is reported ``start_timeout_seconds`` after its last event.

    The timeout doubles with each attempt of a firing, up to ``SILENCE_LIMIT``. A later attempt therefore succeeds even
    if every process takes long to start.

    Args:
        start_timeout_seconds: timeout of the first attempt in seconds.
        attempt: attempt number of the run's firing, from 1.
        check_interval_seconds: seconds between two checks for lost runs.
    """
    timeout = min(timedelta(seconds=start_timeout_seconds * 2 ** min(attempt - 1, 20)), SILENCE_LIMIT)
    return SilenceTimeouts(timeout / 2, max(timeout / 2 - timedelta(seconds=2 * check_interval_seconds), timeout / 4))


def timeouts_without_live_lease(
    executions: Sequence[Execution], lease_seconds: float, grace_seconds: float, now: datetime
) -> SilenceTimeouts | None:
    """Timeouts of a run that has begun; None while any of its executions has a live lease.

    Args:
        executions: all executions of the run. One run may execute several bindings in parallel.
        lease_seconds: duration of a lease in seconds.
        grace_seconds: additional seconds after which an expired lease counts as lapsed.
        now: time by the catalog's clock.
    """
    if any(e.has_valid_lease(now) for e in executions):
        return None
    lapse_period = timedelta(seconds=lease_seconds + grace_seconds)
    lapsed = any(e.state in ("running", "aborted") and e.lease_until + lapse_period < now for e in executions)
    return SilenceTimeouts(
        lapse_period if lapsed else max(SILENCE_LIMIT, lapse_period), timedelta(seconds=lease_seconds)
    )
