"""Diff of one bucket, in Arrow: the same as ``engine/diff`` says for Spark, for rows that fit into memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.key_order import Mask, Places, one_chunk, search
from nova_assets.engine.buckets.row_layout import arranged
from nova_assets.model.block_layout import Layout
from nova_assets.model.merge import Keyed, MergeModel
from nova_assets.model.schema import DELETED


def diff(old: pa.Table, new: pa.Table, model: MergeModel, layout: Layout) -> pa.Table:
    """What turns one table into another, ``_deleted`` last; deletions carry the old row.

    Args:
        old, new: the same columns, sorted by the key, each key once.
    """
    old, new = one_chunk(old), one_chunk(new)
    places, found = search(new, old, layout.order)
    came = np.ones(new.num_rows, np.bool_)
    came[places[found]] = False
    before, after = np.flatnonzero(found).astype(np.int64), places[found]
    rest = [c for c in new.column_names if c not in layout.order]
    changed = np.zeros(len(before), np.bool_)
    for name in rest:
        if not _alike(old[name], new[name], before, after):
            changed |= ~_same(_taken(old[name], before), _taken(new[name], after))
    before, after = before[changed], after[changed]
    first = _has_to_go_first(old.take(before), new.take(after), model)
    gone = old.take(np.concatenate([np.flatnonzero(~found), before[first]]))
    live = new.take(np.concatenate([np.flatnonzero(came), after]))
    rows = pa.concat_tables([_marked(gone, True), _marked(live, False)])
    return arranged(one_chunk(rows), layout)[0]


def _alike(old: pa.ChunkedArray, new: pa.ChunkedArray, before: Places, after: Places) -> bool:
    """Whether nothing in a column can have changed: both have it, bit for bit."""
    return len(before) == len(old) == len(new) == len(after) and bool(old.equals(new))


def _taken(column: pa.ChunkedArray, places: Places) -> pa.Array:
    found = column.take(pa.array(places))
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)
    return found


def _same(a: pa.Array, b: pa.Array) -> Mask:
    """Row by row, whether values are equal as Spark's ``<=>`` has it: nulls are, and so are NaNs."""
    known, other = _mask(pc.is_valid(a)), _mask(pc.is_valid(b))
    if pa.types.is_struct(a.type):
        equal = np.ones(len(a), np.bool_)
        for n in range(a.type.num_fields):
            equal &= _same(a.field(n), b.field(n))
    else:
        equal = _mask(pc.fill_null(pc.equal(a, b), False))
        if pa.types.is_floating(a.type):
            equal = equal | _mask(pc.fill_null(pc.and_(pc.is_nan(a), pc.is_nan(b)), False))
    return (known & other & equal) | (~known & ~other)


def _less(a: pa.Array, b: pa.Array) -> Mask:
    """Row by row, whether a value is less as Spark orders them: null is least, and NaN greatest."""
    known, other = _mask(pc.is_valid(a)), _mask(pc.is_valid(b))
    less = _mask(pc.fill_null(pc.less(a, b), False))
    if pa.types.is_floating(a.type):
        less = less | _mask(pc.fill_null(pc.and_not(pc.is_nan(b), pc.is_nan(a)), False))
    return (known & other & less) | (~known & other)


def _has_to_go_first(old: pa.Table, new: pa.Table, model: MergeModel) -> Mask:
    """Whether a key's new row would not simply displace its old one (``engine/diff``)."""
    if isinstance(model, Keyed):
        return np.ones(old.num_rows, np.bool_)
    lesser, tied = np.zeros(old.num_rows, np.bool_), np.ones(old.num_rows, np.bool_)
    for name in model.order_by:
        before, after = _whole(old[name]), _whole(new[name])
        lesser |= tied & _less(after, before)
        tied &= _same(after, before)
    return lesser


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _marked(rows: pa.Table, deleted: bool) -> pa.Table:
    return rows.append_column(pa.field(DELETED, pa.bool_(), False), pa.repeat(pa.scalar(deleted), rows.num_rows))


def _mask(values: pa.Array) -> Mask:
    found: Mask = values.to_numpy(zero_copy_only=False)
    return found
