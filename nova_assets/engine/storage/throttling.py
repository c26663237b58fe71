"""Patience with an object store that throttles requests: S3 answers ``503 Slow Down`` to too many requests of one
prefix.

A throttled request is repeated after a random delay whose limit doubles from one attempt to the next (*full jitter*).
So many processes do not repeat their requests at the same moment. The budget limits the total delay of one request.
Other failures that may be temporary, such as a lost connection, are repeated a few times. All requests that this module
repeats are idempotent: an object is written as a whole, under a name that no other writer uses.
"""

from __future__ import annotations

import errno
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from nova_assets.masking import get_logger
from nova_assets.settings import THROTTLE_BUDGET

T = TypeVar("T")

log = get_logger("nova_assets.storage")

FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 20.0
MAX_TRANSIENT_ATTEMPTS = 4

HIDDEN_STATUS_TEXT = "Failed to flush response stream"
"""Text of Arrow's error if the body of an error answer is longer than the few bytes that were requested of a small
object. The status may be 503 (throttled) or 403 (denied). ``patient_s3`` asks for the status."""

_THROTTLED = re.compile(
    r"AWS Error (SLOW_DOWN|THROTTLING|REQUEST_THROTTLED|SERVICE_UNAVAILABLE)|SlowDown|HTTP status (503|429)"
    rf"|{HIDDEN_STATUS_TEXT}",
    re.IGNORECASE,
)

_TRANSIENT = re.compile(
    r"AWS Error (NETWORK_CONNECTION|REQUEST_TIMEOUT|INTERNAL_FAILURE)|curlCode|HTTP status 50[0-9]", re.IGNORECASE
)


@dataclass
class ThrottleCounts:
    """Throttled requests of this process, and the time for which they waited.

    Args:
        requests: answers that asked to slow down.
        seconds: total delay of all threads.
    """

    requests: int = 0
    seconds: float = 0.0


class Throttle:
    """Repeats requests of this process.

    Args:
        budget_seconds: limit of the total delay of one request.
        sleep, draw: replaced by tests.
    """

    def __init__(
        self,
        budget_seconds: float,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.budget_seconds = budget_seconds
        self._sleep = sleep
        self._draw = draw
        self._lock = threading.Lock()
        self._counts = ThrottleCounts()

    def counts(self) -> ThrottleCounts:
        """The counts since the start of the process."""
        with self._lock:
            return ThrottleCounts(self._counts.requests, self._counts.seconds)

    def add(self, counts: ThrottleCounts) -> None:
        """Add the counts of another process, such as a worker of Spark."""
        with self._lock:
            self._counts.requests += counts.requests
            self._counts.seconds += counts.seconds

    def call(self, request: Callable[[], T]) -> T:
        """Result of an idempotent request, which is repeated while the store throttles it.

        Raises:
            OSError: the request failed for another reason, or its budget is used up.
        """
        waited = 0.0
        attempt = transient_attempts = 0
        while True:
            try:
                return request()
            except FileNotFoundError:
                raise
            except OSError as error:
                text = str(error)
                is_throttled = _THROTTLED.search(text) is not None
                if not is_throttled:
                    transient_attempts += 1
                    if _TRANSIENT.search(text) is None or transient_attempts >= MAX_TRANSIENT_ATTEMPTS:
                        raise
                delay = self._draw(0.0, min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2**attempt))
                if waited + delay > self.budget_seconds:
                    raise _budget_error(error, attempt + 1, waited, self.budget_seconds) from error
                if is_throttled:
                    self.add(ThrottleCounts(1, delay))
                self._sleep(delay)
                waited += delay
                attempt += 1


_throttle = Throttle(float(os.environ.get("NOVA_THROTTLE_BUDGET") or THROTTLE_BUDGET))


def process_throttle() -> Throttle:
    """The throttle of all requests of this process."""
    return _throttle


def set_throttle_budget(seconds: float) -> None:
    """Set the limit of the total delay of one request of this process."""
    _throttle.budget_seconds = seconds


class _ThrottlingLog:
    """Reports throttling when no computation of this process is active any more. So each delay is reported once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = 0
        self._reported = ThrottleCounts()

    @contextmanager
    def scope(self) -> Iterator[None]:
        with self._lock:
            self._active += 1
        try:
            yield
        finally:
            with self._lock:
                self._active -= 1
                if not self._active:
                    _log_throttling(self._take())

    def take_unreported(self) -> ThrottleCounts:
        """Counts that were not reported yet; they count as reported now."""
        with self._lock:
            return self._take()

    def _take(self) -> ThrottleCounts:
        now, before = _throttle.counts(), self._reported
        self._reported = now
        return ThrottleCounts(now.requests - before.requests, now.seconds - before.seconds)


def _log_throttling(counts: ThrottleCounts) -> None:
    if counts.requests:
        log.warning(
            "the object store throttled %d request%s (503 Slow Down), so nova waited %.1f s in total "
            "(throttle_budget: %g s for one request)",
            counts.requests,
            "" if counts.requests == 1 else "s",
            counts.seconds,
            _throttle.budget_seconds,
        )


_log = _ThrottlingLog()


def throttling_scope() -> AbstractContextManager[None]:
    """Context of a computation. When the last one of this process ends, the log says how long its requests waited."""
    return _log.scope()


def take_throttle_report() -> list[float]:
    """Number of throttled requests and seconds of delay in a worker of Spark, since the last report."""
    counts = _log.take_unreported()
    return [counts.requests, counts.seconds]


def add_throttle_report(report: Sequence[float]) -> None:
    """Count the throttled requests of a worker of Spark in this process."""
    _throttle.add(ThrottleCounts(int(report[0]), float(report[1])))


def _budget_error(error: OSError, attempts: int, waited: float, budget: float) -> OSError:
    text = str(error).split("\n")[0]
    return OSError(
        errno.EBUSY,
        f"the store throttled all {attempts} attempts of a request in {waited:.1f} s of waiting (throttle_budget = "
        f"{budget:g}): {text}",
    )
