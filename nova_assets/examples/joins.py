"""A join kept up to date: of each side what is new, what was there before, and what is there now.

The join of two keyed channels changes where either side does. A pair is *gone* if it stood in the old join and one of
its rows was deleted or replaced; it has *come* if it stands in the new join and one of its rows is new. Nothing else of
the two channels is looked at twice: each part joins the changes of one side with the whole of the other.

    gone = (L.old ⋉ keys of L.new) ⋈ R.old  and  L.old ⋈ (R.old ⋉ keys of R.new)
    come = live(L.new) ⋈ R.all              and  L.all ⋈ live(R.new)
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import nova_assets as nova


def join_changes(
    left: nova.View, right: nova.View, on: Sequence[str], left_key: Sequence[str], right_key: Sequence[str]
) -> DataFrame:
    """What turns the old inner join into the new one, as a delta of a channel keyed by both keys.

    Args:
        left, right: keyed channels, consumed with ``nova.changes``.
        on: the columns that both have and that must be equal.
        left_key, right_key: their keys. Columns of the same name on both sides must be among ``on``.
    """
    key = list(dict.fromkeys((*left_key, *right_key)))
    gone = _pairs(_changed(left.old, left.new, left_key), right.old, on).unionByName(
        _pairs(left.old, _changed(right.old, right.new, right_key), on)
    )
    come = _pairs(_live(left.new), right.all, on).unionByName(_pairs(left.all, _live(right.new), on))
    come = come.dropDuplicates(key)
    deletions = gone.dropDuplicates(key).join(come.select(*key), key, "left_anti")
    return deletions.withColumn("_deleted", F.lit(True)).unionByName(come.withColumn("_deleted", F.lit(False)))


def _pairs(left: DataFrame, right: DataFrame, on: Sequence[str]) -> DataFrame:
    return left.join(right, list(on))


def _changed(old: DataFrame, new: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows that there were, of the keys that were deleted or given anew."""
    return old.join(new.select(*key).distinct(), list(key), "left_semi")


def _live(change: DataFrame) -> DataFrame:
    return change.filter("not _deleted").drop("_deleted")
