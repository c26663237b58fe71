"""Values of partition columns: parsed from a partition's name, or derived from a time column, in Arrow (R13)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import DataType, Schema


def parse_partition_value(partition_text: str | None, column_type: DataType, zone: str | None = None) -> Any:
    """Value of a partition column, parsed from its text in a partition's name.

    Args:
        zone: time zone of a ``timestamp`` whose text has none; None for UTC.
    """
    if partition_text is None or column_type.name == "string":
        return partition_text
    if column_type.name == "boolean":
        return partition_text == "true"
    if column_type.name == "date":
        return date.fromisoformat(partition_text)
    if column_type.name in ("timestamp", "timestamp_ntz"):
        moment = datetime.fromisoformat(partition_text)
        if column_type.name == "timestamp_ntz":
            return moment.replace(tzinfo=None)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(zone or "UTC"))
    return int(partition_text)


def add_derived_partition_columns(table: pa.Table, dimensions: Sequence[Dimension], schema: Schema | None) -> pa.Table:
    """Add derived partition columns that the table lacks, and fill their nulls.

    A null is filled because no row belongs to a null day or hour, and JSON readers give null for a missing value.

    Args:
        table: the table.
        dimensions: dimensions of the channel. Only dimensions with ``of`` are derived.
        schema: declared columns, which determine the type of a derived column; None if none are declared.

    Raises:
        PartitionError: the table also lacks the source column, or the source column holds no times.
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
    )  # twice, for clock changes of half an hour (model/local_hours)


def _truncate_to_local_hour(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Instants truncated to the full hour of local time.

    The difference is subtracted from the instants, because local time is ambiguous when clocks are set back.
    """
    local = pc.local_timestamp(moments)
    return pc.subtract(moments, pc.subtract(local, pc.floor_temporal(local, unit="hour")))
