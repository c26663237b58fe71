"""Writing of rows into files of a block: tables in this process, frames by Spark. Each writer reports its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.file_writer import FileTarget, WrittenFile, check_row_count, write_sorted_file
from nova_assets.engine.buckets.key_order import one_chunk, split_at_key_boundaries
from nova_assets.engine.buckets.merge_unit import MergeSourceFile, MergeUnitTask
from nova_assets.engine.buckets.partitioning import split_by_column_values
from nova_assets.engine.buckets.row_layout import sort_into_buckets, split_into_buckets
from nova_assets.engine.buckets.spark_jobs import (
    ARROW_BATCH_SETTINGS,
    rewrite_changed_units_by_spark,
    write_sorted_runs,
    write_sorted_runs_by_spark,
)
from nova_assets.engine.buckets.split_points import sample_split_points, split_key_range
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.parquet_footers import FileSummary, read_block_files, summarize_file
from nova_assets.engine.write.block_target import BlockTarget
from nova_assets.formats.python_values import to_python_rows
from nova_assets.model.arrow_types import from_arrow_schema
from nova_assets.model.merge import Upsert
from nova_assets.model.partition_rule import partition_of_row
from nova_assets.model.schema import DELETED
from nova_assets.plan.block_layout import CommonLayout
from nova_assets.plan.merge_units import (
    DataSize,
    HashBucket,
    KeySpan,
    MergeUnit,
    bucket_count_for,
    key_range_count_for,
    may_have_rows_in,
    target_bucket_bytes,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter


MAX_LOCAL_RUN_BYTES = 64 * 2**20
"""Maximum total size of the runs of a block that are combined in this process."""

COMPRESSION_RATIO = 0.4
"""Approximate ratio of the written size of rows to their size in memory."""

_PARTITION = "__nova_partition"


class FrameWriter:
    """Writes Spark frames, with a key layout if the target has one.

    A Spark task writes its rows where they are computed, without a shuffle, as a *run*: a file that is sorted if the
    block has a key layout. A delta keeps its runs. The runs of a base with a key layout are then merged bucket by
    bucket. Small runs are combined in this process.

    Args:
        is_base: whether the block is a base, not a delta.
    """

    def __init__(self, session: LazySparkSession, target: FileTarget, is_base: bool) -> None:
        self.session = session
        self.target = target
        self.is_base = is_base

    def write(self, frame: DataFrame) -> list[WrittenFile]:
        with temporary_settings(self.session.get(), ARROW_BATCH_SETTINGS):
            runs = write_sorted_runs_by_spark(self._rebalance_by_partition(frame), self.target)
        if self.target.layout is None or any(w.key_placement is None for w in runs):
            return runs
        if (self.is_base or len(runs) > 1) and sum(w.bytes for w in runs) <= MAX_LOCAL_RUN_BYTES:
            rows = [open_block_file(w.path).read() for w in runs]
            written_files = _write_table_files(pa.concat_tables(rows), self.target, self.is_base) if rows else []
        elif self.is_base and runs:
            written_files = self._merge_runs(runs)
        else:
            return runs
        check_row_count(written_files, sum(run.rows for run in runs), self.target.error_label)
        for run in runs:  # their rows are in other files now
            file_io.delete_file(run.path)
        return written_files

    def _rebalance_by_partition(self, frame: DataFrame) -> DataFrame:
        """Frame with the rows of one partition together. Otherwise every task would write a file for each partition."""
        if not self.target.split_columns:
            return frame
        from pyspark.sql import functions as F

        from nova_assets.engine.rows.spark_columns import struct_of_columns
        from nova_assets.engine.rows.spark_versions import rebalance_by_column

        partition_hash = F.xxhash64(struct_of_columns(self.target.split_columns))
        return rebalance_by_column(frame.withColumn(_PARTITION, partition_hash), _PARTITION).drop(_PARTITION)

    def _merge_runs(self, runs: Sequence[WrittenFile]) -> list[WrittenFile]:
        """Merge the runs of a base, with one task per bucket."""
        schema, layout = from_arrow_schema(self.target.schema), self.target.required_layout
        columns = {name: name for name in schema.names}
        tasks: list[MergeUnitTask] = []
        runs_by_partition: dict[tuple[str, ...], list[WrittenFile]] = {}
        for run in runs:
            runs_by_partition.setdefault(run.partitions, []).append(run)
        for partition_runs in runs_by_partition.values():
            size = DataSize(sum(w.bytes for w in partition_runs), sum(w.rows for w in partition_runs))
            sources = [
                (w, MergeSourceFile(w.path, w.key_placement, columns))
                for w in partition_runs
                if w.key_placement is not None
            ]
            max_file_rows = max(1, size.rows * target_bucket_bytes(size) // max(1, size.bytes))
            for unit in self._plan_merge_units(partition_runs, size):
                unit_sources = tuple(s for _, s in sources if may_have_rows_in(s.key_placement, unit))
                tasks.append(MergeUnitTask(unit, (), (unit_sources,), max_file_rows=max_file_rows))
        # All rows belong to one base, so nothing is merged and any model works.
        common_layout = CommonLayout(layout, Upsert(list(layout.order)), schema)
        merged = rewrite_changed_units_by_spark(self.session.get(), tasks, common_layout, self.target)
        return [w for files in merged for w in files or ()]

    def _plan_merge_units(self, runs: Sequence[WrittenFile], size: DataSize) -> list[MergeUnit]:
        layout = self.target.required_layout
        if not layout.clustered:
            bucket_count = bucket_count_for(size)
            return [HashBucket(bucket_count, n) for n in range(bucket_count)]
        split_points = sample_split_points([r.path for r in runs], layout.order, key_range_count_for(size))
        return list(split_key_range(KeySpan(None, None), split_points))


def write_table(table: pa.Table, target: BlockTarget) -> list[WrittenFile]:
    """Write a local table that has the columns and types of the block into the folder of the block.

    Raises:
        WarehouseUnavailable: the row count of the files differs from that of the table.
    """
    written = _write_table_files(table, target.file_target, target.kind == "base")
    check_row_count(written, table.num_rows, target.error_label)
    return written


def write_frame(session: LazySparkSession, frame: DataFrame, target: BlockTarget) -> list[WrittenFile]:
    """Write a Spark frame into the folder of a block.

    Raises:
        WarehouseUnavailable: the row count of the files differs from that of the frame.
    """
    if session.can_use_workers:
        return FrameWriter(session, target.file_target, target.kind == "base").write(frame)
    return write_frame_by_spark(frame, target)


def _write_table_files(table: pa.Table, target: FileTarget, is_base: bool) -> list[WrittenFile]:
    """Write a local table, with a key layout if the target has one."""
    layout = target.layout
    if layout is None or not is_base or any(table[k].null_count for k in layout.order):
        return list(write_sorted_runs(table, target))
    parts = split_by_column_values(table, target.split_columns) if target.split_columns and table.num_rows else [table]
    return [w for part in parts if part.num_rows for w in _write_base_partition(part, target)]


def _write_base_partition(rows: pa.Table, target: FileTarget) -> Iterator[WrittenFile]:
    """Write the rows of one partition, one file per bucket."""
    layout, size = target.required_layout, DataSize(int(rows.nbytes * COMPRESSION_RATIO), rows.num_rows)
    if layout.clustered:
        rows = sort_into_buckets(one_chunk(rows), layout).rows
        for n, piece in enumerate(split_at_key_boundaries(rows, layout.order, key_range_count_for(size))):
            yield write_sorted_file(piece, target.new_file_path("part", f"-{n:05d}"), target)
        return
    for bucket_rows, bucket in split_into_buckets(one_chunk(rows), layout, bucket_count_for(size)):
        path = target.new_file_path("part", f"-{bucket.number:05d}")
        yield write_sorted_file(bucket_rows, path, target, common_bucket=bucket)


def are_keys_proven_unique(written_files: Sequence[WrittenFile], target: BlockTarget) -> bool:
    """Whether the reports of the files exclude repeated keys: no file has a repeated key, and no two files can share a
    key."""
    if any(w.has_repeated_keys or w.key_placement is None for w in written_files):
        return False
    return target.kind == "base" or len(written_files) < 2


_ROWS = "rows"


def write_frame_by_spark(frame: DataFrame, target: BlockTarget) -> list[WrittenFile]:
    """Write a frame by Spark's own writer, for clusters whose Python workers cannot run this package.

    On a partitioned channel, each file holds the rows of one partition. Spark's writer chooses file names and does not
    report them, so the folder is listed. The row count of the listed files is compared with the rows that Spark
    counted. So a stale or empty listing is detected, and nothing is committed.

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
