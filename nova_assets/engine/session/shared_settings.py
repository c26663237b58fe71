"""Settings of a Spark session that several threads want at once, each for a while: held, counted, and put back.

A session is shared by all executions of a process, and its settings are read when a frame is executed, not when it is
built. So whoever needs a setting holds it. Of *limits*, the least that anybody holds counts; of other settings, the
latest. When nobody holds a setting any more, the session has the one that it had before.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nova_assets.plan.batch_size import Width, spark_limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class _Holders:
    """Who holds a setting.

    Args:
        before: what was set before anybody held it, by a user; None where nothing was. Limits leave it alone.
        values: holder -> value, in the order in which they came.
    """

    before: str | None
    values: dict[int, str | int] = field(default_factory=dict)


class _Held:
    """The held settings of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.lock = threading.Lock()
        self.holders: dict[str, _Holders] = {}

    def take(self, holder: int, settings: Mapping[str, str | int]) -> None:
        with self.lock:
            for name, value in settings.items():
                if name not in self.holders:
                    self.holders[name] = _Holders(self.spark.conf.get(name, None))
                self.holders[name].values[holder] = value
                self._apply(name)

    def give_back(self, holder: int) -> None:
        with self.lock:
            for name in [n for n, h in self.holders.items() if holder in h.values]:
                del self.holders[name].values[holder]
                self._apply(name)
                if not self.holders[name].values:
                    del self.holders[name]

    def _apply(self, name: str) -> None:
        holders = self.holders[name]
        limits = [v for v in holders.values.values() if isinstance(v, int)]
        texts = [v for v in holders.values.values() if isinstance(v, str)]
        wanted = texts[-1] if texts else holders.before
        if wanted is None and limits:
            wanted = str(min(limits))
        if wanted is None:
            self.spark.conf.unset(name)
        elif self.spark.conf.get(name, None) != wanted:
            self.spark.conf.set(name, wanted)


_sessions: dict[Any, _Held] = {}
_sessions_lock = threading.Lock()
_numbers = itertools.count()


@contextmanager
def using(spark: SparkSession, settings: Mapping[str, str | int]) -> Iterator[None]:
    """Some settings of a session, for the time of a block.

    Args:
        settings: texts as they are to be; numbers as upper limits, which leave alone what a user has set.
    """
    holder = hold(spark, settings)
    try:
        yield
    finally:
        with suppress(Exception):  # of a session that has ended meanwhile
            _held(spark).give_back(holder)


def hold(spark: SparkSession, settings: Mapping[str, str | int]) -> int:
    """Hold settings until they are given back; gives who holds them."""
    holder = next(_numbers)
    if settings:
        _held(spark).take(holder, settings)
    return holder


@dataclass
class Scope:
    """The widest rows that are read within a block of work, and who holds the limits for them."""

    width: Width = field(default_factory=Width)
    holders: list[tuple[SparkSession, int]] = field(default_factory=list)

    def fit(self, session: Callable[[], SparkSession], width: Width) -> None:
        """Have Spark's batches fit rows of this width, until the scope ends. Narrow rows need nothing.

        Args:
            session: gives the session; not asked for where nothing has to be set.
        """
        if width.is_narrow or width.row <= self.width.row:
            return
        spark = session()
        self.width = width
        self.holders.append((spark, hold(spark, spark_limits(width))))

    def end(self) -> None:
        """Give back what is held."""
        for spark, holder in self.holders:
            with suppress(Exception):
                _held(spark).give_back(holder)
        self.holders.clear()
        self.width = Width()


_scope: ContextVar[Scope | None] = ContextVar("nova_scope", default=None)


@contextmanager
def scope() -> Iterator[Scope]:
    """A block of work; one within another is part of it."""
    outer = _scope.get()
    if outer is not None:
        yield outer
        return
    made = Scope()
    token = _scope.set(made)
    try:
        yield made
    finally:
        _scope.reset(token)
        made.end()


def current(otherwise: Scope) -> Scope:
    """The scope of the work that is under way.

    Args:
        otherwise: of frames that are handed out, and executed nobody knows when.
    """
    return _scope.get() or otherwise


def _held(spark: SparkSession) -> _Held:
    """Of a session; several Python objects may stand for one."""
    with _sessions_lock:
        return _sessions.setdefault(_identity(spark), _Held(spark))


def _identity(spark: Any) -> object:
    known = getattr(spark, "_nova_identity", None)
    if known is None:
        classic = getattr(spark, "_jsparkSession", None)
        known = spark.session_id if classic is None else (spark.sparkContext.applicationId, classic.hashCode())
        with suppress(AttributeError):
            spark._nova_identity = known
    return known
