"""Diff of one bucket in Arrow, for rows that fit into memory. Equivalent to ``engine/read/spark_diff``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.arrow_merge import with_deleted_column
from nova_assets.engine.buckets.key_order import (
    Mask,
    RowIndices,
    find_key_positions,
    floats_as_integers,
    one_chunk,
    to_numpy_mask,
    to_single_array,
)
from nova_assets.engine.buckets.row_layout import sort_into_buckets
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import Keyed, MergeModel


def diff_tables(old: pa.Table, new: pa.Table, model: MergeModel, layout: KeyLayout) -> pa.Table:
    """Change from one table to another, with ``_deleted`` last. Deletions carry the old row.

    Args:
        old, new: tables with the same columns, sorted by key, each key once.
    """
    old, new = one_chunk(old), one_chunk(new)
    new_positions, is_in_new = find_key_positions(new, old, layout.order)
    is_inserted = np.ones(new.num_rows, np.bool_)
    is_inserted[new_positions[is_in_new]] = False
    old_row_indices, new_row_indices = np.flatnonzero(is_in_new).astype(np.int64), new_positions[is_in_new]
    value_columns = [c for c in new.column_names if c not in layout.order]
    is_changed = np.zeros(len(old_row_indices), np.bool_)
    for name in value_columns:
        if not _is_column_identical(old[name], new[name], old_row_indices, new_row_indices):
            is_changed |= ~_equal_null_safe(
                _take_rows(old[name], old_row_indices), _take_rows(new[name], new_row_indices)
            )
    old_row_indices, new_row_indices = old_row_indices[is_changed], new_row_indices[is_changed]
    needs_delete = _needs_delete_before_insert(old.take(old_row_indices), new.take(new_row_indices), model)
    deletions = old.take(np.concatenate([np.flatnonzero(~is_in_new), old_row_indices[needs_delete]]))
    live_rows = new.take(np.concatenate([np.flatnonzero(is_inserted), new_row_indices]))
    rows = pa.concat_tables([with_deleted_column(deletions, True), with_deleted_column(live_rows, False)])
    return sort_into_buckets(one_chunk(rows), layout).rows


def _is_column_identical(
    old: pa.ChunkedArray, new: pa.ChunkedArray, old_rows: RowIndices, new_rows: RowIndices
) -> bool:
    """Whether a column is certainly unchanged: both tables have identical data in it."""
    return len(old_rows) == len(old) == len(new) == len(new_rows) and bool(old.equals(new))


def _take_rows(column: pa.ChunkedArray, row_indices: RowIndices) -> pa.Array:
    return to_single_array(column.take(pa.array(row_indices)))


def _equal_null_safe(left: pa.Array, right: pa.Array) -> Mask:
    """Mask of rows with equal values, as in Spark's ``<=>``: nulls are equal, and so are NaNs."""
    left_valid, right_valid = to_numpy_mask(pc.is_valid(left)), to_numpy_mask(pc.is_valid(right))
    if pa.types.is_struct(left.type):
        equal = np.ones(len(left), np.bool_)
        for n in range(left.type.num_fields):
            equal &= _equal_null_safe(left.field(n), right.field(n))
    else:
        equal = to_numpy_mask(pc.fill_null(pc.equal(floats_as_integers(left), floats_as_integers(right)), False))
    return (left_valid & right_valid & equal) | (~left_valid & ~right_valid)


def _less_in_spark_order(left: pa.Array, right: pa.Array) -> Mask:
    """Mask of rows whose left value is less in Spark's order: null is smallest, NaN is greatest."""
    left_valid, right_valid = to_numpy_mask(pc.is_valid(left)), to_numpy_mask(pc.is_valid(right))
    less = to_numpy_mask(pc.fill_null(pc.less(floats_as_integers(left), floats_as_integers(right)), False))
    return (left_valid & right_valid & less) | (~left_valid & right_valid)


def _needs_delete_before_insert(old_rows: pa.Table, new_rows: pa.Table, model: MergeModel) -> Mask:
    """Whether a key's new row would not simply replace its old row (``engine/read/spark_diff``)."""
    if isinstance(model, Keyed):
        return np.ones(old_rows.num_rows, np.bool_)
    is_less, is_tied = np.zeros(old_rows.num_rows, np.bool_), np.ones(old_rows.num_rows, np.bool_)
    for name in model.order_by:
        old_values, new_values = to_single_array(old_rows[name]), to_single_array(new_rows[name])
        is_less |= is_tied & _less_in_spark_order(new_values, old_values)
        is_tied &= _equal_null_safe(new_values, old_values)
    return is_less
