"""Jobs of Spark's Python workers: writing the rows of a task, and merging units. Uses Arrow alone, without a
session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from nova_assets.engine.buckets.file_writer import (
    TARGET_FILE_BYTES,
    UNSORTED_ROW_GROUP_BYTES,
    FileTarget,
    WrittenFile,
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
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.batch_size import ARROW_BATCH_BYTES, rows_per_batch
from nova_assets.plan.merge_units import HashBucket

RUN_BYTES = 128 * 2**20
"""Size in memory at which the rows of a task are written as a run."""

TARGET_BUCKET_ROWS_OF_RUN = 1 << 14
"""Approximate number of rows per bucket of a run."""

MAX_BUCKET_BYTES_OF_RUN = 2 * 2**20
"""Maximum size of a bucket of a run in memory, which matters for wide rows: a merge reads whole buckets of every
run."""

MAX_BUCKETS_OF_RUN = 1 << 12

_MAX_BATCH_ROWS = 1 << 16
"""Maximum number of rows in a batch that is passed to Spark."""

Batches: TypeAlias = Iterable[pa.RecordBatch]
Job: TypeAlias = Callable[[Batches], Iterator[pa.RecordBatch]]


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


def write_sorted_runs_job(target: FileTarget) -> Job:
    """Task for Spark: consumes rows, and yields the written files as one column of JSON."""
    keeps_input_order = target.layout is None and not target.split_columns

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        if keeps_input_order:
            for written in write_unsorted_files(
                _batches_to_tables(batches, target.schema, UNSORTED_ROW_GROUP_BYTES), target, TARGET_FILE_BYTES
            ):
                yield encode_written_files([written])
            return
        for table in _batches_to_tables(batches, target.schema, RUN_BYTES):
            yield encode_written_files(list(write_sorted_runs(table, target)))

    return run


def merge_units_job(tasks: Sequence[MergeUnitTask], schema: Schema, model: MergeModel, target: FileTarget) -> Job:
    """Task for Spark: consumes numbers of tasks, and yields the written files of each task as JSON."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                yield encode_written_files(write_merged_unit(tasks[n], schema, model, target), n)

    return run


def worker_probe_job(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Task for Spark that only proves that it can run."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"known": [True]})


def read_units_job(
    unit_reads: Sequence[MergeUnitRead], schema: Schema, model: MergeModel, layout: KeyLayout, row_schema: Schema
) -> Job:
    """Task for Spark: consumes numbers of unit reads, and yields their rows."""
    arrow_schema = to_arrow_schema(row_schema.with_all_nullable())

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                rows = read_merge_unit(unit_reads[n], schema, model, layout).cast(arrow_schema)
                yield from rows.to_batches(
                    rows_per_batch(ARROW_BATCH_BYTES, rows.nbytes // max(1, rows.num_rows), _MAX_BATCH_ROWS)
                )

    return run


def write_merged_unit(
    task: MergeUnitTask, schema: Schema, model: MergeModel, target: FileTarget
) -> list[WrittenFile] | None:
    """Write the merged rows of a unit, or the composed delta rows if the target is a delta.

    Returns:
        The written files; None if nothing was written, because the unit has no change and its base files stay.
    """
    layout = target.required_layout
    rows = read_unit_changes(task, schema, model, layout)
    if DELETED not in target.schema.names:
        if not rows.num_rows and task.base_files and not task.always_write:
            return None
        rows = merge_onto_base(task, rows, schema, model, layout)
    return [
        write_sorted_file(piece, target.new_file_path("part", f"-{n:03d}"), target, common_bucket=cell)
        for n, (piece, cell) in enumerate(_split_into_files(rows, task, layout))
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


def encode_written_files(written_files: Sequence[WrittenFile] | None, task_number: int = 0) -> pa.RecordBatch:
    """Reports of written files, encoded for the driver."""
    file_reports = None if written_files is None else [one.as_json() for one in written_files]
    report = {"work": task_number, "files": file_reports, "throttled": take_throttle_report()}
    return pa.RecordBatch.from_pydict({"written": [json.dumps(report)]})


def decode_written_files(json_rows: Iterable[str]) -> list[tuple[int, list[WrittenFile] | None]]:
    """Number of each task, with the reports of its written files."""
    reports = [json.loads(r) for r in json_rows]
    for report in reports:
        add_throttle_report(report["throttled"])
    return [
        (f["work"], None if f["files"] is None else [WrittenFile.from_json(w) for w in f["files"]]) for f in reports
    ]


def _batches_to_tables(batches: Batches, schema: pa.Schema, target_bytes: int) -> Iterator[pa.Table]:
    """Rows of a task in tables of about the given size."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= target_bytes:
            yield _concat_batches(pending, schema)
            pending, size = [], 0
    if pending:
        yield _concat_batches(pending, schema)


def _concat_batches(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Rows of a task in the types of the files. The session's own time zone is not part of the data."""
    rows = one_chunk(pa.Table.from_batches(batches))
    return rows if rows.schema.equals(schema) else rows.rename_columns(schema.names).cast(schema)
