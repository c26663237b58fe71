"""Merge and chain on Spark: execution of the merge models (``model/merge``).

The change that a delta makes to one key is a pair (deletion?, live row?), the deletion first. Pairs compose: the
deletion of the later pair overrides everything before it; otherwise the live rows are combined. ``compose_changes``
composes all changes of each key, for chain and merge alike. The base is never shuffled for a small delta, and no window
runs over it: an anti-join with the keys of the delta yields its untouched rows (DESIGN §6).

Windows over the *deltas* were measured against one list of changes per key with higher-order functions. Windows take
half the time, and there is no list that could exceed memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as t

from nova_assets.engine.rows.spark_columns import col, maps_to_sorted_arrays, struct_of_columns
from nova_assets.model.function_reference import FunctionRef
from nova_assets.model.merge import Keyed, MergeModel
from nova_assets.model.schema import DELETED

DELTA_INDEX = "__nova_seq"
"""Index of the delta of a row, from 0 in order. Base rows precede all deltas."""

_BASE_INDEX = -1
ROW_COUNT = "__nova_rows"
_DIFFERENT = "__nova_different"
_LAST_DELETE = "__nova_cut"
_RANK = "__nova_rank"
_KEY = "__nova_key"
_LATER_DELTA_INDEX = "__nova_later"
_OVERALL = (Window.unboundedPreceding, Window.unboundedFollowing)

_COMBINE: Mapping[str, Callable[[Column], Column]] = {
    "sum": F.sum,
    "min": F.min,
    "max": F.max,
    "bool_and": F.bool_and,
    "bool_or": F.bool_or,
}


def merge_deltas(
    base: DataFrame, deltas: DataFrame, model: MergeModel, *, is_multi_delta: bool, broadcast_keys: bool
) -> DataFrame:
    """Base of a keyed channel after the deltas on top of it.

    Args:
        base: the base, one row per key.
        deltas: the base's columns, ``_deleted`` and, with several deltas, ``DELTA_INDEX``.
        is_multi_delta: whether the rows come from more than one delta.
        broadcast_keys: whether the keys of the deltas may be broadcast to every worker.
    """
    columns, key_columns = base.columns, list(model.key)
    keys = deltas.select(*map(col, key_columns))
    keys = F.broadcast(keys) if broadcast_keys else keys.hint("shuffle_hash")
    changes = deltas
    if model.needs_earlier_row:
        if not is_multi_delta:
            deltas = deltas.withColumn(DELTA_INDEX, F.lit(0))
        touched = base.join(keys, key_columns, "left_semi").select(
            *map(col, columns), F.lit(False).alias(DELETED), F.lit(_BASE_INDEX).alias(DELTA_INDEX)
        )
        changes = compose_changes(touched.union(deltas), model)
    elif is_multi_delta:
        changes = compose_changes(deltas, model)
    untouched = base.join(keys, key_columns, "left_anti").select(*map(col, columns))
    return untouched.union(drop_deletions(changes, columns))


def filter_superseded_rows(
    rows: DataFrame, changed_keys: DataFrame, model: MergeModel, columns: Sequence[str], may_be_changed: Column | None
) -> DataFrame:
    """Rows of a base and its deltas, in one frame, that no later delta changes.

    This is a merge for models in which the last change of a key decides and nothing is combined. It needs one scan and
    one join with a small table, without a shuffle or a window, so that later steps are computed during the scan. (A
    union of base and deltas would copy the rows first, which costs as much as the join.)

    Args:
        rows: the columns, and ``DELTA_INDEX``: the index of the delta for a live row of a delta, and a smaller value
            for other rows.
        changed_keys: keys of all rows of the deltas, with their ``DELTA_INDEX``; few enough to broadcast to every
            worker.
        columns: columns to return.
        may_be_changed: false for rows that have none of these keys, as far as this is known without a lookup; None if
            nothing is known.
    """
    keys = {k: f"{_KEY} {k}" for k in model.key}
    later_changes = changed_keys.select(
        *(col(k).alias(n) for k, n in keys.items()), col(DELTA_INDEX).alias(_LATER_DELTA_INDEX)
    )
    # A join skips null keys.
    key_or_null = {k: col(k) if may_be_changed is None else F.when(may_be_changed, col(k)) for k in keys}
    has_equal_key = reduce(Column.__and__, (key_or_null[k] == col(n) for k, n in keys.items()))
    return rows.join(
        F.broadcast(later_changes), has_equal_key & (col(DELTA_INDEX) < col(_LATER_DELTA_INDEX)), "left_anti"
    ).select(*map(col, columns))


def drop_deletions(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Live rows of a change: its result on an empty base."""
    return changes.filter(~col(DELETED)).select(*map(col, columns))


def compose_changes(rows: DataFrame, model: MergeModel) -> DataFrame:
    """All changes of each key, composed: at most one deletion and one live row per key, ``_deleted`` last (R11).

    If both the earlier and the later change of a key delete it, the row of the first deletion remains, because it
    describes the state before all changes.

    Args:
        rows: columns, ``_deleted`` and ``DELTA_INDEX``; per key and delta at most one deletion and one live row.
    """
    columns = [c for c in rows.columns if c not in (DELETED, DELTA_INDEX)]
    if not model.needs_earlier_row:
        latest_first = Window.partitionBy(*map(col, model.key)).orderBy(col(DELTA_INDEX).desc(), col(DELETED))
        last = rows.withColumn(_RANK, F.row_number().over(latest_first)).filter(col(_RANK) == 1)
        return last.select(*map(col, columns), col(DELETED))
    deleted, seq = col(DELETED), col(DELTA_INDEX)
    last_delete = F.max(F.when(deleted, seq)).over(Window.partitionBy(*map(col, model.key)))
    remaining = rows.withColumn(_LAST_DELETE, last_delete).filter(
        deleted | col(_LAST_DELETE).isNull() | (seq >= col(_LAST_DELETE))
    )
    rows_of_side = Window.partitionBy(*map(col, model.key), deleted)
    winner = rows_of_side.orderBy(
        *(F.when(~deleted, col(c)).desc_nulls_last() for c in model.order_by),
        F.when(deleted, seq).otherwise(-seq),  # the first deletion, the last live row
    )
    remaining = remaining.withColumn(_RANK, F.row_number().over(winner))
    for name, value in _combined_live_columns(rows.schema, model, rows_of_side).items():
        remaining = remaining.withColumn(name, value)
    return remaining.filter(col(_RANK) == 1).select(*(_merged_column(c, model) for c in columns), deleted)


def resolve_repeated_keys(rows: DataFrame, model: MergeModel) -> DataFrame:
    """Rows of one delta, reduced to the rows that a delta may hold: ``compose_changes`` with ``order_by`` as the order
    of arrival.

    Args:
        rows: columns and ``_deleted``.
    """
    if not model.order_by:
        return compose_changes(rows.withColumn(DELTA_INDEX, F.when(col(DELETED), 0).otherwise(1)), model)
    order = [col(c).asc_nulls_first() for c in model.order_by]
    place = F.row_number().over(Window.partitionBy(*map(col, model.key), col(DELETED)).orderBy(*order))
    return compose_changes(rows.withColumn(DELTA_INDEX, F.when(col(DELETED), 0).otherwise(place)), model)


def find_undecided_keys(rows: DataFrame, model: MergeModel) -> DataFrame:
    """Keys of which several live rows are greatest by ``order_by`` but differ in a column that needs a decision.

    The result has the key columns and the number of these rows (``ROW_COUNT``). Columns that are combined by a named
    combiner need no decision. Columns that are combined by a user function need a decision at every tie.
    """
    functions = dict(model.combine) if isinstance(model, Keyed) else {}
    live_rows = rows.filter(~col(DELETED))
    key, order = [col(k) for k in model.key], [col(c) for c in model.order_by]
    uncombined_values = struct_of_columns(c for c in rows.columns if c not in functions)
    greatest = Window.partitionBy(*key).orderBy(*(c.desc_nulls_last() for c in order))
    greatest_rows = live_rows.withColumn(_RANK, F.rank().over(greatest)).filter(col(_RANK) == 1).drop(_RANK)
    undecided_keys = _find_groups_with_differing_values(greatest_rows, key, key, uncombined_values)
    by_function = [c for c, f in functions.items() if f not in _COMBINE]
    if by_function:
        undecided_keys = undecided_keys.union(
            _find_groups_with_differing_values(live_rows, [*key, *order], key, struct_of_columns(by_function))
        )
    return undecided_keys.groupBy(*key).agg(F.max(ROW_COUNT).alias(ROW_COUNT))


def _find_groups_with_differing_values(
    rows: DataFrame, group_columns: Sequence[Column], key_columns: Sequence[Column], compared_value: Column
) -> DataFrame:
    value_type = rows.select(compared_value.alias("v")).schema["v"].dataType
    groups = rows.groupBy(*group_columns).agg(
        F.count_distinct(maps_to_sorted_arrays(compared_value, value_type)).alias(_DIFFERENT),
        F.count(F.lit(1)).alias(ROW_COUNT),
    )
    return groups.filter(col(_DIFFERENT) > 1).select(*key_columns, col(ROW_COUNT))


def _combined_live_columns(schema: t.StructType, model: MergeModel, key_window: WindowSpec) -> dict[str, Column]:
    """Helper columns with the combined live rows of a key, in the types of the original columns. Nulls are ignored."""
    combined = {}
    for column, function in model.combine if isinstance(model, Keyed) else ():
        value, type_ = F.when(~col(DELETED), col(column)), schema[column].dataType
        if function in _COMBINE:
            combined[_combined_column_name(column)] = _COMBINE[function](value).over(key_window).cast(type_)
        else:
            in_order = F.collect_list(value).over(key_window.orderBy(col(DELTA_INDEX)).rowsBetween(*_OVERALL))
            combined[_combined_column_name(column)] = _reduce_array(in_order, FunctionRef.parse(function).load(), type_)
    return combined


def _reduce_array(values: Column, combine: Callable[[Column, Column], Column], result_type: t.DataType) -> Column:
    def step(earlier: Column, later: Column) -> Column:
        return combine(earlier, later).cast(result_type)

    rest: Any = F.slice(values, 2, F.size(values))
    return F.when(F.size(values) > 0, F.aggregate(rest, F.get(values, F.lit(0)), step))


def _merged_column(column: str, model: MergeModel) -> Column:
    if isinstance(model, Keyed) and column in dict(model.combine):
        return F.when(col(DELETED), col(column)).otherwise(col(_combined_column_name(column))).alias(column)
    return col(column)


def _combined_column_name(column: str) -> str:
    return f"__nova_combined {column}"
