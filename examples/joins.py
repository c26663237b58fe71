"""Incremental inner join of two keyed channels.

A pair of rows is *removed* if the old join contains the pair, and one of its rows was deleted or replaced. A pair is
*added* if the new join contains the pair, and one of its rows is new. Each part of the computation joins the changes of
one side with all rows of the other side.

    removed = (L.old ⋉ keys of L.new) ⋈ R.old  and  L.old ⋈ (R.old ⋉ keys of R.new)
    added   = live(L.new) ⋈ R.all              and  L.all ⋈ live(R.new)
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import nova_assets as nova


def join_changes(
    left: nova.View, right: nova.View, on: Sequence[str], left_key: Sequence[str], right_key: Sequence[str]
) -> DataFrame:
    """Changes from the old inner join to the new one, as a delta of a channel keyed by both keys.

    Args:
        left, right: keyed channels, consumed with ``nova.changes``.
        on: columns of both sides that must be equal.
        left_key, right_key: keys of the channels. Columns with the same name on both sides must be in ``on``.
    """
    key = list(dict.fromkeys((*left_key, *right_key)))
    removed = _join_on(_old_rows_of_changed_keys(left.old, left.new, left_key), right.old, on).unionByName(
        _join_on(left.old, _old_rows_of_changed_keys(right.old, right.new, right_key), on)
    )
    added = _join_on(_without_deletions(left.new), right.all, on).unionByName(
        _join_on(left.all, _without_deletions(right.new), on)
    )
    added = added.dropDuplicates(key)
    deletions = removed.dropDuplicates(key).join(added.select(*key), key, "left_anti")
    return deletions.withColumn("_deleted", F.lit(True)).unionByName(added.withColumn("_deleted", F.lit(False)))


def _join_on(left: DataFrame, right: DataFrame, on: Sequence[str]) -> DataFrame:
    return left.join(right, list(on))


def _old_rows_of_changed_keys(old: DataFrame, new: DataFrame, key: Sequence[str]) -> DataFrame:
    """Old rows of the keys that were deleted or replaced."""
    return old.join(new.select(*key).distinct(), list(key), "left_semi")


def _without_deletions(change: DataFrame) -> DataFrame:
    return change.filter("not _deleted").drop("_deleted")
