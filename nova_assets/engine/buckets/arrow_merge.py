"""Merge and chain of one bucket in Arrow, for rows that fit into memory. Equivalent to ``engine/read/spark_merge``.

All input and output tables are sorted by key, with the deletion of a key before its live row.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.key_order import (
    Mask,
    RowIndices,
    find_key_positions,
    first_of_key_mask,
    last_of_key_mask,
    one_chunk,
    sort_by_key,
    to_numpy_mask,
)
from nova_assets.model.merge import Keyed, MergeModel
from nova_assets.model.schema import DELETED

_MAX_SAFE_SUM = 2.0**62
"""Bound up to which a sum of integers fits into 64 bits, even if it is only estimated in floating point. Larger sums
are computed exactly."""


def compose_deltas(deltas: Sequence[pa.Table], model: MergeModel, key_columns: Sequence[str]) -> pa.Table:
    """All changes of each key, composed: at most one deletion and one live row per key (R11).

    Args:
        deltas: deltas in their order, with the same columns, including ``_deleted``.
        key_columns: key columns of the model, in the sort order of the rows.
    """
    if len(deltas) == 1:
        return deltas[0]
    rows = one_chunk(pa.concat_tables(deltas, promote_options="permissive"))
    places = np.repeat(np.arange(len(deltas)), [d.num_rows for d in deltas])
    rows = rows.append_column(_DELTA_INDEX, pa.array(places))
    rows = one_chunk(sort_by_key(rows, key_columns))  # stable: rows of a key stay in delta order
    if not model.needs_earlier_row:
        return rows.filter(pa.array(last_of_key_mask(rows, key_columns))).drop_columns([_DELTA_INDEX])
    return _compose_combining_changes(rows, model, key_columns).drop_columns([_DELTA_INDEX])


def merge_changes(base: pa.Table, changes: pa.Table, model: MergeModel, key_columns: Sequence[str]) -> pa.Table:
    """Base after the given changes.

    Args:
        base: each key once.
        changes: composed changes, with the base's columns and ``_deleted``.
        key_columns: as for ``compose_deltas``.
    """
    base, changes = one_chunk(base), one_chunk(changes)
    first_change_per_key = changes.filter(pa.array(first_of_key_mask(changes, key_columns)))
    places, found = find_key_positions(base, first_change_per_key, key_columns)
    changed_base_rows = places[found]
    if model.needs_earlier_row and len(changed_base_rows):
        before = base.take(pa.array(changed_base_rows))
        changes = compose_deltas([_as_insert_changes(before, changes.schema), changes], model, key_columns)
        first_change_per_key = changes.filter(pa.array(first_of_key_mask(changes, key_columns)))
        places, _ = find_key_positions(base, first_change_per_key, key_columns)
    alive = pc.invert(changes[DELETED])
    live = changes.filter(alive).select(base.column_names)
    spread = np.cumsum(first_of_key_mask(changes, key_columns)) - 1  # index of each change's key
    return _merge_sorted_rows(base, live, places[spread[to_numpy_mask(alive)]], changed_base_rows)


def drop_deletions(changes: pa.Table) -> pa.Table:
    """Live rows of a change: its result on an empty base."""
    return changes.filter(pc.invert(changes[DELETED])).drop_columns([DELETED])


_DELTA_INDEX = "__nova_seq"
_GROUP = "__nova_group"


def _as_insert_changes(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    marked = rows.append_column(pa.field(DELETED, pa.bool_(), False), pa.repeat(pa.scalar(False), rows.num_rows))
    return marked.select(schema.names).cast(schema)


def _merge_sorted_rows(
    base: pa.Table, live_rows: pa.Table, insert_positions: RowIndices, removed_rows: RowIndices
) -> pa.Table:
    """Base without the removed rows, with each live row inserted before its search position."""
    keep = np.ones(base.num_rows, np.bool_)
    keep[removed_rows] = False
    rows = one_chunk(pa.concat_tables([base, live_rows.cast(base.schema)]))
    order = np.insert(np.arange(base.num_rows), insert_positions, base.num_rows + np.arange(live_rows.num_rows))
    kept = np.insert(keep, insert_positions, True)
    return rows.take(pa.array(order[kept]))


def _compose_combining_changes(rows: pa.Table, model: MergeModel, key_columns: Sequence[str]) -> pa.Table:
    """Composed changes of several deltas under a combining model. Keys that occur once stay unchanged."""
    first = first_of_key_mask(rows, key_columns)
    group = np.cumsum(first) - 1
    occurs_once = np.bincount(group, minlength=1)[group] == 1 if rows.num_rows else np.zeros(0, np.bool_)
    if occurs_once.all():
        return rows
    several = rows.filter(pa.array(~occurs_once)).append_column(_GROUP, pa.array(group[~occurs_once]))
    found = _compose_changes_of_repeated_keys(several, model)
    back = pa.concat_tables([rows.filter(pa.array(occurs_once)), found.select(rows.column_names).cast(rows.schema)])
    live_last = back.take(pc.array_sort_indices(pc.invert(back[DELETED]).cast(pa.int8())))  # deletions first, stable
    return sort_by_key(one_chunk(live_last), key_columns)


def _compose_changes_of_repeated_keys(rows: pa.Table, model: MergeModel) -> pa.Table:
    """Composed changes of keys that occur several times. Rows are sorted by group and, within a group, by delta."""
    group, seq = rows[_GROUP].to_numpy(), rows[_DELTA_INDEX].to_numpy()
    deleted = to_numpy_mask(rows[DELETED])
    last_delete_seq = np.full(int(group.max()) + 1, -1, np.int64)
    np.maximum.at(last_delete_seq, group[deleted], seq[deleted])
    gone = rows.filter(pa.array(deleted))
    gone = gone.filter(
        pa.array(_group_start_mask(gone[_GROUP].to_numpy()))
    )  # the first deletion describes the state before all changes
    alive = rows.filter(pa.array(~deleted & (seq >= last_delete_seq[group])))
    if not alive.num_rows:
        return gone.drop_columns([_GROUP])
    best = _greatest_row_per_group(alive, model.order_by)
    for column, function in model.combine if isinstance(model, Keyed) else ():
        combined = _combine_per_group(alive, column, function)
        best = best.set_column(best.schema.get_field_index(column), best.schema.field(column), combined)
    return pa.concat_tables([gone, best]).drop_columns([_GROUP])


def _greatest_row_per_group(rows: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """Greatest row of each group by ``order_by``, and the last of several such rows, in group order."""
    if order_by:
        rows = rows.take(_group_sort_indices(rows, order_by))
    group = rows[_GROUP].to_numpy()
    return rows.filter(pa.array(np.append(group[1:] != group[:-1], True)))


def _group_sort_indices(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Sort indices by group and then by columns in Spark's order: nulls are smallest, NaN is greatest."""
    by: dict[str, Any] = {"g": rows[_GROUP]}
    for n, column in enumerate(columns):
        values = rows[column]
        by[f"v{n}"] = pc.is_valid(values)
        if pa.types.is_floating(values.type):
            by[f"n{n}"] = pc.fill_null(pc.is_nan(values), False)
            values = pc.if_else(by[f"n{n}"], pa.scalar(0.0, values.type), values)
        by[f"x{n}"] = values
    by["p"] = pa.array(np.arange(rows.num_rows))
    return pc.sort_indices(pa.table(by), sort_keys=[(name, "ascending") for name in by])


def _combine_per_group(rows: pa.Table, column: str, combiner: str) -> pa.Array:
    """Combined value of each group, in group order. Nulls are ignored."""
    type_ = rows.schema.field(column).type
    some = rows.select([_GROUP, column]).filter(pc.is_valid(rows[column]))
    groups = rows[_GROUP].to_numpy()
    all_groups = groups[_group_start_mask(groups)]
    if combiner == "sum":
        found, of = _sum_per_group(some, column, type_)
    else:
        ranked = one_chunk(some.take(_group_sort_indices(some, [column])))
        group = ranked[_GROUP].to_numpy()
        edge = (
            _group_start_mask(group)
            if combiner in ("min", "bool_and")
            else np.append(_group_start_mask(group)[1:], True)
        )
        chosen = ranked.filter(pa.array(edge[: len(group)]))
        found, of = chosen[column].combine_chunks(), chosen[_GROUP].to_numpy()
    places = np.searchsorted(of, all_groups)
    there = np.zeros(len(all_groups), np.bool_)
    inside = places < len(of)
    there[inside] = of[places[inside]] == all_groups[inside]
    return found.take(pa.array(places, mask=~there))


def _sum_per_group(rows: pa.Table, column: str, result_type: pa.DataType) -> tuple[pa.Array, RowIndices]:
    group = rows[_GROUP].to_numpy()
    starts = np.flatnonzero(_group_start_mask(group))
    of = group[starts]
    if not len(starts):
        return pa.array([], result_type), of
    if pa.types.is_decimal(result_type):
        if _may_overflow_decimal(rows[column], starts, result_type):
            return _sum_decimals_exactly(rows[column], starts, result_type, column), of
        summed = rows.group_by(_GROUP).aggregate([(column, "sum")]).sort_by(_GROUP)
        return _cast_sums(summed[f"{column}_sum"].combine_chunks(), result_type, column), of
    values = rows[column].to_numpy()
    rough = np.add.reduceat(values.astype(np.float64), starts)
    if pa.types.is_floating(result_type):
        return pa.array(rough).cast(result_type, safe=False), of
    ends = np.append(starts[1:], len(values))
    for n in np.flatnonzero(np.abs(rough) > _MAX_SAFE_SUM):
        exact = sum(map(int, values[starts[n] : ends[n]]))
        if not -(2**63) <= exact < 2**63:
            raise OverflowError(f"a sum of column {column!r} is too large for {result_type}")
    return _cast_sums(pa.array(np.add.reduceat(values.astype(np.int64), starts)), result_type, column), of


def _may_overflow_decimal(values: pa.ChunkedArray, group_starts: RowIndices, decimal_type: pa.DataType) -> bool:
    """Whether a group may have a sum of more than 38 digits, at which Arrow's decimal sums wrap around."""
    rough = np.add.reduceat(np.abs(values.cast(pa.float64()).to_numpy()), group_starts)
    return bool((rough >= 0.99 * 10.0 ** (38 - decimal_type.scale)).any())


def _sum_decimals_exactly(
    values: pa.ChunkedArray, group_starts: RowIndices, decimal_type: pa.DataType, column: str
) -> pa.Array:
    numbers, ends = values.to_pylist(), [*group_starts[1:].tolist(), len(values)]
    with localcontext() as context:
        context.prec = 76  # enough for sums of 38-digit values over any number of rows
        sums = [sum(numbers[a:b], start=Decimal(0)) for a, b in zip(group_starts.tolist(), ends, strict=True)]
    try:
        return pa.array(sums, decimal_type)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"a sum of column {column!r} is too large for {decimal_type}") from error


def _cast_sums(sums: pa.Array, result_type: pa.DataType, column: str) -> pa.Array:
    try:
        return sums.cast(result_type, safe=True)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"a sum of column {column!r} is too large for {result_type}") from error


def _group_start_mask(sorted_groups: RowIndices) -> Mask:
    """Mask of the first row of each group in a sorted column."""
    return np.append(True, sorted_groups[1:] != sorted_groups[:-1]) if len(sorted_groups) else np.zeros(0, np.bool_)
