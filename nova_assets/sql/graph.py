"""All datasets of a project, understood together: schemas, who reads whom, and which partitions each task reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from itertools import product
from pathlib import Path
from threading import Lock

from nova_assets.errors import DefinitionError, PartitionError, SqlError
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, Dimension, partition_name, partition_values
from nova_assets.model.schema import Field, Schema, parse_type
from nova_assets.model.scoped import Existing
from nova_assets.sql.calls import tables_of
from nova_assets.sql.dataset import Written, written
from nova_assets.sql.head import Head, Scope, dimensions
from nova_assets.sql.prune import needed
from nova_assets.sql.query import Mode, Query, understood
from nova_assets.sql.series import Series
from nova_assets.sql.sources import Partition
from nova_assets.sql.text import Text
from nova_assets.sql.types import is_unnamed, schema_of_query
from nova_assets.sql.values import value_of_text


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
    """

    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    _known: OrderedDict[str, _Listed] = field(default_factory=OrderedDict, compare=False, repr=False)

    def dataset(self, name: str) -> Dataset:
        """The dataset of that name. Raises DefinitionError."""
        if name not in self.datasets:
            raise DefinitionError(
                f"no dataset is called {name!r}", expected=", ".join(sorted(self.datasets)) or "(there is none)"
            )
        return self.datasets[name]

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
        head = self.dataset(name).written.head
        bounds = head.bounds(now)
        with _LOCK:
            known = self._known.pop(name, None)
            if known is None or known.bounds != bounds:
                known = _listing(head, now, bounds)
            self._known[name] = known
            if len(self._known) > _LISTED:
                self._known.popitem(last=False)
        return known

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
        if name in self.datasets:
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


# how it is made


def graph(texts: Sequence[Text], channels: Sequence[Channel] = (), functions: Mapping[str, str] | None = None) -> Graph:
    """Understand datasets together.

    Args:
        texts: a statement each.
        channels: that they may read; or, under the name of a dataset, how it is to be kept.
        functions: user-defined functions, by name, with the types that they give.

    Raises:
        SqlError: the one thing that is wrong.
        DefinitionError: everything that is wrong, where it is several things.
    """
    problems: list[SqlError] = []
    read = _all_written(texts, problems)
    _refuse_two_meanings([*read, *(c.name for c in channels)], functions or {})
    unread = {Path(p.file).stem for p in problems}
    given = {c.name: c for c in channels}
    others = {n: c for n, c in given.items() if n not in read}
    schemas = {n: c.schema for n, c in others.items() if c.schema is not None}
    made: dict[str, Dataset] = {}
    for name in _in_order(read, problems):
        if any((r in read and r not in made) or r in unread for r in read[name].reads):
            continue  # what it reads is not understood: that is said already
        try:
            columns = {n: [c.lower() for c in x.partition_columns] for n, x in others.items()}
            columns |= {n: [c.lower() for c in d.channel.partition_columns] for n, d in made.items()}
            made[name] = understood_dataset(read[name], schemas, given.get(name), functions or {}, columns)
        except SqlError as error:
            problems.append(error)
        else:
            schemas[name] = made[name].schema
    _refuse(problems)
    reads = {r for d in made.values() for r in d.query.reads}
    return Graph(made, {n: c for n, c in others.items() if n in reads}, dict(functions or {}))


def _refuse_two_meanings(names: Sequence[str], functions: Mapping[str, str]) -> None:
    both = sorted(set(names) & set(tables_of(functions)))
    if both:
        raise DefinitionError(f"{', '.join(both)}: a function and a dataset", expected="a name for each")


def in_order(texts: Sequence[Text]) -> list[Written]:
    """Statements by themselves, each after those that it reads.

    Raises:
        SqlError: the one thing that is wrong.
        DefinitionError: everything that is wrong, where it is several things.
    """
    problems: list[SqlError] = []
    read = _all_written(texts, problems)
    names = _in_order(read, problems)
    _refuse(problems)
    return [read[n] for n in names]


def _all_written(texts: Sequence[Text], problems: list[SqlError]) -> dict[str, Written]:
    found: dict[str, Written] = {}
    for text in texts:
        try:
            one = written(text)
        except SqlError as error:
            problems.append(error)
            continue
        if one.name in found:
            other = found[one.name].text.name
            problems.append(text.error(f"dataset {one.name!r} is in {other} already", None, expected="one statement"))
        else:
            found[one.name] = one
    return found


def _in_order(read: Mapping[str, Written], problems: list[SqlError]) -> list[str]:
    """The datasets, each after those that it reads."""
    order = {n: [r for r in w.reads if r in read] for n, w in read.items()}
    try:
        return list(TopologicalSorter(order).static_order())
    except CycleError as error:
        cycle = list(reversed(error.args[1]))
        first = read[cycle[0]]
        scan = next(s for s in first.scans if s.dataset in cycle)
        what = "a dataset reads itself" if len(set(cycle)) == 1 else "datasets read each other"
        problems.append(
            first.text.error(
                f"{what}: {' → '.join(cycle)}",
                scan.node,
                expected="each dataset to follow from others",
                next="take what both need into a dataset of its own",
            )
        )
        return []


def understood_dataset(
    one: Written,
    schemas: Mapping[str, Schema],
    given: Channel | None,
    functions: Mapping[str, str],
    partitions: Mapping[str, Sequence[str]] | None = None,
) -> Dataset:
    """What a dataset comes to, given the schemas of what it reads.

    Args:
        given: how it is to be kept, if its author says.
        partitions: of what it reads, the partition columns, in small letters.

    Raises:
        SqlError: it cannot be understood.
    """
    tables = tables_of(functions)
    query = understood(one.text, one.query, schemas, one.head.variable_types, tables)
    for n, select in enumerate(query.tree.selects, start=1):
        if is_unnamed(select):
            raise one.text.error(f"column {n} of what it gives has no name", select, next="give it one: ... AS name")
    gives = schema_of_query(query, {**tables, **schemas}, functions)
    types = one.head.column_types
    for column in types:
        if column.lower() in (n.lower() for n in gives.names):
            raise one.text.error(
                f"column {column!r} is given by PARTITION and by the query",
                None,
                next=f"leave {column} out of SELECT: every row of a scope has the same",
            )
    schema = Schema((*gives.fields, *(Field(c, parse_type(t)) for c, t in types.items())))
    _refuse_what_cannot_be_told(query, one, partitions or {})
    return Dataset(one, query, schema, _channel(one, schema, given))


def _refuse_what_cannot_be_told(query: Query, one: Written, partitions: Mapping[str, Sequence[str]]) -> None:
    """Conditions on partitions are tried on one of each before anything is run."""
    some: dict[str, list[Partition]] = {n: [dict.fromkeys(partitions.get(n, ()))] for n in query.reads}
    try:
        needed(query, some, one.head.some_scope)
    except SqlError as error:
        if not error.of_values:
            raise


def _channel(one: Written, schema: Schema, given: Channel | None) -> Channel:
    found = dimensions(one.head)
    if given is not None:
        return given.redefined(schema, found)
    return Channel(
        one.name,
        schema=schema,
        partitions=found,
        description=one.description or None,
        owners=[one.owner] if one.owner else (),
    )


def _refuse(problems: Sequence[SqlError]) -> None:
    if len(problems) == 1:
        raise problems[0]
    if problems:
        said = [p.render().split("] ", 1)[1] for p in problems]
        raise DefinitionError.of(said, "the datasets are not sound")
