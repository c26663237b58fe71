"""Spark Connect server of a deployment: started on first use, and kept running for all processes until it is stopped.

PySpark 4.3 can start, find and stop such a server (``pyspark.sql.connect.local_server``). The server listens on this
machine only, and requires a token that only its user can read. This module gives the server the settings of the
deployment and a record file of its own, so that deployments with different code do not share a server.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from nova_assets.engine.session.environment import temporary_environment
from nova_assets.engine.session.spark_config import own_import_paths, spark_config
from nova_assets.errors import EngineUnavailable
from nova_assets.masking import get_logger

log = get_logger("nova_assets.engine")

_RECORD_FILE_VARIABLE = "SPARK_LOCAL_CONNECT_DISCOVERY"

STOP_TIMEOUT = 10.0
"""Seconds that a stopped server has to end before it is killed."""


_environment_lock = threading.Lock()

_sessions: MutableMapping[Any, Callable[[], bool]] = WeakKeyDictionary()
"""For each session of this process, a function that tells whether its server is alive."""


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A recorded server.

    Args:
        is_alive: whether the server runs and accepts connections.
        log_folder: folder of its logs.
    """

    address: str
    pid: int
    version: str
    is_alive: bool
    log_folder: Path


def ensure_server_running(home: Path, extra_settings: Mapping[str, str]) -> dict[str, str]:
    """Start the deployment's server unless it runs. Returns the settings for a session on it.

    Raises:
        EngineUnavailable: this PySpark version does not support such a server.
    """

    _use_record_file(home)
    _end_unrecorded_server()
    from pyspark.sql.connect.local_server import reuse_or_start_local_connect_server

    config = {**spark_config(), "spark.app.name": f"nova_assets {home.parent.name}"}
    config |= {"spark.python.daemon.module": "nova_assets.engine.session.python_daemon", **extra_settings}
    paths = dict.fromkeys([str(home.parent), *own_import_paths()])  # import paths of its workers
    config["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(paths)
    with temporary_environment(PYTHONPATH=config["spark.executorEnv.PYTHONPATH"]):
        address = reuse_or_start_local_connect_server(config["spark.master"], dict(config))
    _warn_if_settings_changed(home, extra_settings)
    return {"spark.remote": address}  # further settings would be applied before the session is ready


def connect_session(
    make_session: Callable[[Mapping[str, str]], Any], home: Path, extra_settings: Mapping[str, str]
) -> Any:
    """Session on the deployment's server, which is started unless it runs.

    By default, PySpark retries calls to a silent server for ten minutes. That is appropriate for a remote server. Here
    it is known whether the server runs. A server that has ended does not come back, and a new server does not know its
    sessions.

    Args:
        make_session: creates a session from settings, or returns the existing session of this process.
    """
    config = ensure_server_running(home, extra_settings)
    # The server ends a session when its process exits, instead of an hour later.
    with _environment_lock, temporary_environment(SPARK_CONNECT_RELEASE_SESSION_ON_EXIT="true"):
        session = make_session(config)
        if has_server_ended(session):
            session.stop()
            session = make_session(config)
    if session not in _sessions:
        # A new server may reuse the address of an ended one, so the process id identifies the server.
        _sessions[session] = partial(_is_server_process, _recorded_pid(_use_record_file(home), config["spark.remote"]))
        session.client.set_retry_policies([_create_retry_policy(_sessions[session])])
    make_session(
        {**config, **{k: v for k, v in extra_settings.items() if k.startswith("spark.sql.")}}
    )  # applies the settings to the existing session
    return session


def is_own_server(session: Any) -> bool:
    """Whether this package has started the server of a session."""
    return session in _sessions


def has_server_ended(session: Any) -> bool:
    """Whether the server of a session is known to have ended."""
    is_server_alive = _sessions.get(session)
    return is_server_alive is not None and not is_server_alive()


def find_recorded_server(home: Path) -> ConnectServer | None:
    """Server of the deployment; None if none was started."""
    record_file = _use_record_file(home)
    record = _read_record(record_file)
    if record is None:
        return None
    from pyspark.sql.connect.local_server import Discovery, LocalConnectServer

    with Discovery() as discovery:
        is_alive = LocalConnectServer(discovery).is_reusable()
    return ConnectServer(*record, is_alive, record_file.parent / "logs")


def stop_server(home: Path) -> bool:
    """Stop the deployment's server and wait for its end. Returns whether a server ran."""
    server = find_recorded_server(home)
    from pyspark.sql.connect.local_server import stop_local_connect_server

    ended_unrecorded_server = _end_unrecorded_server()
    stopped_recorded_server = bool(stop_local_connect_server())
    if stopped_recorded_server and server is not None:
        _end_process(server.pid)
    return stopped_recorded_server or ended_unrecorded_server


def _end_unrecorded_server() -> bool:
    """End a server whose starter died before it recorded the server. Returns whether there was one.

    The starter records the server once it is ready. Nobody can use an unrecorded server. Spark's script would also
    mistake it, or a leftover of it, for a running server and start no other.
    """
    from pyspark.sql.connect.local_server import Discovery

    with Discovery() as discovery:  # a process that starts a server holds this lock, too
        record, pid = discovery.load(), discovery.daemon_pid()
        if pid is None:
            return False
        is_running = _is_server_process(pid)
        if is_running and record is not None and record["pid"] == pid:
            return False
        if is_running:
            log.warning("the Spark server (process %d) is stopped: its starter died before the server was ready", pid)
            _end_process(pid)
        discovery.clear()
        return is_running


def _end_process(pid: int) -> None:
    """End a server. If its JVM hangs during shutdown, it is killed, since nobody could find it afterwards."""
    deadline = time.monotonic() + STOP_TIMEOUT
    if not _is_server_process(pid):
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        while _is_server_process(pid):
            if time.monotonic() > deadline:
                log.warning("the Spark server (process %d) does not stop and is killed", pid)
                os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.1)


def _recorded_pid(record_file: Path, address: str) -> int | None:
    """Process id of the server that is recorded under an address."""
    record = _read_record(record_file)
    return record[1] if record is not None and record[0] == address else None


def _read_record(record_file: Path) -> tuple[str, int, str] | None:
    """Address, process id and version of the recorded server; None without a valid record."""
    try:
        record = json.loads(record_file.read_text(encoding="utf-8"))
        return f"sc://{record['host']}:{record['port']}", int(record["pid"]), str(record.get("spark_version", ""))
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _create_retry_policy(is_server_alive: Callable[[], bool]) -> Any:
    """Retry policy that retries calls only as long as the server is alive."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    class WhileItRuns(DefaultPolicy):
        def can_retry(self, e: BaseException) -> bool:
            return super().can_retry(e) and is_server_alive()

    return WhileItRuns(max_retries=300, max_backoff=2000)


def _is_server_process(pid: int | None) -> bool:
    """Whether a process is a running server. An ended process may still be listed, and its id may be reused."""
    if pid is None:
        return False
    listed = subprocess.run(["ps", "-ww", "-p", str(pid), "-o", "command="], capture_output=True, text=True)
    return "SparkConnectServer" in listed.stdout


def _warn_if_settings_changed(home: Path, extra_settings: Mapping[str, str]) -> None:
    """Log a warning if the running server was started with other settings than the current ones. It keeps its settings.

    Only a digest of the settings is recorded, since they may contain secrets.
    """
    startup_settings = sorted((k, v) for k, v in extra_settings.items() if not k.startswith("spark.sql."))
    digest = hashlib.sha256(json.dumps(startup_settings).encode()).hexdigest()
    server = find_recorded_server(home)
    settings_file = _use_record_file(home).with_name("settings.json")
    current = {"pid": None if server is None else server.pid, "settings": digest}
    try:
        recorded_settings = json.loads(settings_file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        recorded_settings = {}
    if recorded_settings.get("pid") != current["pid"]:
        settings_file.write_text(json.dumps(current), encoding="utf-8")
    elif recorded_settings.get("settings") != digest:
        log.warning(
            "the Spark server runs with an older spark_config; to start it with the current one: nova spark stop"
        )


def _use_record_file(home: Path) -> Path:
    """Point PySpark to the record file of the deployment's server. Returns the path of the file.

    Raises:
        EngineUnavailable: packages of Spark Connect are missing, or this PySpark version does not support such a
            server.
    """
    try:
        module_spec = find_spec("pyspark.sql.connect.local_server")
    except ImportError as error:  # importing Connect checks for its dependencies
        raise EngineUnavailable(
            "Spark Connect needs packages that are not installed",
            found=str(error),
            next="pip install 'nova-assets[connect]'",
        ) from error
    if module_spec is None:
        import pyspark

        raise EngineUnavailable(
            "this version of PySpark cannot run a shared Spark Connect server",
            found=f"PySpark {pyspark.__version__}",
            expected="PySpark 4.3 or newer",
            next='start a server and set spark = "sc://host:port", or set spark = "local"',
        )
    record_file = home / "spark" / "server.json"
    record_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ[_RECORD_FILE_VARIABLE] = str(record_file)
    return record_file
