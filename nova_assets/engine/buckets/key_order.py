"""Sorting and searching of rows by key. Uses Arrow and NumPy alone.

A key of a single integer is handled as a NumPy array, which is several times faster. Floats are compared as integers.
Other keys use Arrow's sort order, which equals Spark's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

RowIndices: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def sort_by_key(table: pa.Table, key_columns: Sequence[str]) -> pa.Table:
    """Rows sorted by key. The sort is stable."""
    if is_sorted_by_key(table, key_columns):
        return table
    return table.take(pa.array(key_sort_indices(KeyArrays.from_table(table, key_columns))))


def is_sorted_by_key(table: pa.Table, key_columns: Sequence[str]) -> bool:
    """Whether no row has a smaller key than the row before it."""
    return KeyArrays.from_table(table, key_columns).are_sorted()


def first_of_key_mask(table: pa.Table, key_columns: Sequence[str]) -> Mask:
    """Mask of the rows, among sorted rows, whose key differs from that of the row before."""
    mask = np.ones(table.num_rows, np.bool_)
    if table.num_rows > 1:
        keys, previous_keys = (
            KeyArrays.from_table(table.slice(1), key_columns),
            KeyArrays.from_table(table.slice(0, table.num_rows - 1), key_columns),
        )
        mask[1:] = ~_equal(keys, previous_keys)
    return mask


def last_of_key_mask(table: pa.Table, key_columns: Sequence[str]) -> Mask:
    """Mask of the rows, among sorted rows, whose key differs from that of the row after."""
    return np.append(first_of_key_mask(table, key_columns)[1:], True) if table.num_rows else np.zeros(0, np.bool_)


def split_at_key_boundaries(sorted_rows: pa.Table, key_columns: Sequence[str], max_pieces: int) -> list[pa.Table]:
    """Sorted rows divided into at most ``max_pieces`` pieces of about equal size. All rows of a key are in one
    piece."""
    key_starts = np.append(np.flatnonzero(first_of_key_mask(sorted_rows, key_columns)), sorted_rows.num_rows)
    target_bounds = [sorted_rows.num_rows * n // max_pieces for n in range(max_pieces + 1)]
    bounds = sorted(set(key_starts[np.searchsorted(key_starts, target_bounds)].tolist()))
    return [sorted_rows.slice(a, b - a) for a, b in itertools.pairwise(bounds)]


class KeyPositions(NamedTuple):
    """Result of a search for keys.

    Args:
        positions: position of each searched key in the sorted rows, or its insertion position.
        is_present: whether each searched key occurs in the sorted rows.
    """

    positions: RowIndices
    is_present: Mask


def find_key_positions(sorted_rows: pa.Table, searched_rows: pa.Table, key_columns: Sequence[str]) -> KeyPositions:
    """Position of each searched key in sorted rows.

    The time is proportional to the number of requested keys, times the logarithm of the number of sorted rows.

    Args:
        sorted_rows: rows sorted by key, each key once.
        searched_rows: rows with the requested keys.
    """
    sorted_keys, search_keys = (
        KeyArrays.from_table(sorted_rows, key_columns),
        KeyArrays.from_table(searched_rows, key_columns),
    )
    if sorted_keys.numbers is not None and search_keys.numbers is not None:
        positions = np.searchsorted(sorted_keys.numbers, search_keys.numbers).astype(np.int64)
    else:
        positions = bisect_keys(sorted_keys, search_keys)
    is_present = np.zeros(len(search_keys), np.bool_)
    in_range = np.flatnonzero(positions < len(sorted_keys))
    is_present[in_range] = _equal(sorted_keys.take(positions[in_range]), search_keys.take(in_range))
    return KeyPositions(positions, is_present)


class KeyArrays:
    """Key columns of some rows.

    Args:
        numbers: values of a key of a single integer; None for other keys.
        columns: arrays of other keys.
    """

    __slots__ = ("columns", "numbers")

    def __init__(self, numbers: npt.NDArray[Any] | None, columns: tuple[pa.Array, ...]) -> None:
        self.numbers = numbers
        self.columns = columns

    @staticmethod
    def from_table(table: pa.Table, key_columns: Sequence[str]) -> KeyArrays:
        arrays = tuple(floats_as_integers(to_single_array(table.column(name))) for name in key_columns)
        if len(arrays) == 1 and (integers := as_integers(arrays[0])) is not None:
            return KeyArrays(integers, ())
        return KeyArrays(None, arrays)

    def __len__(self) -> int:
        return len(self.columns[0] if self.numbers is None else self.numbers)

    def are_sorted(self) -> bool:
        """Whether no key is less than the key before it."""
        if len(self) < 2:
            return True
        if self.numbers is not None:
            return bool((self.numbers[1:] >= self.numbers[:-1]).all())
        keys_after_first = KeyArrays(None, tuple(c[1:] for c in self.columns))
        return not bool(_less_than(keys_after_first, KeyArrays(None, tuple(c[:-1] for c in self.columns))).any())

    def take(self, row_indices: RowIndices) -> KeyArrays:
        if self.numbers is not None:
            return KeyArrays(self.numbers[row_indices], ())
        indices = pa.array(row_indices)
        return KeyArrays(None, tuple(c.take(indices) for c in self.columns))


def one_chunk(table: pa.Table) -> pa.Table:
    """Table with one chunk per column, because a take from several chunks searches each chunk.

    Text that exceeds 32-bit offsets gets 64-bit offsets.
    """
    if table.nbytes >= _MAX_OFFSET_BYTES:
        table = table.cast(pa.schema([_with_large_offsets(f) for f in table.schema]))
    return table if all(c.num_chunks == 1 for c in table.columns) else table.combine_chunks()


_MAX_OFFSET_BYTES = 2**31 - 1


def _with_large_offsets(field: pa.Field) -> pa.Field:
    if pa.types.is_string(field.type):
        return field.with_type(pa.large_string())
    return field.with_type(pa.large_binary()) if pa.types.is_binary(field.type) else field


def bisect_keys(sorted_keys: KeyArrays, search_keys: KeyArrays) -> RowIndices:
    """Lower bound of each search key among sorted keys, by a binary search over all search keys at once."""
    low, high = np.zeros(len(search_keys), np.int64), np.full(len(search_keys), len(sorted_keys), np.int64)
    while True:
        open_searches = np.flatnonzero(low < high)
        if not len(open_searches):
            return low
        middle = (low[open_searches] + high[open_searches]) // 2
        is_less = _less_than(sorted_keys.take(middle), search_keys.take(open_searches))
        low[open_searches[is_less]] = middle[is_less] + 1
        high[open_searches[~is_less]] = middle[~is_less]


def _less_than(left: KeyArrays, right: KeyArrays) -> Mask:
    if left.numbers is not None and right.numbers is not None:
        return np.asarray(left.numbers < right.numbers)
    is_less, is_equal = np.zeros(len(left), np.bool_), np.ones(len(left), np.bool_)
    for x, y in zip(left.columns, right.columns, strict=True):
        is_less |= is_equal & to_numpy_mask(pc.less(x, y))
        is_equal &= to_numpy_mask(pc.equal(x, y))
    return is_less


def _equal(left: KeyArrays, right: KeyArrays) -> Mask:
    if left.numbers is not None and right.numbers is not None:
        return np.asarray(left.numbers == right.numbers)
    is_equal = np.ones(len(left), np.bool_)
    for x, y in zip(left.columns, right.columns, strict=True):
        is_equal &= to_numpy_mask(pc.equal(x, y))
    return is_equal


def key_sort_indices(keys: KeyArrays) -> RowIndices:
    """Indices of the rows sorted by key. The sort is stable."""
    if keys.numbers is not None:
        return np.argsort(keys.numbers, kind="stable").astype(np.int64)
    if keys.are_sorted():  # a check is cheap compared to sorting text
        return np.arange(len(keys))
    key_table = pa.table(list(keys.columns), names=[f"k{n}" for n in range(len(keys.columns))])
    sort_indices = pc.sort_indices(key_table, sort_keys=[(name, "ascending") for name in key_table.column_names])
    row_indices: RowIndices = sort_indices.to_numpy().astype(np.int64)
    return row_indices


def to_single_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Column as one contiguous array. Several chunks are copied; a column without chunks becomes an empty array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.array([], combined.type)
    return combined


def floats_as_integers(array: pa.Array) -> pa.Array:
    """Integers that are equal and ordered as Spark's floats are, in place of floats; other values unchanged.

    Both zeros are one integer. All NaNs are one integer, the greatest. Nulls stay nulls.
    """
    if not pa.types.is_floating(array.type):
        return array
    floats = array.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 + 0.0 = 0.0
    bits = np.where(np.isnan(floats), np.nan, floats).view(np.int64)
    is_null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits), mask=is_null)


def as_integers(array: pa.Array) -> npt.NDArray[Any] | None:
    """Integers, dates and timestamps as numbers; None for other types and for nulls."""
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    elif not pa.types.is_signed_integer(array.type):
        return None
    if array.null_count:
        return None
    numbers: npt.NDArray[Any] = array.to_numpy()
    return numbers


def to_numpy_mask(booleans: pa.Array | pa.ChunkedArray) -> Mask:
    """Booleans without nulls as a NumPy mask."""
    mask: Mask = booleans.to_numpy() if isinstance(booleans, pa.ChunkedArray) else booleans.to_numpy(False)
    return mask
