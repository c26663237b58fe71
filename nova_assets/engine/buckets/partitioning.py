"""Partitions of rows (R13), by the values of their partition columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.file_writer import WrittenFile
from nova_assets.engine.buckets.key_order import one_chunk
from nova_assets.errors import PartitionError
from nova_assets.formats.derived_partitions import add_derived_partition_columns
from nova_assets.model.partitions import Dimension, is_in_scope
from nova_assets.model.schema import Schema, quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ROW_INDEX = "__nova_place"
_HOUR = 3_600_000_000  # microseconds
_DAY = 24 * _HOUR


def add_derived_columns(frame: Any, dimensions: Sequence[Dimension], schema: Schema | None) -> Any:
    """Frame or table with its missing derived partition columns added.

    Raises:
        PartitionError: the source column of a derived column is missing, or holds neither timestamps nor dates.
    """
    if isinstance(frame, pa.Table):
        return add_derived_partition_columns(frame, dimensions, schema)
    for d in dimensions:
        if d.of is not None and d.column not in frame.columns:
            frame = _add_derived_column(frame, d, schema)
    return frame


def _add_derived_column(frame: DataFrame, dimension: Dimension, declared: Schema | None) -> DataFrame:
    """Frame with one derived partition column. The result does not depend on the session's time zone, which may be
    any."""
    from pyspark.sql import functions as F

    from nova_assets.engine.rows.spark_types import to_spark_type

    kinds = dict(frame.dtypes)
    if kinds.get(str(dimension.of)) not in ("timestamp", "timestamp_ntz", "date"):
        raise dimension.derivation_error([f"{n} {t}" for n, t in kinds.items()])
    moment = F.col(quote_identifier(str(dimension.of)))
    if kinds[str(dimension.of)] != "timestamp":
        value = F.to_date(moment)
    else:
        if dimension.kind == "hourly":
            value = _floor_to_local_hour(
                _floor_to_local_hour(moment, dimension), dimension
            )  # twice, for clock changes of half an hour (model/local_hours)
        else:
            value = F.date_from_unix_date(F.floor(_local_epoch_micros(moment, dimension) / _DAY).cast("int"))
    return frame.withColumn(dimension.column, value.cast(to_spark_type(dimension.derived_type(declared))))


def _floor_to_local_hour(moment: Column, dimension: Dimension) -> Column:
    from pyspark.sql import functions as F

    return F.timestamp_micros(F.unix_micros(moment) - F.pmod(_local_epoch_micros(moment, dimension), F.lit(_HOUR)))


def _local_epoch_micros(moment: Column, dimension: Dimension) -> Column:
    from pyspark.sql import functions as F

    return F.unix_micros(F.from_utc_timestamp(moment, dimension.tz or "UTC"))


def split_by_column_values(table: pa.Table, columns: Sequence[str]) -> list[pa.Table]:
    """Rows of each partition, in their original order."""
    row_indices = table.select(list(columns)).append_column(_ROW_INDEX, pa.array(np.arange(table.num_rows)))
    groups = (
        row_indices.group_by(list(columns), use_threads=False)
        .aggregate([(_ROW_INDEX, "list")])
        .column(f"{_ROW_INDEX}_list")
    )
    if len(groups) == 1:
        return [table]
    # One take for all partitions, then slices: a take costs as much for one partition as for all.
    grouped_rows = one_chunk(table).take(pc.list_flatten(groups))
    lengths = pc.list_value_length(groups).to_pylist()
    return [grouped_rows.slice(end - n, n) for n, end in zip(lengths, accumulate(lengths), strict=True)]


def partition_of_file(written_file: WrittenFile, scope: str, error_label: str) -> str:
    """The one partition of all rows of a file.

    Raises:
        PartitionError: a row belongs to no partition, or to a partition outside the scope.
    """
    if written_file.partition_error_args is not None:
        raise PartitionError(**written_file.partition_error_args)
    outside = [p for p in written_file.partitions if not is_in_scope(p, scope)]
    if outside:
        raise PartitionError(
            f"{error_label} has rows of another partition than {scope}",
            found=", ".join(outside[:3]) + ("" if len(outside) <= 3 else f" and {len(outside) - 3} more"),
            expected=f"only rows of {scope}",
            next="remove the other rows, or write without a partition",
        )
    [partition] = written_file.partitions
    return partition
