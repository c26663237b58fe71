"""Tables as streams of record batches: none of them large, and few that are small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa

ROWS = 1 << 16
BYTES = 16 * 2**20
"""Of a batch, at most, and about."""


def reader(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.RecordBatchReader:
    """The rows of tables as a stream, each table asked for when its rows are.

    Args:
        schema: of the stream; the tables have its columns and maybe others, of which they may say otherwise whether
            they are ever null.
    """
    return pa.RecordBatchReader.from_batches(schema, _cut(map(partial(_shaped, schema), tables)))


def reader_of(table: pa.Table) -> pa.RecordBatchReader:
    """The rows of one table as a stream."""
    return reader(table.schema, iter([table]))


def _shaped(schema: pa.Schema, table: pa.Table) -> pa.Table:
    if table.schema.names != schema.names:
        table = table.select(schema.names)
    return table if table.schema == schema else table.cast(schema)


def _cut(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """No table is held while the next one is made, but small ones that go together."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        if waiting and (rows + table.num_rows > ROWS or size + table.nbytes > BYTES):
            yield from _pieces(waiting)
            rows = size = 0
        if table.num_rows:
            waiting.append(table)
            rows, size = rows + table.num_rows, size + table.nbytes
        del table
        if rows >= ROWS or size >= BYTES:
            yield from _pieces(waiting)
            rows = size = 0
    yield from _pieces(waiting)


def _pieces(waiting: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows of some tables, which are forgotten."""
    table = pa.concat_tables(waiting).combine_chunks() if len(waiting) > 1 else waiting[0] if waiting else None
    waiting.clear()
    if table is not None:
        for batch in table.to_batches(ROWS):
            yield from _halved(batch)


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= BYTES or batch.num_rows < 2:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half))
    yield from _halved(batch.slice(half))
