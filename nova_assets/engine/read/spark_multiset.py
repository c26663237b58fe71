"""Merge and chain of ``Multiset`` channels on Spark.

The change that deltas make to one row is a pair of numbers: how often the row is removed, and how often it is added
after that. A row that is there ``n`` times is there ``max(n - removed, 0) + added`` times afterwards. Two such changes
compose to one, so chain and merge obey the laws of R10, even if a delta removes a row that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from nova_assets.engine.read.spark_merge import DELTA_INDEX
from nova_assets.engine.rows.spark_columns import col, maps_to_sorted_arrays, repeat_rows, struct_of_columns
from nova_assets.model.schema import DELETED

_ROW, _EQUAL_ROWS = "__nova_row", "__nova_equal_rows"
_REMOVED, _ADDED = "__nova_removed", "__nova_added"
_PRESENT = "__nova_present"


def compose_row_changes(deltas: DataFrame, *, is_multi_delta: bool) -> DataFrame:
    """Each different row of the deltas once, with the numbers of equal rows that are removed and then added.

    Args:
        deltas: columns, ``_deleted`` and, with several deltas, ``DELTA_INDEX``.
        is_multi_delta: whether the rows come from more than one delta.
    """
    columns = [c for c in deltas.columns if c not in (DELETED, DELTA_INDEX)]
    index = [col(DELTA_INDEX)] if is_multi_delta else []
    is_deleted = col(DELETED).cast("bigint")
    by_delta = (
        _with_row(deltas, columns, is_deleted.alias(_REMOVED), (1 - is_deleted).alias(_ADDED), *index)
        .groupBy(_EQUAL_ROWS, *index)
        .agg(F.first(_ROW).alias(_ROW), F.sum(_REMOVED).alias(_REMOVED), F.sum(_ADDED).alias(_ADDED))
    )
    if not is_multi_delta:
        return by_delta
    earlier = Window.partitionBy(_EQUAL_ROWS).orderBy(DELTA_INDEX).rowsBetween(Window.unboundedPreceding, -1)
    growth = col(_ADDED) - col(_REMOVED)
    missing = col(_REMOVED) - F.coalesce(F.sum(growth).over(earlier), F.lit(0))  # rows that must come from the base
    removed = F.greatest(F.max("missing"), F.lit(0))
    return (
        by_delta.withColumn("missing", missing)
        .groupBy(_EQUAL_ROWS)
        .agg(F.first(_ROW).alias(_ROW), removed.alias(_REMOVED), (F.sum(growth) + removed).alias(_ADDED))
    )


def merge_row_changes(base: DataFrame, changes: DataFrame, *, broadcast_rows: bool) -> DataFrame:
    """Base after the changes.

    Args:
        base: the base.
        changes: result of ``compose_row_changes``.
        broadcast_rows: whether the changed rows may be broadcast to every worker.
    """
    columns = base.columns
    changed_rows = changes.select(_EQUAL_ROWS)
    changed_rows = F.broadcast(changed_rows) if broadcast_rows else changed_rows.hint("shuffle_hash")
    rows = _with_row(base, columns)
    untouched = rows.join(changed_rows, _EQUAL_ROWS, "left_anti").select(*_columns_of_row(columns))
    one, none = F.lit(1).cast("bigint"), F.lit(0).cast("bigint")
    touched = rows.join(changed_rows, _EQUAL_ROWS, "left_semi").select(
        _EQUAL_ROWS, _ROW, none.alias(_REMOVED), none.alias(_ADDED), one.alias(_PRESENT)
    )
    counts = (
        touched.union(changes.select(_EQUAL_ROWS, _ROW, _REMOVED, _ADDED, none.alias(_PRESENT)))
        .groupBy(_EQUAL_ROWS)
        .agg(F.first(_ROW).alias(_ROW), *(F.sum(c).alias(c) for c in (_REMOVED, _ADDED, _PRESENT)))
    )
    number = F.greatest(col(_PRESENT) - col(_REMOVED), none) + col(_ADDED)
    return untouched.union(repeat_rows(counts, _ROW, number, columns))


def added_rows(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Result of the changes on an empty base."""
    return repeat_rows(changes, _ROW, col(_ADDED), columns)


def to_delta_rows(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The changes as rows of one delta, with ``_deleted`` last."""
    removed = repeat_rows(changes, _ROW, col(_REMOVED), columns, F.lit(True).alias(DELETED))
    return removed.union(repeat_rows(changes, _ROW, col(_ADDED), columns, F.lit(False).alias(DELETED)))


def filter_equal_rows(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """Rows that equal some row of ``wanted``. Nulls are equal to nulls.

    Args:
        wanted: the same columns; others are ignored.
    """
    columns = rows.columns
    wanted_rows = _with_row(wanted.select(*map(col, columns)), columns).select(_EQUAL_ROWS)
    return _with_row(rows, columns).join(wanted_rows, _EQUAL_ROWS, "left_semi").select(*_columns_of_row(columns))


def _with_row(rows: DataFrame, columns: Sequence[str], *others: Column) -> DataFrame:
    """Each row as a struct, its comparable form, and other columns."""
    row = struct_of_columns(columns)
    comparable = maps_to_sorted_arrays(row, rows.select(*map(col, columns)).schema)
    return rows.select(comparable.alias(_EQUAL_ROWS), row.alias(_ROW), *others)


def _columns_of_row(columns: Sequence[str]) -> list[Column]:
    return [col(_ROW).getField(c).alias(c) for c in columns]
