"""Partition columns that follow from a moment in the row, in Arrow (R13)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import Schema


def with_derived(table: pa.Table, dimensions: Sequence[Dimension], schema: Schema | None) -> pa.Table:
    """A table with those partition columns that follow from others, where it lacks them.

    Raises:
        PartitionError: it lacks the column from which one follows, too, or that holds no moments.
    """
    for d in dimensions:
        if d.of is not None and d.column not in table.column_names:
            type_ = arrow_type(d.derived_type(schema))
            table = table.append_column(pa.field(d.column, type_), _derived(table, d).cast(type_))
    return table


def _derived(table: pa.Table, d: Dimension) -> pa.ChunkedArray:
    if d.of not in table.column_names:
        raise d.cannot_derive(table.column_names)
    moments = table.column(d.of)
    if pa.types.is_date(moments.type) and d.kind == "daily":
        return moments.cast(pa.date32())
    if not pa.types.is_timestamp(moments.type):
        raise d.cannot_derive([f"{d.of} {moments.type}"])
    if not moments.type.tz:
        return moments.cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    local = pc.local_timestamp(moments.cast(pa.timestamp("us", d.tz or "UTC")))
    if d.kind == "daily":
        return local.cast(pa.date32(), safe=False)
    into = pc.subtract(local, pc.floor_temporal(local, unit="hour"))  # the clock's hour, of which a change has two
    return pc.subtract(moments, into)
