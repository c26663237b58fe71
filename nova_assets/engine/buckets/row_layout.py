"""Key layout of rows: the bucket of each row, and the order inside a bucket. Uses Arrow and NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nova_assets.engine.buckets.hashing import hash_keys
from nova_assets.engine.buckets.key_order import KeyArrays, RowIndices, key_sort_indices
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.schema import DELETED
from nova_assets.plan.merge_units import HashBucket

IntArray: TypeAlias = npt.NDArray[np.int64]


def bucket_numbers(table: pa.Table, key_columns: tuple[str, ...], bucket_count: int) -> IntArray:
    """Bucket of each row, by the first bits of the hash of its key.

    Args:
        key_columns: in the order of the merge model.
        bucket_count: a power of two.
    """
    bits = bucket_count.bit_length() - 1
    if not bits:
        return np.zeros(table.num_rows, np.int64)
    return (hash_keys(table, key_columns) >> np.uint64(64 - bits)).astype(np.int64)


class BucketedRows(NamedTuple):
    """Rows sorted by bucket, then by key, with the deletion of a key before its live row.

    Args:
        row_counts: number of rows of each bucket.
    """

    rows: pa.Table
    row_counts: IntArray


def sort_into_buckets(table: pa.Table, layout: KeyLayout, bucket_count: int = 1) -> BucketedRows:
    """Sort rows by bucket, then by key."""
    row_indices = _indices_with_deletions_first(table)
    row_counts = np.array([table.num_rows])
    if bucket_count > 1:
        bucket_by_row = bucket_numbers(table, layout.order, bucket_count)
        row_counts = np.bincount(bucket_by_row, minlength=bucket_count)
        row_indices = row_indices[np.argsort(bucket_by_row[row_indices].astype(np.uint32), kind="stable")]
    keys = KeyArrays.from_table(table, layout.order)
    for start, end in _bucket_bounds(row_counts):
        bucket_row_indices = row_indices[start:end]
        row_indices[start:end] = bucket_row_indices[key_sort_indices(keys.take(bucket_row_indices))]
    is_sorted = bool((np.diff(row_indices) == 1).all())
    return BucketedRows(table if is_sorted else table.take(pa.array(row_indices)), row_counts)


def split_into_buckets(table: pa.Table, layout: KeyLayout, bucket_count: int) -> Iterator[tuple[pa.Table, HashBucket]]:
    """Sorted rows of each bucket that has rows."""
    sorted_rows, row_counts = sort_into_buckets(table, layout, bucket_count)
    for number, (start, end) in enumerate(_bucket_bounds(row_counts)):
        if end > start:
            yield sorted_rows.slice(start, end - start), HashBucket(bucket_count, number)


def _indices_with_deletions_first(table: pa.Table) -> RowIndices:
    if DELETED not in table.column_names or not table.num_rows:
        return np.arange(table.num_rows)
    return np.argsort(~table[DELETED].to_numpy(), kind="stable")


def _bucket_bounds(bucket_rows: IntArray) -> list[tuple[int, int]]:
    ends = np.cumsum(bucket_rows)
    return list(zip((ends - bucket_rows).tolist(), ends.tolist(), strict=True))
