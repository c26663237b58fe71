"""Merge models that break a law, and the functions that they are made of."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

import nova_assets as nova

DDL = "k bigint, v bigint"

# A right model: the later value of a key wins, and a negative value deletes it.


def merge(base: Any, delta: Any) -> Any:
    kept = base.join(delta.select("k"), "k", "left_anti")
    return kept.unionByName(delta.filter("v >= 0"))


def chain(first: Any, then: Any) -> Any:
    return first.join(then.select("k"), "k", "left_anti").unionByName(then)


def diff(old: Any, new: Any) -> Any:
    gone = old.join(new.select("k"), "k", "left_anti").withColumn("v", F.lit(-1).cast("bigint"))
    return gone.unionByName(new.exceptAll(old))


# Faulty ones.


def chain_that_keeps_the_first(first: Any, then: Any) -> Any:
    return then.join(first.select("k"), "k", "left_anti").unionByName(first)


def chain_that_keeps_both(first: Any, then: Any) -> Any:
    return first.unionByName(then)


def chain_that_drops_deletions(first: Any, then: Any) -> Any:
    return chain(first, then).filter("v >= 0")


def chain_that_forgets_the_first(first: Any, then: Any) -> Any:
    return then


def chain_that_averages(first: Any, then: Any) -> Any:
    """Merging does not look at ``w``: only that the chain is not associative shows it."""
    both = first.unionByName(then)
    weights = both.groupBy("k").agg(F.avg("w").alias("w"))
    return chain(first, then).drop("w").join(weights, "k")


def chain_that_counts(first: Any, then: Any) -> Any:
    """The same: how often it was called is in the delta, and depends on where the parentheses are."""
    return chain(first, then).withColumn("w", F.lit(1.0) + 2 * F.col("w"))


def merge_without_weight(base: Any, delta: Any) -> Any:
    return merge(base, delta.select("k", "v"))


def diff_with_weight(old: Any, new: Any) -> Any:
    return diff(old, new).withColumn("w", F.lit(1.0))


def merge_that_keeps_the_old(base: Any, delta: Any) -> Any:
    return base.unionByName(delta.join(base.select("k"), "k", "left_anti"))


def merge_that_forgets_the_base(base: Any, delta: Any) -> Any:
    return delta.filter("v >= 0")


def merge_that_adds(base: Any, delta: Any) -> Any:
    """Right beside a chain that adds, too; here the chain keeps the last."""
    return base.unionByName(delta).groupBy("k").agg(F.sum("v").alias("v"))


def diff_without_deletions(old: Any, new: Any) -> Any:
    return new.exceptAll(old)


def diff_without_changes(old: Any, new: Any) -> Any:
    added = new.join(old.select("k"), "k", "left_anti")
    return added.unionByName(old.join(new.select("k"), "k", "left_anti").withColumn("v", F.lit(-1).cast("bigint")))


def diff_the_wrong_way_round(old: Any, new: Any) -> Any:
    return diff(new, old)


def diff_that_refuses(old: Any, new: Any) -> Any:
    raise ValueError("this model cannot tell what has changed")


@nova.associative
def subtract(earlier: Any, later: Any) -> Any:
    return earlier - later


@nova.associative
def average(earlier: Any, later: Any) -> Any:
    return ((earlier + later) / 2).cast("bigint")


@nova.associative
def rounded_sum(earlier: Any, later: Any) -> Any:
    return F.round((earlier + later) / 10) * 10


def custom(**other: Any) -> nova.Custom:
    return nova.Custom(**{"merge": merge, "chain": chain, "diff": diff, **other})


def weighted(chain: Any) -> nova.Custom:
    return nova.Custom(merge=merge_without_weight, chain=chain, diff=diff_with_weight)
