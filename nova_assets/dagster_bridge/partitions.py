"""Partitions here and in Dagster (R13): definitions, keys, and which partition of an input an output's needs.

Dagster's keys are the bare values where there is one dimension, ``MultiPartitionKey``s where there are two, and the
partition's whole name where there are three or more: of these Dagster has no definition, so they are dynamic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from dagster import (
    AllPartitionMapping,
    DagsterInstance,
    DailyPartitionsDefinition,
    DynamicPartitionsDefinition,
    HourlyPartitionsDefinition,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    PartitionMapping,
    PartitionsDefinition,
    StaticPartitionsDefinition,
)
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.instance import DynamicPartitionsStore

from nova_assets.errors import NovaError
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import (
    Dimension,
    parse_partition,
    partition_values,
    text_as_value,
    value_as_text,
)
from nova_assets.model.project import Project

_EMPTY = "%00"  # Dagster takes no empty key, and no value is written so

HasData = Callable[[str], bool]
"""Whether the catalog has data in a partition, or in a scope of partitions."""


class CatalogPartitions(DynamicPartitionsDefinition):
    """Dynamic partitions of which Dagster may not have heard yet.

    A key that Dagster does not have is looked up in the catalog, and added to the instance if there is data. So a
    partition can be materialized from the command line before the sensor ``nova_publish`` has shown it.
    """

    dimensions: tuple[Dimension, ...]
    has_data: HasData

    def has_partition_key(
        self,
        partition_key: str,
        current_time: datetime | None = None,
        dynamic_partitions_store: DynamicPartitionsStore | None = None,
    ) -> bool:
        with partition_loading_context(current_time, dynamic_partitions_store) as context:
            self._announce({partition_key}, context.dynamic_partitions_store)
            return super().has_partition_key(partition_key)

    def filter_valid_partition_keys(self, partition_keys: set[str]) -> AbstractSet[str]:
        with partition_loading_context() as context:
            self._announce(partition_keys, context.dynamic_partitions_store)
            return super().filter_valid_partition_keys(partition_keys)

    def _announce(self, keys: AbstractSet[str], store: DynamicPartitionsStore | None) -> None:
        name = str(self.name)
        if not isinstance(store, DagsterInstance):
            return
        unknown = sorted(k for k in keys if not store.has_dynamic_partition(name, k))
        new = [k for k in unknown if self._exists(k)]
        if new:
            store.add_dynamic_partitions(name, new)

    def _exists(self, key: str) -> bool:
        try:
            return self.has_data(partition_of(self.dimensions, key))
        except NovaError:  # no value of the dimension, or no catalog: then Dagster says what it knows
            return False

    def __repr__(self) -> str:  # Dagster's hash, which is to be that of an equal definition
        return repr(DynamicPartitionsDefinition(name=self.name))

    __hash__ = DynamicPartitionsDefinition.__hash__


def partitions_def(
    dimensions: Sequence[Dimension], has_data: HasData | None = None
) -> PartitionsDefinition[Any] | None:
    """Dagster's definition of these dimensions; None where there are none.

    Dynamic ones are shared by all channels that have the column, as they share the dimension.

    Args:
        has_data: where keys are looked up that Dagster does not have.
    """
    if not dimensions:
        return None
    if len(dimensions) == 1:
        return _one(dimensions[0], has_data)
    if len(dimensions) == 2:
        return MultiPartitionsDefinition({d.column: _one(d, has_data) for d in dimensions})
    return _dynamic(_shared_name(dimensions), dimensions, has_data)


def _dynamic(name: str, dimensions: Sequence[Dimension], has_data: HasData | None) -> DynamicPartitionsDefinition:
    if has_data is None:
        return DynamicPartitionsDefinition(name=name)
    made = CatalogPartitions(name=name)
    made.dimensions, made.has_data = tuple(dimensions), has_data
    return made


def paired_columns(project: Project) -> frozenset[str]:
    """Columns that are one of two dimensions of some channel or binding: in Dagster's keys, ``|`` parts the two."""
    partitioned = [*(c.partitions for c in project.channels), *(b.dimensions for b in project.bindings)]
    return frozenset(d.column for dimensions in partitioned if len(dimensions) == 2 for d in dimensions)


def key_of(dimensions: Sequence[Dimension], partition: str, paired: Collection[str] | None = None) -> str:
    """Dagster's key of a partition.

    Args:
        paired: the ``paired_columns`` of the project. A value of any other column is shown with its ``|``.
    """
    values = partition_values(partition)
    if len(dimensions) == 1:
        return value_key(dimensions[0], values[dimensions[0].column], paired)
    if len(dimensions) == 2:
        return MultiPartitionKey({d.column: value_key(d, values[d.column]) for d in dimensions})
    return _plain(partition)


def partition_of(dimensions: Sequence[Dimension], key: str) -> str:
    """The partition that a key of Dagster's means.

    Raises:
        PartitionError: there is none.
    """
    if len(dimensions) >= 3:
        return parse_partition(dimensions, key.replace("%2E", "."))
    keys: Mapping[str, str]
    if len(dimensions) == 1:
        keys = {dimensions[0].column: key}
    elif isinstance(key, MultiPartitionKey):
        keys = key.keys_by_dimension
    else:  # in the order of the dimensions' names
        keys = dict(zip(sorted(d.column for d in dimensions), key.split("|"), strict=True))
    return parse_partition(dimensions, {d.column: _value(d, keys[d.column]) for d in dimensions})


def dimensions_shown(project: Project, channel: Channel) -> tuple[Dimension, ...]:
    """The dimensions by which Dagster sees a channel: those of the executions that write it.

    A run makes one partition of each of its assets, or none, so what an execution finds in its data is told in the
    metadata of one materialization.
    """
    writer = project.writer(channel.name)
    return channel.partitions if writer is None else writer.dimensions


def mapping(upstream: Sequence[Dimension], downstream: Sequence[Dimension]) -> PartitionMapping | None:
    """Which partitions of an input a partition needs, where Dagster would not find it out by itself."""
    shared = {d.column for d in upstream} & {d.column for d in downstream}
    alike = len(upstream) == len(downstream) == len(shared)
    one_of_two = shared and sorted((len(upstream), len(downstream))) == [1, 2]
    return None if not upstream or alike or one_of_two else AllPartitionMapping()


def announce(
    instance: DagsterInstance,
    channels: Mapping[str, Channel],
    blocks: Iterable[tuple[str, str]],
    paired: Collection[str] | None = None,
) -> None:
    """Make partitions known to Dagster that it cannot work out.

    Args:
        blocks: (channel, partition) of each.
        paired: as for ``key_of``.
    """
    dimensions = {name: channel.partitions for name, channel in channels.items()}
    announce_partitions(instance, ((dimensions.get(channel, ()), partition) for channel, partition in blocks), paired)


def announce_partitions(
    instance: DagsterInstance,
    partitions: Iterable[tuple[Sequence[Dimension], str]],
    paired: Collection[str] | None = None,
) -> None:
    """As ``announce``, for partitions with their dimensions."""
    found: dict[str, set[str]] = {}
    for dimensions, partition in partitions:
        if not partition or {d.column for d in dimensions} != set(partition_values(partition)):
            continue
        if len(dimensions) >= 3:
            found.setdefault(_shared_name(dimensions), set()).add(key_of(dimensions, partition))
        for d in dimensions:
            if d.kind == "dynamic":
                found.setdefault(d.column, set()).add(value_key(d, partition_values(partition)[d.column], paired))
    for name, keys in found.items():
        new = sorted(keys - set(instance.get_dynamic_partitions(name)))
        if new:
            instance.add_dynamic_partitions(name, new)


def _one(d: Dimension, has_data: HasData | None = None) -> PartitionsDefinition[Any]:
    # The current day and hour are partitions already: data comes while they last.
    if d.kind == "daily":
        until = None if d.end is None else (date.fromisoformat(d.end) + timedelta(days=1)).isoformat()
        return DailyPartitionsDefinition(_begins(d)[:10], end_date=until, timezone=d.tz, end_offset=1 - d.lag)
    if d.kind == "hourly":
        begins, until = _hour(_begins(d)), None
        if d.end is not None:
            until = _hour((datetime.fromisoformat(d.end) + timedelta(hours=1)).isoformat())
        return HourlyPartitionsDefinition(begins, end_date=until, timezone=d.tz, end_offset=1 - d.lag)
    if d.kind == "static":
        return StaticPartitionsDefinition([value_key(d, v) for v in d.values])
    return _dynamic(d.column, (d,), has_data)


def _begins(d: Dimension) -> str:
    """The first partition; of one that goes on with time, as of the moment at which definitions are loaded."""
    start = str(d.start)
    if d.last is None:
        return start
    step = timedelta(days=1) if d.kind == "daily" else timedelta(hours=1)
    now = datetime.now(ZoneInfo(d.tz or "UTC")).replace(tzinfo=None) - d.lag * step
    newest = now if d.end is None else min(now, datetime.fromisoformat(d.end[:16]))
    first = newest - (d.last - 1) * step
    return max(first, datetime.fromisoformat(start[:16])).strftime("%Y-%m-%dT%H:00")


def _hour(text: str) -> str:
    return f"{text[:10]}-{text[11:16] or '00:00'}"


def value_key(d: Dimension, value: str | None, paired: Collection[str] | None = None) -> str:
    """Dagster's key of one value of a dimension; ``paired`` as for ``key_of``."""
    if d.kind == "hourly":
        return str(value).replace("T", "-")
    text = value_as_text(value)
    is_alone = d.kind == "dynamic" and paired is not None and d.column not in paired
    return (_without_dots(text) if is_alone else _plain(text)) or _EMPTY


def _value(d: Dimension, key: str) -> str | None:
    if d.kind == "hourly":
        return f"{key[:10]}T{key[11:]}"
    return "" if key == _EMPTY else text_as_value(key)


def _plain(text: str) -> str:
    """Without what Dagster takes for syntax of its own."""
    return _without_dots(text).replace("|", "%7C")


def _without_dots(text: str) -> str:
    return text.replace("...", "%2E%2E%2E")


def _shared_name(dimensions: Sequence[Dimension]) -> str:
    return "/".join(d.column for d in dimensions)
