"""Watchdog of the service: keeps several server instances alive on one listening socket.

Gunicorn's arbiter forks, watches, kills and replaces the instances (decision 0073). Each instance runs the same server
as a service without a watchdog.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from nova_assets.errors import ServiceRefused, SettingsError
from nova_assets.service.http.access_log import configure_json_logging
from nova_assets.service.http.shared_metrics import SHARED_FOLDER_VARIABLE, drop_gauges
from nova_assets.service.watchdog.instance import Instance, ServerFactory

_LEAST_TIMEOUT = 2
"""Least time in seconds without a heartbeat. The event loop sends one about every second."""

_KILL_MARGIN = 5
"""Seconds after the grace period of a shutdown, until instances that still run are killed."""


@dataclass(frozen=True, slots=True)
class WatchdogConfig:
    """Configuration of the watchdog.

    Args:
        instances: number of server processes.
        instance_timeout: seconds without a heartbeat after which an instance is replaced.
        shutdown_grace: seconds that requests in progress get at shutdown.
        heartbeat_folder: folder for the files of heartbeats where there is no memory for files. It is created if it is
            missing. By default, the system's temporary folder.
    """

    instances: int
    instance_timeout: int
    shutdown_grace: float
    heartbeat_folder: Path | None = None

    def __post_init__(self) -> None:
        if self.instances < 1 or self.instance_timeout < _LEAST_TIMEOUT:
            raise SettingsError(
                "limits of the watchdog are too low",
                found=f"instances={self.instances}, instance_timeout={self.instance_timeout}",
                expected=f"at least 1 instance, and a timeout of at least {_LEAST_TIMEOUT} seconds",
            )


def run_instances(listening_socket: socket.socket, open_server: ServerFactory, config: WatchdogConfig) -> None:
    """Keep server instances alive until SIGTERM or SIGINT. Returns when all of them have ended.

    An instance that ends is replaced. An instance without a heartbeat is killed and replaced. SIGTERM to an instance
    replaces it after its requests in progress. SIGHUP to this process replaces all instances in this way.

    Args:
        listening_socket: bound socket that the instances share. This function closes it.
        open_server: opens the server of an instance, in the process of the instance.

    Raises:
        ServiceRefused: the watchdog failed.
    """
    watchdog_pid = os.getpid()
    try:
        Arbiter(_InstancesApplication(listening_socket, open_server, config)).run()
    except SystemExit as end:
        if os.getpid() != watchdog_pid:  # an instance must not clean up what belongs to the watchdog
            os._exit(end.code if isinstance(end.code, int) else 1)
        if end.code:
            raise ServiceRefused(
                "the watchdog of the service failed", found=f"exit code {end.code}", next="read the log above"
            ) from end


class _WatchdogLog(Logger):  # type: ignore[misc]  # gunicorn ships no types
    """Gunicorn's log, as JSON lines like the log of the service."""

    def setup(self, cfg: object) -> None:
        super().setup(cfg)
        configure_json_logging()


class _InstancesApplication(BaseApplication):  # type: ignore[misc]  # gunicorn ships no types
    """Gunicorn's view of the service: its configuration, and the function that opens a server."""

    def __init__(self, listening_socket: socket.socket, open_server: ServerFactory, config: WatchdogConfig) -> None:
        self._file_descriptor = listening_socket.detach()
        self._open_server = open_server
        self._config = config
        super().__init__()

    def load_config(self) -> None:
        values = {
            "bind": f"fd://{self._file_descriptor}",
            "workers": self._config.instances,
            "worker_class": Instance,
            "timeout": self._config.instance_timeout,
            "graceful_timeout": int(self._config.shutdown_grace) + _KILL_MARGIN,
            "logger_class": _WatchdogLog,
            "proc_name": "nova serve",
            # Its thread would live in the process that forks.
            "control_socket_disable": True,
            "child_exit": lambda arbiter, instance: _drop_gauges(instance.pid),
        }
        heartbeat_folder = Path("/dev/shm") if _is_usable_memory_folder() else self._config.heartbeat_folder
        if heartbeat_folder is not None:
            values["worker_tmp_dir"] = str(heartbeat_folder)
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> ServerFactory:
        return self._open_server


def _drop_gauges(pid: int) -> None:
    """Remove the gauges of an instance that has ended from the shared metrics. Its counters stay."""
    folder = os.environ.get(SHARED_FOLDER_VARIABLE)
    if folder:
        drop_gauges(pid, Path(folder))


def _is_usable_memory_folder() -> bool:
    """Whether heartbeats can be files in memory. On a disk, a busy disk would delay them."""
    return Path("/dev/shm").is_dir() and os.access("/dev/shm", os.W_OK)
