"""Progress of the Spark jobs of a task, and their cancellation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from nova_assets.engine.session.spark_config import is_connect_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TaskCounts = tuple[int, int]
"""Numbers of finished and of known Spark tasks, over all stages of the running jobs."""

REPORT_SECONDS = 5.0
"""Seconds between two reports about Spark jobs."""

_POLL_SECONDS = 1.0


@contextmanager
def watch_spark_jobs(spark: SparkSession, job_tag: str, report_progress: Callable[[int, int], None]) -> Iterator[None]:
    """Context that reports the progress of its Spark jobs, and cancels them if it is interrupted (by a cancellation or
    Ctrl-C).

    A failed body leaves no running jobs. An interruption, however, reaches only Python: without the cancellation, the
    job would continue although nobody reads its rows.

    Args:
        job_tag: tag of the jobs. Only jobs with this tag are cancelled.
        report_progress: called every few seconds with the numbers of finished and known Spark tasks, if they have
            changed.
    """
    jobs: _TaggedJobs = _ConnectTaggedJobs(spark) if is_connect_session(spark) else _ClassicTaggedJobs(spark)
    jobs.start_tracking(job_tag)
    try:
        with _report_progress_periodically(jobs, report_progress, REPORT_SECONDS):
            yield
    except Exception:
        raise
    except BaseException:
        with suppress(Exception):  # Spark itself may have ended
            jobs.cancel_tagged_jobs(job_tag)
        raise
    finally:
        with suppress(Exception):
            jobs.stop_tracking(job_tag)


class _TaggedJobs(Protocol):
    """Jobs of a session: tag, count, cancel."""

    def start_tracking(self, tag: str) -> None: ...
    def stop_tracking(self, tag: str) -> None: ...
    def cancel_tagged_jobs(self, tag: str) -> None: ...
    def task_counts(self) -> TaskCounts | None: ...


class _ClassicTaggedJobs:
    """Jobs of a classic session, through the driver in this process.

    The tag marks jobs that the calling thread starts. Any thread can cancel them, unlike jobs with a tag of the
    session. The task counts include all running jobs of the driver, whatever their tag.

    The constructor changes the connection to the driver for good (``_close_connection_when_interrupted``).
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tracker = self._context.statusTracker()
        _close_connection_when_interrupted(self._context)

    def start_tracking(self, tag: str) -> None:
        self._context.addJobTag(tag)  # with a tag of the session, no other thread could cancel the jobs

    def stop_tracking(self, tag: str) -> None:
        self._context.removeJobTag(tag)

    def cancel_tagged_jobs(self, tag: str) -> None:
        self._context.cancelJobsWithTag(tag)

    def task_counts(self) -> TaskCounts | None:
        jobs = map(self._tracker.getJobInfo, self._tracker.getActiveJobsIds())
        stages = map(self._tracker.getStageInfo, {s for job in jobs if job is not None for s in job.stageIds})
        return _sum_task_counts((s.numCompletedTasks, s.numTasks) for s in stages if s is not None)


def _close_connection_when_interrupted(spark_context: Any) -> None:
    """Make an interrupted call to the driver close the connection of its thread. The next call opens a new connection.

    After an interruption, the answer to the call is still outstanding. The next call of the thread would read it as its
    own answer, and so would each further call. That next call may be in any ``finally`` on the way out. The client
    itself therefore closes the connection. Without this change, the client does so for a KeyboardInterrupt only.
    """
    client = spark_context._gateway._gateway_client
    if "send_command" in vars(client):
        return
    send = client.send_command

    def send_command(*args: Any, **options: Any) -> Any:
        try:
            return send(*args, **options)
        except Exception:
            raise
        except BaseException:
            connection = client.get_thread_connection()
            if connection is not None:
                connection.close()
            raise

    client.send_command = send_command


class _ConnectTaggedJobs:
    """Jobs of a Spark Connect session. The server reports progress on its own."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._latest_counts: TaskCounts | None = None

    def start_tracking(self, tag: str) -> None:
        self._spark.addTag(tag)
        self._spark.registerProgressHandler(self._on_progress)

    def stop_tracking(self, tag: str) -> None:
        self._spark.removeProgressHandler(self._on_progress)
        self._spark.removeTag(tag)

    def cancel_tagged_jobs(self, tag: str) -> None:
        self._spark.interruptTag(tag)

    def task_counts(self) -> TaskCounts | None:
        return self._latest_counts

    def _on_progress(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        self._latest_counts = (
            None if done else _sum_task_counts((s.num_completed_tasks, s.num_tasks) for s in stages or ())
        )


@contextmanager
def _report_progress_periodically(
    jobs: _TaggedJobs, report_progress: Callable[[int, int], None], interval: float
) -> Iterator[None]:
    finished = threading.Event()

    def watch() -> None:
        next_report, last_counts = time.monotonic() + interval, None
        while not finished.wait(min(_POLL_SECONDS, interval)):
            if time.monotonic() < next_report:
                continue
            with suppress(Exception):  # a failed report must not fail the task
                counts = jobs.task_counts()
                if counts is not None and counts != last_counts:
                    report_progress(*counts)
                    last_counts = counts
            next_report = time.monotonic() + interval

    watcher = threading.Thread(target=watch, name="nova-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join(timeout=2 * _POLL_SECONDS)


def _sum_task_counts(stage_counts: Iterable[TaskCounts]) -> TaskCounts | None:
    counts = list(stage_counts)
    return (sum(done for done, _ in counts), sum(of for _, of in counts)) if counts else None
