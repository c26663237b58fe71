"""A deployment in a folder, under a real ``dagster dev``: made, started, started again, and ended without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from nova_assets.settings import Settings, load_settings
from nova_assets_tests.dagster_dev import free_port
from nova_assets_tests.soak import processes
from nova_assets_tests.soak.processes import Process

ROOT = Path(__file__).resolve().parents[2]
_PIPELINE = "nova_assets_tests.soak.pipeline"

_SETTINGS = """\
[tool.nova]
project = "{pipeline}:project"
spark = "server"
lease = 10
grace = 5
gc_grace = 10

[tool.nova.spark_config]
"spark.master" = "local[2]"
"spark.driver.memory" = "1g"
"spark.sql.shuffle.partitions" = "4"
"spark.local.connect.server.port" = "{port}"
"""

SLOW_TO_END = 90  # seconds after which a `dagster dev` whose daemon is dead is killed, too
_LOOK = 0.5  # seconds


class World:
    """The deployment, while the ``with`` block lasts.

    Args:
        folder: an empty one.
        tell: how ``dagster dev`` fares.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self.home = folder / "dagster"
        self.log = folder / "dagster-dev.log"
        self._tell = tell
        self._dev: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._over = threading.Event()

    def __enter__(self) -> World:
        environment = self._environment()
        # What this process starts (a Spark server, when an insert needs one) is of the deployment, too.
        os.environ.clear()
        os.environ.update(environment)
        self._make()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        left = processes.kill_all(self.home)
        if left:
            raise RuntimeError(f"still there: {left}")

    @property
    def settings(self) -> Settings:
        return load_settings(self.folder)

    def start(self) -> None:
        """Start Spark, and ``dagster dev``, that again whenever it ends, until ``stop``. Waits until both are there."""
        command = [sys.executable, "-m", "nova_assets.cli", "spark", "start"]
        subprocess.run(command, cwd=self.folder, stdout=subprocess.DEVNULL, check=True, timeout=120)
        self._over.clear()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()
        if not self.victims("daemon", 0, 120):
            raise RuntimeError(f"dagster dev has no daemon: {self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """End ``dagster dev`` and what it has started; Spark may stay."""
        self._over.set()
        if self._keeper is not None:
            self._keeper.join()
            self._keeper = None

    def victims(self, role: str, pick: int, patience: float) -> list[Process]:
        """A living process of a role, waited for, with those that go with it; none, where none comes."""
        until = time.monotonic() + patience
        while not (found := processes.of_role(self.home, role)) and time.monotonic() < until:
            time.sleep(0.1)
        return found if role in processes.AT_ONCE or not found else [found[pick % len(found)]]

    def _make(self) -> None:
        self.home.mkdir(parents=True)
        text = _SETTINGS.format(pipeline=_PIPELINE, port=free_port())
        (self.folder / "pyproject.toml").write_text(text, encoding="utf-8")
        command = [sys.executable, str(ROOT / "tools" / "init_dagster_home.py"), str(self.home)]
        subprocess.run(command, check=True, timeout=120)

    def _environment(self) -> dict[str, str]:
        """The environment of every process of the deployment: this one's, without what would lead elsewhere."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NOVA_", "SPARK_", "DAGSTER_", "MASTER"))}
        return {**kept, "DAGSTER_HOME": str(self.home), "PYTHONPATH": str(ROOT)}

    def _keep(self) -> None:
        """``dagster dev`` gives up when its daemon or webserver has died; code servers it starts again by itself."""
        while not self._over.is_set():
            dev = self._launch()
            headless_since: float | None = None
            while dev.poll() is None and not self._over.wait(_LOOK):
                headless = not processes.of_role(self.home, "daemon")
                headless_since = (headless_since or time.monotonic()) if headless else None
                if headless_since is not None and time.monotonic() - headless_since > SLOW_TO_END:
                    self._tell(f"dagster dev has no daemon for {SLOW_TO_END} s, and is killed")
                    os.killpg(dev.pid, signal.SIGKILL)
            if not self._over.is_set():
                self._tell(f"dagster dev ended with {dev.wait()}; it is started again")
        self._end(dev)

    def _launch(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dagster", "dev", "-m", _PIPELINE, "-p", str(free_port())]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, dev: subprocess.Popen[bytes]) -> None:
        """End it as a person would, and then as the machine would."""
        dev.send_signal(signal.SIGINT)
        try:
            dev.wait(30)
        except subprocess.TimeoutExpired:
            self._tell("dagster dev does not end, and is killed")
            os.killpg(dev.pid, signal.SIGKILL)
            dev.wait()
        spark = {p.pid for p in processes.of_role(self.home, "spark")}
        for process in processes.of_home(self.home):
            if process.pid not in spark and "pyspark" not in process.command:
                process.kill()
