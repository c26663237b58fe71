"""Leases: who holds an execution, whether they still live, and the heartbeat that says so (R3, R6)."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from nova_assets.errors import NovaError
from nova_assets.model.execution import Execution
from nova_assets.model.ports import Catalog


@lru_cache(maxsize=1)
def _host() -> str:
    return socket.gethostname()


def this_process() -> str:
    """The owner that this process signs its executions with: host, process, and when the process was started."""
    return f"{_host()}:{os.getpid()}:{_started(os.getpid())}"


def is_dead(owner: str) -> bool:
    """Whether an owner is known to be gone: a process of this host that no longer runs. Never a guess."""
    parts = owner.split(":")
    if len(parts) != 3 or parts[0] != _host() or not parts[1].isdigit():
        return False
    pid = int(parts[1])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _started(pid) != parts[2]


def _started(pid: int) -> str:
    """When a process was started, in the kernel's ticks, so that a reused number is not taken for it; Linux only."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "gone" if stat[0] == "Z" else stat[19]
    except (OSError, IndexError):
        return "0"


@contextlib.contextmanager
def heartbeat(catalog: Catalog, execution: Execution, lease: float) -> Iterator[None]:
    """Renew the execution's lease three times per lease, for as long as the body runs.

    A heartbeat that fails is no error here: at worst others take over, and then the commit is refused (R6).
    """
    done = threading.Event()

    def beat() -> None:
        while not done.wait(lease / 3):
            with contextlib.suppress(NovaError):
                if not catalog.renew(execution.id, execution.epoch, lease):
                    return

    thread = threading.Thread(target=beat, name=f"nova-heartbeat-{execution.id[:8]}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=lease)
