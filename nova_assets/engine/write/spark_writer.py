"""Frames saved by Spark's own writer, where its Python workers cannot run this package.

That writer names its files itself and tells nobody, so they are listed, and what they hold is compared with the rows
that Spark has counted while it wrote: a listing that is stale or empty is noticed, and nothing is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from nova_assets.engine.buckets.bucket_files import WrittenFile, check_row_count
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.parquet_footers import Footer, read_block_files, read_footer
from nova_assets.engine.write.target import BlockTarget
from nova_assets.model.partition_of_row import partition_of_row
from nova_assets.model.schema import DELETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

_PARTITION = "__nova_partition"
_ROWS = "rows"


def write_frame_by_spark(frame: DataFrame, target: BlockTarget) -> list[WrittenFile]:
    """Write a frame; on a partitioned channel, each file with the rows of one partition.

    Raises:
        WarehouseUnavailable: the files that are listed hold other rows than were written.
        PartitionError: a row is of another partition.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    _write_parquet_files(frame.observe(observation, F.count(F.lit(1)).alias(_ROWS)), target)
    written = []
    for path in file_io.list_and_clean_folder(target.folder):
        footer = read_footer(path, target.range_columns, target.required_columns)
        if footer.rows:
            written.append(_written_file_from_footer(footer, target))
        else:
            file_io.delete_file(path)
    check_row_count(written, observation.get[_ROWS], target.error_label)
    return written


def _write_parquet_files(rows: DataFrame, target: BlockTarget) -> None:
    """Spark would leave the partition columns out of its files and put their values into folders' names, so it is given
    one that stands for them."""
    if not target.split_columns:
        _append_writer(rows).parquet(file_io.to_spark_address(target.folder))
        return
    from pyspark.sql import functions as F

    from nova_assets.engine.rows.columns import struct_of_columns
    from nova_assets.engine.rows.spark_versions import rebalance_by_column

    mark = F.sha2(F.to_json(struct_of_columns(target.split_columns)), 256)
    marked = rebalance_by_column(rows.withColumn(_PARTITION, mark), _PARTITION)  # few files, and none for several
    _append_writer(marked).partitionBy(_PARTITION).parquet(file_io.to_spark_address(target.folder))
    file_io.flatten_partition_folders(target.folder, _PARTITION)


def _append_writer(rows: DataFrame) -> DataFrameWriter:
    """A writer that looks at the size of a page after its first row: by default 100 wide rows would be in it."""
    return rows.write.mode("append").option("parquet.page.size.row.check.min", "1")


def _written_file_from_footer(footer: Footer, target: BlockTarget) -> WrittenFile:
    deletes = (
        int(pc.sum(read_block_files([footer.path], [DELETED]).column(0)).as_py() or 0)
        if target.has_deleted_column
        else 0
    )
    columns = [d.column for d in target.dimensions]
    rows = read_block_files([footer.path], columns).group_by(columns).aggregate([]).to_pylist() if columns else []
    partitions = dict.fromkeys(partition_of_row(target.dimensions, row, target.error_label) for row in rows)
    return WrittenFile(footer, None, deletes, False, tuple(partitions))
