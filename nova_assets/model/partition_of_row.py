"""Partition of a row, derived from the values of its partition columns (R13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nova_assets.errors import PartitionError
from nova_assets.model.partition_values import value_text
from nova_assets.model.partitions import Dimension, partition_name


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
