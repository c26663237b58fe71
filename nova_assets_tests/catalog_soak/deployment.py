"""The deployment of a soak in a folder: two services and ``dagster dev``, which are started again when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from nova_assets_tests.catalog_soak.tally import Tally
from nova_assets_tests.dagster_dev import free_port
from nova_assets_tests.soak import processes

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "nova_assets_tests.catalog_soak.project"
INSTANCES = 3

_SETTINGS = """\
[tool.nova]
project = "{project}:defs"
catalog = "sqlite:///{folder}/catalog.db"
warehouse = "{folder}/warehouse"
lease = 10
grace = 5
gc_grace = 10
"""

_PAUSE_BEFORE_RESTART = 0.5  # seconds
_PATIENCE = 150.0  # seconds that a process gets to end after SIGTERM
_DAGSTER_PATIENCE = 20.0


class KeptProcess:
    """A process that is started again whenever it ends, until it is to stop.

    Args:
        name: names its log, and its lines in the table.
    """

    def __init__(self, name: str, command: Sequence[str], deployment: Deployment) -> None:
        self.name = name
        self._command = list(command)
        self._deployment = deployment
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)

    def start(self) -> None:
        self._keeper.start()

    @property
    def pid(self) -> int | None:
        """The process, if it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def stop(self, kill: bool = False) -> None:
        """End the process, and start no other. After SIGTERM it gets time, and is then killed."""
        self._is_over.set()
        if (pid := self.pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        self._keeper.join(_DAGSTER_PATIENCE if self.name == "dagster" else _PATIENCE)
        if (pid := self.pid) is not None:
            if self.name != "dagster":  # it waits for its own runs and sensors, and is not what is tested
                self._deployment.tally.problem("all processes end", f"{self.name} does not end after SIGTERM")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._keeper.join(10)

    def _keep(self) -> None:
        while not self._is_over.is_set():
            with (self._deployment.folder / f"{self.name}.log").open("ab") as log:
                self._process = self._deployment.start_process(self._command, log.fileno())
            self._deployment.tally.count("starts", self.name)
            code = self._process.wait()
            if not self._is_over.is_set():
                self._deployment.tally.count("ends", f"{self.name}: {describe_code(code)}")
            self._is_over.wait(_PAUSE_BEFORE_RESTART)


class Deployment:
    """Folder, settings and processes, while the ``with`` block lasts.

    Args:
        folder: does not exist yet.
    """

    def __init__(self, folder: Path, tally: Tally) -> None:
        self.folder = folder
        self.home = folder / "dagster"
        self.catalog = folder / "catalog.db"
        self.tally = tally
        ports = [free_port(), free_port()]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self.service = KeptProcess("service", _serve("service", ports[0]), self)
        self.watchdog = KeptProcess("watchdog", _serve("watchdog", ports[1], "--instances", str(INSTANCES)), self)
        dagster = [sys.executable, "-m", "dagster", "dev", "-m", PROJECT, "-p", str(free_port())]
        self.dagster = KeptProcess("dagster", dagster, self)

    def __enter__(self) -> Deployment:
        self.home.mkdir(parents=True)
        settings = _SETTINGS.format(project=PROJECT, folder=self.folder)
        (self.folder / "pyproject.toml").write_text(settings, encoding="utf-8")
        for command in ([sys.executable, str(ROOT / "tools" / "init_dagster_home.py"), str(self.home)], nova("init")):
            with (self.folder / "init.log").open("ab") as log:
                if self.start_process(command, log.fileno()).wait(120):
                    raise RuntimeError((self.folder / "init.log").read_text())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for kept in (self.service, self.watchdog, self.dagster):
            kept._is_over.set()
        processes.kill_all(self.home)

    def start(self) -> None:
        for kept in (self.service, self.watchdog, self.dagster):
            kept.start()

    @property
    def instances(self) -> list[int]:
        """Server processes of the watchdog."""
        pid = self.watchdog.pid
        with suppress(OSError):
            return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
        return []

    def start_process(self, command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        """Start a process of the deployment. Its log gets both of its outputs."""
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        """This process's environment without the variables that would lead to another deployment."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NOVA_", "SPARK_", "DAGSTER_", "PROMETHEUS_"))}
        return {**kept, "DAGSTER_HOME": str(self.home), "PYTHONPATH": str(ROOT)}


def nova(*arguments: str) -> list[str]:
    """Command line of a command of nova."""
    return [sys.executable, "-m", "nova_assets.cli", *arguments]


def describe_code(code: int) -> str:
    """Exit code, or the signal that ended a process."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _serve(name: str, port: int, *options: str) -> list[str]:
    return nova("serve", "--auth", "none", "--port", str(port), "--views-folder", f"views-{name}", *options)
