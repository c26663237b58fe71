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

from nova_assets.engine.buckets.key_order import Mask, Places, firsts, lasts, one_chunk, search, sorted_by
from nova_assets.model.merge import Keyed, MergeModel
from nova_assets.model.schema import DELETED

_SURE = 2.0**62
"""Up to here a sum of whole numbers fits into 64 bits, however rough it is; beyond, it is computed exactly."""


def fold(deltas: Sequence[pa.Table], model: MergeModel, key: Sequence[str]) -> pa.Table:
    """All changes of each key, composed: at most one deletion and one live row per key (R11).

    Args:
        deltas: in their order, with the same columns, ``_deleted`` among them.
        key: the columns of the model's key, in the order by which rows are sorted.
    """
    if len(deltas) == 1:
        return deltas[0]
    rows = one_chunk(pa.concat_tables(deltas, promote_options="permissive"))
    places = np.repeat(np.arange(len(deltas)), [d.num_rows for d in deltas])
    rows = rows.append_column(_SEQ, pa.array(places))
    rows = one_chunk(sorted_by(rows, key))  # stable: of one key in the order of the deltas
    if not model.combines:
        return rows.filter(pa.array(lasts(rows, key))).drop_columns([_SEQ])
    return _composed(rows, model, key).drop_columns([_SEQ])


def merge(base: pa.Table, changes: pa.Table, model: MergeModel, key: Sequence[str]) -> pa.Table:
    """A base with changes on top.

    Args:
        base: each key once.
        changes: folded, with the base's columns and ``_deleted``.
        key: as for ``fold``.
    """
    base, changes = one_chunk(base), one_chunk(changes)
    each = changes.filter(pa.array(firsts(changes, key)))
    places, found = search(base, each, key)
    touched = places[found]
    if model.combines and len(touched):
        before = base.take(pa.array(touched))
        changes = fold([_as_live(before, changes.schema), changes], model, key)
        each = changes.filter(pa.array(firsts(changes, key)))
        places, _ = search(base, each, key)
    alive = pc.invert(changes[DELETED])
    live = changes.filter(alive).select(base.column_names)
    spread = np.cumsum(firsts(changes, key)) - 1  # of each change, which of the keys it has
    return _woven(base, live, places[spread[_mask(alive)]], touched)


def live(changes: pa.Table) -> pa.Table:
    """What a change leaves of nothing: its live rows."""
    return changes.filter(pc.invert(changes[DELETED])).drop_columns([DELETED])


_SEQ = "__nova_seq"
_GROUP = "__nova_group"


def _as_live(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    marked = rows.append_column(pa.field(DELETED, pa.bool_(), False), pa.repeat(pa.scalar(False), rows.num_rows))
    return marked.select(schema.names).cast(schema)


def _woven(base: pa.Table, live: pa.Table, places: Places, gone: Places) -> pa.Table:
    """The base without some rows, and live rows each before the place that it was searched for."""
    keep = np.ones(base.num_rows, np.bool_)
    keep[gone] = False
    rows = one_chunk(pa.concat_tables([base, live.cast(base.schema)]))
    order = np.insert(np.arange(base.num_rows), places, base.num_rows + np.arange(live.num_rows))
    kept = np.insert(keep, places, True)
    return rows.take(pa.array(order[kept]))


def _composed(rows: pa.Table, model: MergeModel, key: Sequence[str]) -> pa.Table:
    """Changes of several deltas under a model that combines; keys that occur once are as they were."""
    first = firsts(rows, key)
    group = np.cumsum(first) - 1
    alone = np.bincount(group, minlength=1)[group] == 1 if rows.num_rows else np.zeros(0, np.bool_)
    if alone.all():
        return rows
    several = rows.filter(pa.array(~alone)).append_column(_GROUP, pa.array(group[~alone]))
    found = _of_several(several, model)
    back = pa.concat_tables([rows.filter(pa.array(alone)), found.select(rows.column_names).cast(rows.schema)])
    live_last = back.take(pc.array_sort_indices(pc.invert(back[DELETED]).cast(pa.int8())))  # deletions first, stable
    return sorted_by(one_chunk(live_last), key)


def _of_several(rows: pa.Table, model: MergeModel) -> pa.Table:
    """The changes of keys that occur several times, sorted by group and, within it, by delta."""
    group, seq = rows[_GROUP].to_numpy(), rows[_SEQ].to_numpy()
    deleted = _mask(rows[DELETED])
    cut = np.full(int(group.max()) + 1, -1, np.int64)
    np.maximum.at(cut, group[deleted], seq[deleted])
    gone = rows.filter(pa.array(deleted))
    gone = gone.filter(pa.array(_changes(gone[_GROUP].to_numpy())))  # the first: it tells what there was before
    alive = rows.filter(pa.array(~deleted & (seq >= cut[group])))
    if not alive.num_rows:
        return gone.drop_columns([_GROUP])
    best = _winners(alive, model.order_by)
    for column, function in model.combine if isinstance(model, Keyed) else ():
        combined = _combined(alive, column, function)
        best = best.set_column(best.schema.get_field_index(column), best.schema.field(column), combined)
    return pa.concat_tables([gone, best]).drop_columns([_GROUP])


def _winners(rows: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """Of each group the row that is greatest by ``order_by``, and of several the last; in the order of the groups."""
    if order_by:
        rows = rows.take(_ranked(rows, order_by))
    group = rows[_GROUP].to_numpy()
    return rows.filter(pa.array(np.append(group[1:] != group[:-1], True)))


def _ranked(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
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


def _combined(rows: pa.Table, column: str, function: str) -> pa.Array:
    """One value for each group, in their order: nulls are passed over."""
    type_ = rows.schema.field(column).type
    some = rows.select([_GROUP, column]).filter(pc.is_valid(rows[column]))
    groups = rows[_GROUP].to_numpy()
    all_groups = groups[_changes(groups)]
    if function == "sum":
        found, of = _sums(some, column, type_)
    else:
        ranked = one_chunk(some.take(_ranked(some, [column])))
        group = ranked[_GROUP].to_numpy()
        edge = _changes(group) if function in ("min", "bool_and") else np.append(_changes(group)[1:], True)
        chosen = ranked.filter(pa.array(edge[: len(group)]))
        found, of = chosen[column].combine_chunks(), chosen[_GROUP].to_numpy()
    places = np.searchsorted(of, all_groups)
    there = np.zeros(len(all_groups), np.bool_)
    inside = places < len(of)
    there[inside] = of[places[inside]] == all_groups[inside]
    return found.take(pa.array(places, mask=~there))


def _sums(rows: pa.Table, column: str, type_: pa.DataType) -> tuple[pa.Array, Places]:
    group = rows[_GROUP].to_numpy()
    starts = np.flatnonzero(_changes(group))
    of = group[starts]
    if not len(starts):
        return pa.array([], type_), of
    if pa.types.is_decimal(type_):
        if _may_wrap(rows[column], starts, type_):
            return _exact_decimals(rows[column], starts, type_, column), of
        summed = rows.group_by(_GROUP).aggregate([(column, "sum")]).sort_by(_GROUP)
        return _as(summed[f"{column}_sum"].combine_chunks(), type_, column), of
    values = rows[column].to_numpy()
    rough = np.add.reduceat(values.astype(np.float64), starts)
    if pa.types.is_floating(type_):
        return pa.array(rough).cast(type_, safe=False), of
    ends = np.append(starts[1:], len(values))
    for n in np.flatnonzero(np.abs(rough) > _SURE):
        exact = sum(map(int, values[starts[n] : ends[n]]))
        if not -(2**63) <= exact < 2**63:
            raise OverflowError(f"a sum of column {column!r} is too great for {type_}")
    return _as(pa.array(np.add.reduceat(values.astype(np.int64), starts)), type_, column), of


def _may_wrap(values: pa.ChunkedArray, starts: Places, type_: pa.DataType) -> bool:
    """Whether a group may have a sum of more than 38 digits, at which Arrow's sums of decimals wrap round."""
    rough = np.add.reduceat(np.abs(values.cast(pa.float64()).to_numpy()), starts)
    return bool((rough >= 0.99 * 10.0 ** (38 - type_.scale)).any())


def _exact_decimals(values: pa.ChunkedArray, starts: Places, type_: pa.DataType, column: str) -> pa.Array:
    numbers, ends = values.to_pylist(), [*starts[1:].tolist(), len(values)]
    with localcontext() as context:
        context.prec = 76  # of 38 digits each, more than there can be rows
        sums = [sum(numbers[a:b], start=Decimal(0)) for a, b in zip(starts.tolist(), ends, strict=True)]
    try:
        return pa.array(sums, type_)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"a sum of column {column!r} is too great for {type_}") from error


def _as(values: pa.Array, type_: pa.DataType, column: str) -> pa.Array:
    try:
        return values.cast(type_, safe=True)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"a sum of column {column!r} is too great for {type_}") from error


def _changes(group: Places) -> Mask:
    """Where a sorted column begins anew."""
    return np.append(True, group[1:] != group[:-1]) if len(group) else np.zeros(0, np.bool_)


def _mask(values: Any) -> Mask:
    found: Mask = values.to_numpy()
    return found
