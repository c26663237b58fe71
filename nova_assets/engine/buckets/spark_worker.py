"""What Spark's Python workers do: write the rows of a task, and merge cells. Arrow alone; no session here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from nova_assets.engine.buckets.bucket_files import FILE_BYTES, PLAIN_GROUP_BYTES, Target, Written, write, write_plain
from nova_assets.engine.buckets.key_order import one_chunk, pieces
from nova_assets.engine.buckets.merge_unit import Cellwork, Piece, changes_in, content, merged
from nova_assets.engine.buckets.partitioning import split
from nova_assets.engine.buckets.row_layout import arranged
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.block_layout import Layout
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.batch_size import ARROW_BYTES, rows_within
from nova_assets.plan.merge_units import Bucket

RUN_BYTES = 128 * 2**20
"""Rows of a task are written whenever they are so many bytes."""

FINE_ROWS = 1 << 14
"""Of a run, about so many rows are in a bucket."""

FINE_BYTES = 2 * 2**20
"""Nor more bytes in memory: wide rows are few, and a merge reads whole buckets of every run."""

MOST_BUCKETS = 1 << 12

_GIVEN_ROWS = 1 << 16
"""In a piece that is handed to Spark."""

Batches: TypeAlias = Iterable[pa.RecordBatch]
Job: TypeAlias = Callable[[Batches], Iterator[pa.RecordBatch]]


def fine(rows: int, bytes: int) -> int:
    """How many buckets a run has: a power of two.

    Args:
        bytes: of the rows in memory.
    """
    pieces = max(rows // FINE_ROWS, min(rows, bytes // FINE_BYTES), 1)
    return min(MOST_BUCKETS, 1 << (pieces.bit_length() - 1))


def lay_out(table: pa.Table, target: Target) -> Iterator[Written]:
    """Write rows as runs: a file for each partition, in which rows lie by bucket, or as they come.

    Rows with a null in the key cannot be laid out: they lie as they come, for whoever tells what is wrong with them.
    """
    for n, part in enumerate(split(table, target.spread) if target.spread and table.num_rows else [table]):
        if not part.num_rows:
            continue
        if target.layout is None or any(part[k].null_count for k in target.layout.order):
            yield from write_plain([part], target, FILE_BYTES, f"-{n:05d}")
        else:
            buckets = 1 if target.layout.clustered else fine(part.num_rows, part.nbytes)
            yield write(part, target.new_path("run"), target, buckets=buckets)


def running(target: Target) -> Job:
    """Spark's task: its rows in, what was written out, as one column of JSON."""
    streams = target.layout is None and not target.spread

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        if streams:
            for written in write_plain(_tables(batches, target.schema, PLAIN_GROUP_BYTES), target, FILE_BYTES):
                yield said([written])
            return
        for table in _tables(batches, target.schema, RUN_BYTES):
            yield said(list(lay_out(table, target)))

    return run


def merging(works: Sequence[Cellwork], schema: Schema, model: MergeModel, target: Target) -> Job:
    """Spark's task: numbers of cells in, and what became of each as JSON."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                yield said(merge_cell(works[n], schema, model, target), n)

    return run


def answering(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Spark's task that says no more than that it can run."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"known": [True]})


def giving(wanted: Sequence[Piece], schema: Schema, model: MergeModel, layout: Layout, columns: Schema) -> Job:
    """Spark's task: numbers of pieces in, their rows out."""
    kind = to_arrow(columns.relaxed())

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                rows = content(wanted[n], schema, model, layout).cast(kind)
                yield from rows.to_batches(rows_within(ARROW_BYTES, rows.nbytes // max(1, rows.num_rows), _GIVEN_ROWS))

    return run


def merge_cell(work: Cellwork, schema: Schema, model: MergeModel, target: Target) -> list[Written] | None:
    """Write a cell anew, or a delta's rows of it; None, and nothing is written, where no change is in it and the base's
    files stay."""
    layout = target.laid
    rows = changes_in(work, schema, model, layout)
    if DELETED not in target.schema.names:
        if not rows.num_rows and work.base and not work.anew:
            return None
        rows = merged(work, rows, schema, model, layout)
    return [
        write(piece, target.new_path("part", f"-{n:03d}"), target, cell=cell)
        for n, (piece, cell) in enumerate(_cut(rows, work, layout))
    ]


def _cut(rows: pa.Table, work: Cellwork, layout: Layout) -> Iterator[tuple[pa.Table, Bucket | None]]:
    """A cell's rows in files of a good size."""
    if not rows.num_rows:
        return
    if isinstance(work.cell, Bucket):
        if work.into == 1:
            yield rows, work.cell
            return
        of = work.cell.of * work.into
        by_bucket, counts = arranged(rows, layout, of)
        start = 0
        for number, count in enumerate(counts.tolist()):
            if count:
                yield by_bucket.slice(start, count), Bucket(of, number)
            start += count
        return
    for piece in pieces(rows, layout.order, max(1, -(-rows.num_rows // work.into))):
        yield piece, None


def said(written: Sequence[Written] | None, work: int = 0) -> pa.RecordBatch:
    """What was written, for the driver."""
    files = None if written is None else [one.as_json() for one in written]
    return pa.RecordBatch.from_pydict({"written": [json.dumps({"work": work, "files": files})]})


def heard(rows: Iterable[str]) -> list[tuple[int, list[Written] | None]]:
    """The number of each cell, and what was written of it."""
    found = [json.loads(r) for r in rows]
    return [(f["work"], None if f["files"] is None else [Written.from_json(w) for w in f["files"]]) for f in found]


def _tables(batches: Batches, schema: pa.Schema, most_bytes: int) -> Iterator[pa.Table]:
    """The rows of a task, about so many bytes at a time."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield _table(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield _table(waiting, schema)


def _table(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of a task in the types of the files; the session's own time zone is no part of the data."""
    rows = one_chunk(pa.Table.from_batches(batches))
    return rows if rows.schema.equals(schema) else rows.rename_columns(schema.names).cast(schema)
