"""Sends the signals of a plan."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

from nova_assets_tests.catalog_soak.clients import Commander
from nova_assets_tests.catalog_soak.deployment import Deployment
from nova_assets_tests.catalog_soak.plan import Signal, plan_signals

_SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "stop": signal.SIGSTOP}


def send_signals(deployment: Deployment, commanders: list[Commander], seed: int, seconds: float) -> None:
    """Send each signal at its time. Returns when the time is over, and each stopped process continues."""
    began = time.monotonic()
    resumed: list[threading.Timer] = []
    for planned in plan_signals(seed, seconds):
        time.sleep(max(0.0, began + planned.at - time.monotonic()))
        pid = _pick(deployment, commanders, planned)
        if pid is None:
            deployment.tally.count("signals", f"{planned.kind} {planned.target}: there was none")
            continue
        with suppress(ProcessLookupError):
            os.kill(pid, _SIGNALS[planned.kind])
            deployment.tally.count("signals", f"{planned.kind} {planned.target}")
        if planned.kind == "stop":
            resumed.append(threading.Timer(planned.pause, _resume, (pid,)))
            resumed[-1].start()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    for timer in resumed:
        timer.join()


def _pick(deployment: Deployment, commanders: list[Commander], planned: Signal) -> int | None:
    if planned.target == "command":
        running = [c for c in commanders if c.pid is not None]
        if not running:
            return None
        commander = running[planned.pick % len(running)]
        pid = commander.pid
        if pid is not None and planned.kind != "stop":
            commander.signalled.add(pid)
        return pid
    if planned.target == "instance":
        instances = deployment.instances
        return instances[planned.pick % len(instances)] if instances else None
    return deployment.service.pid if planned.target == "service" else deployment.watchdog.pid


def _resume(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
