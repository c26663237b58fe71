"""Watchdog of the service: keeps several server instances alive on one listening socket.

Gunicorn's arbiter forks, watches, kills and replaces the instances (decision 0073). Each instance runs the same server
as a service without a watchdog.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker
from prometheus_client.multiprocess import mark_process_dead

from nova_assets.errors import ServiceRefused
from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.service.http.access_log import configure_json_logging
from nova_assets.service.http.metrics import ServiceMetrics
from nova_assets.service.http.server import Server, exit_process_now

log = get_logger("nova_assets.service")

ServerFactory = Callable[[socket.socket], AbstractContextManager[Server]]
"""Opens a server that listens on a socket. The context closes everything that the server uses."""

_KILL_MARGIN = 5
"""Seconds after the grace period of a shutdown, until instances that still run are killed."""

_START_SECONDS = 120.0
"""Time limit for the start of an instance, and for its end after the last request."""

_RESTART_PAUSE = 2.0
"""Seconds that an instance waits before it ends because it could not start. The watchdog replaces it at once."""


def run_instances(
    listening_socket: socket.socket,
    open_server: ServerFactory,
    *,
    instances: int,
    instance_timeout: int,
    shutdown_grace: float,
) -> None:
    """Keep server instances alive until SIGTERM or SIGINT. Returns when all of them have ended.

    An instance that ends is replaced. An instance without a heartbeat is killed and replaced. SIGTERM to an instance
    replaces it after its requests in progress. SIGHUP to this process replaces all instances in this way.

    Args:
        listening_socket: bound socket that the instances share. This function closes it.
        open_server: opens the server of an instance, in the process of the instance.
        instances: number of server processes.
        instance_timeout: seconds without a heartbeat after which an instance is replaced. The event loop sends one
            about every second.
        shutdown_grace: seconds that requests in progress get at shutdown.

    Raises:
        ServiceRefused: the watchdog failed.
    """
    # One socket for all: with a socket for each (SO_REUSEPORT), connections would wait in the queue of an instance that
    # hangs, and be lost with it.
    options = {
        "bind": f"fd://{listening_socket.detach()}",
        "workers": instances,
        "worker_class": Instance,
        "timeout": instance_timeout,
        "graceful_timeout": int(shutdown_grace) + _KILL_MARGIN,
        "logger_class": _WatchdogLog,
        "proc_name": "nova serve",
        "control_socket_disable": True,  # its thread would live in the process that forks
        "child_exit": _forget_gauges,
    }
    if os.access("/dev/shm", os.W_OK):  # on a disk, a busy disk would delay heartbeats
        options["worker_tmp_dir"] = "/dev/shm"
    watchdog_pid = os.getpid()
    try:
        Arbiter(_InstancesApplication(options, open_server)).run()
    except SystemExit as end:
        if os.getpid() != watchdog_pid:  # an instance must not clean up what belongs to the watchdog
            exit_process_now(1 if end.code else 0)
        if end.code:
            raise ServiceRefused(
                "the watchdog of the service failed", found=f"exit code {end.code}", next="read the log above"
            ) from end


def claim_instance_folder(folder: Path, instances: int) -> Path:
    """First folder that no other instance has claimed, for the rest of this process. A replacement claims the folder of
    the instance that it replaces, since a claim ends with its process, even if the process is killed.

    Args:
        folder: folder of all instances.
        instances: number of instances. There are twice as many folders, because old and new instances run at the same
            time while the new ones start.
    """
    names = [f"instance-{n}" for n in range(1, 2 * instances + 1)]
    for name in names:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / f"{name}.claim", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            log.warning("the folder of an instance cannot be claimed: %s", error)
            break
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
        else:
            return folder / name  # the descriptor stays open, and with it the claim
    return folder / names[-1]


class Instance(Worker):  # type: ignore[misc]  # gunicorn ships no types
    """Server process that proves its health by a heartbeat.

    The event loop of the server sends the heartbeat. So a process that is stopped, or whose event loop is blocked,
    sends none. After ``timeout`` seconds without a heartbeat, the watchdog kills and replaces the process.
    """

    alive: bool

    def init_signals(self) -> None:
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # For gunicorn, SIGQUIT ends a worker at once. Here, Ctrl-C lets requests in progress finish, as SIGTERM does.
        signal.signal(signal.SIGQUIT, lambda *_: signal.raise_signal(signal.SIGTERM))
        faulthandler.enable()  # the watchdog sends SIGABRT first: the log then shows where the process hangs

    def run(self) -> None:
        """Serve until the watchdog or a signal stops this process."""
        try:
            self._serve(self.wsgi)
        except BaseException as error:
            if isinstance(error, NovaError):
                log.error("an instance of the service ends", extra={"error": error.render()})
            else:
                log.error("an instance of the service ends", exc_info=error)
            threading.Event().wait(_RESTART_PAUSE)
            sys.exit(1)  # gunicorn would end the service if its own exit code said that a worker cannot start

    def _serve(self, open_server: ServerFactory) -> None:
        listening_socket = socket.socket(fileno=os.dup(self.sockets[0].fileno()))
        with contextlib.ExitStack() as stack:
            with self._beat_in_background():
                server = stack.enter_context(open_server(listening_socket))
            server.run(lambda: self._beat(server.guarded_app.metrics))
            with self._beat_in_background():
                stack.close()

    def _beat(self, metrics: ServiceMetrics) -> None:
        self.notify()
        metrics.update_for_other_instances()
        reason = None
        if os.getppid() != self.ppid:
            reason = "its watchdog has ended"
        elif metrics.has_lost_shared_files():
            reason = "files of its metrics were deleted, so other instances no longer see its counts"
        if self.alive and reason is not None:
            self.alive = False
            log.warning("an instance of the service ends: %s", reason)
            signal.raise_signal(signal.SIGTERM)

    @contextlib.contextmanager
    def _beat_in_background(self) -> Iterator[None]:
        """Send heartbeats while the event loop does not run, for a limited time."""
        done = threading.Event()

        def beat() -> None:
            for _ in range(int(_START_SECONDS)):
                self.notify()
                if done.wait(1.0):
                    return

        threading.Thread(target=beat, name="nova-heartbeat", daemon=True).start()
        try:
            yield
        finally:
            done.set()


class _WatchdogLog(Logger):  # type: ignore[misc]  # gunicorn ships no types
    """Gunicorn's log, as JSON lines like the log of the service."""

    def setup(self, cfg: object) -> None:
        super().setup(cfg)
        configure_json_logging()


class _InstancesApplication(BaseApplication):  # type: ignore[misc]  # gunicorn ships no types
    """Gunicorn's view of the service: its configuration, and the function that opens a server."""

    def __init__(self, options: dict[str, Any], open_server: ServerFactory) -> None:
        self._options = options
        self._open_server = open_server
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> ServerFactory:
        return self._open_server


def _forget_gauges(arbiter: Arbiter, instance: Instance) -> None:
    """Remove the gauges of an instance that has ended from the shared metrics. Its counters stay."""
    with contextlib.suppress(OSError):  # an error would end the watchdog
        mark_process_dead(instance.pid)  # type: ignore[no-untyped-call]
