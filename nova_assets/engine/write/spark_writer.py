"""Frames written by Spark's own writer, for clusters whose Python workers cannot run this package.

Spark's writer chooses file names and does not report them, so the folder is listed. The row count of the listed files
is compared with the rows that Spark counted during the write. A stale or empty listing is therefore detected, and
nothing is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from nova_assets.engine.buckets.file_writer import WrittenFile, check_row_count
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.parquet_footers import FileSummary, read_block_files, summarize_file
from nova_assets.engine.write.block_target import BlockTarget
from nova_assets.formats.python_values import to_python_rows
from nova_assets.model.partition_of_row import partition_of_row
from nova_assets.model.schema import DELETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

_PARTITION = "__nova_partition"
_ROWS = "rows"


def write_frame_by_spark(frame: DataFrame, target: BlockTarget) -> list[WrittenFile]:
    """Write a frame. On a partitioned channel, each file holds the rows of one partition.

    Raises:
        WarehouseUnavailable: the row count of the listed files differs from the number of written rows.
        PartitionError: a row belongs to another partition.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    _write_parquet_files(frame.observe(observation, F.count(F.lit(1)).alias(_ROWS)), target)
    written = []
    for path in file_io.list_parquet_and_remove_other_files(target.folder):
        footer = summarize_file(path, target.range_columns, target.required_columns)
        if footer.rows:
            written.append(_written_file_from_footer(footer, target))
        else:
            file_io.delete_file(path)
    check_row_count(written, observation.get[_ROWS], target.error_label)
    return written


def _write_parquet_files(rows: DataFrame, target: BlockTarget) -> None:
    """Write the files, split by partition.

    Spark would move partition columns from the files into folder names, so it partitions by a temporary hash column
    instead.
    """
    if not target.split_columns:
        _append_writer(rows).parquet(file_io.to_spark_address(target.folder))
        return
    from pyspark.sql import functions as F

    from nova_assets.engine.rows.spark_columns import struct_of_columns
    from nova_assets.engine.rows.spark_versions import rebalance_by_column

    partition_hash = F.sha2(F.to_json(struct_of_columns(target.split_columns)), 256)
    rows_by_partition = rebalance_by_column(
        rows.withColumn(_PARTITION, partition_hash), _PARTITION
    )  # few files, each with one partition
    _append_writer(rows_by_partition).partitionBy(_PARTITION).parquet(file_io.to_spark_address(target.folder))
    file_io.flatten_partition_folders(target.folder, _PARTITION)


def _append_writer(rows: DataFrame) -> DataFrameWriter:
    """Spark writer that checks the page size after the first row. By default, a page holds at least 100 wide rows."""
    return rows.write.mode("append").option("parquet.page.size.row.check.min", "1")


def _written_file_from_footer(footer: FileSummary, target: BlockTarget) -> WrittenFile:
    deletes = (
        int(pc.sum(read_block_files([footer.path], [DELETED]).column(0)).as_py() or 0)
        if target.has_deleted_column
        else 0
    )
    columns = [d.column for d in target.dimensions]
    values = read_block_files([footer.path], columns).group_by(columns).aggregate([]) if columns else None
    rows = [] if values is None else to_python_rows(values)
    partitions = dict.fromkeys(partition_of_row(target.dimensions, row, target.error_label) for row in rows)
    return WrittenFile(footer, None, deletes, False, tuple(partitions))
