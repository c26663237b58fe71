"""Translation of partitions into Dagster's (R13): definitions, keys and default mappings.

A Dagster key is the bare value for one dimension and a ``MultiPartitionKey`` for two. Dagster has no definition for
three or more dimensions, so these become dynamic partitions whose key is the partition's whole name.
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

from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import (
    Dimension,
    format_value_text,
    parse_partition,
    parse_value_text,
    partition_values,
)
from nova_assets.model.project import Project
from nova_assets.nova_error import NovaError

# Dagster rejects an empty key. So the empty text has the key of the character NUL, and NUL has a key of its own,
# which is the text of no value.
_EMPTY_KEY, _NUL_KEY = "%00", "%NUL"

HasData = Callable[[str], bool]
"""Callback that tells whether the catalog has data in a partition or in a scope of partitions."""


class CatalogPartitions(DynamicPartitionsDefinition):
    """Dynamic partitions that are looked up in the catalog if Dagster does not know them yet.

    A key that the catalog has data for is added to the instance. So a partition can be materialized from the command
    line before the sensor ``nova_publish`` has reported it.
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
            self._add_keys_with_data({partition_key}, context.dynamic_partitions_store)
            return super().has_partition_key(partition_key)

    def filter_valid_partition_keys(self, partition_keys: set[str]) -> AbstractSet[str]:
        with partition_loading_context() as context:
            self._add_keys_with_data(partition_keys, context.dynamic_partitions_store)
            return super().filter_valid_partition_keys(partition_keys)

    def _add_keys_with_data(
        self, partition_keys: AbstractSet[str], dynamic_partitions_store: DynamicPartitionsStore | None
    ) -> None:
        name = str(self.name)
        if not isinstance(dynamic_partitions_store, DagsterInstance):
            return
        keys_not_in_dagster = sorted(
            k for k in partition_keys if not dynamic_partitions_store.has_dynamic_partition(name, k)
        )
        new = [k for k in keys_not_in_dagster if self._has_data_for_key(k)]
        if new:
            dynamic_partitions_store.add_dynamic_partitions(name, new)

    def _has_data_for_key(self, partition_key: str) -> bool:
        try:
            return self.has_data(parse_dagster_key(self.dimensions, partition_key))
        except NovaError:  # not a value of the dimension, or no catalog: Dagster's own answer holds
            return False

    def __repr__(self) -> str:  # Dagster hashes the repr, and equal definitions need equal hashes
        return repr(DynamicPartitionsDefinition(name=self.name))

    __hash__ = DynamicPartitionsDefinition.__hash__


def build_partitions_definition(
    dimensions: Sequence[Dimension], has_data: HasData | None = None
) -> PartitionsDefinition[Any] | None:
    """Dagster's definition of dimensions; None for no dimensions.

    All channels that have a dynamic dimension's column share one definition, because they share the dimension.

    Args:
        has_data: tells whether the catalog has data in a partition. If given, keys that Dagster lacks are looked up.
    """
    if not dimensions:
        return None
    if len(dimensions) == 1:
        return _build_dimension_definition(dimensions[0], has_data)
    if len(dimensions) == 2:
        return MultiPartitionsDefinition({d.column: _build_dimension_definition(d, has_data) for d in dimensions})
    return _build_dynamic_definition(_joined_column_names(dimensions), dimensions, has_data)


def _build_dynamic_definition(
    name: str, dimensions: Sequence[Dimension], has_data: HasData | None
) -> DynamicPartitionsDefinition:
    if has_data is None:
        return DynamicPartitionsDefinition(name=name)
    definition = CatalogPartitions(name=name)
    definition.dimensions, definition.has_data = tuple(dimensions), has_data
    return definition


def find_multi_partition_columns(project: Project) -> frozenset[str]:
    """Columns that are one of two dimensions of a channel or binding. Dagster's keys separate the two with ``|``."""
    partitioned = [*(c.partitions for c in project.channels), *(b.dimensions for b in project.bindings)]
    return frozenset(d.column for dimensions in partitioned if len(dimensions) == 2 for d in dimensions)


def to_dagster_key(
    dimensions: Sequence[Dimension], partition: str, multi_partition_columns: Collection[str] | None = None
) -> str:
    """Dagster's key of a partition.

    Args:
        dimensions: all dimensions of the partition.
        partition: name of the partition.
        multi_partition_columns: result of ``find_multi_partition_columns``. Values of other dynamic columns keep their
            ``|``. If None, ``|`` is escaped in every value.
    """
    values = partition_values(partition)
    if len(dimensions) == 1:
        return to_dagster_value_key(dimensions[0], values[dimensions[0].column], multi_partition_columns)
    if len(dimensions) == 2:
        return MultiPartitionKey({d.column: to_dagster_value_key(d, values[d.column]) for d in dimensions})
    return _escape_dots_and_pipes(partition)


def parse_dagster_key(dimensions: Sequence[Dimension], dagster_key: str) -> str:
    """Partition that a Dagster key denotes.

    Raises:
        PartitionError: the key denotes no partition of the dimensions.
    """
    if len(dimensions) >= 3:
        return parse_partition(dimensions, dagster_key.replace("%2E", "."))
    keys: Mapping[str, str]
    if len(dimensions) == 1:
        keys = {dimensions[0].column: dagster_key}
    elif isinstance(dagster_key, MultiPartitionKey):
        keys = dagster_key.keys_by_dimension
    else:  # Dagster sorts the values by dimension name
        keys = dict(zip(sorted(d.column for d in dimensions), dagster_key.split("|"), strict=True))
    return parse_partition(
        dimensions, {d.column: _partition_value_of_dagster_key(d, keys[d.column]) for d in dimensions}
    )


def dimensions_in_dagster(project: Project, channel: Channel) -> tuple[Dimension, ...]:
    """Dimensions by which Dagster partitions a channel: the dimensions of the binding that writes the channel.

    A Dagster run materializes at most one partition of each asset. Partitions that an execution discovers in its data
    are therefore listed in the metadata of one materialization.
    """
    writing_binding = project.writer(channel.name)
    return channel.partitions if writing_binding is None else writing_binding.dimensions


def default_partition_mapping(
    upstream: Sequence[Dimension], downstream: Sequence[Dimension]
) -> PartitionMapping | None:
    """Partition mapping for dimensions that Dagster cannot map by itself; None if Dagster's default is right."""
    shared = {d.column for d in upstream} & {d.column for d in downstream}
    same_columns = len(upstream) == len(downstream) == len(shared)
    one_of_two = shared and sorted((len(upstream), len(downstream))) == [1, 2]
    return None if not upstream or same_columns or one_of_two else AllPartitionMapping()


def add_partitions_of_blocks(
    instance: DagsterInstance,
    channels_by_name: Mapping[str, Channel],
    blocks: Iterable[Block],
    project: Project,
) -> None:
    """Add the dynamic partitions of blocks to Dagster, which cannot derive them.

    Args:
        channels_by_name: definitions of the blocks' channels. Blocks of other channels are left out.
    """
    partitions = (
        (channels_by_name[b.channel].partitions, b.partition) for b in blocks if b.channel in channels_by_name
    )
    add_partitions_to_dagster(instance, partitions, find_multi_partition_columns(project))


def add_partitions_to_dagster(
    instance: DagsterInstance,
    dimensions_and_partitions: Iterable[tuple[Sequence[Dimension], str]],
    multi_partition_columns: Collection[str] | None = None,
) -> None:
    """Add dynamic partitions to Dagster, as ``add_partitions_of_blocks``, for partitions with their dimensions.

    Args:
        dimensions_and_partitions: (dimensions, partition) pairs. A pair whose partition does not name exactly the
            dimensions' columns is skipped.
        multi_partition_columns: as for ``to_dagster_key``.
    """
    keys_by_definition: dict[str, set[str]] = {}
    for dimensions, partition in dimensions_and_partitions:
        if not partition or {d.column for d in dimensions} != set(partition_values(partition)):
            continue
        if len(dimensions) >= 3:
            keys_by_definition.setdefault(_joined_column_names(dimensions), set()).add(
                to_dagster_key(dimensions, partition)
            )
        for d in dimensions:
            if d.kind == "dynamic":
                keys_by_definition.setdefault(d.column, set()).add(
                    to_dagster_value_key(d, partition_values(partition)[d.column], multi_partition_columns)
                )
    for name, keys in keys_by_definition.items():
        new = sorted(keys - set(instance.get_dynamic_partitions(name)))
        if new:
            instance.add_dynamic_partitions(name, new)


def _build_dimension_definition(dimension: Dimension, has_data: HasData | None = None) -> PartitionsDefinition[Any]:
    # Data arrives during the current day or hour, so it is a partition before it ends.
    if dimension.kind == "daily":
        end_date = (
            None if dimension.end is None else (date.fromisoformat(dimension.end) + timedelta(days=1)).isoformat()
        )
        return DailyPartitionsDefinition(
            _first_partition_key(dimension)[:10], end_date=end_date, timezone=dimension.tz, end_offset=1 - dimension.lag
        )
    if dimension.kind == "hourly":
        start_hour, end_date = _format_hour_key(_first_partition_key(dimension)), None
        if dimension.end is not None:
            end_date = _format_hour_key((datetime.fromisoformat(dimension.end) + timedelta(hours=1)).isoformat())
        return HourlyPartitionsDefinition(
            start_hour, end_date=end_date, timezone=dimension.tz, end_offset=1 - dimension.lag
        )
    if dimension.kind == "static":
        return StaticPartitionsDefinition([to_dagster_value_key(dimension, v) for v in dimension.values])
    return _build_dynamic_definition(dimension.column, (dimension,), has_data)


def _first_partition_key(dimension: Dimension) -> str:
    """First partition of a time dimension. A sliding window starts relative to the time of loading definitions."""
    start = str(dimension.start)
    if dimension.last is None:
        return start
    step = timedelta(days=1) if dimension.kind == "daily" else timedelta(hours=1)
    now = datetime.now(ZoneInfo(dimension.tz or "UTC")).replace(tzinfo=None) - dimension.lag * step
    newest = now if dimension.end is None else min(now, datetime.fromisoformat(dimension.end[:16]))
    first = newest - (dimension.last - 1) * step
    return max(first, datetime.fromisoformat(start[:16])).strftime("%Y-%m-%dT%H:00")


def _format_hour_key(iso_time: str) -> str:
    return f"{iso_time[:10]}-{iso_time[11:16] or '00:00'}"


def to_dagster_value_key(
    dimension: Dimension, value: str | None, multi_partition_columns: Collection[str] | None = None
) -> str:
    """Dagster's key of one value of a dimension; ``multi_partition_columns`` as for ``to_dagster_key``."""
    if dimension.kind == "hourly":
        return str(value).replace("T", "-")
    text = format_value_text(value)
    is_single_dimension = (
        dimension.kind == "dynamic"
        and multi_partition_columns is not None
        and dimension.column not in multi_partition_columns
    )
    if text in ("", _EMPTY_KEY):
        return _NUL_KEY if text else _EMPTY_KEY
    return _escape_dots(text) if is_single_dimension else _escape_dots_and_pipes(text)


def _partition_value_of_dagster_key(dimension: Dimension, dagster_key: str) -> str | None:
    if dimension.kind == "hourly":
        return f"{dagster_key[:10]}T{dagster_key[11:]}"
    if dagster_key in (_EMPTY_KEY, _NUL_KEY):
        return "" if dagster_key == _EMPTY_KEY else "\x00"
    return parse_value_text(dagster_key)


def _escape_dots_and_pipes(text: str) -> str:
    """Text with the two sequences escaped that Dagster reads as syntax: ``...`` and ``|``."""
    return _escape_dots(text).replace("|", "%7C")


def _escape_dots(text: str) -> str:
    return text.replace("...", "%2E%2E%2E")


def _joined_column_names(dimensions: Sequence[Dimension]) -> str:
    return "/".join(d.column for d in dimensions)
