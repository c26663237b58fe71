"""Spark sessions: the only module that builds them. A session from Dagster or from the user is used as it is.

There are two kinds of settings: those that a session must be *built* with (memory, logs), and those that can change
while it runs. All settings on which correctness or speed of the engine depends are of the second kind. They are set
around each use. They therefore also apply to a session of the user, whose own settings stay unchanged.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pyarrow as pa

from nova_assets.engine.session.cluster import cluster_python_environment, is_cluster_session, prepare_workers
from nova_assets.engine.session.environment import temporary_environment
from nova_assets.engine.session.java import use_java
from nova_assets.engine.session.quiet_stderr import (
    filter_java_startup_messages,
    silence_context_threads,
    silence_loggers,
)
from nova_assets.engine.session.spark_config import s3a_package_setting, spark_config
from nova_assets.engine.session.worker_errors import nova_error_from
from nova_assets.engine.storage.integrity import altered_file_error_from
from nova_assets.errors import EngineUnavailable, SchemaMismatch
from nova_assets.masking import get_logger
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.nova_error import NovaError
from nova_assets.settings import DEFAULT_HOME
from nova_assets.spark_location import is_cluster_master
from nova_assets.user_code_errors import MORE_MEMORY_ADVICE, is_spark_connection_lost, summarize_user_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger("nova_assets.engine")


class LazySparkSession:
    """A Spark session that starts on first use.

    Args:
        session_source: session, function without arguments that returns a session, or None to build a session.
        check_session: called with each new session; raises NovaError if the session cannot be used.
    """

    def __init__(
        self,
        session_source: SparkSession | Callable[[], SparkSession] | None = None,
        check_session: Callable[[SparkSession], None] = lambda _: None,
    ) -> None:
        self._session_source = session_source
        self._check_session = check_session
        self._session: SparkSession | None = None
        self._lock = threading.Lock()
        self._worker_check: tuple[int, bool] | None = None

    @property
    def current(self) -> SparkSession | None:
        """The session, which may have ended; None if none was started."""
        return self._session

    def get(self) -> SparkSession:
        """Spark session. A session that has ended is replaced if this package, or the function, can create another one.

        Raises:
            EngineUnavailable: no session can be created, or the session that the user passed has ended.
        """
        with self._lock:
            if self._session is not None and has_session_ended(self._session):
                self._drop_ended_session(self._session)
            if self._session is None:
                if self._session_source is None:
                    session = get_or_build_session()
                elif callable(self._session_source):
                    session = self._session_source()
                else:
                    session = self._session_source
                silence_loggers()
                _check_connect_supported(session)
                self._check_session(session)
                self._session = session
            return self._session

    def _drop_ended_session(self, spark: SparkSession) -> None:
        """Forget an ended session. Raises EngineUnavailable if the session is a user's, which only the user can
        recreate."""
        can_create = self._session_source is None or callable(self._session_source)
        if not can_create or (not is_connect_session(spark) and spark.sparkContext not in _own_contexts):
            raise EngineUnavailable(
                "the Spark session that was passed to the store has ended",
                found="its Java process or context has ended, most often for lack of memory; its log gives the reason",
                expected="an active session",
                next='open the store with a session that has more memory (spark.driver.memory), or with spark="local"',
            )
        log.warning("Spark has ended, most often for lack of memory; a new session is started")
        _clear_pyspark_singletons(spark)
        self._session = None

    @contextmanager
    def convert_spark_end_errors(self) -> Iterator[None]:
        """Context for uses of the session. If Spark ends in it, the error reports this end and not its consequences.

        Raises:
            EngineUnavailable: Spark has ended.
            NovaError: an error of this package that ended a Spark task (``worker_errors``).
        """
        session_at_start = self._session
        try:
            yield
        except EngineUnavailable:
            raise
        except Exception as error:
            if (task_error := nova_error_from(error)) is not None:
                raise task_error from error
            # A frame of an ended session also fails after a new session was started.
            was_replaced = (
                session_at_start is not None
                and session_at_start is not self._session
                and is_spark_connection_lost(error)
            )
            spark = session_at_start if was_replaced else self._session
            if spark is None or not _is_session_end_error(error, spark):
                raise
            reason = error.what if isinstance(error, NovaError) else summarize_user_error(error).message
            raise EngineUnavailable(
                "Spark ended during a computation",
                found=reason[:500],
                expected="enough memory for the Java process, most often",
                next=f"{MORE_MEMORY_ADVICE}; Spark's log gives the reason",
            ) from None

    @property
    def can_use_workers(self) -> bool:
        """Whether Spark's Python workers can run functions of this package: they need the package and its version of
        Arrow. Checked once per session."""
        spark = self.get()
        if self._worker_check is None or self._worker_check[0] != id(spark):
            can_import = _can_workers_import_nova(spark)
            if can_import is None:
                return False
            self._worker_check = id(spark), can_import
        return self._worker_check[1]

    def to_frame(self, table: pa.Table) -> DataFrame:
        """Spark frame of a table."""
        from nova_assets.engine.rows.spark_versions import frame_from_arrow

        return frame_from_arrow(self.get(), table)

    def to_table(self, frame: DataFrame) -> pa.Table:
        """All rows of a frame, in the column types of files: the session's own time zone is not part of the data."""
        from nova_assets.engine.rows.spark_types import from_struct
        from nova_assets.engine.rows.spark_versions import collect_to_arrow

        try:
            table = collect_to_arrow(frame)
        except Exception as error:
            if (altered := altered_file_error_from(error)) is not None:
                raise altered from error
            raise
        target_schema = to_arrow_schema(from_struct(frame.schema))
        return table if table.schema.equals(target_schema) else table.cast(target_schema)

    def to_table_of_few(self, frame: DataFrame, max_rows: int) -> pa.Table | None:
        """All rows of a frame; None if it has more rows, or types that the frame of a table would not have."""
        from nova_assets.engine.rows.spark_types import from_struct, to_struct

        try:
            same = to_struct(from_struct(frame.schema))
        except SchemaMismatch:  # a type that no channel can have, such as an interval
            return None
        if [f.dataType.simpleString() for f in same] != [f.dataType.simpleString() for f in frame.schema]:
            return None
        try:
            table = self.to_table(frame.limit(max_rows + 1))
        except Exception as error:
            if "maxResultSize" in str(error):  # few rows, but too many bytes
                return None
            raise
        return table if table.num_rows <= max_rows else None


def _can_workers_import_nova(spark: SparkSession) -> bool | None:
    """Whether Spark's Python workers can import this package; None if this attempt could not determine it."""
    from nova_assets.engine.buckets.spark_jobs import can_workers_run_nova

    try:
        return can_workers_run_nova(spark)
    except Exception as error:
        cannot_import = any(word in str(error) for word in ("ModuleNotFoundError", "ImportError", "PythonException"))
        log.warning(
            "Spark's Python workers cannot run nova_assets, so blocks are written without a key layout: %s", error
        )
        return False if cannot_import else None


def _check_connect_supported(spark: SparkSession) -> None:
    if is_connect_session(spark):
        from nova_assets.engine.rows.spark_versions import SPARK_4

        if not SPARK_4:
            raise EngineUnavailable(
                "Spark Connect needs PySpark 4",
                found="a session of Spark Connect, and PySpark 3.5",
                expected="a classic session",
                next="pip install 'pyspark>=4.0', or spark=\"local\"",
            )


def is_connect_session(spark: Any) -> bool:
    """Whether a session is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


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
) -> SparkSession:
    """Create a session from settings, after a preparation of the environment.

    Args:
        make_session: creates a session from settings, or returns the existing session of this process.
        spark_location, home, extra_settings: as for ``build``.
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
    config = {**spark_config(spark_location), **extra_settings}
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
    spark_location: str = "local", home: Path | None = None, extra_settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Active Spark session of this process, or a new one.

    Args:
        spark_location: ``local``, ``server``, ``sc://host:port`` or ``spark://host:port``, as in ``Settings.spark``.
        home: folder in which the server of a deployment is recorded.
        extra_settings: settings that extend or override those of this package.

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
        return create_session(_get_or_create, spark_location, home, extra_settings or {})
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


def has_session_ended(spark: Any) -> bool:
    """Whether a session can no longer compute: its server, its Java process or its context has ended."""
    if is_connect_session(spark):
        from nova_assets.engine.session.connect_server import has_server_ended

        return has_server_ended(spark)
    context = spark.sparkContext
    if context._jsc is None or _java_has_ended(context):
        return True
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:  # Java does not answer
        return True


def _java_has_ended(context: Any) -> bool:
    process = getattr(context._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _is_session_end_error(error: BaseException, spark: Any) -> bool:
    """Whether the end of Spark caused a failure. Java closes its connections shortly before its process ends."""
    max_wait = 5.0 if is_spark_connection_lost(error) else 0.0
    deadline = time.monotonic() + max_wait
    while not has_session_ended(spark):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def _clear_pyspark_singletons(spark: Any) -> None:
    """Make PySpark forget an ended session. Otherwise it would return that session again and call a process that has
    ended."""
    if is_connect_session(spark):
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    gateway = spark.sparkContext._gateway
    with context._lock:
        if context._gateway is not gateway and context._gateway is not None:
            return  # another thread has created a new gateway
        if _java_has_ended(spark.sparkContext):
            with suppress(Exception):
                gateway.shutdown()
            context._gateway = context._jvm = None
        context._active_spark_context = None
    session: Any = SparkSession
    session._instantiatedSession = session._activeSession = None
