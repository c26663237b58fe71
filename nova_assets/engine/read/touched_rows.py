"""Merge of a snapshot in this process: rows that no delta can change pass by, and the few others are merged.

The time is that of a scan, and memory holds the deltas and the rows that they may change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets import arrow_merge
from nova_assets.engine.buckets.file_writer import gather_tables
from nova_assets.engine.buckets.key_order import (
    Mask,
    as_integers,
    find_key_positions,
    first_of_key_mask,
    floats_as_integers,
    one_chunk,
    sort_by_key,
    to_numpy_mask,
    to_single_array,
)
from nova_assets.engine.buckets.row_layout import sort_into_buckets
from nova_assets.engine.read.arrow_multiset import compose_row_changes, merge_row_changes
from nova_assets.formats import schema_fit
from nova_assets.model.block import Block
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import Multiset
from nova_assets.model.reads import Snapshot, merge_runs
from nova_assets.model.schema import Schema

MAX_GATHERED_BYTES = 64 * 2**20
"""Size of rows at which they are searched for touched rows, however many values the deltas have."""

ReadBlocks = Callable[[Sequence[Block], Schema], Sequence[pa.Table]]
"""Rows of each of some blocks, in the columns of a schema."""


class TouchedRows:
    """Rows of the bases of a snapshot that its deltas may change.

    A row of a keyed snapshot is touched if a delta has its key. A row of a multiset is touched if each column has a
    value that a delta has in this column. A touched row need not be changed: the merge decides that. A row that is not
    touched is certainly unchanged.

    Args:
        read: a snapshot for which ``can_merge_in_process``. Its model is keyed, or a Multiset.
        read_blocks: reads the deltas, once.
    """

    def __init__(self, read: Snapshot, read_blocks: ReadBlocks) -> None:
        assert read.schema is not None
        self._schema = read.schema
        self._model = read.merge
        self._key = read.merge.key
        change_schema = read.schema.with_deleted()
        runs = merge_runs([d for d in read.deltas if isinstance(d, Block)], read.merge)
        self._runs = [(model, list(read_blocks(deltas, change_schema))) for model, deltas in runs]
        changes = [t for _, tables in self._runs for t in tables]
        self._values = {c: _distinct([t.column(c) for t in changes]) for c in self._key or read.schema.names}
        self._sorted_keys = _distinct_keys(changes, self._key) if self._key else None
        self._touched: list[pa.Table] = []

    def take_from(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The rows that are not touched. The others are kept for ``merge``."""
        # Each search without marks prepares all values anew, so it is worth as many rows.
        value_count = max((len(v.values) for v in self._values.values() if v.marks is None), default=0)
        return map(self._take_from, gather_tables(tables, MAX_GATHERED_BYTES, value_count))

    def _take_from(self, rows: pa.Table) -> pa.Table:
        is_touched = np.ones(rows.num_rows, np.bool_)
        for name, values in self._values.items():
            is_touched &= values.may_have(_comparable(rows.column(name)))
        candidates = np.flatnonzero(is_touched)
        if self._sorted_keys is not None and len(candidates):
            keys = one_chunk(rows.select(self._key).take(pa.array(candidates)))
            is_touched[candidates] = find_key_positions(self._sorted_keys, keys, self._key).is_present
        if not is_touched.any():
            return rows
        self._touched.append(rows.filter(pa.array(is_touched)))
        return rows.filter(pa.array(~is_touched))

    def merge(self) -> pa.Table:
        """The touched rows after the deltas, and the rows that these insert."""
        rows = concat_or_empty(self._touched, self._schema)
        if isinstance(self._model, Multiset):
            return merge_row_changes(rows, compose_row_changes([t for _, tables in self._runs for t in tables]))
        layout = KeyLayout(self._key)
        rows = _sorted(rows, layout)
        for model, deltas in self._runs:
            changes = arrow_merge.compose_deltas([_sorted(t, layout) for t in deltas], model, self._key)
            rows = arrow_merge.merge_changes(rows, changes, model, self._key)
        return rows


class _Values:
    """Values of a column in the deltas.

    Args:
        values: distinct values, comparable.
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self.marks: npt.NDArray[np.bool_] | None = None
        if (numbers := as_integers(values)) is not None:
            self._bits = max(10, (_SLOTS_PER_VALUE * len(numbers)).bit_length())
            self.marks = np.zeros(1 << self._bits, np.bool_)
            self.marks[self._slot_numbers(numbers)] = True

    def may_have(self, column: pa.Array) -> Mask:
        """Mask of the values of a column that are among these. A few others may be in it."""
        numbers = None if self.marks is None else as_integers(column)
        if numbers is None or self.marks is None:
            return to_numpy_mask(pc.is_in(column, value_set=self.values))
        return self.marks[self._slot_numbers(numbers)]

    def _slot_numbers(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        with np.errstate(over="ignore"):
            return (numbers.astype(np.int64).view(np.uint64) * _MULTIPLIER) >> np.uint64(64 - self._bits)


_SLOTS_PER_VALUE = 16
"""One row in so many is looked up without need."""

_MULTIPLIER = np.uint64(11400714819323198485)
"""Spreads numbers that lie side by side: 2**64 divided by the golden ratio (Knuth, volume 3, section 6.4)."""


def _distinct(columns: Sequence[pa.ChunkedArray]) -> _Values:
    return _Values(pc.unique(pa.concat_arrays([_comparable(c) for c in columns])))


def _distinct_keys(changes: Sequence[pa.Table], key_columns: Sequence[str]) -> pa.Table:
    """Each key once, sorted."""
    keys = one_chunk(sort_by_key(one_chunk(pa.concat_tables([t.select(key_columns) for t in changes])), key_columns))
    return keys.filter(pa.array(first_of_key_mask(keys, key_columns)))


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    return floats_as_integers(to_single_array(column))


def _sorted(rows: pa.Table, layout: KeyLayout) -> pa.Table:
    return sort_into_buckets(one_chunk(rows), layout).rows


def concat_or_empty(tables: Sequence[pa.Table], schema: Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema_fit.fit_to_schema(pa.table({}), schema.with_all_nullable())
