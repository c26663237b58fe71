"""Changes of a multiset in Arrow, for rows that fit into memory. Equivalent to ``engine/read/spark_multiset``."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.arrow_merge import with_deleted_column
from nova_assets.engine.buckets.key_order import floats_as_integers, to_single_array
from nova_assets.model.schema import DELETED

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
    return pa.concat_tables([with_deleted_column(rows, is_deleted) for rows, is_deleted in parts])


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
