"""All datasets of a project, understood together: schemas, who reads whom, and which partitions each task reads.

How it is made is said in ``building``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product
from threading import Lock

from nova_assets.errors import DefinitionError, PartitionError
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, Dimension, partition_name, partition_values
from nova_assets.model.schema import Schema
from nova_assets.model.scoped import Existing
from nova_assets.sql.dataset import Written
from nova_assets.sql.head import Head, Scope
from nova_assets.sql.prune import needed
from nova_assets.sql.query import Mode, Query
from nova_assets.sql.series import Series
from nova_assets.sql.sources import Partition
from nova_assets.sql.values import value_of_text
from nova_assets.sql.view import View


@dataclass(frozen=True)
class Dataset:
    """A dataset whose query is understood.

    Args:
        written: what its author wrote.
        query: with every column told.
        schema: of what it gives, its partition columns last.
        channel: what it is kept in.
    """

    written: Written
    query: Query
    schema: Schema
    channel: Channel

    @property
    def name(self) -> str:
        return self.written.name


@dataclass(frozen=True)
class Need:
    """What a task reads of one dataset, at one place of its query.

    Args:
        dataset: its name.
        mode: as the query says.
        partitions: their names; one that is not partitioned has ``""``.
    """

    dataset: str
    mode: Mode
    partitions: tuple[str, ...]


@dataclass(frozen=True)
class _Listed:
    """The tasks of a dataset, and the values of their partitions' columns, between two moments."""

    bounds: tuple[tuple[datetime, datetime], ...]
    tasks: dict[str, Scope]
    values: dict[str, Partition]


_LISTED = 256
"""Datasets whose tasks are kept in mind, the latest that were asked for."""

_LOCK = Lock()


@dataclass(frozen=True)
class Graph:
    """Datasets, each after those that it reads.

    Args:
        datasets: by name.
        channels: that they read and that are no datasets, by name.
        functions: user-defined functions, with the types that they give.
        views: of tables that others keep, by name; their channels are among the others.
    """

    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    _known: OrderedDict[str, _Listed] = field(default_factory=OrderedDict, compare=False, repr=False)

    def dataset(self, name: str) -> Dataset:
        """The dataset of that name. Raises DefinitionError."""
        if name not in self.datasets:
            raise DefinitionError(
                f"no dataset is called {name!r}", expected=", ".join(sorted(self.datasets)) or "(there is none)"
            )
        return self.datasets[name]

    def is_made(self, name: str) -> bool:
        """Whether somebody else makes what a task reads, before it can be run: another task, or another system."""
        return name in self.datasets or (name in self.channels and self.channels[name].external is not None)

    def readers(self, name: str) -> tuple[str, ...]:
        """The datasets that read one."""
        return tuple(d.name for d in self.datasets.values() if name in d.query.reads)

    def downstream(self, name: str) -> tuple[str, ...]:
        """All datasets that follow from one, near or far, in an order in which they can be made."""
        found: set[str] = set()
        for d in self.datasets.values():  # in order
            if any(r == name or r in found for r in d.query.reads):
                found.add(d.name)
        return tuple(n for n in self.datasets if n in found)

    def tasks(self, name: str, now: datetime) -> dict[str, Scope]:
        """Partition -> the scope of the task that writes it, as of a moment."""
        return self._listed(name, now).tasks

    def _listed(self, name: str, now: datetime) -> _Listed:
        """What a dataset comes to as of a moment: the same until the next day or hour of it begins."""
        head = self._head(name)
        bounds = head.bounds(now)
        with _LOCK:
            known = self._known.pop(name, None)
            if known is None or known.bounds != bounds:
                known = _listing(head, now, bounds)
            self._known[name] = known
            if len(self._known) > _LISTED:
                self._known.popitem(last=False)
        return known

    def _head(self, name: str) -> Head:
        view = self.views.get(name)
        return self.dataset(name).written.head if view is None or view.head is None else view.head

    def scope(self, name: str, partition: str, now: datetime) -> Scope:
        """The scope of the task that writes a partition.

        Raises:
            PartitionError: there is no such task, as of that moment.
        """
        tasks = self.tasks(name, now)
        if partition not in tasks:
            known = list(tasks)
            raise PartitionError(
                f"no task of {name!r} writes {partition or 'the whole'}",
                found=partition,
                expected=f"one of {len(known)}: {', '.join(known[-3:]) or 'none'}",
                next=f"nova show {name}",
            )
        return tasks[partition]

    def ended(self, name: str, partition: str) -> datetime | None:
        """The last moment at which a partition was the newest; None where no calendar says."""
        dataset = self.dataset(name)
        values = partition_values(partition)
        lag = max((g.lag for g in dataset.written.head.generators if isinstance(g, Series)), default=0)
        for d in dataset.channel.partitions:
            end = d.ends(values.get(d.column))
            if end is not None:
                return end + lag * timedelta(hours=1 if d.kind == "hourly" else 24) - timedelta(seconds=1)
        return None

    def partitions(self, name: str, now: datetime, existing: Existing = lambda name: ()) -> dict[str, Partition]:
        """The partitions that a dataset or channel should have, and the values of their columns in small letters."""
        if name in self.datasets or (name in self.views and self.views[name].head is not None):
            return self._listed(name, now).values
        return _of_channel(self.channels[name], now, existing)

    def needs(self, name: str, partition: str, now: datetime, existing: Existing = lambda name: ()) -> tuple[Need, ...]:
        """What the task reads that writes a partition, place by place.

        Args:
            now: which partitions there should be hangs on it.
            existing: asked for those of channels with dynamic dimensions.

        Raises:
            PartitionError: no task writes it.
            SqlError: which partitions are read cannot be told.
        """
        dataset = self.dataset(name)
        scope = self.scope(name, partition, now)
        listed = {read: self.partitions(read, now, existing) for read in dataset.query.reads}
        # In UTC, as Spark's sessions are: only the head has a zone of its own.
        found = needed(dataset.query, {n: list(p.values()) for n, p in listed.items()}, scope)
        names = {n: list(p) for n, p in listed.items()}
        return tuple(
            Need(s.dataset, s.mode, tuple(names[s.dataset][n] for n in found[s.number])) for s in dataset.query.scans
        )


def _listing(head: Head, now: datetime, bounds: tuple[tuple[datetime, datetime], ...]) -> _Listed:
    tasks = head.tasks(now)
    values = {p: {c.lower(): v for c, v in head.partition_of(s).items()} for p, s in tasks.items()}
    return _Listed(bounds, tasks, dict[str, Partition](values))


def _of_channel(channel: Channel, now: datetime, existing: Existing) -> dict[str, Partition]:
    if not channel.partitions:
        return {WHOLE: {}}
    types = {d.column: _type_of(channel, d) for d in channel.partitions}
    if any(d.kind == "dynamic" for d in channel.partitions):
        names = list(existing(channel.name))
    else:
        columns = channel.partition_columns
        each = [_listed(d, now) for d in channel.partitions]
        names = [partition_name(columns, dict(zip(columns, v, strict=True))) for v in product(*each)]
    return {
        name: {
            d.column.lower(): value_of_text(text, types[d.column], d.tz)
            for d, text in zip(channel.partitions, partition_values(name).values(), strict=True)
        }
        for name in names
    }


def _type_of(channel: Channel, dimension: Dimension) -> str:
    if channel.schema is not None and dimension.column in channel.schema:
        return str(channel.schema.field(dimension.column).type)
    return str(dimension.derived_type(None)) if dimension.kind in ("daily", "hourly") else "string"


def _listed(dimension: Dimension, now: datetime) -> list[str]:
    """The values of a static dimension; the days or hours of a calendar up to now."""
    if dimension.kind == "static":
        return list(dimension.values)
    series = Series(
        dimension.column,
        "day" if dimension.kind == "daily" else "hour",
        _begins(dimension),
        tz=dimension.tz or "UTC",
    )
    return [dimension.of_moment(m) for m in series.moments(now)]


def _begins(dimension: Dimension) -> datetime:
    zone = Series("", tz=dimension.tz or "UTC").zone
    begins = datetime.fromisoformat(dimension.start or "2000-01-01")
    local = begins.replace(tzinfo=zone) if begins.tzinfo is None else begins.astimezone(zone)
    return local.replace(minute=0, second=0, microsecond=0, hour=0 if dimension.kind == "daily" else local.hour)
