"""Merge of one merge unit: the rows of its base and delta files, combined. Uses Arrow alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from nova_assets.engine.buckets import arrow_merge
from nova_assets.engine.buckets.arrow_diff import diff_tables
from nova_assets.engine.buckets.file_reader import read_unit_rows
from nova_assets.engine.buckets.key_order import one_chunk
from nova_assets.engine.buckets.row_layout import sort_into_buckets
from nova_assets.engine.rows.stored_columns import fit_stored_rows
from nova_assets.formats import schema_fit
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.key_layout import KeyLayout, KeyPlacement
from nova_assets.model.schema import Schema
from nova_assets.plan.block_layout import CommonLayout
from nova_assets.plan.merge_units import MergeUnit


@dataclass(frozen=True, slots=True)
class MergeSourceFile:
    """File from which rows of a merge unit are read.

    Args:
        key_placement: key placement of the file.
        column_by_stored_name: columns to read, by the names under which the file has them.
    """

    path: str
    key_placement: KeyPlacement
    column_by_stored_name: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MergeUnitTask:
    """One merge unit with its base files and its delta files.

    Args:
        base_files: files of the base.
        delta_files: files of each delta, oldest delta first.
        result_bucket_count: number of files into which the result of a hash bucket is divided, a power of two.
        max_file_rows: maximum number of rows per file in the result of a key range.
        always_write: whether the unit is written even without a change.
        key_filter: keys of the unit to read, sorted and distinct; None for all keys.
    """

    merge_unit: MergeUnit
    base_files: tuple[MergeSourceFile, ...]
    delta_files: tuple[tuple[MergeSourceFile, ...], ...]
    result_bucket_count: int = 1
    max_file_rows: int = 1
    always_write: bool = False
    key_filter: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class MergeUnitRead:
    """Read of one merge unit.

    Args:
        task: the unit with its files.
        changes_only: whether to return the composed changes of the deltas, not the merged rows.
        old_task: the unit in an older snapshot; if given, the result is the diff from that snapshot to ``task``.
    """

    task: MergeUnitTask
    changes_only: bool = False
    old_task: MergeUnitTask | None = None


def read_merge_unit(unit_read: MergeUnitRead, layout: CommonLayout) -> pa.Table:
    """Rows of a read of one merge unit."""
    if unit_read.old_task is not None:
        old, new = (_read_unit_snapshot(w, layout) for w in (unit_read.old_task, unit_read.task))
        return diff_tables(old, new, layout.model, layout.layout)
    if unit_read.changes_only:
        return read_unit_changes(unit_read.task, layout)
    return _read_unit_snapshot(unit_read.task, layout)


def _read_unit_snapshot(task: MergeUnitTask, layout: CommonLayout) -> pa.Table:
    """Sorted rows of a snapshot in a merge unit."""
    return merge_onto_base(task, read_unit_changes(task, layout), layout)


def merge_onto_base(task: MergeUnitTask, changes: pa.Table, layout: CommonLayout) -> pa.Table:
    """Base of a merge unit after the given changes."""
    if not task.base_files:
        return arrow_merge.drop_deletions(changes).cast(to_arrow_schema(layout.schema.with_all_nullable()))
    base = _read_block_rows(task.base_files, task, layout.schema, layout.layout)
    return arrow_merge.merge_changes(base, changes, layout.model, layout.layout.order) if changes.num_rows else base


def read_unit_changes(task: MergeUnitTask, layout: CommonLayout) -> pa.Table:
    """Composed changes of all deltas in a merge unit."""
    marked = layout.schema.with_deleted()
    each = [_read_block_rows(delta, task, marked, layout.layout) for delta in task.delta_files]
    return (
        arrow_merge.compose_deltas(each, layout.model, layout.layout.order)
        if each
        else schema_fit.fit_to_schema(pa.table({}), marked.with_all_nullable())
    )


def _read_block_rows(
    source_files: Sequence[MergeSourceFile], task: MergeUnitTask, schema: Schema, layout: KeyLayout
) -> pa.Table:
    """Sorted rows of one block in a merge unit."""
    relaxed = schema.with_all_nullable()  # a file may be older than a required column
    tables = []
    for source in source_files:
        columns = source.column_by_stored_name
        rows = read_unit_rows(
            source.path, source.key_placement, task.merge_unit, layout, list(columns), task.key_filter
        )
        tables.append(fit_stored_rows(rows, columns, relaxed))
    return sort_into_buckets(one_chunk(pa.concat_tables(tables)), layout).rows
