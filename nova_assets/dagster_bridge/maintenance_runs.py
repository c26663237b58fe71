"""Helpers for maintenance runs, which sensors request one at a time and which log regularly while they last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dagster import DagsterRunStatus, RunsFilter, SensorEvaluationContext
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._time import get_current_timestamp

LIFE_SIGN_INTERVAL = 120  # seconds


def is_job_busy_or_paused(context: SensorEvaluationContext, job_name: str, pause_after_failure: float) -> bool:
    """Whether a run of the job is active, or the last run failed less than ``pause_after_failure`` ago.

    Args:
        pause_after_failure: pause in seconds.
    """
    unfinished_runs = RunsFilter(job_name=job_name, statuses=list(NOT_FINISHED_STATUSES))
    if context.instance.get_run_records(unfinished_runs, limit=1):
        return True
    for record in context.instance.get_run_records(RunsFilter(job_name=job_name), limit=1):
        status, ended = record.dagster_run.status, record.end_time or 0
        return status == DagsterRunStatus.FAILURE and get_current_timestamp() < ended + pause_after_failure
    return False


@contextmanager
def log_periodically(log_message: Callable[[str], None], message: str) -> Iterator[None]:
    """Log a message regularly while the body runs, because the janitor reports silent runs as lost."""
    stopped = threading.Event()

    def log_until_stopped() -> None:
        while not stopped.wait(LIFE_SIGN_INTERVAL):
            with suppress(Exception):  # Dagster's storage may be busy; the next message may succeed
                log_message(message)

    logging_thread = threading.Thread(target=log_until_stopped, name="nova-life-sign", daemon=True)
    logging_thread.start()
    try:
        yield
    finally:
        stopped.set()
        logging_thread.join()
