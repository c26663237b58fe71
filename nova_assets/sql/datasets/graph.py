"""All datasets of a project, understood together: schemas, who reads whom, and which partitions each task reads.

How it is made is said in ``building``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import product
from operator import is_
from threading import Lock
from typing import Any, Literal, TypeAlias

from nova_assets.errors import DefinitionError, PartitionError, SqlError
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, Dimension, partition_name, partition_values
from nova_assets.model.schema import Schema
from nova_assets.model.scoped_reads import Existing
from nova_assets.sql.evaluation.values import value_of_text
from nova_assets.sql.pruning.partition_lookup import Listing
from nova_assets.sql.pruning.prune import Pruning
from nova_assets.sql.pruning.sources import Partition
from nova_assets.sql.query.query import Mode, Query
from nova_assets.sql.statement.external_table import View
from nova_assets.sql.statement.header import Head, Scope
from nova_assets.sql.statement.statement import Written
from nova_assets.sql.statement.timeseries import Series
from nova_assets.suggestions import did_you_mean


@dataclass(frozen=True)
class Dataset:
    """A dataset whose query is understood.

    Args:
        written: what its author wrote.
        schema: of what it gives, its partition columns last.
        channel: what it is kept in.
        understand: gives the query.
    """

    written: Written
    schema: Schema
    channel: Channel
    understand: Callable[[], Query] = field(compare=False, repr=False)

    @cached_property
    def query(self) -> Query:
        """With every column told."""
        return self.understand()

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets and channels that it reads, in order of first mention."""
        return self.written.reads

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


class Partitions:
    """Those that a dataset or channel should have.

    Args:
        names: in order.
        values: of their columns, by the columns' names in small letters.
    """

    def __init__(self, names: tuple[str, ...], values: Sequence[Partition]) -> None:
        self.names = names
        self.values = Listing(values)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Name -> where it is."""
        return {name: n for n, name in enumerate(self.names)}


_Lists: TypeAlias = tuple[Partitions, ...]


@dataclass(frozen=True)
class _Listed:
    """The tasks of a dataset, and the values of their partitions' columns, between two moments."""

    bounds: tuple[tuple[datetime, datetime], ...]
    tasks: dict[str, Scope]
    partitions: Partitions
    scopes: Listing


_LISTED = 256
"""Heads whose tasks are kept in mind, the latest that were asked for."""

_LOCK = Lock()


class Kept:
    """What tasks were found to read, for as long as there should be the same partitions of all that they read.

    Args:
        most: so many tasks are kept, those of the datasets that were asked for last.
    """

    def __init__(self, most: int = 200_000) -> None:
        self.most = most
        self.hits = 0
        self.misses = 0
        self._count = 0
        self._kept: OrderedDict[str, tuple[_Lists, dict[str, tuple[Scope, tuple[Need, ...]]]]] = OrderedDict()

    def needs(
        self, dataset: str, partition: str, scope: Scope, lists: _Lists, find: Callable[[], tuple[Need, ...]]
    ) -> tuple[Need, ...]:
        """What the task reads that writes a partition.

        Args:
            scope: of the task. Of some heads, the same partition has another one later on.
            lists: the partitions that there should be of what it reads.
        """
        with _LOCK:
            known = self._of(dataset, lists).get(partition)
            if known is not None and known[0] == scope:
                self.hits += 1
                return known[1]
            self.misses += 1
        found = find()
        with _LOCK:
            of = self._of(dataset, lists)
            self._count += partition not in of
            of[partition] = (scope, found)
            while self._count > self.most and len(self._kept) > 1:
                self._count -= len(self._kept.popitem(last=False)[1][1])
        return found

    def _of(self, dataset: str, lists: _Lists) -> dict[str, tuple[Scope, tuple[Need, ...]]]:
        """What is known of a dataset; nothing any more, once other partitions should be there."""
        before, known = self._kept.pop(dataset, (lists, {}))
        if len(before) != len(lists) or not all(map(is_, before, lists)):
            self._count -= len(known)
            known = {}
        self._kept[dataset] = (lists, known)
        return known


@dataclass(frozen=True)
class Graph:
    """Datasets, each after those that it reads.

    Args:
        datasets: by name.
        channels: that they read and that are no datasets, by name.
        functions: user-defined functions, with the types that they give.
        views: of tables that others keep, by name; their channels are among the others.
        recalled: so many of the datasets were understood before, and not anew.
        kept: what was found out before. It may be forgotten at any time, and nothing changes.
    """

    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    recalled: int = field(default=0, compare=False)
    _known: OrderedDict[str, _Listed] = field(default_factory=OrderedDict, compare=False, repr=False)
    kept: Kept = field(default_factory=Kept, compare=False, repr=False)
    _heads: dict[str, Head] = field(default_factory=dict, compare=False, repr=False)
    _others: dict[str, tuple[tuple[Any, ...], Partitions]] = field(default_factory=dict, compare=False, repr=False)
    _prunings: dict[str, Pruning] = field(default_factory=dict, compare=False, repr=False)

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
        return tuple(d.name for d in self.datasets.values() if name in d.reads)

    def downstream(self, name: str) -> tuple[str, ...]:
        """All datasets that follow from one, near or far, in an order in which they can be made."""
        found: set[str] = set()
        for d in self.datasets.values():  # in order
            if any(r == name or r in found for r in d.reads):
                found.add(d.name)
        return tuple(n for n in self.datasets if n in found)

    def tasks(self, name: str, now: datetime) -> dict[str, Scope]:
        """Partition -> the scope of the task that writes it, as of a moment."""
        return self._listed(name, now).tasks

    def _listed(self, name: str, now: datetime) -> _Listed:
        """What a dataset comes to as of a moment: the same until the next day or hour of it begins, and for all that
        have such a head."""
        said = self._scopes(name)
        head = self._heads.get(said) or self._heads.setdefault(said, self._head(name))
        bounds = head.bounds(now)
        with _LOCK:
            known = self._known.pop(said, None)
            if known is None or known.bounds != bounds:
                try:
                    known = _listing(head, now, bounds)
                except SqlError:  # it names the file of another dataset
                    known = _listing(self._head(name), now, bounds)
            self._known[said] = known
            if len(self._known) > _LISTED:
                self._known.popitem(last=False)
        return known

    def _scopes(self, name: str) -> str:
        view = self.views.get(name)
        return self.dataset(name).written.scopes if view is None or view.head is None else view.head.said

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
                f"no task of {name!r} writes {partition or 'the whole'}{did_you_mean(partition, known)}",
                found=partition,
                expected=f"one of {len(known)}: {', '.join(known[-3:]) or 'none'}",
                next=f"nova show {name}",
            )
        return tasks[partition]

    def ended(self, name: str, partition: str) -> datetime | None:
        """The last moment at which a partition was the newest; None where no calendar says."""
        dataset = self.dataset(name)
        values = partition_values(partition)
        lag = max((g.lag for g in self._head(name).generators if isinstance(g, Series)), default=0)
        for d in dataset.channel.partitions:
            end = d.ends(values.get(d.column))
            if end is not None:
                return end + lag * timedelta(hours=1 if d.kind == "hourly" else 24) - timedelta(seconds=1)
        return None

    def partitions(self, name: str, now: datetime, existing: Existing = lambda name: ()) -> Partitions:
        """The partitions that a dataset or channel should have."""
        if name in self.datasets or (name in self.views and self.views[name].head is not None):
            return self._listed(name, now).partitions
        channel = self.channels[name]
        hangs_on = _hangs_on(channel, now, existing)
        with _LOCK:
            known = self._others.get(name)
            if known is None or known[0] != hangs_on:
                known = self._others[name] = hangs_on, _of_channel(channel, _names_of(channel, now, hangs_on))
        return known[1]

    def needs(self, name: str, partition: str, now: datetime, existing: Existing = lambda name: ()) -> tuple[Need, ...]:
        """What the task reads that writes a partition, place by place.

        Args:
            now: which partitions there should be hangs on it.
            existing: asked for those of channels with dynamic dimensions.

        Raises:
            PartitionError: no task writes it.
            SqlError: which partitions are read cannot be told.
        """
        scope = self.scope(name, partition, now)
        listed = {read: self.partitions(read, now, existing) for read in self.dataset(name).reads}
        find = partial(self._needs, name, scope, listed)
        return self.kept.needs(name, partition, scope, tuple(listed.values()), find)

    def not_pruned(
        self, name: str, partition: str, now: datetime, existing: Existing = lambda name: ()
    ) -> tuple[str, ...]:
        """The conditions on partitions by which the task reads no fewer, each with its place and the reason.

        Arguments as for ``needs``.
        """
        listed = {read: self.partitions(read, now, existing).values for read in self.dataset(name).reads}
        text = self.dataset(name).written.text
        found = self._pruning(name).not_understood(listed, self.scope(name, partition, now))
        return tuple(dict.fromkeys(text.error(part.reason, part.node).what for part in found))

    def _needs(self, name: str, scope: Scope, listed: Mapping[str, Partitions]) -> tuple[Need, ...]:
        found = self._pruning(name).needed({n: p.values for n, p in listed.items()}, scope)
        scans = self.dataset(name).written.scans
        return tuple(Need(s.dataset, s.mode, tuple(listed[s.dataset].names[n] for n in found[s.number])) for s in scans)

    def read_by(
        self, name: str, read: str, partitions: Collection[str], now: datetime, existing: Existing = lambda name: ()
    ) -> tuple[str, ...]:
        """The partitions of a dataset whose tasks give something else by some partitions of another: all that may.
        ``needs`` says of each whether it reads one of them; of a task for which all rows are left out anyway, by its
        variables alone, ``needs`` may say so where this does not.

        Args:
            read: the other dataset, or a channel.
            partitions: of it. What it should not have is read by none.

        Raises:
            SqlError: which partitions are read cannot be told.
        """
        dataset, tasks = self.dataset(name), self._listed(name, now)
        listed = {r: self.partitions(r, now, existing) for r in dataset.reads}
        wanted = [n for p in partitions if (n := listed[read].positions.get(p)) is not None]
        values = {n: p.values for n, p in listed.items()}
        found: set[int] = set()
        for scan in dataset.written.scans:
            if scan.dataset == read and wanted:
                found |= self._pruning(name).readers(values, tasks.scopes, scan.number, wanted)
        return tuple(tasks.partitions.names[n] for n in sorted(found))

    def _pruning(self, name: str) -> Pruning:
        # In UTC, as Spark's sessions are: only the head has a zone of its own.
        known = self._prunings.get(name)
        return self._prunings.setdefault(name, Pruning(self.dataset(name).query)) if known is None else known


def _listing(head: Head, now: datetime, bounds: tuple[tuple[datetime, datetime], ...]) -> _Listed:
    tasks = head.tasks(now)
    values = [{c.lower(): v for c, v in head.partition_of(s).items()} for s in tasks.values()]
    return _Listed(bounds, tasks, Partitions(tuple(tasks), values), Listing(list(tasks.values())))


def _hangs_on(channel: Channel, now: datetime, existing: Existing) -> tuple[Any, ...]:
    """All that the partitions hang on that a channel should have: how far its calendars have come; or, with a dynamic
    dimension, which partitions it has."""
    if any(d.kind == "dynamic" for d in channel.partitions):
        return tuple(existing(channel.name))
    return tuple(_series(d).bounds(now) for d in channel.partitions if d.kind != "static")


def _names_of(channel: Channel, now: datetime, hangs_on: tuple[Any, ...]) -> tuple[str, ...]:
    if not channel.partitions:
        return (WHOLE,)
    if any(d.kind == "dynamic" for d in channel.partitions):
        return hangs_on
    columns = channel.partition_columns
    each = [_listed(d, now) for d in channel.partitions]
    return tuple(partition_name(columns, dict(zip(columns, v, strict=True))) for v in product(*each))


def _of_channel(channel: Channel, names: tuple[str, ...]) -> Partitions:
    types = {d.column: _type_of(channel, d) for d in channel.partitions}
    return Partitions(
        names,
        [
            {
                d.column.lower(): value_of_text(text, types[d.column], d.tz)
                for d, text in zip(channel.partitions, partition_values(name).values(), strict=True)
            }
            for name in names
        ],
    )


def _type_of(channel: Channel, dimension: Dimension) -> str:
    if channel.schema is not None and dimension.column in channel.schema:
        return str(channel.schema.field(dimension.column).type)
    return str(dimension.derived_type(None)) if dimension.kind in ("daily", "hourly") else "string"


def _listed(dimension: Dimension, now: datetime) -> list[str]:
    """The values of a static dimension; the days or hours of a calendar up to now."""
    if dimension.kind == "static":
        return list(dimension.values)
    return [dimension.of_moment(m) for m in _series(dimension).moments(now)]


def _series(dimension: Dimension) -> Series:
    every: Literal["day", "hour"] = "day" if dimension.kind == "daily" else "hour"
    return Series(dimension.column, every, _begins(dimension), tz=dimension.tz or "UTC")


def _begins(dimension: Dimension) -> datetime:
    zone = Series("", tz=dimension.tz or "UTC").zone
    begins = datetime.fromisoformat(dimension.start or "2000-01-01")
    local = begins.replace(tzinfo=zone) if begins.tzinfo is None else begins.astimezone(zone)
    return local.replace(minute=0, second=0, microsecond=0, hour=0 if dimension.kind == "daily" else local.hour)
