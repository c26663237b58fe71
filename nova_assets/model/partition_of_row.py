"""Which partition a row is in (R13), by the values of its partition columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from nova_assets.errors import PartitionError
from nova_assets.model.partitions import Dimension, partition_name


def partition_of(dimensions: Sequence[Dimension], row: Mapping[str, Any], where: str) -> str:
    """The partition of a row.

    Raises:
        PartitionError: a dimension has no such value, or another way of writing it.
    """
    return partition_name(
        [d.column for d in dimensions], {d.column: _text(d, row[d.column], where) for d in dimensions}
    )


def _text(dimension: Dimension, value: Any, where: str) -> str | None:
    """A value as its partition's name has it."""
    if isinstance(value, datetime):
        return dimension.of_moment(value)
    if isinstance(value, bool):
        given: str | None = "true" if value else "false"
    elif isinstance(value, date):
        given = value.isoformat()
    else:
        given = None if value is None else str(value)
    known = dimension.parse(given)
    if known != given:
        raise PartitionError(
            f"{where}: {given!r} is not how partitions of {dimension.column!r} are written",
            found=given,
            expected=known,
            next="write all values in the same way, or make the column a date or a timestamp",
            column=dimension.column,
        )
    return given
