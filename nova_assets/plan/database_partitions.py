"""Partitions of a database table, from the values of its partition columns. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from nova_assets.errors import PartitionError
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, partition_name
from nova_assets.plan.external_changes import LocationContents, PartitionFiles


def contents_of_rows(
    channel: Channel,
    rows: Iterable[tuple[Sequence[str | None], str]],
    expected_partitions: Collection[str] | None,
) -> LocationContents:
    """Partitions that a source has, with their versions.

    Args:
        rows: the values of the partition columns as text, and a version, for each partition.
        expected_partitions: partitions that the channel should have, if its dimensions alone do not determine them.
    """
    versions: dict[str, str] = {}
    ignored: dict[str, str] = {}
    for values, version in rows:
        try:
            versions[partition_of_values(channel, values)] = version
        except PartitionError as error:
            ignored["/".join("NULL" if v is None else v for v in values)] = error.what
    unexpected = frozenset(() if expected_partitions is None else versions.keys() - set(expected_partitions))
    return LocationContents(
        {p: PartitionFiles((), v) for p, v in sorted(versions.items()) if p not in unexpected}, (), unexpected, ignored
    )


def partition_of_values(channel: Channel, values: Sequence[str | None]) -> str:
    """Name of a partition. Raises PartitionError if a dimension has no such value, or writes it otherwise."""
    if not channel.partitions:
        return WHOLE
    parsed: dict[str, str | None] = {}
    for dimension, text in zip(channel.partitions, values, strict=True):
        value = dimension.parse(text)
        if value != text:
            raise PartitionError(f"{dimension.column}={text} must be {dimension.column}={value}", found=text)
        parsed[dimension.column] = value
    return partition_name(channel.partition_columns, parsed)


def unexpected_partitions(requested: Collection[str], written: Mapping[str, object]) -> list[str]:
    """Partitions of rows that were not requested."""
    return sorted(p for p in written if p not in requested)
