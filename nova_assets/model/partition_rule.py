"""Protocol of tasks whose query determines which partitions of their inputs they read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from nova_assets.errors import PartitionError
from nova_assets.model.partition_values import value_text
from nova_assets.model.partitions import WHOLE, Dimension, partition_name, partition_values

FewRows: TypeAlias = Sequence[Mapping[str, Any]]
"""All rows of a small channel: column -> value."""


@dataclass(frozen=True)
class InputState:
    """What is known about the inputs of a task before the task reads anything.

    Args:
        existing_partitions: function from a channel to the names of its existing partitions.
        few_rows: function from a channel to its rows; None if it has many rows, or if they are not known. For one
            version of the channel, the function returns the same object each time.
    """

    existing_partitions: Callable[[str], Iterable[str]] = lambda channel: ()
    few_rows: Callable[[str], FewRows | None] = lambda channel: None


class PartitionRule(Protocol):
    """Determines the input partitions of a task before the task reads anything."""

    @property
    def is_maintained(self) -> bool:
        """Whether a task derives the changes of its output from the changes of its inputs."""
        ...

    @property
    def reads_all_partitions(self) -> bool:
        """Whether a task reads changes in all partitions of its inputs, whatever its query needs."""
        ...

    def input_partitions(self, partition: str, now: datetime, inputs: InputState) -> Mapping[str, frozenset[str]]:
        """Input -> partitions of its channel to read. Inputs that are left out are read like any other input.

        Args:
            partition: partition of the execution.
            now: start of the execution, which can affect which partitions are expected.
            inputs: tells what does not follow from definitions.

        Raises:
            PartitionError: no execution writes that partition.
        """
        ...

    def missing_partitions(self, partition: str, now: datetime, inputs: InputState) -> list[str]:
        """Partitions to be read that other tasks produce and that do not exist yet."""
        ...

    def column_origins(self) -> Mapping[str, tuple[str, ...]]:
        """Written column -> its source columns, each as ``input.column``."""
        ...

    def as_json(self) -> dict[str, Any]:
        """The query, as the catalog stores it."""
        ...


def narrowest_scope_containing(columns: Sequence[str], partitions: Collection[str]) -> str:
    """The narrowest scope that contains all given partitions.

    Args:
        columns: partition columns of their channel.
        partitions: names of the partitions.
    """
    values_by_partition = [partition_values(name) for name in partitions]
    if not values_by_partition:
        return WHOLE
    common_values = {
        c: v for c, v in values_by_partition[0].items() if all(other.get(c, v) == v for other in values_by_partition)
    }
    return partition_name([c for c in columns if c in common_values], common_values)


def partition_of_row(dimensions: Sequence[Dimension], row: Mapping[str, Any], error_label: str) -> str:
    """Name of the partition of a row.

    Raises:
        PartitionError: a dimension lacks the value, or the value is not in canonical form.
    """
    return partition_name(
        [d.column for d in dimensions],
        {d.column: _value_as_partition_text(d, row[d.column], error_label) for d in dimensions},
    )


def _value_as_partition_text(dimension: Dimension, value: Any, error_label: str) -> str | None:
    """Value in the form used in partition names."""
    if isinstance(value, datetime):
        return dimension.partition_starting_at(value)
    written_text = value_text(dimension.column, value, None)
    canonical_text = dimension.parse(written_text)
    if canonical_text != written_text:
        raise PartitionError(
            f"{error_label}: {written_text!r} is not how partitions of {dimension.column!r} are written",
            found=written_text,
            expected=canonical_text,
            next="write all values in the same way, or make the column a date or a timestamp",
            column=dimension.column,
        )
    return written_text
