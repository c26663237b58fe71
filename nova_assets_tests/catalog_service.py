"""``nova serve`` over a deployment on SQLite, without any probe that the test does not send itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from nova_assets_tests import patient
from nova_assets_tests.catalog_acts import TIMEOUT, Deployment
from nova_assets_tests.conftest import ROOT
from nova_assets_tests.service.watched_app import child_processes, is_running, wait_until


class Service:
    """``nova serve``, without any probe that the test does not send itself."""

    def __init__(self, deployment: Deployment, folder: Path, *options: str, **environment: str) -> None:
        self.deployment = deployment
        self.folder = folder
        self.log = folder / "service.log"
        self.options = options
        self.environment = environment
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NOVA_")}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment |= {"PYTHONPATH": os.pathsep.join(paths), "NOVA_CACHE": "", **self.environment}
        command = [sys.executable, "-m", "nova_assets.cli", "--catalog", str(self.deployment.catalog)]
        command += ["--warehouse", str(self.deployment.warehouse), "serve", "--port", "0", "--auth", "none"]
        command += ["--views-folder", str(self.folder / "views"), *self.options]
        self.url = ""
        with self.log.open("ab") as log:
            start = log.tell()
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, stderr=log
            )
        wait_until(lambda: self._has_started(start), f"the service does not start: {self.log.read_text()}", TIMEOUT)
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        wait_until(lambda: self.probe("/healthz") == 200, "the service does not answer", TIMEOUT)

    def _has_started(self, start: int) -> bool:
        assert self.process is not None
        text = self.log.read_bytes()[start:].decode(errors="replace")
        if "listening on " in text:
            self.url = text.split("listening on ")[1].split()[0]
        return bool(self.url) or self.process.poll() is not None

    @property
    def pids(self) -> set[int]:
        """The service and all processes that it has started."""
        assert self.process is not None
        return _descendants(self.process.pid)

    def probe(self, path: str) -> int:
        """HTTP status of a request; 0 if no server answers."""
        try:
            return patient.get(f"{self.url}{path}").status_code
        except httpx.HTTPError:
            return 0

    def try_insert(self) -> httpx.Response:
        """Insert a row. The row counts as acknowledged if the answer is 200."""
        row = self.deployment.next_row()
        response = patient.post(
            f"{self.url}/v1/channels/events/blocks",
            content=f'{{"id": "{row}"}}\n',
            headers={"Content-Type": "application/x-ndjson"},
        )
        if response.status_code == 200:
            self.deployment.acknowledged.append(row)
        return response

    def insert(self, count: int = 1) -> None:
        for _ in range(count):
            response = self.try_insert()
            assert response.status_code == 200, response.text

    def assert_refuses(self, code: str = "NOVA-CATALOG-UNAVAILABLE", inserts: int = 3) -> None:
        """Each insert is refused, the service says that it is not ready, and its process lives."""
        answers = [self.try_insert() for _ in range(inserts)]
        statuses = [(a.status_code, a.json().get("code")) for a in answers]
        assert statuses == [(503, code)] * inserts, statuses
        wait_until(lambda: self.probe("/readyz") == 503, "the service says that it is ready", 20)  # once a second
        assert self.probe("/healthz") == 200
        assert self.try_insert().status_code == 503, "a probe does not change that"

    def kill(self) -> None:
        """``kill -9`` of the service and of all that it has started."""
        assert self.process is not None
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """``SIGTERM``. Returns the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT)


@contextmanager
def run_service(deployment: Deployment, folder: Path, *options: str, **environment: str) -> Iterator[Service]:
    """``nova serve`` over a deployment.

    Args:
        folder: folder of the service's log and views. The service runs in it.
        environment: further variables.
    """
    folder.mkdir(parents=True, exist_ok=True)
    service = Service(deployment, folder, *options, **environment)
    try:
        service.start()
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.kill()


def _descendants(pid: int) -> set[int]:
    result, new = {pid}, {pid}
    while new:
        children: set[int] = set()
        for parent in new:
            with suppress(OSError):
                children |= child_processes(parent)
        new = children - result
        result |= new
    return {p for p in result if is_running(p)}


def deleted_files(pids: set[int], name: str = "catalog.db") -> list[str]:
    """Open files of the processes that have no name any more and were called so."""
    result = []
    for pid in pids:
        with suppress(OSError):
            for descriptor in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    target = os.readlink(descriptor.path)
                    if name in target and target.endswith(" (deleted)"):
                        result.append(f"{pid} {target}")
    return result
