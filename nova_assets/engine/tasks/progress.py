"""What Spark is doing while a task waits for it, and how it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from nova_assets.engine.session.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Counts = tuple[int, int]
"""Spark tasks that are done, and all that are known of, in the stages of running jobs."""

_LOOK = 1.0  # seconds


@contextmanager
def computing(spark: SparkSession, name: str, tell: Callable[[int, int], None], every: float) -> Iterator[None]:
    """Run a block whose Spark jobs are watched, and stopped when it is interrupted: cancelled, or by Ctrl-C.

    What fails by itself has no jobs left. But an interruption reaches Python alone: the job would go on without anybody
    to take its rows.

    Args:
        name: marks the jobs; nobody else's are stopped.
        tell: called with Spark's tasks done and known, every so many seconds, while there is something to tell.
    """
    jobs: _Jobs = _ConnectJobs(spark) if is_connect(spark) else _ClassicJobs(spark)
    jobs.mark(name)
    try:
        with _watching(jobs, tell, every):
            yield
    except Exception:
        raise
    except BaseException:
        with suppress(Exception):  # Spark may be gone itself
            jobs.stop(name)
        raise
    finally:
        with suppress(Exception):
            jobs.unmark(name)


class _Jobs(Protocol):
    """The jobs of a session: marked, counted, stopped."""

    def mark(self, name: str) -> None: ...
    def unmark(self, name: str) -> None: ...
    def stop(self, name: str) -> None: ...
    def counts(self) -> Counts | None: ...


class _ClassicJobs:
    """Asked of the driver in this process. A session's tags hold in one thread alone, those of its context in all."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tracker = self._context.statusTracker()
        _hang_up_when_interrupted(self._context)

    def mark(self, name: str) -> None:
        self._context.addJobTag(name)

    def unmark(self, name: str) -> None:
        self._context.removeJobTag(name)

    def stop(self, name: str) -> None:
        self._context.cancelJobsWithTag(name)

    def counts(self) -> Counts | None:
        jobs = map(self._tracker.getJobInfo, self._tracker.getActiveJobsIds())
        stages = map(self._tracker.getStageInfo, {s for job in jobs if job is not None for s in job.stageIds})
        return _sum((s.numCompletedTasks, s.numTasks) for s in stages if s is not None)


def _hang_up_when_interrupted(context: Any) -> None:
    """Have a call to the driver that is interrupted end its thread's connection; another is made for the next.

    The answer is still to come then, and what the thread asked next would wait for it and take it for its own, and so
    on for good. That next call may be any ``finally`` on the way out: hence in the client itself, which does so for
    a KeyboardInterrupt alone.
    """
    client = context._gateway._gateway_client
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


class _ConnectJobs:
    """The server tells of them by itself."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._latest: Counts | None = None

    def mark(self, name: str) -> None:
        self._spark.addTag(name)
        self._spark.registerProgressHandler(self._hear)

    def unmark(self, name: str) -> None:
        self._spark.removeProgressHandler(self._hear)
        self._spark.removeTag(name)

    def stop(self, name: str) -> None:
        self._spark.interruptTag(name)

    def counts(self) -> Counts | None:
        return self._latest

    def _hear(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        self._latest = None if done else _sum((s.num_completed_tasks, s.num_tasks) for s in stages or ())


@contextmanager
def _watching(jobs: _Jobs, tell: Callable[[int, int], None], every: float) -> Iterator[None]:
    over = threading.Event()

    def watch() -> None:
        due, last = time.monotonic() + every, None
        while not over.wait(min(_LOOK, every)):
            if time.monotonic() < due:
                continue
            with suppress(Exception):  # nobody's work fails for want of being watched
                seen = jobs.counts()
                if seen is not None and seen != last:
                    tell(*seen)
                    last = seen
            due = time.monotonic() + every

    watcher = threading.Thread(target=watch, name="nova-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(timeout=2 * _LOOK)


def _sum(stages: Iterable[Counts]) -> Counts | None:
    known = list(stages)
    return (sum(done for done, _ in known), sum(of for _, of in known)) if known else None
