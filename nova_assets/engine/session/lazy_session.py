"""The Spark session of an engine, which starts on first use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova_assets.engine.session.core_limit import check_core_limit
from nova_assets.engine.session.quiet_stderr import silence_loggers
from nova_assets.engine.session.shared_settings import batch_limit_scope
from nova_assets.engine.session.spark_config import is_connect_session
from nova_assets.engine.session.spark_session import (
    get_or_build_session,
    has_java_ended,
    has_session_ended,
    was_created_here,
)
from nova_assets.engine.session.worker_errors import nova_error_from
from nova_assets.engine.storage.integrity import altered_file_error_from
from nova_assets.engine.storage.throttling import throttling_scope
from nova_assets.errors import EngineUnavailable, SchemaMismatch
from nova_assets.masking import get_logger
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.nova_error import NovaError
from nova_assets.user_code_errors import MORE_MEMORY_ADVICE, is_spark_connection_lost, summarize_user_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger("nova_assets.engine")


@dataclass(frozen=True, slots=True)
class SessionBuilder:
    """Starts the session of this process, or returns the one that runs already.

    Args:
        build: function of the largest number of cores that a new session has; None for all.
    """

    build: Callable[[int | None], SparkSession]


class LazySparkSession:
    """A Spark session that starts on first use.

    Args:
        session_source: session, function without arguments that returns a session, builder of a session of this
            package, or None for a builder of a local session.
        check_session: called with each new session; raises NovaError if the session cannot be used.
    """

    def __init__(
        self,
        session_source: SparkSession | Callable[[], SparkSession] | SessionBuilder | None = None,
        check_session: Callable[[SparkSession], None] = lambda _: None,
    ) -> None:
        self._session_source = session_source or SessionBuilder(lambda cores: get_or_build_session(max_cores=cores))
        self._check_session = check_session
        self._session: SparkSession | None = None
        self._lock = threading.Lock()
        self._worker_check: tuple[int, bool] | None = None
        self._max_cores: int | None = None

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
            # Otherwise PySpark would answer each further call with "Connection refused", and no retry could succeed.
            if self._session is not None and has_session_ended(self._session):
                self._drop_ended_session(self._session)
            if self._session is None:
                session = self._start()
                silence_loggers()
                if is_connect_session(session):
                    _check_connect_server(session)
                self._check_session(session)
                self._session = session
            return self._session

    def limit_cores(self, max_cores: int | None) -> None:
        """Limit the tasks that run at once. If this package starts the session later, it has at most so many cores.

        Raises:
            EngineUnavailable: the session runs already, and has more cores.
        """
        if max_cores is None:
            return
        with self._lock:
            if self._session is None or has_session_ended(self._session):
                self._max_cores = min(max_cores, self._max_cores or max_cores)
            else:
                check_core_limit(self._session, max_cores)

    def get_limited(self, max_cores: int | None) -> SparkSession:
        """Spark session with at most so many cores. Raises EngineUnavailable, also if it has more."""
        self.limit_cores(max_cores)
        spark = self.get()
        self.limit_cores(max_cores)  # a session that was started elsewhere may have more
        return spark

    def _start(self) -> SparkSession:
        source = self._session_source
        if isinstance(source, SessionBuilder):
            return source.build(self._max_cores)
        return source() if callable(source) else source

    def _drop_ended_session(self, spark: SparkSession) -> None:
        """Forget an ended session. Raises EngineUnavailable if the session is a user's, which only the user can
        recreate."""
        can_create = isinstance(self._session_source, SessionBuilder) or callable(self._session_source)
        if not can_create or (not is_connect_session(spark) and not was_created_here(spark)):
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
    def computation_scope(self) -> Iterator[None]:
        """Context of a computation: batches fit the rows that are read in it, and throttling is reported at its end.

        Raises:
            EngineUnavailable: Spark has ended.
        """
        with throttling_scope(), self.convert_spark_end_errors(), batch_limit_scope():
            yield

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


def _check_connect_server(spark: SparkSession) -> None:
    """Raises EngineUnavailable if a session of Spark Connect cannot be used, or its server is another engine."""
    from nova_assets.engine.rows.spark_versions import SPARK_4
    from nova_assets.engine.session.connect_probe import check_computes_as_spark

    if not SPARK_4:
        raise EngineUnavailable(
            "Spark Connect needs PySpark 4",
            found="a session of Spark Connect, and PySpark 3.5",
            expected="a classic session",
            next="pip install 'pyspark>=4.0', or spark=\"local\"",
        )
    check_computes_as_spark(spark)


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
        if has_java_ended(spark.sparkContext):
            with suppress(Exception):
                gateway.shutdown()
            context._gateway = context._jvm = None
        context._active_spark_context = None
    session: Any = SparkSession
    session._instantiatedSession = session._activeSession = None
