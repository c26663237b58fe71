"""Daemon of Python workers that exits after an idle period.

Spark starts a daemon for each session that runs Python functions, and forks the workers from it. A Connect server keeps
these daemons until it ends, even if their sessions have ended (SPARK-54055). On a server that serves a session for each
run, they would fill the memory of the machine. This daemon exits after a while without workers. If its session runs a
Python function again, Spark starts another one.

Two settings of Spark do not serve here. Without daemons (``spark.python.use.daemon``), each task starts a Python of its
own. With one daemon for all sessions (``spark.sql.artifact.isolation.enabled=false``), workers may hold an older
version of the user's code.

Spark runs this module as a program (``spark.python.daemon.module``).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

CHECK_SECONDS = 10.0
"""Interval of the idle check, in seconds."""

IDLE_SECONDS = 300.0
"""Seconds without workers after which a daemon exits. Spark ends a worker that was idle for a minute."""


class IdleClock:
    """Measures how long this process has had no child processes."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._idle_since = time.monotonic()

    def end_if_idle(self, signal_number: int, frame: FrameType | None) -> None:
        """Handler of the alarm. Exits if this process was idle for too long."""
        if _has_children():
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > self.limit:
            sys.exit(0)


def main() -> None:
    """Run Spark's daemon until it was idle for too long."""
    from pyspark.daemon import manager

    clock = IdleClock(IDLE_SECONDS)
    signal.signal(signal.SIGALRM, clock.end_if_idle)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL))
    signal.setitimer(signal.ITIMER_REAL, CHECK_SECONDS, CHECK_SECONDS)  # forked workers do not inherit the timer
    manager()


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)  # the daemon ignores SIGCHLD, so ended workers need no wait
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    main()
