"""Partition columns that the rows of an insert or a task lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from nova_assets.engine.buckets.partitioning import add_derived_columns, parse_partition_value
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import partition_values
from nova_assets.model.schema import DataType, Schema


def add_partition_columns(
    frame: Any, existing_columns: Sequence[str], channel: Channel, scope: str, schema: Schema | None
) -> Any:
    """Frame with its missing partition columns added: from the scope (R13), or derived from other columns.

    Args:
        frame: Arrow table or Spark frame.
        existing_columns: its columns.
        channel: the channel.
        scope: partitions of the write.
        schema: columns of the channel; None if it has no schema yet.
    """
    text_by_column = partition_values(scope)
    for dimension in channel.partitions:
        column = dimension.column
        if column not in text_by_column or (column in existing_columns and not _is_all_null(frame, column)):
            continue
        type_ = DataType("string") if schema is None or column not in schema else schema.field(column).type
        value = parse_partition_value(dimension, text_by_column[column], type_)
        if isinstance(frame, pa.Table):
            constant = pa.repeat(pa.scalar(value, arrow_type(type_)), frame.num_rows)
            frame = frame.drop_columns([column]) if column in existing_columns else frame
            frame = frame.append_column(column, constant)
        else:
            from pyspark.sql import functions as F

            from nova_assets.engine.rows.spark_types import to_spark_type

            frame = frame.withColumn(column, F.lit(value).cast(to_spark_type(type_)))
    return add_derived_columns(frame, channel.partitions, schema)


def _is_all_null(frame: Any, column: str) -> bool:
    """Whether a column of a local table has only nulls, for example because no line of the source file names it."""
    return isinstance(frame, pa.Table) and frame.column(column).null_count == frame.num_rows
