"""Leases: the owner of an execution, the liveness of the owner, and the heartbeat that renews the lease (R3, R6)."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from nova_assets.catalog.catalog import Catalog
from nova_assets.model.execution import Execution
from nova_assets.nova_error import NovaError

Liveness = Literal["alive", "gone", "unknown"]
"""``unknown``: a process of another host, or a Dagster run."""


@lru_cache(maxsize=1)
def _hostname() -> str:
    return socket.gethostname()


def this_process() -> str:
    """Owner id of this process: host, process id, and start time of the process."""
    return f"{_hostname()}:{os.getpid()}:{_process_start_time(os.getpid())}"


def is_owner_dead(owner: str) -> bool:
    """Whether an owner is certainly dead: a process of this host that no longer runs. False in case of doubt."""
    return owner_liveness(owner) == "gone"


def owner_liveness(owner: str) -> Liveness:
    """Liveness of an execution's owner, as far as this host knows."""
    parts = owner.rpartition("@")[2].split(":")
    if len(parts) != 3 or parts[0] != _hostname() or not parts[1].isdigit():
        return "unknown"
    pid = int(parts[1])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        pass
    except OSError:
        return "unknown"
    return "alive" if _process_start_time(pid) == parts[2] else "gone"


def _process_start_time(pid: int) -> str:
    """Start time of a process in kernel ticks, which tells apart processes with a reused id. Linux only."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "gone" if stat[0] == "Z" else stat[19]
    except (OSError, IndexError):
        return "0"


@contextlib.contextmanager
def heartbeat(catalog: Catalog, execution: Execution, lease_seconds: float) -> Iterator[None]:
    """Renew the execution's lease three times per lease while the body runs.

    A failed renewal raises nothing. At worst, another process takes over, and then the commit is refused (R6).
    """
    has_ended = threading.Event()
    thread = _start_renewal_thread(catalog, execution, lease_seconds, has_ended, lambda: True)
    try:
        yield
    finally:
        has_ended.set()
        thread.join(timeout=lease_seconds)


def start_lease_renewals(
    catalog: Catalog, execution: Execution, lease_seconds: float, is_held: Callable[[], bool]
) -> None:
    """Start renewing the execution's lease in the background, until it is no longer held or this process ends.

    Args:
        is_held: called before each renewal.
    """
    _start_renewal_thread(catalog, execution, lease_seconds, threading.Event(), is_held)


def _start_renewal_thread(
    catalog: Catalog,
    execution: Execution,
    lease_seconds: float,
    has_ended: threading.Event,
    is_held: Callable[[], bool],
) -> threading.Thread:
    """Start a thread that renews a lease until the event is set or the execution is no longer held."""

    def renew_repeatedly() -> None:
        while not has_ended.wait(lease_seconds / 3) and is_held():
            with contextlib.suppress(NovaError):
                if not catalog.executions.renew_lease(execution.id, execution.epoch, lease_seconds):
                    return

    thread = threading.Thread(target=renew_repeatedly, name=f"nova-heartbeat-{execution.id[:8]}", daemon=True)
    thread.start()
    return thread
