"""A standalone Spark cluster from PySpark's own jars: a master and two workers, whose Python lacks this package."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from nova_assets.engine.session.java import find_java

PACKAGES_OF_WORKERS = (
    "pyspark",
    "py4j",
    "pandas",
    "numpy",
    "numpy.libs",
    "pyarrow",
    "dateutil",
    "pytz",
    "tzdata",
    "six.py",
)
WORKERS = 2
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java is short-lived here: to optimise its code costs more than to run it."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Args:
        master: address of the master, ``spark://127.0.0.1:PORT``.
        python: path of the Python of the workers.
        folders: work folder of each worker.
    """

    master: str
    python: Path
    folders: Sequence[Path]

    @property
    def applications_by_worker(self) -> list[set[str]]:
        """Applications that ran on each worker."""
        return [{p.name for p in folder.glob("app-*")} for folder in self.folders]


@contextmanager
def spark_cluster(home: Path, *hidden: Path) -> Iterator[Cluster]:
    """Run a master and two workers with one core each.

    Args:
        home: folder for the Python and the logs of the workers.
        hidden: folders that are empty for the workers, if ``can_hide_folders()``. They stand for the driver's machine.
    """
    python = make_worker_python(home / "python")
    folders = [home / f"worker{n}" for n in range(WORKERS)]
    for folder in folders:
        folder.mkdir()
    ports = ("--host", "127.0.0.1", "--webui-port", "0")
    with _service(home / "master.log", "master.Master", *ports, "--port", "0"):
        master = _wait_for(home / "master.log", r"Starting Spark master at (spark://\S+)")
        started: list[subprocess.Popen[bytes]] = []
        try:
            for folder in folders:
                words = (*ports, "--cores", "1", "--memory", "1g", "--work-dir", str(folder), master)
                started.append(_start(folder.with_suffix(".log"), folder, hidden, "worker.Worker", *words))
            for folder in folders:
                _wait_for(folder.with_suffix(".log"), r"(Successfully registered) with master")
            yield Cluster(master, python, folders)
        finally:
            for process in started:
                _stop(process)


@contextmanager
def _service(log: Path, *words: str) -> Iterator[None]:
    process = _start(log, log.parent, (), *words)
    try:
        yield
    finally:
        _stop(process)


def can_hide_folders() -> bool:
    """Whether this user may hide folders from the workers: root may, on Linux."""
    if shutil.which("unshare") is None or os.getuid() != 0:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def _start(log: Path, folder: Path, hidden: Sequence[Path], *words: str) -> subprocess.Popen[bytes]:
    """Start one of Spark's daemons with an environment of its own: nothing of this process reaches the workers."""
    spark_home = Path(pyspark.__file__).parent
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
    }
    name, *arguments = words
    command = [str(spark_home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    if hidden and can_hide_folders():
        script = 'for f in $HIDDEN; do mount -t tmpfs none "$f" || exit 1; done; exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
        environment["HIDDEN"] = " ".join(map(str, hidden))
    with log.open("wb") as out:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a daemon with its executors."""
    process.terminate()  # a worker ends its executors
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if (match := re.search(pattern, log.read_text(errors="replace"))) is not None:
            return match[1]
        time.sleep(0.1)
    raise AssertionError(f"no {pattern!r} in {log.name}: {log.read_text(errors='replace')[-2000:]}")


def make_worker_python(folder: Path) -> Path:
    """A virtual environment with links to a few of the packages of this one, and without ``nova_assets``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    target = folder / "lib" / version / "site-packages"
    for source in {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}:
        for name in PACKAGES_OF_WORKERS:
            if (source / name).exists():
                (target / name).symlink_to(source / name)
    return folder / "bin" / "python"
