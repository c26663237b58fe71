"""Pool of worker processes that parse untrusted files, so that a crashing parser does not crash the host process.

The pool starts a worker on first use and keeps it for later jobs. A worker runs a module that calls
``worker_loop.serve_jobs``. The pool sends each job to the worker's stdin as one line of JSON. The worker answers on
stdout with one line of JSON, followed by the number of Arrow streams that the line states.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from nova_assets.errors import EngineUnavailable

_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "LANG", "LC_ALL", "TZ")
"""Environment variables that a worker inherits. Other variables may hold passwords."""

_BUFFER_BYTES = 1 << 20


class WorkerDied(Exception):
    """A worker process ended before it answered.

    Args:
        exit_code: exit code of the process; negative for a signal.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code

    @property
    def cause(self) -> str:
        """Exit code or signal name as text."""
        if self.exit_code >= 0:
            return f"exit code {self.exit_code}"
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


class WorkerTimedOut(Exception):
    """A worker was killed because its job exceeded the timeout."""


class WorkersBusy(Exception):
    """No worker became free in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a worker: a JSON object and tables."""

    fields: Mapping[str, Any]
    tables: Sequence[pa.Table]


class WorkerPool:
    """Pool of worker processes that all run the same module.

    Args:
        module: name of the module that each worker runs.
        max_workers: maximum number of concurrent jobs. Further jobs wait.
    """

    def __init__(self, module: str, max_workers: int) -> None:
        self._module = module
        self._max_workers = max_workers
        self._reset()

    def run_job(
        self,
        job: Mapping[str, Any],
        *,
        memory_bytes: int | None,
        timeout: float | None = None,
        acquire_timeout: float | None = None,
    ) -> Answer:
        """Run a job in a worker and return its answer.

        Args:
            job: the job as a JSON object.
            memory_bytes: maximum number of bytes that the worker may allocate; None for no limit.
            timeout: maximum duration of the job in seconds; None for no limit.
            acquire_timeout: maximum wait for a free worker in seconds; None for no limit.

        Raises:
            WorkerDied: the worker ended before it answered.
            WorkerTimedOut: the job exceeded ``timeout``.
            WorkersBusy: no worker became free within ``acquire_timeout``.
            EngineUnavailable: no worker can be started.
        """
        if self._owner_process_id != os.getpid():
            self._reset()  # workers started before a fork belong to the parent process
        if not self._free_slots.acquire(timeout=acquire_timeout):
            raise WorkersBusy
        try:
            process = self._take_or_start_worker()
            is_reusable = False
            try:
                answer, is_reusable = _run_job_in_worker(
                    process, {**job, "memory": memory_bytes, "seconds": timeout}, timeout
                )
            finally:
                if is_reusable:
                    self._idle_workers.append(process)
                else:
                    _end_worker(process)
            return answer
        finally:
            self._free_slots.release()

    def end_idle_workers(self) -> None:
        """End the workers that run no job. The pool can still run jobs, in new workers."""
        while self._owner_process_id == os.getpid() and self._idle_workers:
            _end_worker(self._idle_workers.pop())

    def _reset(self) -> None:
        self._owner_process_id = os.getpid()
        self._free_slots = threading.BoundedSemaphore(self._max_workers)
        self._idle_workers: list[subprocess.Popen[bytes]] = []
        atexit.register(self.end_idle_workers)

    def _take_or_start_worker(self) -> subprocess.Popen[bytes]:
        while True:
            try:
                process = self._idle_workers.pop()
            except IndexError:
                return _start_worker(self._module)
            if process.poll() is None:
                return process
            _end_worker(process)


def _start_worker(module: str) -> subprocess.Popen[bytes]:
    """Start a worker and wait until it is ready.

    Raises:
        EngineUnavailable: no worker can be started. This error says nothing about the file to read.
    """
    paths = os.pathsep.join(os.path.abspath(p) for p in sys.path)
    worker_variables = {"PYTHONPATH": paths, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            bufsize=_BUFFER_BYTES,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={n: os.environ[n] for n in _INHERITED_VARIABLES if n in os.environ} | worker_variables,
            start_new_session=True,  # Ctrl-C must reach only the host
        )
    except OSError as error:
        raise _unavailable_error(str(error)) from error
    assert process.stdout is not None
    if process.stdout.readline() == b"ready\n":
        return process
    _end_worker(process)
    raise _unavailable_error(WorkerDied(process.returncode).cause)


def _unavailable_error(cause: str) -> EngineUnavailable:
    return EngineUnavailable(
        "no worker process can be started to read files",
        found=cause,
        expected=f"{sys.executable} to start",
        next="check the limits of memory and of processes, then try again",
    )


def _run_job_in_worker(
    process: subprocess.Popen[bytes], job: Mapping[str, Any], timeout: float | None
) -> tuple[Answer, bool]:
    """Answer of a worker, and whether the worker can take another job.

    A worker may be killed at the timeout just after it has answered. Its answer counts, but the worker is lost.

    Raises:
        WorkerDied: the worker ended before it answered.
        WorkerTimedOut: the job exceeded ``timeout``.
    """
    has_timed_out = threading.Event()

    def kill_late_worker() -> None:
        has_timed_out.set()
        process.kill()

    timer = None if timeout is None else threading.Timer(timeout, kill_late_worker)
    if timer is not None:
        timer.start()
    answer = None
    try:
        answer = _send_job_and_receive(process, job)
    except (EOFError, OSError, ValueError, pa.ArrowException):
        pass  # a broken pipe or a truncated answer
    finally:
        if timer is not None:
            timer.cancel()
            timer.join()
    if answer is not None:
        return answer, not has_timed_out.is_set()
    process.kill()
    process.wait()
    if has_timed_out.is_set():
        raise WorkerTimedOut
    raise WorkerDied(process.returncode)


def _send_job_and_receive(process: subprocess.Popen[bytes], job: Mapping[str, Any]) -> Answer:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(job).encode() + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    fields = json.loads(line)
    return Answer(fields, [pa.ipc.open_stream(process.stdout).read_all() for _ in range(fields.pop("tables"))])


def _end_worker(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
