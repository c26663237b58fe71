"""Small reads computed in memory: hundredths of a second, instead of a second and a started JVM with Spark.

The functions are those that merge a unit in Spark's workers (``buckets/arrow_merge``). Spark computes all large reads,
and all models with functions on Spark columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova_assets.engine.buckets import arrow_merge
from nova_assets.engine.buckets.arrow_diff import diff_tables
from nova_assets.engine.buckets.key_order import floats_as_integers, one_chunk, to_single_array
from nova_assets.engine.buckets.row_layout import sort_into_buckets
from nova_assets.engine.rows.stored_columns import columns_by_stored_name, fit_stored_rows
from nova_assets.engine.storage.formatted_files import FormattedFile, formatted_file
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.parquet_footers import uncompressed_bytes
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.formats import schema_fit
from nova_assets.model.block import Block
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import MergeModel, Multiset
from nova_assets.model.reads import BlockSource, DeltaChain, Snapshot, SnapshotDiff, merge_runs, source_blocks
from nova_assets.model.schema import DELETED, Schema
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
        return [
            _read_block_rows(b, opened[b.id], columns)
            if b.id in opened
            else _concat_or_empty([f.read(columns) for f in formatted_files_of_block(b, warehouse, columns)], columns)
            for b in some
            if isinstance(b, Block)
        ]

    if not model.has_deletions or (isinstance(model, Multiset) and is_plain_file_scan(read)):
        return _concat_or_empty(read_source_rows(source_blocks(read), schema), schema)
    change_schema, layout = schema.with_deleted(), KeyLayout(model.key)
    if isinstance(model, Multiset):
        row_changes = compose_row_changes(read_source_rows(read.deltas, change_schema))
        if isinstance(read, DeltaChain):
            return to_delta_rows(row_changes)
        base_rows = _concat_or_empty(read_source_rows(read.bases, schema), schema)
        return merge_row_changes(base_rows, row_changes)

    def composed(deltas: Sequence[BlockSource], run_model: MergeModel) -> pa.Table:
        sorted_deltas = [sort_into_buckets(one_chunk(t), layout).rows for t in read_source_rows(deltas, change_schema)]
        return (
            arrow_merge.compose_deltas(sorted_deltas, run_model, model.key)
            if sorted_deltas
            else _concat_or_empty([], change_schema)
        )

    if isinstance(read, DeltaChain):
        return composed(read.deltas, model)
    rows = sort_into_buckets(one_chunk(_concat_or_empty(read_source_rows(read.bases, schema), schema)), layout).rows
    for run_model, run in merge_runs([d for d in read.deltas if isinstance(d, Block)], model):
        rows = arrow_merge.merge_changes(rows, composed(run, run_model), run_model, model.key)
    return rows


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


def _read_block_rows(block: Block, files: Sequence[pq.ParquetFile], schema: Schema) -> pa.Table:
    """Rows of a block in the columns of a schema, under the block's own column names."""
    nullable_schema = schema.with_all_nullable()  # a file may be older than a required column
    return _concat_or_empty([read_fitted_rows(block, f, f.read, nullable_schema) for f in files], schema)


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


def _concat_or_empty(tables: Sequence[pa.Table], schema: Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema_fit.fit_to_schema(pa.table({}), schema.with_all_nullable())


_THERE, _REMOVED, _ADDED = "__nova_there", "__nova_removed", "__nova_added"
_EARLIER_REMOVED, _EARLIER_ADDED = "__nova_earlier_removed", "__nova_earlier_added"
_COMPARABLE = "__nova_comparable_"


def compose_row_changes(deltas: Sequence[pa.Table]) -> pa.Table:
    """Each different row of the deltas once, with the numbers of equal rows that are removed and then added.

    Args:
        deltas: columns and ``_deleted``; at least one delta, oldest first.
    """
    changes = _count_changes(deltas[0])
    for delta in deltas[1:]:
        earlier = changes.rename_columns([*_columns(changes), _EARLIER_REMOVED, _EARLIER_ADDED])
        both = _add_up([earlier, _count_changes(delta)], [_EARLIER_REMOVED, _EARLIER_ADDED, _REMOVED, _ADDED])
        removed, added = both.column(_REMOVED), both.column(_ADDED)
        earlier_removed, earlier_added = both.column(_EARLIER_REMOVED), both.column(_EARLIER_ADDED)
        changes = (
            both.select(_columns(both))
            .append_column(_REMOVED, pc.add(earlier_removed, _not_negative(pc.subtract(removed, earlier_added))))
            .append_column(_ADDED, pc.add(added, _not_negative(pc.subtract(earlier_added, removed))))
        )
    return changes


def merge_row_changes(base: pa.Table, changes: pa.Table) -> pa.Table:
    """Base after the changes, in any order.

    Args:
        changes: result of ``compose_row_changes``.
    """
    counted = base.append_column(_THERE, pa.repeat(pa.scalar(1, pa.int64()), base.num_rows))
    rows = _add_up([counted, changes], [_THERE, _REMOVED, _ADDED])
    remaining = _not_negative(pc.subtract(rows.column(_THERE), rows.column(_REMOVED)))
    return _repeat_rows(rows, pc.add(remaining, rows.column(_ADDED)))


def to_delta_rows(changes: pa.Table) -> pa.Table:
    """The changes as rows of one delta, with ``_deleted`` last."""
    parts = [(_repeat_rows(changes, changes.column(c)), c == _REMOVED) for c in (_REMOVED, _ADDED)]
    return pa.concat_tables([arrow_merge.with_deleted_column(rows, is_deleted) for rows, is_deleted in parts])


def _count_changes(delta: pa.Table) -> pa.Table:
    is_deleted = delta.column(DELETED)
    rows = delta.drop_columns([DELETED])
    rows = rows.append_column(_REMOVED, is_deleted.cast(pa.int64()))
    return _add_up([rows.append_column(_ADDED, pc.invert(is_deleted).cast(pa.int64()))], [_REMOVED, _ADDED])


def _add_up(tables: Sequence[pa.Table], numbers: Sequence[str]) -> pa.Table:
    """Each different row once, with the sums of its numbers; 0 if a table lacks a number."""
    together = pa.concat_tables(tables, promote_options="default")
    columns = _columns(together)
    floats = {c for c in columns if pa.types.is_floating(together.field(c).type)}
    comparable_names = [f"{_COMPARABLE}{c}" if c in floats else c for c in columns]
    for c in floats:
        comparable = floats_as_integers(to_single_array(together.column(c)))
        together = together.append_column(f"{_COMPARABLE}{c}", comparable)
    aggregates = [*((n, "sum") for n in numbers), *((c, "first") for c in floats)]
    sums = together.group_by(comparable_names, use_threads=False).aggregate(aggregates)
    found = [sums.column(f"{c}_first") if c in floats else sums.column(c) for c in columns]
    rows = pa.table(found, schema=pa.schema([together.field(c) for c in columns]))
    for n in numbers:
        rows = rows.append_column(n, pc.fill_null(sums.column(f"{n}_sum"), 0))
    return rows


def _columns(rows: pa.Table) -> list[str]:
    return [c for c in rows.column_names if not c.startswith("__nova_")]


def _not_negative(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.max_element_wise(numbers, 0)


def _repeat_rows(rows: pa.Table, numbers: pa.ChunkedArray) -> pa.Table:
    """Each row as often as its number says."""
    positions = [n for n, count in enumerate(numbers.to_pylist()) for _ in range(count)]
    return rows.select(_columns(rows)).take(pa.array(positions, pa.int64()))
