"""A real ``dg dev``, as a person starts it: with the settings that are shipped, in a home that was made before."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]

T = TypeVar("T")


@contextmanager
def dagster_dev(
    home: Path, of: Sequence[str], *, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """``dg dev``, while the block lasts. Gives the webserver's address once that answers.

    Args:
        home: Dagster's, to be made. ``dagster.log`` beside it has what is said.
        of: which definitions: ``-f FILE``, ``-w FILE``.
        environment: beside this process's own.
    """
    home.mkdir()
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    env = {**os.environ, **(environment or {}), "DAGSTER_HOME": str(home)}
    made = [sys.executable, str(ROOT / "tools" / "init_dagster_home.py"), str(home)]
    subprocess.run(made, env=env, check=True, timeout=120)
    url, log = f"http://127.0.0.1:{free_port()}", home.parent / "dagster.log"
    command = [str(Path(sys.executable).with_name("dg")), "dev", *of, "-p", url.rpartition(":")[2]]
    with log.open("w") as says:
        dev = subprocess.Popen(command, cwd=cwd, env=env, stdout=says, stderr=says, start_new_session=True)
        try:

            def answers() -> bool:
                assert dev.poll() is None, log.read_text()[-3000:]
                return _answers(url)

            waited_for(answers, "a page", 180)
            yield url
        finally:
            os.killpg(dev.pid, signal.SIGTERM)
            try:
                dev.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(dev.pid, signal.SIGKILL)


def waited_for(look: Callable[[], T], what: str, seconds: float = 240, pace: float = 1.0) -> T:
    """The first that is seen and is anything."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if seen := look():
            return seen
        time.sleep(pace)
    raise AssertionError(f"in {seconds:.0f} s there was not {what}")


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/server_info", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
