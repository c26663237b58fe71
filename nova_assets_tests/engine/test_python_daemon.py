"""The daemon of Python workers on a Spark server: it forks workers for Spark, and ends once it has none."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

IDLE = 1.5

PROGRAM = f"""
from nova_assets.engine.session import python_daemon
python_daemon.CHECK_SECONDS, python_daemon.IDLE_SECONDS = 0.2, {IDLE}
python_daemon.main()
"""

SECRET = "of this test"


class Daemon:
    """The daemon as Spark's JVM starts it."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self.process.stdout is not None
        (self.port,) = struct.unpack("!i", self.process.stdout.read(4))

    def new_worker(self) -> socket.socket:
        """A worker that waits for its task."""
        line = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        assert struct.unpack("!i", line.recv(4))[0] > 0, "the worker's process id"
        line.sendall(struct.pack("!i", len(SECRET)) + SECRET.encode())
        assert line.recv(6) == struct.pack("!i", 2) + b"ok"
        return line


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    started = Daemon()
    yield started
    started.process.kill()


@pytest.mark.slow
def test_a_daemon_without_workers_ends(daemon: Daemon) -> None:
    started = time.monotonic()
    daemon.process.wait(timeout=30)
    assert time.monotonic() - started >= IDLE - 0.5
    with pytest.raises(ConnectionRefusedError):  # Spark then starts another daemon
        socket.create_connection(("127.0.0.1", daemon.port), timeout=10)


@pytest.mark.slow
def test_a_daemon_with_workers_stays_until_they_end(daemon: Daemon) -> None:
    first, second = daemon.new_worker(), daemon.new_worker()
    time.sleep(3 * IDLE)
    first.close()
    time.sleep(3 * IDLE)
    assert daemon.process.poll() is None, "one worker is left"
    second.close()
    daemon.process.wait(timeout=30)


def test_a_daemon_ends_with_spark(daemon: Daemon) -> None:
    assert daemon.process.stdin is not None
    line = daemon.new_worker()
    daemon.process.stdin.close()
    daemon.process.wait(timeout=10)
    assert line.recv(1) == b"", "the worker has ended, too"
