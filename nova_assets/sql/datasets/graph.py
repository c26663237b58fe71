"""The graph of all SQL datasets of a project: schemas, dependencies, and the partitions that each task reads.

``graph_builder`` builds the graph.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import product
from typing import Any, Literal

from nova_assets.errors import DefinitionError, PartitionError, SqlError
from nova_assets.model.channel import Channel
from nova_assets.model.partition_rule import FewRows, InputState
from nova_assets.model.partitions import WHOLE, Dimension, partition_name, partition_values
from nova_assets.model.schema import Schema
from nova_assets.sql.datasets.required_reads import _LOCK, ExpectedPartitions, RequiredRead, RequiredReadsCache
from nova_assets.sql.evaluation.casting import parse_partition_value
from nova_assets.sql.pruning.prune import PartitionPruner
from nova_assets.sql.pruning.select_source import IndexedRows, index_data_rows
from nova_assets.sql.query.resolved_query import Query
from nova_assets.sql.statement.dataset_statement import DatasetStatement
from nova_assets.sql.statement.external_table import ExternalView
from nova_assets.sql.statement.header import ScopeValues, StatementHeader
from nova_assets.sql.statement.timeseries import TimeSeries
from nova_assets.suggestions import did_you_mean


@dataclass(frozen=True)
class Dataset:
    """An analysed dataset.

    Args:
        statement: the statement as its author wrote it.
        schema: the output columns, partition columns last.
        channel: the channel that stores the dataset.
        load_query: loads the resolved query.
    """

    statement: DatasetStatement
    schema: Schema
    channel: Channel
    load_query: Callable[[], Query] = field(compare=False, repr=False)

    @cached_property
    def query(self) -> Query:
        """The query, with every column resolved."""
        return self.load_query()

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets and channels that the query reads, in order of first mention."""
        return self.statement.reads

    @property
    def name(self) -> str:
        return self.statement.name


@dataclass(frozen=True)
class _ScopedTasks:
    """The tasks of a dataset and their partitions, valid while the time series have the same bounds."""

    bounds: tuple[tuple[datetime, datetime], ...]
    tasks: dict[str, ScopeValues]
    partitions: ExpectedPartitions
    scopes: IndexedRows


_NOTHING_KNOWN = InputState()

_MAX_KEPT_HEADERS = 256
"""Most headers whose tasks are kept in memory, most recently used first."""


@dataclass(frozen=True)
class Graph:
    """Analysed datasets, ordered so that each follows the datasets that it reads.

    Args:
        datasets: by name.
        channels: channels that the datasets read and that are not datasets, by name.
        function_types: return types of the user-defined functions, by function name.
        views: external tables, by name. ``channels`` contains their channels.
        cache_hits: number of datasets whose analysis came from the disk cache.
        reads_cache: cache of required reads. Clearing the cache changes no result.
    """

    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    function_types: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, ExternalView] = field(default_factory=dict)
    cache_hits: int = field(default=0, compare=False)
    _scoped_tasks_by_header: OrderedDict[str, _ScopedTasks] = field(
        default_factory=OrderedDict, compare=False, repr=False
    )
    reads_cache: RequiredReadsCache = field(default_factory=RequiredReadsCache, compare=False, repr=False)
    _header_by_hash: dict[str, StatementHeader] = field(default_factory=dict, compare=False, repr=False)
    _channel_partitions: dict[str, tuple[tuple[Any, ...], ExpectedPartitions]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _listed_rows_cache: dict[str, tuple[FewRows, IndexedRows]] = field(default_factory=dict, compare=False, repr=False)
    _pruner_by_dataset: dict[str, PartitionPruner] = field(default_factory=dict, compare=False, repr=False)

    def dataset(self, name: str) -> Dataset:
        """The dataset of that name. Raises DefinitionError."""
        if name not in self.datasets:
            raise DefinitionError(
                f"no dataset is called {name!r}", expected=", ".join(sorted(self.datasets)) or "(there is none)"
            )
        return self.datasets[name]

    def channel(self, name: str) -> Channel:
        """The channel of a dataset, or the channel of that name that datasets read."""
        return self.datasets[name].channel if name in self.datasets else self.channels[name]

    def has_producer(self, name: str) -> bool:
        """Whether another task or another system has to write this input before a reader runs."""
        return name in self.datasets or (name in self.channels and self.channels[name].external is not None)

    def downstream(self, name: str) -> tuple[str, ...]:
        """All direct and indirect readers of a dataset or channel, in an order in which they can be built."""
        found: set[str] = set()
        for d in self.datasets.values():  # inputs come before their readers
            if any(r == name or r in found for r in d.reads):
                found.add(d.name)
        return tuple(n for n in self.datasets if n in found)

    def scopes_by_partition(self, name: str, now: datetime) -> dict[str, ScopeValues]:
        """Partition -> the scope of the task that writes it, as of a moment."""
        return self._scoped_tasks(name, now).tasks

    def _scoped_tasks(self, name: str, now: datetime) -> _ScopedTasks:
        """The tasks of a dataset as of a moment. They stay the same until the next day or hour begins, and datasets
        with equal headers share them.
        """
        header_hash = self._header_hash(name)
        header = self._header_by_hash.get(header_hash) or self._header_by_hash.setdefault(
            header_hash, self._header(name)
        )
        bounds = header.series_bounds(now)
        with _LOCK:
            scoped_tasks = self._scoped_tasks_by_header.pop(header_hash, None)
            if scoped_tasks is None or scoped_tasks.bounds != bounds:
                try:
                    scoped_tasks = _make_scoped_tasks(header, now, bounds)
                except SqlError:  # the shared header's error would name the file of another dataset
                    scoped_tasks = _make_scoped_tasks(self._header(name), now, bounds)
            self._scoped_tasks_by_header[header_hash] = scoped_tasks
            if len(self._scoped_tasks_by_header) > _MAX_KEPT_HEADERS:
                self._scoped_tasks_by_header.popitem(last=False)
        return scoped_tasks

    def _header_hash(self, name: str) -> str:
        view = self.views.get(name)
        return (
            self.dataset(name).statement.header_hash if view is None or view.header is None else view.header.syntax_hash
        )

    def _header(self, name: str) -> StatementHeader:
        view = self.views.get(name)
        return self.dataset(name).statement.header if view is None or view.header is None else view.header

    def scope(self, name: str, partition: str, now: datetime) -> ScopeValues:
        """The scope of the task that writes a partition.

        Raises:
            PartitionError: no such task exists as of that moment.
        """
        tasks = self.scopes_by_partition(name, now)
        if partition not in tasks:
            existing = list(tasks)
            raise PartitionError(
                f"no task of {name!r} writes {partition or 'the whole'}{did_you_mean(partition, existing)}",
                found=partition,
                expected=f"one of {len(existing)}: {', '.join(existing[-3:]) or 'none'}",
                next=f"nova show {name}",
            )
        return tasks[partition]

    def last_newest_moment(self, name: str, partition: str) -> datetime | None:
        """The last moment at which a partition was the newest, or None for a dataset without a calendar dimension."""
        dataset = self.dataset(name)
        values = partition_values(partition)
        lag = max((g.lag for g in self._header(name).generators if isinstance(g, TimeSeries)), default=0)
        for d in dataset.channel.partitions:
            end = d.partition_end(values.get(d.column))
            if end is not None:
                return end + lag * timedelta(hours=1 if d.kind == "hourly" else 24) - timedelta(seconds=1)
        return None

    def expected_partitions(self, name: str, now: datetime, inputs: InputState = _NOTHING_KNOWN) -> ExpectedPartitions:
        """The partitions that a dataset or channel should have as of a moment, whether or not they exist."""
        if name in self.datasets or (name in self.views and self.views[name].header is not None):
            return self._scoped_tasks(name, now).partitions
        channel = self.channels[name]
        cache_key = _partitions_cache_key(channel, now, inputs)
        with _LOCK:
            cached = self._channel_partitions.get(name)
            if cached is None or cached[0] != cache_key:
                cached = self._channel_partitions[name] = (
                    cache_key,
                    _make_expected_partitions(channel, _expected_partition_names(channel, now, cache_key)),
                )
        return cached[1]

    def required_reads(
        self, name: str, partition: str, now: datetime, inputs: InputState = _NOTHING_KNOWN
    ) -> tuple[RequiredRead, ...]:
        """The partitions that the task of a partition reads, one entry for each scan.

        Args:
            now: the moment that determines the expected partitions.
            inputs: lists the existing partitions of a channel with dynamic dimensions, and rows of small channels.

        Raises:
            PartitionError: no task writes the partition.
            SqlError: the partitions cannot be determined.
        """
        scope = self.scope(name, partition, now)
        input_partitions = {read: self.expected_partitions(read, now, inputs) for read in self.dataset(name).reads}
        rows = self._listed_rows(name, inputs)
        compute = partial(self._find_required_reads, name, scope, input_partitions, rows)
        depends_on: tuple[ExpectedPartitions | IndexedRows, ...] = (*input_partitions.values(), *rows.values())
        return self.reads_cache.get_or_compute(name, partition, scope, depends_on, compute)

    def _listed_rows(self, name: str, inputs: InputState) -> dict[str, IndexedRows]:
        """Rows of the datasets whose values a query compares with partition columns: ``day IN (SELECT day FROM ...)``.
        Datasets with many rows are left out.
        """
        found = {}
        for dataset in self._pruner(name).datasets_with_listed_values:
            rows = inputs.few_rows(dataset)
            if rows is not None:
                schema = self.dataset(name).query.schemas[dataset]
                cached = self._listed_rows_cache.get(dataset)
                if cached is None or cached[0] is not rows:
                    cached = self._listed_rows_cache[dataset] = (rows, index_data_rows(rows, schema))
                found[dataset] = cached[1]
        return found

    def unpruned_conditions(
        self, name: str, partition: str, now: datetime, inputs: InputState = _NOTHING_KNOWN
    ) -> tuple[str, ...]:
        """Conditions on partition columns that do not prune any partition, each with its place and the reason.

        Arguments as for ``required_reads``.
        """
        value_rows = {read: self.expected_partitions(read, now, inputs).value_rows for read in self.dataset(name).reads}
        text, scope = self.dataset(name).statement.text, self.scope(name, partition, now)
        ignored = self._pruner(name).ignored_conditions(value_rows, scope, self._listed_rows(name, inputs))
        return tuple(dict.fromkeys(text.error(part.reason, part.node).what for part in ignored))

    def _find_required_reads(
        self,
        name: str,
        scope: ScopeValues,
        partitions_by_input: Mapping[str, ExpectedPartitions],
        listed_rows: Mapping[str, IndexedRows],
    ) -> tuple[RequiredRead, ...]:
        positions_by_scan = self._pruner(name).required_partitions(
            {n: p.value_rows for n, p in partitions_by_input.items()}, scope, listed_rows
        )
        scans = self.dataset(name).statement.scans
        return tuple(
            RequiredRead(
                s.dataset, s.mode, tuple(partitions_by_input[s.dataset].names[n] for n in positions_by_scan[s.number])
            )
            for s in scans
        )

    def partitions_reading(
        self,
        name: str,
        input_name: str,
        input_partitions: Collection[str],
        now: datetime,
        inputs: InputState = _NOTHING_KNOWN,
    ) -> tuple[str, ...]:
        """The partitions of a dataset whose result may depend on some partitions of an input. The result is never too
        small.

        ``required_reads`` determines for one task whether it reads one of the input partitions. If the variables of a
        task alone filter out all rows, ``required_reads`` may list an input partition although this method leaves the
        task out.

        Args:
            input_name: the input dataset or channel.
            input_partitions: partitions of the input. Partitions that the input should not have are read by no task.

        Raises:
            SqlError: the partitions cannot be determined.
        """
        dataset, tasks = self.dataset(name), self._scoped_tasks(name, now)
        expected_by_input = {r: self.expected_partitions(r, now, inputs) for r in dataset.reads}
        input_positions = [
            n for p in input_partitions if (n := expected_by_input[input_name].ordinal_by_name.get(p)) is not None
        ]
        value_rows = {n: p.value_rows for n, p in expected_by_input.items()}
        task_positions: set[int] = set()
        for scan in dataset.statement.scans:
            if scan.dataset == input_name and input_positions:
                task_positions |= self._pruner(name).reading_scopes(
                    value_rows, tasks.scopes, scan.number, input_positions
                )
        return tuple(tasks.partitions.names[n] for n in sorted(task_positions))

    def depends_on_zone(self, name: str) -> bool:
        """Whether conditions of a dataset's query that were evaluated so far depend on the time zone."""
        return self._pruner(name).memo.depends_on_zone

    def _pruner(self, name: str) -> PartitionPruner:
        # Spark's sessions run in UTC. Only the header has a time zone of its own.
        pruner = self._pruner_by_dataset.get(name)
        if pruner is None:
            inputs = map(self.channel, self.datasets[name].reads)
            columns = frozenset(column.lower() for channel in inputs for column in channel.partition_columns)
            new_pruner = PartitionPruner(self.dataset(name).query, columns)
            pruner = self._pruner_by_dataset.setdefault(name, new_pruner)
        return pruner


def _make_scoped_tasks(
    header: StatementHeader, now: datetime, bounds: tuple[tuple[datetime, datetime], ...]
) -> _ScopedTasks:
    tasks = header.scopes_by_partition(now)
    values = [{c.lower(): v for c, v in header.partition_values_of(s).items()} for s in tasks.values()]
    return _ScopedTasks(bounds, tasks, ExpectedPartitions(tuple(tasks), values), IndexedRows(list(tasks.values())))


def _partitions_cache_key(channel: Channel, now: datetime, inputs: InputState) -> tuple[Any, ...]:
    """Everything that determines the expected partitions of a channel: the bounds of its calendars, or, with a dynamic
    dimension, its existing partitions.
    """
    if any(d.kind == "dynamic" for d in channel.partitions):
        return tuple(inputs.existing_partitions(channel.name))
    return tuple(_calendar_series(d).bounds(now) for d in channel.partitions if d.kind != "static")


def _expected_partition_names(channel: Channel, now: datetime, cache_key: tuple[Any, ...]) -> tuple[str, ...]:
    if not channel.partitions:
        return (WHOLE,)
    if any(d.kind == "dynamic" for d in channel.partitions):
        return cache_key
    columns = channel.partition_columns
    each = [_dimension_values(d, now) for d in channel.partitions]
    return tuple(partition_name(columns, dict(zip(columns, v, strict=True))) for v in product(*each))


def _make_expected_partitions(channel: Channel, partition_names: tuple[str, ...]) -> ExpectedPartitions:
    types = {d.column: _dimension_type(channel, d) for d in channel.partitions}
    return ExpectedPartitions(
        partition_names,
        [
            {
                d.column.lower(): parse_partition_value(text, types[d.column], d.tz)
                for d, text in zip(channel.partitions, partition_values(name).values(), strict=True)
            }
            for name in partition_names
        ],
    )


def _dimension_type(channel: Channel, dimension: Dimension) -> str:
    if channel.schema is not None and dimension.column in channel.schema:
        return str(channel.schema.field(dimension.column).type)
    return str(dimension.derived_type(None)) if dimension.kind in ("daily", "hourly") else "string"


def _dimension_values(dimension: Dimension, now: datetime) -> list[str]:
    """The values of a static dimension, or the days or hours of a calendar up to now."""
    if dimension.kind == "static":
        return list(dimension.values)
    return [dimension.partition_starting_at(m) for m in _calendar_series(dimension).moments(now)]


def _calendar_series(dimension: Dimension) -> TimeSeries:
    every: Literal["day", "hour"] = "day" if dimension.kind == "daily" else "hour"
    return TimeSeries(dimension.column, every, _first_period_start(dimension), tz=dimension.tz or "UTC")


def _first_period_start(dimension: Dimension) -> datetime:
    zone = TimeSeries("", tz=dimension.tz or "UTC").zone
    begins = datetime.fromisoformat(dimension.start or "2000-01-01")
    local = begins.replace(tzinfo=zone) if begins.tzinfo is None else begins.astimezone(zone)
    return local.replace(minute=0, second=0, microsecond=0, hour=0 if dimension.kind == "daily" else local.hour)
