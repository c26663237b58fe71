"""Temporary settings of a Spark session that several threads share: held, counted and restored.

All executions of a process share a session. Spark reads its settings when a frame is executed, not when it is built.
Code that needs a setting therefore holds it. For *limits*, the smallest held value applies. For other settings, the
latest held value applies. When the last holder releases a setting, the session gets its original value back.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nova_assets.model.resources import Parallelism
from nova_assets.plan.batch_size import RowWidth, spark_batch_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class _SettingHolders:
    """Holders of one setting.

    Args:
        original_value: value before the first holder, set by a user; None if there was none. Limits do not override it.
        value_by_holder: value of each holder, in the order in which they came.
    """

    original_value: str | None
    value_by_holder: dict[int, str | int] = field(default_factory=dict)


class _SessionSettings:
    """Held settings of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.lock = threading.Lock()
        self.holders_by_setting: dict[str, _SettingHolders] = {}

    def acquire(self, holder: int, settings: Mapping[str, str | int]) -> None:
        with self.lock:
            for name, value in settings.items():
                if name not in self.holders_by_setting:
                    self.holders_by_setting[name] = _SettingHolders(self.spark.conf.get(name, None))
                self.holders_by_setting[name].value_by_holder[holder] = value
                self._apply_setting(name)

    def release(self, holder: int) -> None:
        with self.lock:
            for name in [n for n, h in self.holders_by_setting.items() if holder in h.value_by_holder]:
                del self.holders_by_setting[name].value_by_holder[holder]
                self._apply_setting(name)
                if not self.holders_by_setting[name].value_by_holder:
                    del self.holders_by_setting[name]

    def _apply_setting(self, setting: str) -> None:
        holders = self.holders_by_setting[setting]
        limits = [v for v in holders.value_by_holder.values() if isinstance(v, int)]
        texts = [v for v in holders.value_by_holder.values() if isinstance(v, str)]
        value = texts[-1] if texts else holders.original_value
        if value is None and limits:
            value = str(min(limits))
        if value is None:
            self.spark.conf.unset(setting)
        elif self.spark.conf.get(setting, None) != value:
            self.spark.conf.set(setting, value)


_sessions: dict[Any, _SessionSettings] = {}
_sessions_lock = threading.Lock()
_holder_ids = itertools.count()


@contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str | int]) -> Iterator[None]:
    """Context in which a session has the given settings.

    Args:
        settings: a text is set as it is. A number is an upper limit, which does not override a value of the user.
    """
    holder = hold_settings(spark, settings)
    try:
        yield
    finally:
        with suppress(Exception):  # the session may have ended
            _get_session_settings(spark).release(holder)


def hold_settings(spark: SparkSession, settings: Mapping[str, str | int]) -> int:
    """Hold settings until they are released. Returns the holder id for the release."""
    holder = next(_holder_ids)
    if settings:
        _get_session_settings(spark).acquire(holder, settings)
    return holder


@dataclass
class BatchLimitScope:
    """Scope that limits Spark's batch sizes for the widest rows that are read in it.

    Args:
        widest_row_width: width of the widest rows so far.
        holders: sessions with the holder ids of their limits.
    """

    widest_row_width: RowWidth = field(default_factory=RowWidth)
    holders: list[tuple[SparkSession, int]] = field(default_factory=list)

    def limit_batches(self, get_session: Callable[[], SparkSession], row_width: RowWidth) -> None:
        """Limit Spark's batches for rows of this width, until the scope ends. Narrow rows need no limit.

        Args:
            get_session: returns the session. It is called only if a limit must be set.
            row_width: width of the rows.
        """
        if row_width.is_narrow or row_width.row_bytes <= self.widest_row_width.row_bytes:
            return
        # Not options of one frame's reader: Spark takes the batch size from its session alone.
        spark = get_session()
        self.widest_row_width = row_width
        self.holders.append((spark, hold_settings(spark, spark_batch_settings(row_width))))

    def release(self) -> None:
        """Release all held limits."""
        for spark, holder in self.holders:
            with suppress(Exception):
                _get_session_settings(spark).release(holder)
        self.holders.clear()
        self.widest_row_width = RowWidth()


_current_scope: ContextVar[BatchLimitScope | None] = ContextVar("nova_scope", default=None)


@contextmanager
def batch_limit_scope() -> Iterator[BatchLimitScope]:
    """Context with a scope for batch limits. A nested context joins the outer scope."""
    outer = _current_scope.get()
    if outer is not None:
        yield outer
        return
    scope = BatchLimitScope()
    token = _current_scope.set(scope)
    try:
        yield scope
    finally:
        _current_scope.reset(token)
        scope.release()


def current_scope(default: BatchLimitScope) -> BatchLimitScope:
    """Active scope of the current work.

    Args:
        default: scope of frames that are handed out to callers and executed at an unknown time.
    """
    return _current_scope.get() or default


def _get_session_settings(spark: SparkSession) -> _SessionSettings:
    """Held settings of a session. Several Python objects may represent the same session."""
    with _sessions_lock:
        return _sessions.setdefault(_session_identity(spark), _SessionSettings(spark))


def _session_identity(spark: Any) -> object:
    identity = getattr(spark, "_nova_identity", None)
    if identity is None:
        classic = getattr(spark, "_jsparkSession", None)
        identity = spark.session_id if classic is None else (spark.sparkContext.applicationId, classic.hashCode())
        with suppress(AttributeError):
            spark._nova_identity = identity
    return identity


SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def shuffle_partitions(spark: SparkSession, parallelism: Parallelism) -> AbstractContextManager[None]:
    """Context in which a session divides shuffled rows as an execution needs it.

    A number by cost never lowers that of the session: a shuffle with few large parts does not fit into memory, while
    Spark joins small parts.
    """
    wanted = parallelism.shuffle_partitions
    if not parallelism.is_stated and (wanted == 1 or wanted <= int(spark.conf.get(SHUFFLE_PARTITIONS) or 0)):
        return nullcontext()
    return temporary_settings(spark, {SHUFFLE_PARTITIONS: str(wanted)})
