"""The small app in several instances with a watchdog: ``python -m nova_assets_tests.service.watched_app``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from nova_assets.errors import CatalogUnavailable
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.listening_socket import open_listening_socket
from nova_assets.service.http.server import Server
from nova_assets.service.watchdog import run_instances
from nova_assets_tests import patient
from nova_assets_tests.conftest import ROOT
from nova_assets_tests.service.small_app import build_guarded_app

INSTANCES = 2
TIMEOUT = 3
GRACE = 8.0


def wait_until(is_true: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def child_processes(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class WatchedApp:
    """The watchdog's process, and what can be done to it."""

    def __init__(self, log: Path) -> None:
        self.log = log
        metrics_folder = log.parent / "metrics"
        metrics_folder.mkdir()
        self.fault = log.parent / "fault"
        """While this file exists, no instance can start."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PROMETHEUS_MULTIPROC_DIR": str(metrics_folder)}
        command = [sys.executable, "-m", "nova_assets_tests.service.watched_app", str(self.fault)]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.wait_for_instances()

    @property
    def instances(self) -> set[int]:
        return child_processes(self.process.pid)

    def serving_instance(self) -> int | None:
        """Process id of the instance that answers; None if it ends before it has answered."""
        with suppress(httpx.TransportError):
            return int(patient.get(f"{self.url}/v1/pid").text)
        return None

    def wait_for_instances(self, ended: int | None = None) -> None:
        """Wait until an instance has ended, as many as before run, and the address answers."""
        wait_until(
            lambda: len(self.instances) == INSTANCES and ended not in self.instances,
            f"instances {self.instances}, ended {ended}: {self.log.read_text()[-2000:]}",
        )
        wait_until(lambda: self.serving_instance() not in (None, ended), "no instance answers")

    def end(self, with_signal: int = signal.SIGTERM) -> int:
        self.process.send_signal(with_signal)
        return self.process.wait(30)


@contextmanager
def run_watched_app(log: Path) -> Iterator[WatchedApp]:
    watched = WatchedApp(log)
    try:
        yield watched
    finally:
        instances = watched.instances if watched.process.poll() is None else set()
        watched.process.kill()
        for instance in instances:
            with suppress(ProcessLookupError):
                os.kill(instance, signal.SIGKILL)
        watched.process.wait()
        assert watched.process.stdout is not None
        watched.process.stdout.close()


def main() -> None:
    config = ServiceConfig(port=0, shutdown_grace=GRACE, request_seconds=60)
    listening_socket = open_listening_socket(config)
    print(f"http://127.0.0.1:{listening_socket.getsockname()[1]}", flush=True)

    @contextmanager
    def open_server(shared_socket: socket.socket) -> Iterator[Server]:
        if Path(sys.argv[1]).exists():
            raise CatalogUnavailable("the catalog does not answer")
        yield Server(build_guarded_app(shutdown_grace=GRACE, request_seconds=60), shared_socket)

    run_instances(listening_socket, open_server, instances=INSTANCES, instance_timeout=TIMEOUT, shutdown_grace=GRACE)


if __name__ == "__main__":
    main()
