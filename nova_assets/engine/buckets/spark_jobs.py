"""Jobs of Spark: writing the rows of a frame, and merging units. Workers run them without a session, by Arrow alone."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from nova_assets.engine.buckets.file_writer import (
    TARGET_FILE_BYTES,
    UNSORTED_ROW_GROUP_BYTES,
    FileTarget,
    WrittenFile,
    gather_tables,
    write_sorted_file,
    write_unsorted_files,
)
from nova_assets.engine.buckets.key_order import one_chunk, split_at_key_boundaries
from nova_assets.engine.buckets.merge_unit import (
    MergeUnitRead,
    MergeUnitTask,
    merge_onto_base,
    read_merge_unit,
    read_unit_changes,
)
from nova_assets.engine.buckets.partitioning import split_by_column_values
from nova_assets.engine.buckets.row_layout import split_into_buckets
from nova_assets.engine.storage.throttling import add_throttle_report, take_throttle_report
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.batch_size import ARROW_BATCH_BYTES, rows_per_batch
from nova_assets.plan.block_layout import CommonLayout
from nova_assets.plan.merge_units import HashBucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RUN_BYTES = 128 * 2**20
"""Size in memory at which the rows of a task are written as a run."""

TARGET_BUCKET_ROWS_OF_RUN = 1 << 14
"""Approximate number of rows per bucket of a run."""

MAX_BUCKET_BYTES_OF_RUN = 2 * 2**20
"""Maximum size of a bucket of a run in memory, which matters for wide rows: a merge reads whole buckets of every
run."""

MAX_BUCKETS_OF_RUN = 1 << 12

MAX_BATCH_ROWS = 1 << 16
"""Maximum number of rows in a batch that is passed to Spark."""

ARROW_BATCH_SETTINGS: Mapping[str, int] = {
    # Maximum number of rows per batch sent to Python, unless rows are wide. Each batch has a small overhead.
    "spark.sql.execution.arrow.maxRecordsPerBatch": 65536,
}
"""Settings for sending rows to Python."""

_UNITS_AT_ONCE = 2
"""Number of units that this process merges at once. Each takes several times its size in memory."""

Batches: TypeAlias = Iterable[pa.RecordBatch]
Job: TypeAlias = Callable[[Batches], Iterator[pa.RecordBatch]]

_RESULT_SCHEMA = "written binary"


def frame_of_tasks(
    spark: SparkSession, run: Callable[[int], Iterable[pa.RecordBatch]], count: int, schema: StructType | str
) -> DataFrame:
    """Frame of the rows of numbered tasks of this package, one Spark task for each.

    Args:
        run: returns the rows of the task with a number. Workers call it.
        count: number of tasks.
        schema: columns of the rows.
    """

    def job(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                yield from run(n)

    return spark.range(0, count, 1, max(1, count)).mapInArrow(job, schema)


def to_spark_batches(rows: pa.Table) -> list[pa.RecordBatch]:
    """Rows in batches of a good size for Spark."""
    width = rows.nbytes // max(1, rows.num_rows)
    return list(rows.to_batches(rows_per_batch(ARROW_BATCH_BYTES, width, MAX_BATCH_ROWS)))


def can_workers_run_nova(spark: SparkSession) -> bool:
    """Whether Python workers can import and run the code of this package."""
    rows = spark.range(0, 1, 1, 1).mapInArrow(_worker_probe_job, "known boolean").collect()
    return bool(rows[0][0])


def _worker_probe_job(batches: Batches) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"known": [True]})


def read_units_by_spark(
    spark: SparkSession,
    unit_reads: Sequence[MergeUnitRead],
    layout: CommonLayout,
    row_schema: Schema,
    spark_schema: StructType,
) -> DataFrame:
    """Rows of some merge units as a frame, one Spark task for each unit.

    Args:
        row_schema: schema of the rows.
        spark_schema: the same schema as a Spark type.
    """
    arrow_schema = to_arrow_schema(row_schema.with_all_nullable())

    def read(n: int) -> list[pa.RecordBatch]:
        return to_spark_batches(read_merge_unit(unit_reads[n], layout).cast(arrow_schema))

    return frame_of_tasks(spark, read, len(unit_reads), spark_schema)


def rewrite_changed_units(
    tasks: Sequence[MergeUnitTask], layout: CommonLayout, target: FileTarget
) -> list[list[WrittenFile] | None]:
    """Merge units in this process. Returns the written files of each unit; None for a unit whose base files stay."""
    with ThreadPoolExecutor(_UNITS_AT_ONCE) as pool:
        return list(pool.map(lambda task: _write_merged_unit(task, layout, target), tasks))


def rewrite_changed_units_by_spark(
    spark: SparkSession, tasks: Sequence[MergeUnitTask], layout: CommonLayout, target: FileTarget
) -> list[list[WrittenFile] | None]:
    """As ``rewrite_changed_units``, one Spark task for each unit."""

    def merge(n: int) -> list[pa.RecordBatch]:
        return [_encode_written_files(_write_merged_unit(tasks[n], layout, target), n)]

    rows = frame_of_tasks(spark, merge, len(tasks), _RESULT_SCHEMA).collect()
    files_by_task = dict(_decode_written_files(r[0] for r in rows))
    return [files_by_task[n] for n in range(len(tasks))]


def write_sorted_runs_by_spark(frame: DataFrame, target: FileTarget) -> list[WrittenFile]:
    """Write a frame as runs. Each task writes its own rows, without a shuffle."""
    rows = frame.mapInArrow(_write_sorted_runs_job(target), _RESULT_SCHEMA).collect()
    return [w for _, files in _decode_written_files(r[0] for r in rows) for w in files or ()]


def bucket_count_of_sorted_run(row_count: int, row_bytes_in_memory: int) -> int:
    """Number of buckets of a run, a power of two.

    Args:
        row_bytes_in_memory: size of the rows in memory.
    """
    pieces = max(
        row_count // TARGET_BUCKET_ROWS_OF_RUN, min(row_count, row_bytes_in_memory // MAX_BUCKET_BYTES_OF_RUN), 1
    )
    return min(MAX_BUCKETS_OF_RUN, 1 << (pieces.bit_length() - 1))


def write_sorted_runs(table: pa.Table, target: FileTarget) -> Iterator[WrittenFile]:
    """Write rows as runs: one file per partition, with the key layout of the target if it has one.

    Rows with a null in the key cannot have a key layout. They are written in input order, and a later check reports
    them.
    """
    for n, part in enumerate(
        split_by_column_values(table, target.split_columns) if target.split_columns and table.num_rows else [table]
    ):
        if not part.num_rows:
            continue
        if target.layout is None or any(part[k].null_count for k in target.layout.order):
            yield from write_unsorted_files([part], target, TARGET_FILE_BYTES, f"-{n:05d}")
        else:
            buckets = 1 if target.layout.clustered else bucket_count_of_sorted_run(part.num_rows, part.nbytes)
            yield write_sorted_file(part, target.new_file_path("run"), target, bucket_count=buckets)


def _write_sorted_runs_job(target: FileTarget) -> Job:
    """Task for Spark: consumes rows, and yields the written files."""
    keeps_input_order = target.layout is None and not target.split_columns

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        run_bytes = UNSORTED_ROW_GROUP_BYTES if keeps_input_order else RUN_BYTES
        tables = (_in_file_types(t, target.schema) for t in gather_tables(batches, run_bytes))
        if keeps_input_order:
            for written in write_unsorted_files(tables, target, TARGET_FILE_BYTES):
                yield _encode_written_files([written])
            return
        for table in tables:
            yield _encode_written_files(list(write_sorted_runs(table, target)))

    return run


def _write_merged_unit(task: MergeUnitTask, layout: CommonLayout, target: FileTarget) -> list[WrittenFile] | None:
    """Write the merged rows of a unit, or the composed delta rows if the target is a delta.

    Returns:
        The written files; None if nothing was written, because the unit has no change and its base files stay.
    """
    rows = read_unit_changes(task, layout)
    if DELETED not in target.schema.names:
        if not rows.num_rows and task.base_files and not task.always_write:
            return None
        rows = merge_onto_base(task, rows, layout)
    return [
        write_sorted_file(piece, target.new_file_path("part", f"-{n:03d}"), target, common_bucket=cell)
        for n, (piece, cell) in enumerate(_split_into_files(rows, task, layout.layout))
    ]


def _split_into_files(
    rows: pa.Table, task: MergeUnitTask, layout: KeyLayout
) -> Iterator[tuple[pa.Table, HashBucket | None]]:
    """Rows of a unit, divided into files of a good size."""
    if not rows.num_rows:
        return
    if isinstance(task.merge_unit, HashBucket):
        if task.result_bucket_count == 1:
            yield rows, task.merge_unit
        else:
            yield from split_into_buckets(rows, layout, task.merge_unit.bucket_count * task.result_bucket_count)
        return
    for piece in split_at_key_boundaries(rows, layout.order, max(1, -(-rows.num_rows // task.max_file_rows))):
        yield piece, None


def _encode_written_files(written_files: Sequence[WrittenFile] | None, task_number: int = 0) -> pa.RecordBatch:
    """Reports of written files, encoded for the driver."""
    report = pickle.dumps((task_number, written_files, take_throttle_report()))
    return pa.RecordBatch.from_pydict({"written": [report]})


def _decode_written_files(reports: Iterable[bytes]) -> Iterator[tuple[int, list[WrittenFile] | None]]:
    """Number of each task, with the reports of its written files."""
    for report in reports:
        task_number, written_files, throttled = pickle.loads(report)
        add_throttle_report(throttled)
        yield task_number, written_files


def _in_file_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of a task in the types of the files. The session's own time zone is not part of the data."""
    rows = one_chunk(table)
    return rows if rows.schema.equals(schema) else rows.rename_columns(schema.names).cast(schema)
