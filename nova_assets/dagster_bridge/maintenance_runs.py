"""Runs that sensors request for the deployment itself: one at a time, and heard of while they last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dagster import DagsterRunStatus, RunsFilter, SensorEvaluationContext
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._time import get_current_timestamp

LIFE_SIGN_INTERVAL = 120  # seconds


def is_job_busy_or_paused(context: SensorEvaluationContext, job_name: str, pause_after_failure: float) -> bool:
    """Whether a run of the job is under way, one at a time being enough; or failed a short while ago.

    Args:
        pause_after_failure: seconds.
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
    """A block of which a word is heard now and then: for people, and for the janitor, who takes silence for death."""
    stopped = threading.Event()

    def log_until_stopped() -> None:
        while not stopped.wait(LIFE_SIGN_INTERVAL):
            with suppress(Exception):  # Dagster's storage may be busy: the next word may be heard
                log_message(message)

    logging_thread = threading.Thread(target=log_until_stopped, name="nova-life-sign", daemon=True)
    logging_thread.start()
    try:
        yield
    finally:
        stopped.set()
        logging_thread.join()
