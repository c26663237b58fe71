"""What Spark's Python workers do: write the rows of a task, and merge cells. Arrow alone; no session here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from nova_assets.engine.buckets.bucket_files import (
    FILE_BYTES,
    UNSORTED_GROUP_BYTES,
    FileTarget,
    WrittenFile,
    write_laid_out_file,
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
from nova_assets.engine.buckets.partitioning import split_by_columns
from nova_assets.engine.buckets.row_layout import sort_into_buckets
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.block_layout import KeyLayout
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.batch_size import ARROW_BATCH_BYTES, rows_per_batch
from nova_assets.plan.merge_units import HashBucket

RUN_BYTES = 128 * 2**20
"""Rows of a task are written whenever they are so many bytes."""

FINE_ROWS = 1 << 14
"""Of a run, about so many rows are in a bucket."""

FINE_BYTES = 2 * 2**20
"""Nor more bytes in memory: wide rows are few, and a merge reads whole buckets of every run."""

MAX_BUCKETS = 1 << 12

_MAX_BATCH_ROWS = 1 << 16
"""In a piece that is handed to Spark."""

Batches: TypeAlias = Iterable[pa.RecordBatch]
Job: TypeAlias = Callable[[Batches], Iterator[pa.RecordBatch]]


def bucket_count_of_run(row_count: int, memory_bytes: int) -> int:
    """How many buckets a run has: a power of two.

    Args:
        memory_bytes: of the rows in memory.
    """
    pieces = max(row_count // FINE_ROWS, min(row_count, memory_bytes // FINE_BYTES), 1)
    return min(MAX_BUCKETS, 1 << (pieces.bit_length() - 1))


def write_rows_as_runs(table: pa.Table, target: FileTarget) -> Iterator[WrittenFile]:
    """Write rows as runs: a file for each partition, in which rows lie by bucket, or as they come.

    Rows with a null in the key cannot be laid out: they lie as they come, for whoever tells what is wrong with them.
    """
    for n, part in enumerate(
        split_by_columns(table, target.split_columns) if target.split_columns and table.num_rows else [table]
    ):
        if not part.num_rows:
            continue
        if target.layout is None or any(part[k].null_count for k in target.layout.order):
            yield from write_unsorted_files([part], target, FILE_BYTES, f"-{n:05d}")
        else:
            buckets = 1 if target.layout.clustered else bucket_count_of_run(part.num_rows, part.nbytes)
            yield write_laid_out_file(part, target.new_path("run"), target, bucket_count=buckets)


def write_runs_job(target: FileTarget) -> Job:
    """Spark's task: its rows in, what was written out, as one column of JSON."""
    streams = target.layout is None and not target.split_columns

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        if streams:
            for written in write_unsorted_files(
                _batches_to_tables(batches, target.schema, UNSORTED_GROUP_BYTES), target, FILE_BYTES
            ):
                yield encode_written_files([written])
            return
        for table in _batches_to_tables(batches, target.schema, RUN_BYTES):
            yield encode_written_files(list(write_rows_as_runs(table, target)))

    return run


def merge_units_job(tasks: Sequence[MergeUnitTask], schema: Schema, model: MergeModel, target: FileTarget) -> Job:
    """Spark's task: numbers of cells in, and what became of each as JSON."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                yield encode_written_files(write_merged_unit(tasks[n], schema, model, target), n)

    return run


def worker_probe_job(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Spark's task that says no more than that it can run."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"known": [True]})


def read_units_job(
    unit_reads: Sequence[MergeUnitRead], schema: Schema, model: MergeModel, layout: KeyLayout, row_schema: Schema
) -> Job:
    """Spark's task: numbers of pieces in, their rows out."""
    kind = to_arrow_schema(row_schema.with_all_nullable())

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                rows = read_merge_unit(unit_reads[n], schema, model, layout).cast(kind)
                yield from rows.to_batches(
                    rows_per_batch(ARROW_BATCH_BYTES, rows.nbytes // max(1, rows.num_rows), _MAX_BATCH_ROWS)
                )

    return run


def write_merged_unit(
    task: MergeUnitTask, schema: Schema, model: MergeModel, target: FileTarget
) -> list[WrittenFile] | None:
    """Write a cell anew, or a delta's rows of it; None, and nothing is written, where no change is in it and the base's
    files stay."""
    layout = target.required_layout
    rows = read_unit_changes(task, schema, model, layout)
    if DELETED not in target.schema.names:
        if not rows.num_rows and task.base_files and not task.always_write:
            return None
        rows = merge_onto_base(task, rows, schema, model, layout)
    return [
        write_laid_out_file(piece, target.new_path("part", f"-{n:03d}"), target, bucket=cell)
        for n, (piece, cell) in enumerate(_split_into_files(rows, task, layout))
    ]


def _split_into_files(
    rows: pa.Table, task: MergeUnitTask, layout: KeyLayout
) -> Iterator[tuple[pa.Table, HashBucket | None]]:
    """A cell's rows in files of a good size."""
    if not rows.num_rows:
        return
    if isinstance(task.merge_unit, HashBucket):
        if task.buckets_or_max_rows == 1:
            yield rows, task.merge_unit
            return
        of = task.merge_unit.bucket_count * task.buckets_or_max_rows
        by_bucket, counts = sort_into_buckets(rows, layout, of)
        start = 0
        for number, count in enumerate(counts.tolist()):
            if count:
                yield by_bucket.slice(start, count), HashBucket(of, number)
            start += count
        return
    for piece in split_at_key_boundaries(rows, layout.order, max(1, -(-rows.num_rows // task.buckets_or_max_rows))):
        yield piece, None


def encode_written_files(written_files: Sequence[WrittenFile] | None, task_number: int = 0) -> pa.RecordBatch:
    """What was written, for the driver."""
    files = None if written_files is None else [one.as_json() for one in written_files]
    return pa.RecordBatch.from_pydict({"written": [json.dumps({"work": task_number, "files": files})]})


def decode_written_files(json_rows: Iterable[str]) -> list[tuple[int, list[WrittenFile] | None]]:
    """The number of each cell, and what was written of it."""
    found = [json.loads(r) for r in json_rows]
    return [(f["work"], None if f["files"] is None else [WrittenFile.from_json(w) for w in f["files"]]) for f in found]


def _batches_to_tables(batches: Batches, schema: pa.Schema, target_bytes: int) -> Iterator[pa.Table]:
    """The rows of a task, about so many bytes at a time."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= target_bytes:
            yield _concat_batches(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield _concat_batches(waiting, schema)


def _concat_batches(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of a task in the types of the files; the session's own time zone is no part of the data."""
    rows = one_chunk(pa.Table.from_batches(batches))
    return rows if rows.schema.equals(schema) else rows.rename_columns(schema.names).cast(schema)
