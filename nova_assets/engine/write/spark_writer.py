"""Frames saved by Spark's own writer, where its Python workers cannot run this package.

That writer names its files itself and tells nobody, so they are listed, and what they hold is compared with the rows
that Spark has counted while it wrote: a listing that is stale or empty is noticed, and nothing is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from nova_assets.engine.buckets.bucket_files import Written, check_count
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.parquet_footers import Footer, read_footer, table_of
from nova_assets.engine.write.target import Target
from nova_assets.model.partition_of_row import partition_of
from nova_assets.model.schema import DELETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

_PARTITION = "__nova_partition"
_ROWS = "rows"


def save(frame: DataFrame, target: Target) -> list[Written]:
    """Write a frame; on a partitioned channel, each file with the rows of one partition.

    Raises:
        WarehouseUnavailable: the files that are listed hold other rows than were written.
        PartitionError: a row is of another partition.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    counted = Observation()
    _save(frame.observe(counted, F.count(F.lit(1)).alias(_ROWS)), target)
    written = []
    for path in file_io.written_in(target.folder):
        footer = read_footer(path, target.ranged, target.never_null)
        if footer.rows:
            written.append(_written(footer, target))
        else:
            file_io.remove(path)
    check_count(written, counted.get[_ROWS], target.where)
    return written


def _save(rows: DataFrame, target: Target) -> None:
    """Spark would leave the partition columns out of its files and put their values into folders' names, so it is given
    one that stands for them."""
    if not target.spread:
        _appending(rows).parquet(file_io.for_spark(target.folder))
        return
    from pyspark.sql import functions as F

    from nova_assets.engine.rows.columns import struct
    from nova_assets.engine.rows.spark_versions import rebalanced

    mark = F.sha2(F.to_json(struct(target.spread)), 256)
    marked = rebalanced(rows.withColumn(_PARTITION, mark), _PARTITION)  # few files, and none for several
    _appending(marked).partitionBy(_PARTITION).parquet(file_io.for_spark(target.folder))
    file_io.flatten(target.folder, _PARTITION)


def _appending(rows: DataFrame) -> DataFrameWriter:
    """A writer that looks at the size of a page after its first row: by default 100 wide rows would be in it."""
    return rows.write.mode("append").option("parquet.page.size.row.check.min", "1")


def _written(footer: Footer, target: Target) -> Written:
    deletes = int(pc.sum(table_of([footer.path], [DELETED]).column(0)).as_py() or 0) if target.marked else 0
    columns = [d.column for d in target.dimensions]
    rows = table_of([footer.path], columns).group_by(columns).aggregate([]).to_pylist() if columns else []
    partitions = dict.fromkeys(partition_of(target.dimensions, row, target.where) for row in rows)
    return Written(footer, None, deletes, False, tuple(partitions))
