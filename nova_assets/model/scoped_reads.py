"""What a task says of itself when its inputs follow from a query: which partitions it reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from nova_assets.model.partitions import WHOLE, partition_name, partition_values

ExistingPartitions: TypeAlias = Callable[[str], Iterable[str]]
"""Channel -> the names of the partitions that it has."""


class Scoped(Protocol):
    """Tells what an execution of a task reads, before it reads anything."""

    def input_partitions(
        self, partition: str, now: datetime, existing: ExistingPartitions
    ) -> Mapping[str, frozenset[str]]:
        """Input -> the partitions of its channel that are read. An input that is left out is read as any other.

        Args:
            partition: of the execution.
            now: when it began: which partitions there should be hangs on it.
            existing: asked where these do not follow from definitions.

        Raises:
            PartitionError: no execution writes that partition.
        """
        ...

    def missing_partitions(self, partition: str, now: datetime, existing: ExistingPartitions) -> list[str]:
        """What is read that other tasks make, and that is not there yet."""
        ...

    def column_origins(self) -> Mapping[str, tuple[str, ...]]:
        """Column that is written -> the columns that it is made of, ``input.column`` each."""
        ...

    def as_json(self) -> dict[str, Any]:
        """The query, as the catalog keeps it."""
        ...


def narrowest_common_scope(columns: Sequence[str], partitions: Collection[str]) -> str:
    """The narrowest scope in which some partitions lie together.

    Args:
        columns: of their channel.
    """
    values_by_partition = [partition_values(name) for name in partitions]
    if not values_by_partition:
        return WHOLE
    common_values = {
        c: v for c, v in values_by_partition[0].items() if all(other.get(c, v) == v for other in values_by_partition)
    }
    return partition_name([c for c in columns if c in common_values], common_values)
