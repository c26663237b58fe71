"""Merge and chain of one bucket, in Arrow: the same as ``engine/merge`` says for Spark, for rows that fit into memory.

All tables come and go sorted by the key, of one key the deletion before the live row.
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
)
from nova_assets.model.merge import Keyed, MergeModel
from nova_assets.model.schema import DELETED

_MAX_SAFE_SUM = 2.0**62
"""Up to here a sum of whole numbers fits into 64 bits, however rough it is; beyond, it is computed exactly."""


def compose_deltas(deltas: Sequence[pa.Table], model: MergeModel, key_columns: Sequence[str]) -> pa.Table:
    """All changes of each key, composed: at most one deletion and one live row per key (R11).

    Args:
        deltas: in their order, with the same columns, ``_deleted`` among them.
        key_columns: the columns of the model's key, in the order by which rows are sorted.
    """
    if len(deltas) == 1:
        return deltas[0]
    rows = one_chunk(pa.concat_tables(deltas, promote_options="permissive"))
    places = np.repeat(np.arange(len(deltas)), [d.num_rows for d in deltas])
    rows = rows.append_column(_SEQ, pa.array(places))
    rows = one_chunk(sort_by_key(rows, key_columns))  # stable: of one key in the order of the deltas
    if not model.combines:
        return rows.filter(pa.array(last_of_key_mask(rows, key_columns))).drop_columns([_SEQ])
    return _compose_per_key(rows, model, key_columns).drop_columns([_SEQ])


def merge_changes(base: pa.Table, changes: pa.Table, model: MergeModel, key_columns: Sequence[str]) -> pa.Table:
    """A base with changes on top.

    Args:
        base: each key once.
        changes: folded, with the base's columns and ``_deleted``.
        key_columns: as for ``fold``.
    """
    base, changes = one_chunk(base), one_chunk(changes)
    first_change_per_key = changes.filter(pa.array(first_of_key_mask(changes, key_columns)))
    places, found = find_key_positions(base, first_change_per_key, key_columns)
    changed_base_rows = places[found]
    if model.combines and len(changed_base_rows):
        before = base.take(pa.array(changed_base_rows))
        changes = compose_deltas([_as_insert_changes(before, changes.schema), changes], model, key_columns)
        first_change_per_key = changes.filter(pa.array(first_of_key_mask(changes, key_columns)))
        places, _ = find_key_positions(base, first_change_per_key, key_columns)
    alive = pc.invert(changes[DELETED])
    live = changes.filter(alive).select(base.column_names)
    spread = np.cumsum(first_of_key_mask(changes, key_columns)) - 1  # of each change, which of the keys it has
    return _merge_sorted_rows(base, live, places[spread[_to_numpy_mask(alive)]], changed_base_rows)


def drop_deletions(changes: pa.Table) -> pa.Table:
    """What a change leaves of nothing: its live rows."""
    return changes.filter(pc.invert(changes[DELETED])).drop_columns([DELETED])


_SEQ = "__nova_seq"
_GROUP = "__nova_group"


def _as_insert_changes(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    marked = rows.append_column(pa.field(DELETED, pa.bool_(), False), pa.repeat(pa.scalar(False), rows.num_rows))
    return marked.select(schema.names).cast(schema)


def _merge_sorted_rows(
    base: pa.Table, live_rows: pa.Table, insert_positions: RowIndices, removed_rows: RowIndices
) -> pa.Table:
    """The base without some rows, and live rows each before the place that it was searched for."""
    keep = np.ones(base.num_rows, np.bool_)
    keep[removed_rows] = False
    rows = one_chunk(pa.concat_tables([base, live_rows.cast(base.schema)]))
    order = np.insert(np.arange(base.num_rows), insert_positions, base.num_rows + np.arange(live_rows.num_rows))
    kept = np.insert(keep, insert_positions, True)
    return rows.take(pa.array(order[kept]))


def _compose_per_key(rows: pa.Table, model: MergeModel, key_columns: Sequence[str]) -> pa.Table:
    """Changes of several deltas under a model that combines; keys that occur once are as they were."""
    first = first_of_key_mask(rows, key_columns)
    group = np.cumsum(first) - 1
    occurs_once = np.bincount(group, minlength=1)[group] == 1 if rows.num_rows else np.zeros(0, np.bool_)
    if occurs_once.all():
        return rows
    several = rows.filter(pa.array(~occurs_once)).append_column(_GROUP, pa.array(group[~occurs_once]))
    found = _compose_repeated_keys(several, model)
    back = pa.concat_tables([rows.filter(pa.array(occurs_once)), found.select(rows.column_names).cast(rows.schema)])
    live_last = back.take(pc.array_sort_indices(pc.invert(back[DELETED]).cast(pa.int8())))  # deletions first, stable
    return sort_by_key(one_chunk(live_last), key_columns)


def _compose_repeated_keys(rows: pa.Table, model: MergeModel) -> pa.Table:
    """The changes of keys that occur several times, sorted by group and, within it, by delta."""
    group, seq = rows[_GROUP].to_numpy(), rows[_SEQ].to_numpy()
    deleted = _to_numpy_mask(rows[DELETED])
    last_delete_seq = np.full(int(group.max()) + 1, -1, np.int64)
    np.maximum.at(last_delete_seq, group[deleted], seq[deleted])
    gone = rows.filter(pa.array(deleted))
    gone = gone.filter(
        pa.array(_group_start_mask(gone[_GROUP].to_numpy()))
    )  # the first: it tells what there was before
    alive = rows.filter(pa.array(~deleted & (seq >= last_delete_seq[group])))
    if not alive.num_rows:
        return gone.drop_columns([_GROUP])
    best = _greatest_row_per_group(alive, model.order_by)
    for column, function in model.combine if isinstance(model, Keyed) else ():
        combined = _combine_per_group(alive, column, function)
        best = best.set_column(best.schema.get_field_index(column), best.schema.field(column), combined)
    return pa.concat_tables([gone, best]).drop_columns([_GROUP])


def _greatest_row_per_group(rows: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """Of each group the row that is greatest by ``order_by``, and of several the last; in the order of the groups."""
    if order_by:
        rows = rows.take(_group_sort_indices(rows, order_by))
    group = rows[_GROUP].to_numpy()
    return rows.filter(pa.array(np.append(group[1:] != group[:-1], True)))


def _group_sort_indices(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Rows by group and then by columns, as Spark orders them: nulls least, and NaN greatest."""
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
    """One value for each group, in their order: nulls are passed over."""
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
            raise OverflowError(f"a sum of column {column!r} is too great for {result_type}")
    return _cast_sums(pa.array(np.add.reduceat(values.astype(np.int64), starts)), result_type, column), of


def _may_overflow_decimal(values: pa.ChunkedArray, group_starts: RowIndices, decimal_type: pa.DataType) -> bool:
    """Whether a group may have a sum of more than 38 digits, at which Arrow's sums of decimals wrap round."""
    rough = np.add.reduceat(np.abs(values.cast(pa.float64()).to_numpy()), group_starts)
    return bool((rough >= 0.99 * 10.0 ** (38 - decimal_type.scale)).any())


def _sum_decimals_exactly(
    values: pa.ChunkedArray, group_starts: RowIndices, decimal_type: pa.DataType, column: str
) -> pa.Array:
    numbers, ends = values.to_pylist(), [*group_starts[1:].tolist(), len(values)]
    with localcontext() as context:
        context.prec = 76  # of 38 digits each, more than there can be rows
        sums = [sum(numbers[a:b], start=Decimal(0)) for a, b in zip(group_starts.tolist(), ends, strict=True)]
    try:
        return pa.array(sums, decimal_type)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"a sum of column {column!r} is too great for {decimal_type}") from error


def _cast_sums(sums: pa.Array, result_type: pa.DataType, column: str) -> pa.Array:
    try:
        return sums.cast(result_type, safe=True)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"a sum of column {column!r} is too great for {result_type}") from error


def _group_start_mask(sorted_groups: RowIndices) -> Mask:
    """Where a sorted column begins anew."""
    return np.append(True, sorted_groups[1:] != sorted_groups[:-1]) if len(sorted_groups) else np.zeros(0, np.bool_)


def _to_numpy_mask(values: Any) -> Mask:
    found: Mask = values.to_numpy()
    return found
