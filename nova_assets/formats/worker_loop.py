"""Main loop of a worker process (``worker_pool``), which runs jobs one by one within memory and time limits."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

Job = Mapping[str, Any]
Outcome = tuple[Mapping[str, Any], Sequence[pa.Table]]


def serve_jobs(handle: Callable[[Job], Outcome], *, threads: int | None = None) -> None:
    """Answer jobs from stdin until stdin is closed.

    Args:
        handle: computes the answer to a job. Must not raise.
        threads: number of Arrow threads; None for Arrow's default.
    """
    answers = os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    os.dup2(2, 1)  # output that libraries print must not mix with answers
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the host ends a worker by closing stdin
    if threads is not None:
        pa.set_cpu_count(threads)
        pa.set_io_thread_count(threads)
    answers.write(b"ready\n")
    answers.flush()
    with suppress(BrokenPipeError):
        for line in sys.stdin.buffer:
            job = json.loads(line)
            _set_resource_limits(job["memory"], job["seconds"])
            _send_answer(answers, *handle(job))
            pa.default_memory_pool().release_unused()


def _send_answer(answers: Any, fields: Mapping[str, Any], tables: Sequence[pa.Table]) -> None:
    answers.write(json.dumps({**fields, "tables": len(tables)}).encode() + b"\n")
    for table in tables:
        with pa.ipc.new_stream(answers, table.schema) as stream:
            stream.write_table(table)
    answers.flush()


def _set_resource_limits(memory_bytes: int | None, cpu_seconds: float | None) -> None:
    """Limit the memory and the further CPU time of this process, on systems with resource limits."""
    with suppress(ImportError):
        import resource

        none = resource.RLIM_INFINITY
        limits = {
            resource.RLIMIT_DATA: none if memory_bytes is None else memory_bytes,
            resource.RLIMIT_CPU: none if cpu_seconds is None else int(time.process_time() + cpu_seconds) + 1,
            resource.RLIMIT_CORE: 0,
        }
        for resource_id, limit in limits.items():
            with suppress(ValueError, OSError):
                hard = resource.getrlimit(resource_id)[1]
                resource.setrlimit(resource_id, (hard if limit == none else limit, hard))
