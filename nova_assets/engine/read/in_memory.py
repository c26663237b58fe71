"""Small reads computed in memory: what costs Spark a second and a started JVM takes some hundredths of it here.

The same functions as those that merge a cell in Spark's workers (``buckets/fold``); everything large, and what takes
functions of Spark's columns, is Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.buckets import merge
from nova_assets.engine.buckets.diff import diff
from nova_assets.engine.buckets.key_order import one_chunk
from nova_assets.engine.buckets.row_layout import arranged
from nova_assets.engine.read.renamed_columns import names_in
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.parquet_footers import unpacked_bytes
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.formats import schema_fit
from nova_assets.model.block import Block
from nova_assets.model.block_layout import Layout
from nova_assets.model.reads import Chain, Diff, Snapshot, Source, sources
from nova_assets.model.schema import Schema
from nova_assets.plan.block_layout import laid
from nova_assets.plan.read_strategy import MEMORY_BYTES

_Opened = list[tuple[Block, list[pq.ParquetFile]]]


def compute(read: Snapshot | Chain | Diff, warehouse: Warehouse) -> pa.Table | None:
    """The rows of a snapshot, of a chain as one delta, or of a diff, for which ``plan/way`` has chosen memory; None
    where they are larger than they look.

    Raises:
        FileMissing: a file is gone, or was changed.
    """
    if isinstance(read, Diff):
        return _diff(read, warehouse)
    blocks = [b for b in sources(read) if isinstance(b, Block)]
    model, schema = read.merge, read.schema
    if schema is None:
        return None
    warehouse.paths([f for b in blocks for f in b.manifest.files], here=True)  # side by side
    opened = {b.id: [open_block_file(warehouse.path(f)) for f in b.manifest.files] for b in blocks}
    if sum(unpacked_bytes(f.metadata) for some in opened.values() for f in some) > MEMORY_BYTES:
        return None

    def rows(some: Sequence[Source], columns: Schema) -> list[pa.Table]:
        return [_rows(b, opened[b.id], columns) for b in some if isinstance(b, Block)]

    if not model.keyed:
        return _all(rows(sources(read), schema), schema)
    marked, layout = schema.with_deleted(), Layout(model.key)
    each = [arranged(one_chunk(t), layout)[0] for t in rows(read.deltas, marked)]
    changes = merge.fold(each, model, model.key) if each else _all([], marked)
    if isinstance(read, Chain):
        return changes
    base = arranged(one_chunk(_all(rows(read.bases, schema), schema)), layout)[0]
    return merge.merge(base, changes, model, model.key)


def _diff(read: Diff, warehouse: Warehouse) -> pa.Table | None:
    how = laid(read)
    if how is None:
        return None
    sides = [compute(replace(s, schema=how.schema, merge=how.model), warehouse) for s in (read.old, read.new)]
    old, new = (None if s is None else arranged(one_chunk(s), how.layout)[0] for s in sides)
    return None if old is None or new is None else diff(old, new, how.model, how.layout)


def _rows(block: Block, files: Sequence[pq.ParquetFile], schema: Schema) -> pa.Table:
    """The rows of a block in the columns of a schema, whatever it calls them."""
    relaxed = schema.relaxed()  # a file may be older than a column that may not be null
    return _all([fitted(block, f, f.read, relaxed) for f in files], schema)


def fitted(block: Block, file: pq.ParquetFile, read: Callable[[list[str]], pa.Table], schema: Schema) -> pa.Table:
    """Rows of a file of a block, in the columns of a schema, whatever it calls them.

    Args:
        read: gives some columns of them.
        schema: relaxed, where the file may be older than a column that may not be null.
    """
    found = {own: name for name, own in zip(schema.names, names_in(block, schema), strict=True) if own is not None}
    rows = read([c for c in file.schema_arrow.names if c in found])
    return schema_fit.fit(rows.rename_columns([found[c] for c in rows.column_names]), schema)


def _all(tables: Sequence[pa.Table], schema: Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema_fit.fit(pa.table({}), schema.relaxed())
