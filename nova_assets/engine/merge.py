"""Merge, chain and diff on Spark: what the merge models say (model/merge), carried out.

The change that a delta makes to one key is a pair (deletion?, live row?), the deletion first. Pairs compose: of two,
the later's deletion wins over everything before it; otherwise the live rows are combined. ``fold`` composes all changes
of a key, and serves chain and merge alike. The base is never shuffled for a small delta: its untouched rows are what is
left by an anti-join with the delta's keys (DESIGN §6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.columns import col, comparable, struct
from nova_assets.errors import UnrepresentableChange
from nova_assets.model.function import FunctionRef
from nova_assets.model.merge import Keyed, MergeModel
from nova_assets.model.schema import DELETED

SEQ = "__nova_seq"
"""Which delta a row is of, in order; base rows are of none, and come first."""

_COMBINE: dict[str, Callable[[Column, Column], Column]] = {
    "sum": lambda a, b: a + b,
    "min": lambda a, b: F.least(a, b),
    "max": lambda a, b: F.greatest(a, b),
    "bool_and": lambda a, b: a & b,
    "bool_or": lambda a, b: a | b,
}


def merge(base: DataFrame, deltas: DataFrame, model: MergeModel, several: bool, small: bool) -> DataFrame:
    """A base and the deltas on top of it, as a base.

    Args:
        deltas: with ``_deleted`` and ``SEQ`` where the channel is keyed.
        several: whether the rows are of more than one delta.
        small: whether the deltas' keys may be sent to every worker.
    """
    columns = base.columns
    if not model.keyed:
        return base.unionByName(deltas.select(*map(col, columns)))
    on = list(model.key)
    keys = deltas.select(*map(col, on)).distinct()
    keys = F.broadcast(keys) if small else keys.hint("shuffle_hash")
    changes = deltas
    if isinstance(model, Keyed) or model.order_by:
        touched = base.join(keys, on, "left_semi").withColumn(DELETED, F.lit(False)).withColumn(SEQ, F.lit(-1))
        changes = fold(touched.unionByName(deltas), model)
    elif several:
        changes = fold(deltas, model)
    live = changes.filter(~col(DELETED)).select(*map(col, columns))
    return base.join(keys, on, "left_anti").select(*map(col, columns)).unionByName(live)


def chain(deltas: DataFrame, model: MergeModel, several: bool) -> DataFrame:
    """Deltas in order, as one delta."""
    if not model.keyed or not several:
        return deltas.drop(SEQ)
    return fold(deltas, model)


def fold(rows: DataFrame, model: MergeModel) -> DataFrame:
    """All changes of each key, composed: at most one deletion and one live row per key (R11).

    Args:
        rows: with ``_deleted`` and ``SEQ``; per key and delta at most one deletion and one live row.
    """
    columns = [c for c in rows.columns if c != SEQ]
    keys = [col(k) for k in model.key]
    if not isinstance(model, Keyed) and not model.order_by:
        last = rows.groupBy(*keys).agg(F.max_by(struct(columns), col(SEQ)).alias("__row"))
        return last.select(*(col("__row").getField(c).alias(c) for c in columns))
    return _fold_lists(rows, model, columns, keys)


def _fold_lists(rows: DataFrame, model: MergeModel, columns: Sequence[str], keys: Sequence[Column]) -> DataFrame:
    """By key, the list of its changes; lists are as long as the path has deltas. Maps cannot be sorted by, so what is
    sorted is (SEQ, place), and rows are looked up by place."""
    grouped = rows.groupBy(*keys).agg(
        F.collect_list(F.struct(col(SEQ).alias("s"), col(DELETED).alias("d"), struct(columns).alias("r"))).alias(
            "__all"
        )
    )
    deleted = F.filter(col("__all"), lambda x: x["d"])
    cut = F.coalesce(F.array_max(F.transform(deleted, lambda x: x["s"])), F.lit(-2))
    step = grouped.withColumn("__cut", cut)
    last_deletion = F.filter(col("__all"), lambda x: x["d"] & (x["s"] == col("__cut")))
    step = step.withColumn("__gone", F.get(last_deletion, F.lit(0))["r"])
    step = step.withColumn("__live", F.filter(col("__all"), lambda x: ~x["d"] & (x["s"] >= col("__cut"))))
    # in the order in which they came
    step = step.withColumn(
        "__order", F.array_sort(F.transform(col("__live"), lambda x, i: F.struct(x["s"].alias("s"), i.alias("i"))))
    )
    step = step.withColumn("__live", F.transform(col("__order"), lambda o: F.get(col("__live"), o["i"])))
    winner = F.get(col("__live"), _winner(model))["r"]
    combined = dict(model.combine) if isinstance(model, Keyed) else {}
    types = {f.name: f.dataType for f in rows.schema.fields}
    fields = [
        (_combined(c, combined[c], types[c]) if c in combined else winner.getField(c)).alias(c)
        for c in columns
        if c != DELETED
    ]
    live = F.when(F.size(col("__live")) > 0, F.struct(*fields, F.lit(False).alias(DELETED)))
    gone = F.when(
        col("__gone").isNotNull(),
        F.struct(*(col("__gone").getField(c).alias(c) for c in columns if c != DELETED), F.lit(True).alias(DELETED)),
    )
    both = step.select(F.explode(F.filter(F.array(gone, live), lambda x: x.isNotNull())).alias("__row"))
    return both.select(*(col("__row").getField(c).alias(c) for c in columns))


def _winner(model: MergeModel) -> Column:
    """The place of the live row whose uncombined columns stay: the greatest by ``order_by``, the later at a tie."""
    if not model.order_by:
        return F.size(col("__live")) - 1

    def rank(x: Column, i: Column) -> Column:
        parts = [p for c in model.order_by for p in (x["r"].getField(c).isNotNull(), x["r"].getField(c))]
        return F.struct(*(p.alias(f"p{n}") for n, p in enumerate(parts)), i.alias("i"))

    return F.array_max(F.transform(col("__live"), rank))["i"]


def _combined(column: str, function: str, type_: Any) -> Column:
    """The live rows' values of one column, combined in order; nulls are passed over."""
    combine = _COMBINE.get(function) or FunctionRef.parse(function).load()

    def step(so_far: Column, x: Column) -> Column:
        value = x["r"].getField(column)
        both = combine(so_far, value).cast(type_)
        return F.when(so_far.isNull(), value).when(value.isNull(), so_far).otherwise(both)

    return F.aggregate(col("__live"), F.lit(None).cast(type_), step)


def diff(old: DataFrame, new: DataFrame, model: MergeModel) -> DataFrame:
    """What turns one snapshot of a keyed channel into another; deletions carry the old row's values."""
    on = list(model.key)
    columns = new.columns
    before = old.select(*map(col, on), struct(columns).alias("__old"))
    after = new.select(*map(col, on), struct(columns).alias("__new"))
    joined = before.join(after, on, "full_outer")
    types = new.schema
    same = comparable(col("__old"), types).eqNullSafe(comparable(col("__new"), types))

    def row(side: str, deleted: bool) -> Column:
        return F.struct(*(col(side).getField(c).alias(c) for c in columns), F.lit(deleted).alias(DELETED))

    gone_row = F.when(col("__old").isNotNull(), row("__old", True))
    live_row = F.when(col("__new").isNotNull(), row("__new", False))
    gone = F.when(_must_go(model), gone_row)
    rows = joined.filter(~same).select(
        F.explode(F.filter(F.array(gone, live_row), lambda x: x.isNotNull())).alias("__row")
    )
    return rows.select(*(col("__row").getField(c).alias(c) for c in [*columns, DELETED]))


def _must_go(model: MergeModel) -> Column:
    """Whether a key's old row is told as deleted: when it is gone, and when the new row alone would not displace
    it. Combined columns cannot say every change (R11); by ``order_by`` a lesser row would lose."""
    if isinstance(model, Keyed):
        return F.lit(True)
    if not model.order_by:
        return col("__new").isNull()

    def rank(side: str) -> Column:
        parts = [p for c in model.order_by for p in (col(side).getField(c).isNotNull(), col(side).getField(c))]
        return F.struct(*(p.alias(f"p{n}") for n, p in enumerate(parts)))

    return col("__new").isNull() | (rank("__new") < rank("__old"))


def bag_difference(old: DataFrame, new: DataFrame, channel: str, known_to_keep: bool) -> DataFrame:
    """The rows that came to an Append channel.

    Raises:
        UnrepresentableChange: rows have gone (R10).
    """
    counted = _counted(old, new)
    if not known_to_keep:
        lost = _lost(counted)
        if lost:
            raise UnrepresentableChange(
                f"channel {channel!r} is append-only, and a base dropped {lost} of its rows (R10)",
                found=f"{lost} rows are gone",
                expected="a base that keeps every row",
                next="declare the channel with merge=nova.Upsert(key=...), or read it as all",
                channel=channel,
                dropped=lost,
            )
    came = counted.filter(col("__n") > 0).select(
        F.explode(F.array_repeat(col("__row"), col("__n").cast("int"))).alias("__row")
    )
    return came.select(*(col("__row").getField(c).alias(c) for c in new.columns))


def dropped(old: DataFrame, new: DataFrame) -> int:
    """How many rows of ``old`` are not in ``new``, counted as bags."""
    return _lost(_counted(old, new))


def _counted(old: DataFrame, new: DataFrame) -> DataFrame:
    columns = new.columns
    tagged = new.select(struct(columns).alias("__row"), F.lit(1).alias("__side")).unionByName(
        old.select(struct(columns).alias("__row"), F.lit(-1).alias("__side"))
    )
    kind = new.select(struct(columns).alias("__row")).schema["__row"].dataType
    by = comparable(col("__row"), kind).alias("__by")
    return tagged.groupBy(by).agg(F.sum("__side").alias("__n"), F.first("__row").alias("__row"))


def _lost(counted: DataFrame) -> int:
    found = counted.filter(col("__n") < 0).agg(F.sum(-col("__n"))).first()
    return int(found[0] or 0) if found is not None else 0


def fold_functions(frames: Sequence[DataFrame], reference: str) -> DataFrame:
    """Frames combined by a user's function of two, left to right."""
    return reduce(FunctionRef.parse(reference).load(), frames)
