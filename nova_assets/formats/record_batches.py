"""Tables as streams of record batches of moderate size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa

MAX_BATCH_ROWS = 1 << 16
"""Maximum number of rows of a batch."""

MAX_BATCH_BYTES = 16 * 2**20
"""Approximate maximum size of a batch in bytes."""


def stream_tables(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.RecordBatchReader:
    """Stream of the rows of tables. Each table is requested only when the stream reaches its rows.

    Args:
        schema: schema of the stream. The tables must have its columns, may have others, and may differ in nullability.
        tables: the tables, in stream order.
    """
    return pa.RecordBatchReader.from_batches(
        schema, _split_into_bounded_batches(map(partial(_select_and_cast, schema), tables))
    )


def stream_table(table: pa.Table) -> pa.RecordBatchReader:
    """Stream of the rows of one table."""
    return stream_tables(table.schema, iter([table]))


def _select_and_cast(schema: pa.Schema, table: pa.Table) -> pa.Table:
    if table.schema.names != schema.names:
        table = table.select(schema.names)
    return table if table.schema == schema else table.cast(schema)


def _split_into_bounded_batches(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Record batches of tables. Small tables are combined; otherwise no table is held while the next one is made."""
    pending: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        if pending and (rows + table.num_rows > MAX_BATCH_ROWS or size + table.nbytes > MAX_BATCH_BYTES):
            yield from _flush_batches(pending)
            rows = size = 0
        if table.num_rows:
            pending.append(table)
            rows, size = rows + table.num_rows, size + table.nbytes
        del table
        if rows >= MAX_BATCH_ROWS or size >= MAX_BATCH_BYTES:
            yield from _flush_batches(pending)
            rows = size = 0
    yield from _flush_batches(pending)


def _flush_batches(pending: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Record batches of the pending tables, which are removed from the list."""
    table = pa.concat_tables(pending).combine_chunks() if len(pending) > 1 else pending[0] if pending else None
    pending.clear()
    if table is not None:
        for batch in table.to_batches(MAX_BATCH_ROWS):
            if batch.num_rows:
                yield from _split_large_batch(batch)


def _split_large_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= MAX_BATCH_BYTES or batch.num_rows < 2:
        yield batch
        return
    half_rows = batch.num_rows // 2
    yield from _split_large_batch(batch.slice(0, half_rows))
    yield from _split_large_batch(batch.slice(half_rows))
