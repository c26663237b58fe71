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
    floats_as_integers,
    last_of_key_mask,
    one_chunk,
    sort_by_key,
    to_numpy_mask,
    to_single_array,
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
    delta_indexes = np.repeat(np.arange(len(deltas)), [d.num_rows for d in deltas])
    rows = rows.append_column(_DELTA_INDEX, pa.array(delta_indexes))
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
    positions, is_in_base = find_key_positions(base, first_change_per_key, key_columns)
    changed_base_rows = positions[is_in_base]
    if model.needs_earlier_row and len(changed_base_rows):
        changed_rows = with_deleted_column(base.take(pa.array(changed_base_rows)), False)
        as_change = changed_rows.select(changes.column_names).cast(changes.schema)
        changes = compose_deltas([as_change, changes], model, key_columns)
        first_change_per_key = changes.filter(pa.array(first_of_key_mask(changes, key_columns)))
        positions, _ = find_key_positions(base, first_change_per_key, key_columns)
    is_live = pc.invert(changes[DELETED])
    live_rows = changes.filter(is_live).select(base.column_names)
    key_number_of_change = np.cumsum(first_of_key_mask(changes, key_columns)) - 1  # index of each change's key
    return _merge_sorted_rows(
        base, live_rows, positions[key_number_of_change[to_numpy_mask(is_live)]], changed_base_rows
    )


def drop_deletions(changes: pa.Table) -> pa.Table:
    """Live rows of a change: its result on an empty base."""
    return changes.filter(pc.invert(changes[DELETED])).drop_columns([DELETED])


def with_deleted_column(rows: pa.Table, is_deleted: bool) -> pa.Table:
    """Rows as a change that deletes, or inserts, all of them."""
    return rows.append_column(DELETED, pa.repeat(pa.scalar(is_deleted), rows.num_rows))


_DELTA_INDEX = "__nova_seq"
_GROUP = "__nova_group"


def _merge_sorted_rows(
    base: pa.Table, live_rows: pa.Table, insert_positions: RowIndices, removed_rows: RowIndices
) -> pa.Table:
    """Base without the removed rows, with each live row inserted before its search position."""
    is_kept = np.ones(base.num_rows, np.bool_)
    is_kept[removed_rows] = False
    rows = one_chunk(pa.concat_tables([base, live_rows.cast(base.schema)]))
    row_order = np.insert(np.arange(base.num_rows), insert_positions, base.num_rows + np.arange(live_rows.num_rows))
    is_kept_in_order = np.insert(is_kept, insert_positions, True)
    return rows.take(pa.array(row_order[is_kept_in_order]))


def _compose_combining_changes(rows: pa.Table, model: MergeModel, key_columns: Sequence[str]) -> pa.Table:
    """Composed changes of several deltas under a combining model. Keys that occur once stay unchanged."""
    is_first_of_key = first_of_key_mask(rows, key_columns)
    key_number = np.cumsum(is_first_of_key) - 1
    occurs_once = np.bincount(key_number, minlength=1)[key_number] == 1 if rows.num_rows else np.zeros(0, np.bool_)
    if occurs_once.all():
        return rows
    repeated_rows = rows.filter(pa.array(~occurs_once)).append_column(_GROUP, pa.array(key_number[~occurs_once]))
    composed = _compose_changes_of_repeated_keys(repeated_rows, model)
    all_rows = pa.concat_tables(
        [rows.filter(pa.array(occurs_once)), composed.select(rows.column_names).cast(rows.schema)]
    )
    deletions_first = all_rows.take(
        pc.array_sort_indices(pc.invert(all_rows[DELETED]).cast(pa.int8()))
    )  # deletions first, stable
    return sort_by_key(one_chunk(deletions_first), key_columns)


def _compose_changes_of_repeated_keys(rows: pa.Table, model: MergeModel) -> pa.Table:
    """Composed changes of keys that occur several times. Rows are sorted by group and, within a group, by delta."""
    group, delta_index = rows[_GROUP].to_numpy(), rows[_DELTA_INDEX].to_numpy()
    deleted = to_numpy_mask(rows[DELETED])
    last_delete_seq = np.full(int(group.max()) + 1, -1, np.int64)
    np.maximum.at(last_delete_seq, group[deleted], delta_index[deleted])
    deletions = rows.filter(pa.array(deleted))
    deletions = deletions.filter(
        pa.array(_group_start_mask(deletions[_GROUP].to_numpy()))
    )  # the first deletion describes the state before all changes
    live_rows = rows.filter(pa.array(~deleted & (delta_index >= last_delete_seq[group])))
    if not live_rows.num_rows:
        return deletions.drop_columns([_GROUP])
    winning_rows = _greatest_row_per_group(live_rows, model.order_by)
    for column, function in model.combine if isinstance(model, Keyed) else ():
        combined = _combine_per_group(live_rows, column, function)
        winning_rows = winning_rows.set_column(
            winning_rows.schema.get_field_index(column), winning_rows.schema.field(column), combined
        )
    return pa.concat_tables([deletions, winning_rows]).drop_columns([_GROUP])


def _greatest_row_per_group(rows: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """Greatest row of each group by ``order_by``, and the last of several such rows, in group order."""
    if order_by:
        rows = rows.take(_group_sort_indices(rows, order_by))
    group = rows[_GROUP].to_numpy()
    return rows.filter(pa.array(np.append(group[1:] != group[:-1], True)))


def _group_sort_indices(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Sort indices by group and then by columns in Spark's order: nulls are smallest, NaN is greatest."""
    sort_columns: dict[str, Any] = {"g": rows[_GROUP]}
    for n, column in enumerate(columns):
        sort_columns[f"v{n}"] = pc.is_valid(rows[column])
        sort_columns[f"x{n}"] = floats_as_integers(to_single_array(rows[column]))
    sort_columns["p"] = pa.array(np.arange(rows.num_rows))
    return pc.sort_indices(pa.table(sort_columns), sort_keys=[(name, "ascending") for name in sort_columns])


def _combine_per_group(rows: pa.Table, column: str, combiner: str) -> pa.Array:
    """Combined value of each group, in group order. Nulls are ignored."""
    type_ = rows.schema.field(column).type
    non_null_rows = rows.select([_GROUP, column]).filter(pc.is_valid(rows[column]))
    groups = rows[_GROUP].to_numpy()
    all_groups = groups[_group_start_mask(groups)]
    if combiner == "sum":
        values, value_groups = _sum_per_group(non_null_rows, column, type_)
    else:
        sorted_rows = one_chunk(non_null_rows.take(_group_sort_indices(non_null_rows, [column])))
        group = sorted_rows[_GROUP].to_numpy()
        is_chosen = (
            _group_start_mask(group)
            if combiner in ("min", "bool_and")
            else np.append(_group_start_mask(group)[1:], True)
        )
        chosen_rows = sorted_rows.filter(pa.array(is_chosen[: len(group)]))
        values, value_groups = chosen_rows[column].combine_chunks(), chosen_rows[_GROUP].to_numpy()
    positions = np.searchsorted(value_groups, all_groups)
    has_value = np.zeros(len(all_groups), np.bool_)
    in_range = positions < len(value_groups)
    has_value[in_range] = value_groups[positions[in_range]] == all_groups[in_range]
    return values.take(pa.array(positions, mask=~has_value))


def _sum_per_group(rows: pa.Table, column: str, result_type: pa.DataType) -> tuple[pa.Array, RowIndices]:
    group = rows[_GROUP].to_numpy()
    starts = np.flatnonzero(_group_start_mask(group))
    group_numbers = group[starts]
    if not len(starts):
        return pa.array([], result_type), group_numbers
    if pa.types.is_decimal(result_type):
        if _may_overflow_decimal(rows[column], starts, result_type):
            return _sum_decimals_exactly(rows[column], starts, result_type, column), group_numbers
        summed = rows.group_by(_GROUP).aggregate([(column, "sum")]).sort_by(_GROUP)
        return _cast_sums(summed[f"{column}_sum"].combine_chunks(), result_type, column), group_numbers
    values = rows[column].to_numpy()
    estimates = np.add.reduceat(values.astype(np.float64), starts)
    if pa.types.is_floating(result_type):
        return pa.array(estimates).cast(result_type, safe=False), group_numbers
    ends = np.append(starts[1:], len(values))
    for n in np.flatnonzero(np.abs(estimates) > _MAX_SAFE_SUM):
        exact = sum(map(int, values[starts[n] : ends[n]]))
        if not -(2**63) <= exact < 2**63:
            raise OverflowError(f"a sum of column {column!r} is too large for {result_type}")
    return _cast_sums(pa.array(np.add.reduceat(values.astype(np.int64), starts)), result_type, column), group_numbers


def _may_overflow_decimal(values: pa.ChunkedArray, group_starts: RowIndices, decimal_type: pa.DataType) -> bool:
    """Whether a group may have a sum of more than 38 digits, at which Arrow's decimal sums wrap around."""
    estimates = np.add.reduceat(np.abs(values.cast(pa.float64()).to_numpy()), group_starts)
    return bool((estimates >= 0.99 * 10.0 ** (38 - decimal_type.scale)).any())


def _sum_decimals_exactly(
    values: pa.ChunkedArray, group_starts: RowIndices, decimal_type: pa.DataType, column: str
) -> pa.Array:
    decimals, ends = values.to_pylist(), [*group_starts[1:].tolist(), len(values)]
    with localcontext() as context:
        context.prec = 76  # enough for sums of 38-digit values over any number of rows
        sums = [sum(decimals[a:b], start=Decimal(0)) for a, b in zip(group_starts.tolist(), ends, strict=True)]
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
