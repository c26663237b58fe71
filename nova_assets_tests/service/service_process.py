"""``nova serve`` as a process of its own, as people start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from nova_assets.catalog.open_catalog import open_catalog
from nova_assets_tests import patient
from nova_assets_tests.conftest import ROOT


class ServiceProcess:
    """A service that can be killed, and started again at the same port."""

    def __init__(self, folder: Path, catalog: str, name: str = "service", *options: str) -> None:
        self.folder = folder
        self.catalog = catalog
        self.log = folder / f"{name}.log"
        self.options = (*options, "--views-folder", str(folder / f"{name}-views"))
        self.port = 0
        self.environment: dict[str, str] = {}
        """Further variables of the process."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        open_catalog(self.catalog).close()  # as `nova init` does: the service creates none at an address that was set
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NOVA_")}
        environment |= {"PYTHONPATH": str(ROOT), "NOVA_CATALOG": self.catalog, "NOVA_CACHE": ""}
        environment |= self.environment
        command = [sys.executable, "-m", "nova_assets.cli", "--warehouse", str(self.folder / "wh"), "serve"]
        command += ["--port", str(self.port), *self.options]
        with self.log.open("ab") as log:
            at = log.tell()
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, stderr=log
            )
        until = time.monotonic() + 60
        while time.monotonic() < until and self._process.poll() is None:
            said = self.log.read_bytes()[at:].decode(errors="replace")
            if "listening on " in said:
                self.port = int(said.split("listening on ")[1].split()[0].rpartition(":")[2])
                if self._is_ready():
                    return
            time.sleep(0.05)
        raise AssertionError(f"the service does not start:\n{self.log.read_text()[-3000:]}")

    def _is_ready(self) -> bool:
        try:
            return patient.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """As SIGTERM does; gives the exit code."""
        if self._process is None or self._process.poll() is not None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)


@contextmanager
def run_service_process(folder: Path, catalog: str, name: str = "service", *options: str) -> Iterator[ServiceProcess]:
    process = ServiceProcess(folder, catalog, name, *options)
    process.start()
    try:
        yield process
    finally:
        process.stop()
