"""Worker processes that read what others have written: a parser that crashes there takes no host with it.

A worker is started when it is first needed and stays for the next job. It runs a module that calls
``worker_loop.serve_jobs``. Jobs go to its stdin as lines of JSON; each answer is a line of JSON on its stdout, followed
by as many Arrow streams as the line says.
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

_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "LANG", "LC_ALL", "TZ")
"""Variables that a worker inherits. The others may hold passwords."""

_BUFFER = 1 << 20


class WorkerDied(Exception):
    """A worker ended before it had answered.

    Args:
        exit_code: of the process; negative for a signal.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code

    @property
    def cause(self) -> str:
        """How the process ended, for people."""
        if self.exit_code >= 0:
            return f"exit code {self.exit_code}"
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


class WorkerLate(Exception):
    """A worker was ended because its time was over."""


class WorkersBusy(Exception):
    """No worker became free in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a worker: a JSON object, and tables."""

    fields: Mapping[str, Any]
    tables: Sequence[pa.Table]


class WorkerPool:
    """Worker processes of one kind.

    Args:
        module: what each runs.
        at_once: how many jobs run at the same time; more wait.
    """

    def __init__(self, module: str, at_once: int) -> None:
        self._module = module
        self._at_once = at_once
        self._reset()

    def ask(
        self, job: Mapping[str, Any], *, memory: int | None, seconds: float | None = None, wait: float | None = None
    ) -> Answer:
        """The answer to a job.

        Args:
            memory: bytes that the worker may allocate.
            seconds: that it may take.
            wait: seconds for which a free worker is waited for.

        Raises:
            WorkerDied, WorkerLate, WorkersBusy.
            EngineUnavailable: no worker can be started.
        """
        if self._owner != os.getpid():
            self._reset()  # the workers of the process that forked this one answer to it alone
        if not self._free.acquire(timeout=wait):
            raise WorkersBusy
        try:
            process = self._idle_or_started()
            is_reusable = False
            try:
                answer, is_reusable = _answer(process, {**job, "memory": memory, "seconds": seconds}, seconds)
            finally:
                if is_reusable:
                    self._idle.append(process)
                else:
                    _end(process)
            return answer
        finally:
            self._free.release()

    def close(self) -> None:
        """End the workers that wait for a job."""
        while self._owner == os.getpid() and self._idle:
            _end(self._idle.pop())

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._free = threading.BoundedSemaphore(self._at_once)
        self._idle: list[subprocess.Popen[bytes]] = []
        atexit.register(self.close)

    def _idle_or_started(self) -> subprocess.Popen[bytes]:
        while True:
            try:
                process = self._idle.pop()
            except IndexError:
                return _start(self._module)
            if process.poll() is None:
                return process
            _end(process)


def _start(module: str) -> subprocess.Popen[bytes]:
    """A worker that has said that it is ready. Raises EngineUnavailable where none can be started: that says nothing of
    the file that is to be read."""
    paths = os.pathsep.join(os.path.abspath(p) for p in sys.path)
    own = {"PYTHONPATH": paths, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            bufsize=_BUFFER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={n: os.environ[n] for n in _ENVIRONMENT if n in os.environ} | own,
            start_new_session=True,  # Ctrl-C is for the host
        )
    except OSError as error:
        raise _unavailable(str(error)) from error
    assert process.stdout is not None
    if process.stdout.readline() == b"ready\n":
        return process
    _end(process)
    raise _unavailable(WorkerDied(process.returncode).cause)


def _unavailable(cause: str) -> EngineUnavailable:
    return EngineUnavailable(
        "no process can be started to read files in",
        found=cause,
        expected=f"that {sys.executable} starts",
        next="look for limits of memory and of processes, then try again",
    )


def _answer(process: subprocess.Popen[bytes], job: Mapping[str, Any], seconds: float | None) -> tuple[Answer, bool]:
    """The answer of a worker, and whether it is of use for another job: one that is late has been killed, maybe a
    moment after it had answered.

    Raises:
        WorkerDied, WorkerLate.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = None if seconds is None else threading.Timer(seconds, end)
    if timer is not None:
        timer.start()
    answer = None
    try:
        answer = _exchange(process, job)
    except (EOFError, OSError, ValueError, pa.ArrowException):
        pass  # a pipe that breaks, or an answer that is cut short
    finally:
        if timer is not None:
            timer.cancel()
            timer.join()
    if answer is not None:
        return answer, not late.is_set()
    process.kill()
    process.wait()
    if late.is_set():
        raise WorkerLate
    raise WorkerDied(process.returncode)


def _exchange(process: subprocess.Popen[bytes], job: Mapping[str, Any]) -> Answer:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(job).encode() + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    fields = json.loads(line)
    return Answer(fields, [pa.ipc.open_stream(process.stdout).read_all() for _ in range(fields.pop("tables"))])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
