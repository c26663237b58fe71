"""Rows laid out: which bucket each is in, and the order inside. Arrow and NumPy alone."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nova_assets.engine.buckets.hashing import hashes
from nova_assets.engine.buckets.key_order import Keys, Places, order
from nova_assets.model.block_layout import Layout
from nova_assets.model.schema import DELETED

Numbers: TypeAlias = npt.NDArray[np.int64]


def numbers(table: pa.Table, key: tuple[str, ...], buckets: int) -> Numbers:
    """The bucket of each row, by the first bits of its key's hash.

    Args:
        key: in the order of the merge model.
        buckets: a power of two.
    """
    bits = buckets.bit_length() - 1
    if not bits:
        return np.zeros(table.num_rows, np.int64)
    return (hashes(table, key) >> np.uint64(64 - bits)).astype(np.int64)


def arranged(table: pa.Table, layout: Layout, buckets: int = 1) -> tuple[pa.Table, Numbers]:
    """The rows by bucket, in each by key, and of one key the deletion first; and how many rows each bucket has."""
    places = _deletions_first(table)
    counts = np.array([table.num_rows])
    if buckets > 1:
        number = numbers(table, layout.order, buckets)
        counts = np.bincount(number, minlength=buckets)
        places = places[np.argsort(number[places].astype(np.uint32), kind="stable")]
    keys, end = Keys.of(table, layout.order), 0
    for start, end in _spans(counts):
        here = places[start:end]
        places[start:end] = here[order(keys.at(here))]
    in_order = bool((np.diff(places) == 1).all())
    return (table if in_order else table.take(pa.array(places))), counts


def _deletions_first(table: pa.Table) -> Places:
    if DELETED not in table.column_names or not table.num_rows:
        return np.arange(table.num_rows)
    return np.argsort(~table[DELETED].to_numpy(), kind="stable")


def _spans(counts: Numbers) -> list[tuple[int, int]]:
    ends = np.cumsum(counts)
    return list(zip((ends - counts).tolist(), ends.tolist(), strict=True))
