"""Spark sessions: the only module that builds them. A session from Dagster or from the user is used as it is.

There are two kinds of settings: those that a session must be *built* with (memory, logs), and those that can change
while it runs. All settings on which correctness or speed of the engine depends are of the second kind. They are set
around each use. They therefore also apply to a session of the user, whose own settings stay unchanged.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from nova_assets.engine.session.cluster import cluster_python_environment, is_cluster_session, prepare_workers
from nova_assets.engine.session.core_limit import limited_settings
from nova_assets.engine.session.environment import temporary_environment
from nova_assets.engine.session.java import use_java
from nova_assets.engine.session.quiet_stderr import (
    filter_java_startup_messages,
    silence_context_threads,
    silence_loggers,
)
from nova_assets.engine.session.spark_config import is_connect_session, s3a_package_setting, spark_config
from nova_assets.errors import EngineUnavailable
from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.settings import DEFAULT_HOME
from nova_assets.spark_location import is_cluster_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("nova_assets.engine")


@contextmanager
def _connect_mode_only_if_connected() -> Iterator[None]:
    """PySpark notes in the environment that it connects. After a failure, this would prevent every local session."""
    before = os.environ.get(_CONNECT_MODE)
    try:
        yield
    except BaseException:
        if before is None:
            os.environ.pop(_CONNECT_MODE, None)
        raise


_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"


def create_session(
    make_session: Callable[[Mapping[str, str]], SparkSession],
    spark_location: str,
    home: Path | None,
    extra_settings: Mapping[str, str],
    max_cores: int | None = None,
) -> SparkSession:
    """Create a session from settings, after a preparation of the environment.

    Args:
        make_session: creates a session from settings, or returns the existing session of this process.
        spark_location, home, extra_settings, max_cores: as for ``get_or_build_session``.
    """
    if spark_location.startswith("sc://"):
        with _connect_mode_only_if_connected():
            return _hide_master_variable(make_session)({**extra_settings, "spark.remote": spark_location})
    extra_settings = {**s3a_package_setting(extra_settings), **extra_settings}
    if spark_location == "server":
        prepare_environment()
        from nova_assets.engine.session.connect_server import connect_session

        return connect_session(_hide_master_variable(make_session), home or Path(DEFAULT_HOME), extra_settings)  # type: ignore[no-any-return]
    silence_loggers()
    config = limited_settings({**spark_config(spark_location), **extra_settings}, max_cores)
    is_on_cluster = is_cluster_master(config["spark.master"])
    with cluster_python_environment(config) if is_on_cluster else nullcontext(), filter_java_startup_messages():
        prepare_environment()
        session = make_session(config)
    if not is_connect_session(session):
        _own_contexts.add(session.sparkContext)
        silence_context_threads(session.sparkContext)
        if is_cluster_session(session):
            prepare_workers(session, config)
    return session


def _hide_master_variable(
    make_session: Callable[[Mapping[str, str]], SparkSession],
) -> Callable[[Mapping[str, str]], SparkSession]:
    """Session factory that hides the variable MASTER. It names the master of the server, but PySpark would use it for
    the client."""

    def make_session_without_master(config: Mapping[str, str]) -> SparkSession:
        with temporary_environment(MASTER=None):
            return make_session(config)

    return make_session_without_master


def prepare_environment() -> None:
    """Set the environment that Spark needs at its start: this Python, and a suitable Java."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    use_java()


def get_or_build_session(
    spark_location: str = "local",
    home: Path | None = None,
    extra_settings: Mapping[str, str] | None = None,
    max_cores: int | None = None,
) -> SparkSession:
    """Active Spark session of this process, or a new one.

    Args:
        spark_location: ``local``, ``server``, ``sc://host:port`` or ``spark://host:port``, as in ``Settings.spark``.
        home: folder in which the server of a deployment is recorded.
        extra_settings: settings that extend or override those of this package.
        max_cores: number of cores of a new session, at most; None for all. A server has its own number.

    Raises:
        EngineUnavailable: no session can be created.
    """
    try:
        from pyspark.sql import SparkSession

        active_session = SparkSession.getActiveSession()
        if active_session is not None and not has_session_ended(active_session):
            return active_session
        if spark_location == "local" and os.environ.get("SPARK_REMOTE"):
            return SparkSession.builder.getOrCreate()
        return create_session(_get_or_create, spark_location, home, extra_settings or {}, max_cores)
    except NovaError:
        raise
    except Exception as error:
        raise EngineUnavailable(
            "Spark cannot be started",
            found=f"{type(error).__name__}: {str(error).strip() or 'no reason given'}"[:2000],
            expected="a Spark session",
            next="nova doctor",
        ) from error


def _get_or_create(config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for name, value in config.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


_own_contexts: WeakSet[Any] = WeakSet()
"""Contexts of the classic sessions that this package has created."""


def was_created_here(spark: SparkSession) -> bool:
    """Whether this package has created a classic session, in this process."""
    return spark.sparkContext in _own_contexts


def has_session_ended(spark: Any) -> bool:
    """Whether a session can no longer compute: its server, its Java process or its context has ended."""
    if is_connect_session(spark):
        from nova_assets.engine.session.connect_server import has_server_ended

        return has_server_ended(spark)
    context = spark.sparkContext
    if context._jsc is None or has_java_ended(context):
        return True
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:  # Java does not answer
        return True


def has_java_ended(context: Any) -> bool:
    process = getattr(context._gateway, "proc", None)
    return process is not None and process.poll() is not None


def session_cpu_seconds(spark: SparkSession) -> float | None:
    """CPU time of this process, of its Java process, and of the tasks of Spark's executors. None for Spark Connect,
    whose server does not tell, and for a session that has ended.
    """
    if is_connect_session(spark):
        return None
    try:
        return time.process_time() + _java_milliseconds(spark) / 1000
    except Exception as error:  # a measurement must not fail the work that it measures
        log.debug("the CPU time of Spark is not known: %s", error)
        return None


def _java_milliseconds(spark: Any) -> int:
    """CPU time of the Java process, and run time of tasks in other processes."""
    process_time = spark._jvm.java.lang.ProcessHandle.current().info().totalCpuDuration()
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    others = (executors.apply(n) for n in range(executors.size()))
    elsewhere = sum(int(executor.totalDuration()) for executor in others if executor.id() != "driver")
    return (int(process_time.get().toMillis()) if process_time.isPresent() else 0) + elsewhere
