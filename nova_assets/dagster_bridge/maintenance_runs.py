"""Runs that sensors request for the deployment itself: one at a time, and heard of while they last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dagster import DagsterRunStatus, RunsFilter, SensorEvaluationContext
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._time import get_current_timestamp

LIFE_SIGN = 120  # seconds


def is_busy(context: SensorEvaluationContext, job: str, after_failure: float) -> bool:
    """Whether a run of the job is under way, one at a time being enough; or failed a short while ago.

    Args:
        after_failure: seconds.
    """
    waiting = RunsFilter(job_name=job, statuses=list(NOT_FINISHED_STATUSES))
    if context.instance.get_run_records(waiting, limit=1):
        return True
    for record in context.instance.get_run_records(RunsFilter(job_name=job), limit=1):
        status, ended = record.dagster_run.status, record.end_time or 0
        return status == DagsterRunStatus.FAILURE and get_current_timestamp() < ended + after_failure
    return False


@contextmanager
def saying(say: Callable[[str], None], what: str) -> Iterator[None]:
    """A block of which a word is heard now and then: for people, and for the janitor, who takes silence for death."""
    over = threading.Event()

    def talk() -> None:
        while not over.wait(LIFE_SIGN):
            with suppress(Exception):  # Dagster's storage may be busy: the next word may be heard
                say(what)

    talker = threading.Thread(target=talk, name="nova-life-sign", daemon=True)
    talker.start()
    try:
        yield
    finally:
        over.set()
        talker.join()
