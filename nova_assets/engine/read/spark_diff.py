"""Diff on Spark: the change from one snapshot to another, for keyed channels and for channels without a key."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.rows.spark_columns import col, maps_to_sorted_arrays, repeat_rows, struct_of_columns
from nova_assets.errors import UnrepresentableChange
from nova_assets.model.merge import Keyed, MergeModel
from nova_assets.model.schema import DELETED

_OLD, _NEW, _COUNT, _ROW = "__nova_old", "__nova_new", "__nova_count", "__nova_row"
_REPEATED = "__nova_repeated"


def diff_snapshots(
    old: DataFrame, new: DataFrame, model: MergeModel, *, may_repeat_old_keys: bool = False
) -> DataFrame:
    """Change from one snapshot of a keyed channel to another, with ``_deleted`` last. Deletions carry the old row.

    Args:
        old, new: snapshots with the same columns. ``new`` has one row per key.
        may_repeat_old_keys: whether ``old`` may have several rows per key, because it was written under another key.
            Such a key is deleted, with one of its rows, and inserted again. So no row of it is left (R10, R11).
    """
    key_columns, columns = list(model.key), new.columns
    before = old.select(*map(col, key_columns), struct_of_columns(columns).alias(_OLD), F.lit(False).alias(_REPEATED))
    if may_repeat_old_keys:
        is_repeated = (F.count(F.lit(1)) > 1).alias(_REPEATED)
        before = before.groupBy(*map(col, key_columns)).agg(F.first(_OLD).alias(_OLD), is_repeated)
    after = new.select(*map(col, key_columns), struct_of_columns(columns).alias(_NEW))
    joined = before.join(after, key_columns, "full_outer")
    row_type = new.schema
    is_equal = maps_to_sorted_arrays(col(_OLD), row_type).eqNullSafe(maps_to_sorted_arrays(col(_NEW), row_type))
    is_repeated_key = F.coalesce(col(_REPEATED), F.lit(False))
    changed = joined.filter(~is_equal | is_repeated_key)
    is_live = col(_NEW).isNotNull()
    is_deleted = col(_OLD).isNotNull() & (~is_live | is_repeated_key | _needs_delete_before_insert(model))

    def change_row(side: str, deleted: bool) -> Column:
        return F.struct(*(col(side).getField(c).alias(c) for c in columns), F.lit(deleted).alias(DELETED))

    rows = F.array(F.when(is_deleted, change_row(_OLD, True)), F.when(is_live, change_row(_NEW, False)))
    change_rows = changed.select(F.explode(F.filter(rows, lambda r: r.isNotNull())).alias(_ROW))
    is_deletion = F.coalesce(col(_ROW).getField(DELETED), F.lit(False))
    return change_rows.select(*(col(_ROW).getField(c).alias(c) for c in columns), is_deletion.alias(DELETED))


def added_rows_or_raise(old: DataFrame, new: DataFrame, channel_name: str, *, assume_none_removed: bool) -> DataFrame:
    """Rows that were added to an Append channel, each as often as it was added.

    Args:
        assume_none_removed: whether it is known that no row was removed.

    Raises:
        UnrepresentableChange: rows were removed (R10). A Spark job checks this immediately.
    """
    count_changes = _row_count_changes(old, new)
    removed_rows = 0 if assume_none_removed else _count_removals(count_changes)
    if removed_rows:
        raise UnrepresentableChange(
            f"channel {channel_name!r} is append-only, and a base dropped {removed_rows} of its rows (R10)",
            found=f"{removed_rows} rows of the older snapshot are not in the newer one",
            expected="a base that keeps every row",
            next="declare the channel with merge=nova.Upsert(key=...), or read it as all",
            channel=channel_name,
            dropped=removed_rows,
        )
    return repeat_rows(count_changes, _ROW, col(_COUNT), new.columns)


def diff_multisets(old: DataFrame, new: DataFrame) -> DataFrame:
    """Change from one snapshot of a ``Multiset`` channel to another, with ``_deleted`` last."""
    changes = _row_count_changes(old, new)
    return repeat_rows(changes, _ROW, F.abs(_COUNT), new.columns, (col(_COUNT) < 0).alias(DELETED))


def count_removed_rows(old: DataFrame, new: DataFrame) -> int:
    """Number of rows of ``old`` that are not in ``new``, with duplicates counted."""
    return _count_removals(_row_count_changes(old, new))


def _needs_delete_before_insert(model: MergeModel) -> Column:
    """Whether a key's new row would not simply replace its old row.

    Combined columns cannot express every change, so a changed row is deleted and inserted again (R11). With
    ``order_by``, a lesser new row would lose against the old row.
    """
    if isinstance(model, Keyed):
        return F.lit(True)
    if not model.order_by:
        return F.lit(False)
    return _order_by_rank(_NEW, model) < _order_by_rank(_OLD, model)


def _order_by_rank(side: str, model: MergeModel) -> Column:
    """Rank of a row by ``order_by``; nulls are smallest."""
    values = [col(side).getField(c) for c in model.order_by]
    return F.struct(*(p.alias(f"p{n}") for n, p in enumerate(x for v in values for x in (v.isNotNull(), v))))


def _row_count_changes(old: DataFrame, new: DataFrame) -> DataFrame:
    """Each distinct row with its count in ``new`` minus its count in ``old``."""
    columns = new.columns
    counted_sides = [
        f.select(struct_of_columns(columns).alias(_ROW), F.lit(n).alias(_COUNT)) for f, n in ((new, 1), (old, -1))
    ]
    comparable_row = maps_to_sorted_arrays(col(_ROW), new.schema).alias("by")
    return (
        counted_sides[0]
        .union(counted_sides[1])
        .groupBy(comparable_row)
        .agg(F.sum(_COUNT).alias(_COUNT), F.first(_ROW).alias(_ROW))
    )


def _count_removals(count_changes: DataFrame) -> int:
    found = count_changes.filter(col(_COUNT) < 0).agg(F.sum(-col(_COUNT))).first()
    return int(found[0] or 0) if found is not None else 0
