"""Clients that ask at the same time, and how long they waited."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks import measure
from benchmarks.timeline import process

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of it.

    Args:
        rate: lookups in a second, of all clients.
        p50, p99: seconds that a lookup took.
        cpu: seconds of CPU for one, of the clients and of all that was started to answer them.
        server: of these, the one process that was asked; None where there is none.
    """

    clients: int
    lookups: int
    rate: float
    p50: float
    p99: float
    cpu: float
    server: float | None


def ask(job: dict[str, Any], clients: int, partitions: Sequence[str], pid: int | None = None) -> Asked:
    """Have clients ask, each a process.

    Args:
        job: what each does (``asker``).
        pid: of the process that they ask.
    """
    started = [_started({**job, "partitions": list(partitions), "seed": n}) for n in range(clients)]
    try:
        for one in started:
            _line(one)
        before, server = measure.cpu_seconds(), None if pid is None else process.cpu_seconds(pid)
        for one in started:
            _tell(one, "go")
        told = [json.loads(_line(one)) for one in started]
        used = measure.cpu_seconds() - before
        if pid is not None and server is not None:
            server = process.cpu_seconds(pid) - server
    finally:
        for one in started:
            one.communicate()
    seconds = sorted(s for t in told for s in t["seconds"])
    count = len(seconds)
    return Asked(
        clients,
        count,
        sum(len(t["seconds"]) / t["wall"] for t in told),
        statistics.median(seconds),
        seconds[min(int(count * 0.99), count - 1)],
        used / count,
        None if server is None else server / count,
    )


def _started(job: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.timeline.asker"]
    one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    _tell(one, json.dumps(job))
    return one


def _tell(one: subprocess.Popen[str], line: str) -> None:
    to: IO[str] | None = one.stdin
    assert to is not None
    to.write(line + "\n")
    to.flush()


def _line(one: subprocess.Popen[str]) -> str:
    assert one.stdout is not None
    found = one.stdout.readline()
    if not found:
        raise RuntimeError(f"a client has ended with {one.wait()}")
    return found
