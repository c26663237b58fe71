"""The processes of a deployment, as Linux's ``/proc`` shows them: whatever was started with its Dagster home.

An environment is inherited by whoever a process starts, however it is detached; so nothing can hide, not even the JVM
of a Spark server that was told to outlive its parents.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SIGNS = {
    "daemon": ("dagster._daemon run",),
    "code server": ("dagster code-server start", "dagster api grpc"),
    "run worker": ("multiprocessing.spawn import spawn_main",),
    "spark": ("org.apache.spark.sql.connect.service.SparkConnectServer",),
}
"""Role -> what its command lines say: ``dagster dev`` has its code server behind a proxy."""

AT_ONCE = ("code server",)
"""Roles whose processes are one thing, and go together: the proxy alone is started again, what it stands for is not."""


@dataclass(frozen=True, slots=True, order=True)
class Process:
    """A process that runs.

    Args:
        started: in the kernel's ticks.
    """

    started: int
    pid: int
    command: str

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def of_home(home: Path) -> list[Process]:
    """Every process of a deployment, oldest first; this one is not among them."""
    mark = f"DAGSTER_HOME={home}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it has ended, or is not ours
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                state, *rest = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if state != "Z":
                    found.append(Process(int(rest[18]), int(folder.name), command))
    return sorted(p for p in found if p.pid != os.getpid())


def of_role(home: Path, role: str) -> list[Process]:
    """Those of a role, oldest first."""
    return [p for p in of_home(home) if any(sign in p.command for sign in _SIGNS[role])]


def kill_all(home: Path, patience: float = 20.0) -> list[Process]:
    """Kill everything of a deployment, and what that starts meanwhile. Gives what is left: nothing, at best."""
    until = time.monotonic() + patience
    while (left := of_home(home)) and time.monotonic() < until:
        for process in left:
            process.kill()
        time.sleep(0.2)
    return left
