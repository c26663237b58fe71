"""Small reads computed in memory: hundredths of a second, instead of a second and a started JVM with Spark.

The functions are those that merge a unit in Spark's workers (``buckets/arrow_merge``). Spark computes all large reads,
and all models with functions on Spark columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.buckets import arrow_merge
from nova_assets.engine.buckets.arrow_diff import diff_tables
from nova_assets.engine.buckets.key_order import one_chunk
from nova_assets.engine.buckets.row_layout import sort_into_buckets
from nova_assets.engine.read.arrow_multiset import compose_row_changes, to_delta_rows
from nova_assets.engine.read.touched_rows import TouchedRows, concat_or_empty
from nova_assets.engine.rows.stored_columns import columns_by_stored_name, fit_stored_rows
from nova_assets.engine.storage.formatted_files import FormattedFile, formatted_file
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.parquet_footers import uncompressed_bytes
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.model.block import Block
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import Multiset
from nova_assets.model.reads import BlockSource, DeltaChain, Snapshot, SnapshotDiff, source_blocks
from nova_assets.model.schema import Schema
from nova_assets.plan.block_layout import common_layout, layout_of_small_diff
from nova_assets.plan.partial_reads import is_plain_file_scan
from nova_assets.plan.read_strategy import MEMORY_BYTES


def compute_in_memory(read: Snapshot | DeltaChain | SnapshotDiff, warehouse: Warehouse) -> pa.Table | None:
    """Rows of a snapshot, of a chain as one delta, or of a diff, if ``plan/read_strategy`` has chosen memory; None if
    the rows are larger than estimated.

    Raises:
        FileMissing: a file is missing or was changed.
    """
    if isinstance(read, SnapshotDiff):
        return _diff_in_memory(read, warehouse)
    blocks = [b for b in source_blocks(read) if isinstance(b, Block)]
    model, schema = read.merge, read.schema
    if schema is None:
        return None
    warehouse.verified_addresses([f for b in blocks for f in b.manifest.files], prefetch=True)  # concurrently
    opened = {
        b.id: [open_block_file(warehouse.file_address(f)) for f in b.manifest.files]
        for b in blocks
        if b.manifest.format == "parquet"
    }
    if sum(uncompressed_bytes(f.metadata) for files in opened.values() for f in files) > MEMORY_BYTES:
        return None

    def read_source_rows(some: Sequence[BlockSource], columns: Schema) -> list[pa.Table]:
        return [_read_block_rows(b, opened.get(b.id), columns, warehouse) for b in some if isinstance(b, Block)]

    if not model.has_deletions or is_plain_file_scan(read):
        return concat_or_empty(read_source_rows(source_blocks(read), schema), schema)
    if isinstance(read, Snapshot):
        touched = TouchedRows(read, read_source_rows)
        untouched = list(touched.take_from(read_source_rows(read.bases, schema)))
        return pa.concat_tables([*untouched, touched.merge()], promote_options="permissive")
    deltas = read_source_rows(read.deltas, schema.with_deleted())
    if isinstance(model, Multiset):
        return to_delta_rows(compose_row_changes(deltas))
    layout = KeyLayout(model.key)
    if not deltas:
        return concat_or_empty([], schema.with_deleted())
    sorted_deltas = [sort_into_buckets(one_chunk(t), layout).rows for t in deltas]
    return arrow_merge.compose_deltas(sorted_deltas, model, model.key)


def _diff_in_memory(read: SnapshotDiff, warehouse: Warehouse) -> pa.Table | None:
    shared_layout = common_layout(read) or layout_of_small_diff(read)
    if shared_layout is None:
        return None
    snapshots = [
        compute_in_memory(replace(s, schema=shared_layout.schema, merge=shared_layout.model), warehouse)
        for s in (read.old, read.new)
    ]
    old, new = (None if s is None else sort_into_buckets(one_chunk(s), shared_layout.layout).rows for s in snapshots)
    return None if old is None or new is None else diff_tables(old, new, shared_layout.model, shared_layout.layout)


def read_blocks(blocks: Sequence[Block], schema: Schema, *, warehouse: Warehouse) -> list[pa.Table]:
    """Rows of each of some blocks in the columns of a schema."""
    return [_read_block_rows(b, None, schema, warehouse) for b in blocks]


def _read_block_rows(
    block: Block, opened: Sequence[pq.ParquetFile] | None, schema: Schema, warehouse: Warehouse
) -> pa.Table:
    """Rows of a block in the columns of a schema, under the block's own column names.

    Args:
        opened: the Parquet files of the block, if they are open already.
    """
    if block.manifest.format != "parquet":
        tables = [f.read(schema) for f in formatted_files_of_block(block, warehouse, schema)]
    else:
        files = opened or (open_block_file(warehouse.file_address(f)) for f in block.manifest.files)
        nullable_schema = schema.with_all_nullable()  # a file may be older than a required column
        tables = [read_fitted_rows(block, f, f.read, nullable_schema) for f in files]
    return concat_or_empty(tables, schema)


def formatted_files_of_block(
    block: Block, warehouse: Warehouse, schema: Schema, delta_index_by_path: Mapping[str, int] = MappingProxyType({})
) -> list[FormattedFile]:
    """Files of a block in another format than Parquet, to be read in the columns of a schema."""
    columns = columns_by_stored_name(block, schema)
    return [
        formatted_file(block, f, warehouse.file_address(f), columns, delta_index_by_path.get(f.path))
        for f in block.manifest.files
    ]


def read_fitted_rows(
    block: Block, file: pq.ParquetFile, read_columns: Callable[[list[str]], pa.Table], schema: Schema
) -> pa.Table:
    """Rows of a file of a block in the columns of a schema, whatever names the block has for them.

    Args:
        read_columns: returns the rows of the file in the given stored columns.
        schema: schema of the result, nullable if the file may be older than a required column.
    """
    columns = columns_by_stored_name(block, schema)
    return fit_stored_rows(read_columns([c for c in file.schema_arrow.names if c in columns]), columns, schema)
