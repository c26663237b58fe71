"""Wall time and CPU time of a piece of work."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    """Measures time from its creation on.

    Args:
        read_cpu_seconds: function that returns the CPU time used so far; None if it is not known.
    """

    def __init__(self, read_cpu_seconds: Callable[[], float | None]) -> None:
        self._read_cpu_seconds = read_cpu_seconds
        self._started = time.monotonic()
        self._cpu_at_start = read_cpu_seconds()

    @property
    def seconds(self) -> float:
        """Wall time."""
        return time.monotonic() - self._started

    @property
    def cpu_seconds(self) -> float | None:
        """CPU time; None if it is not known, also if what counts it started meanwhile."""
        now = self._read_cpu_seconds()
        if now is None or self._cpu_at_start is None or now < self._cpu_at_start:  # Spark was started again
            return None
        return now - self._cpu_at_start
