"""Partition columns that follow from a moment in the row, in Arrow (R13)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import Schema


def add_derived_partition_columns(table: pa.Table, dimensions: Sequence[Dimension], schema: Schema | None) -> pa.Table:
    """A table with those partition columns that follow from others, where it lacks them or they are null. (No row is in
    a day or an hour that is null, and a file of JSON says null where it says nothing.)

    Raises:
        PartitionError: it lacks the column from which one follows, too, or that holds no moments.
    """
    for d in dimensions:
        if d.of is None:
            continue
        type_ = arrow_type(d.derived_type(schema))
        if d.column not in table.column_names:
            table = table.append_column(pa.field(d.column, type_), _derive_partition_column(table, d).cast(type_))
            continue
        column = table.column(d.column)
        if column.null_count and column.type in (type_, pa.null()) and d.of in table.column_names:
            filled = pc.coalesce(column.cast(type_), _derive_partition_column(table, d).cast(type_))
            table = table.set_column(table.column_names.index(d.column), d.column, filled)
    return table


def _derive_partition_column(table: pa.Table, dimension: Dimension) -> pa.ChunkedArray:
    if dimension.of not in table.column_names:
        raise dimension.derivation_error(table.column_names)
    moments = table.column(dimension.of)
    if pa.types.is_date(moments.type) and dimension.kind == "daily":
        return moments.cast(pa.date32())
    if not pa.types.is_timestamp(moments.type):
        raise dimension.derivation_error([f"{dimension.of} {moments.type}"])
    if not moments.type.tz:
        return moments.cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    moments = moments.cast(pa.timestamp("us", dimension.tz or "UTC"))
    if dimension.kind == "daily":
        return pc.local_timestamp(moments).cast(pa.date32(), safe=False)
    return _truncate_to_local_hour(
        _truncate_to_local_hour(moments)
    )  # twice, for clocks that change by half an hour (model/clock)


def _truncate_to_local_hour(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments less what the clock shows past the full hour. A change of clocks has two hours of one name."""
    local = pc.local_timestamp(moments)
    return pc.subtract(moments, pc.subtract(local, pc.floor_temporal(local, unit="hour")))
