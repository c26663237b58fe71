"""Rows by their keys: sorted, searched, and told apart. Arrow and NumPy alone.

A key of one whole number is handled as a NumPy array, which is several times faster; any other by Arrow's own order,
which is Spark's for every type that blocks are laid out by.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Places: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def sorted_by(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows in the order of their keys; of one key, in the order in which they were."""
    if is_sorted(table, key):
        return table
    return table.take(pa.array(order(Keys.of(table, key))))


def is_sorted(table: pa.Table, key: Sequence[str]) -> bool:
    """Whether no row has a smaller key than the one before it."""
    return Keys.of(table, key).are_sorted()


def firsts(table: pa.Table, key: Sequence[str]) -> Mask:
    """Of sorted rows, those with another key than the row before."""
    found = np.ones(table.num_rows, np.bool_)
    if table.num_rows > 1:
        here, before = Keys.of(table.slice(1), key), Keys.of(table.slice(0, table.num_rows - 1), key)
        found[1:] = ~_equal(here, before)
    return found


def lasts(table: pa.Table, key: Sequence[str]) -> Mask:
    """Of sorted rows, those with another key than the row after."""
    return np.append(firsts(table, key)[1:], True) if table.num_rows else np.zeros(0, np.bool_)


def pieces(rows: pa.Table, key: Sequence[str], count: int) -> list[pa.Table]:
    """Sorted rows in so many pieces of about one size, at most; all of one key are in one."""
    starts = np.append(np.flatnonzero(firsts(rows, key)), rows.num_rows)
    wanted = [rows.num_rows * n // count for n in range(count + 1)]
    bounds = sorted(set(starts[np.searchsorted(starts, wanted)].tolist()))
    return [rows.slice(a, b - a) for a, b in itertools.pairwise(bounds)]


def search(there: pa.Table, wanted: pa.Table, key: Sequence[str]) -> tuple[Places, Mask]:
    """Where each wanted key is, or would have to be put; and whether it is there.

    Takes time as the wanted keys do, times the logarithm of what is there.

    Args:
        there: sorted by the key, each key once.
    """
    known, asked = Keys.of(there, key), Keys.of(wanted, key)
    if known.numbers is not None and asked.numbers is not None:
        places = np.searchsorted(known.numbers, asked.numbers).astype(np.int64)
    else:
        places = bisected(known, asked)
    found = np.zeros(len(asked), np.bool_)
    inside = np.flatnonzero(places < len(known))
    found[inside] = _equal(known.at(places[inside]), asked.at(inside))
    return places, found


class Keys:
    """The key columns of some rows.

    Args:
        numbers: where the key is one whole number.
        columns: the arrays of all others.
    """

    __slots__ = ("columns", "numbers")

    def __init__(self, numbers: npt.NDArray[Any] | None, columns: tuple[pa.Array, ...]) -> None:
        self.numbers = numbers
        self.columns = columns

    @staticmethod
    def of(table: pa.Table, key: Sequence[str]) -> Keys:
        arrays = tuple(_one(table.column(name)) for name in key)
        if len(arrays) == 1 and (whole := _as_numbers(arrays[0])) is not None:
            return Keys(whole, ())
        return Keys(None, arrays)

    def __len__(self) -> int:
        return len(self.columns[0] if self.numbers is None else self.numbers)

    def are_sorted(self) -> bool:
        """Whether none is less than the one before it."""
        if len(self) < 2:
            return True
        if self.numbers is not None:
            return bool((self.numbers[1:] >= self.numbers[:-1]).all())
        here = Keys(None, tuple(c[1:] for c in self.columns))
        return not bool(_less(here, Keys(None, tuple(c[:-1] for c in self.columns))).any())

    def at(self, places: Places) -> Keys:
        if self.numbers is not None:
            return Keys(self.numbers[places], ())
        wanted = pa.array(places)
        return Keys(None, tuple(c.take(wanted) for c in self.columns))


def one_chunk(table: pa.Table) -> pa.Table:
    """The same rows, each column in one piece: what is taken out of several pieces is searched for in each.

    Of so much text that it needs longer offsets, with those.
    """
    if table.nbytes >= _LARGE:
        table = table.cast(pa.schema([_large(f) for f in table.schema]))
    return table if all(c.num_chunks == 1 for c in table.columns) else table.combine_chunks()


_LARGE = 2**31 - 1


def _large(field: pa.Field) -> pa.Field:
    if pa.types.is_string(field.type):
        return field.with_type(pa.large_string())
    return field.with_type(pa.large_binary()) if pa.types.is_binary(field.type) else field


def bisected(known: Keys, asked: Keys) -> Places:
    """By halves, all wanted keys at once."""
    low, high = np.zeros(len(asked), np.int64), np.full(len(asked), len(known), np.int64)
    while True:
        left = np.flatnonzero(low < high)
        if not len(left):
            return low
        middle = (low[left] + high[left]) // 2
        before = _less(known.at(middle), asked.at(left))
        low[left[before]] = middle[before] + 1
        high[left[~before]] = middle[~before]


def _less(a: Keys, b: Keys) -> Mask:
    if a.numbers is not None and b.numbers is not None:
        return np.asarray(a.numbers < b.numbers)
    found, same = np.zeros(len(a), np.bool_), np.ones(len(a), np.bool_)
    for x, y in zip(a.columns, b.columns, strict=True):
        found |= same & _mask(pc.less(x, y))
        same &= _mask(pc.equal(x, y))
    return found


def _equal(a: Keys, b: Keys) -> Mask:
    if a.numbers is not None and b.numbers is not None:
        return np.asarray(a.numbers == b.numbers)
    same = np.ones(len(a), np.bool_)
    for x, y in zip(a.columns, b.columns, strict=True):
        same &= _mask(pc.equal(x, y))
    return same


def order(keys: Keys) -> Places:
    """The places of rows in the order of their keys; of one key, in the order in which they are."""
    if keys.numbers is not None:
        return np.argsort(keys.numbers, kind="stable").astype(np.int64)
    if keys.are_sorted():  # to look is cheap, to sort text is not
        return np.arange(len(keys))
    by = pa.table(list(keys.columns), names=[f"k{n}" for n in range(len(keys.columns))])
    found = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names])
    places: Places = found.to_numpy().astype(np.int64)
    return places


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)
    return found


def _as_numbers(array: pa.Array) -> npt.NDArray[Any] | None:
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    elif not pa.types.is_signed_integer(array.type):
        return None
    numbers: npt.NDArray[Any] = array.to_numpy()
    return numbers


def _mask(values: Any) -> Mask:
    found: Mask = values.to_numpy(zero_copy_only=False)
    return found
