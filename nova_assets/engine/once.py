"""Several outputs of one task, from one evaluation (R4).

Frames are lazy: writing two that descend from one evaluates what they share twice, and a function that draws random
numbers, reads a clock, or takes any of several rows (``dropDuplicates``, ``limit``) gives something else each time. So
the plans that several outputs share are looked up and kept while the outputs are written; Spark puts the kept rows
wherever such a plan occurs, in frames that exist already, too. That is why the rows are *persisted*, not written aside:
a frame cannot be made to read something else than it was built on.

What is kept are the largest shared plans, and only those that might not give the same rows again. Reading files, and
what is computed from them by Spark's own deterministic functions row by row or by joining, is left alone: keeping the
snapshot of a large channel would cost more than it could mend.

Spark's Python interface shows no plans; this file, alone, asks the JVM for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from nova_assets.errors import NotSupported

# Operators that give the same rows for the same input, whatever the order and the partitions they come in.
_PLAIN = frozenset(
    "LogicalRelation LocalRelation OneRowRelation Range EmptyRelation Project Filter SubqueryAlias View Union Join "
    "ResolvedHint Distinct Except Intersect Expand Generate Sort Repartition RepartitionByExpression".split()
)
# These do where this engine wrote them (``fold``, ``diff``): nothing there is left to chance.
_OWN = frozenset({"Window", "Aggregate"})
_OWN_MARK = "__nova_"

# What an expression may hold and yet call itself deterministic.
_OPAQUE = (
    "PYTHON_UDF",
    "TRANSPILED_PYTHON_UDF",
    "SCALA_UDF",
    "EXTERNAL_UDF",
    "USER_DEFINED_AGGREGATION",
    "CURRENT_LIKE",
    "PLAN_EXPRESSION",
    "INVOKE",
)
_CTE = re.compile(r"CTERelation(Def|Ref) (\d+)")


@contextmanager
def one_evaluation(frames: Mapping[str, DataFrame]) -> Iterator[Mapping[str, DataFrame]]:
    """The frames, such that what several of them share is evaluated once while the block runs.

    Rows are kept in memory and spill to disk. A worker that is lost takes its part with it; what is evaluated again
    then is as deterministic as the task. Parts of a plan inside a correlated subquery are not found.

    Raises:
        NotSupported: on Spark Connect, which shows no plans.
    """
    given = list(frames.values())
    if any(not hasattr(f, "_jdf") for f in given):
        raise NotSupported(
            "a task with several outputs needs a classic Spark session: Spark Connect shows no plans, and without them "
            "the outputs could come from different evaluations (R4)",
            next="say @nova.task(..., deterministic=True) if evaluating twice gives the same rows, or give one output",
        )
    with ExitStack() as kept:
        for plan in shared_plans([f._jdf.queryExecution().analyzed() for f in given], _patterns(given[0])):
            frame = _frame_of(plan, given[0])
            frame.persist(StorageLevel.MEMORY_AND_DISK)
            kept.callback(frame.unpersist)
        yield frames


@dataclass
class _Shape:
    """Everything about the plans that are the same: in which outputs they occur, and below which others."""

    plan: Any
    height: int
    outputs: set[int] = field(default_factory=set)
    parents: set[int] = field(default_factory=set)


_ROOT = -1


def shared_plans(plans: list[Any], patterns: Mapping[str, Any]) -> list[Any]:
    """The plans to keep, lower ones first, so that those above are computed from what is kept.

    A shared plan needs no keeping by itself where it only occurs within one other that the same outputs share.
    """
    shapes: list[_Shape] = []
    by_hash: dict[int, list[int]] = {}
    for output, plan in enumerate(plans):
        _collect(plan, output, _ROOT, shapes, by_hash, patterns)
    found = [s for s in shapes if len(s.outputs) > 1 and not _covered(s, shapes) and _is_closed(s.plan)]
    return [s.plan for s in sorted(found, key=lambda s: s.height) if not _is_plain(s.plan, patterns)]


def _covered(shape: _Shape, shapes: list[_Shape]) -> bool:
    if len(shape.parents) > 1 or _ROOT in shape.parents:
        return False
    above = shapes[next(iter(shape.parents))]
    return above.outputs == shape.outputs and _is_closed(above.plan)


def _collect(
    plan: Any,
    output: int,
    parent: int,
    shapes: list[_Shape],
    by_hash: dict[int, list[int]],
    patterns: Mapping[str, Any],
) -> int:
    """Enter a plan and all below it. Gives its height."""
    alike = by_hash.setdefault(plan.semanticHash(), [])
    index = next((i for i in alike if shapes[i].plan.sameResult(plan)), None)
    if index is None:
        index = len(shapes)
        alike.append(index)
        shapes.append(_Shape(plan, 0))
    shape = shapes[index]
    shape.parents.add(parent)
    shape.outputs.add(output)
    below = [_collect(child, output, index, shapes, by_hash, patterns) for child in _children(plan, patterns)]
    shape.height = 1 + max(below, default=0)
    return shape.height


def _children(plan: Any, patterns: Mapping[str, Any]) -> list[Any]:
    below = _listed(plan.children())
    if plan.containsPattern(patterns["PLAN_EXPRESSION"]):
        inner = _listed(plan.subqueries())
        below += [p for p in inner if not p.containsPattern(patterns["OUTER_REFERENCE"])]
    return below


def _is_plain(plan: Any, patterns: Mapping[str, Any]) -> bool:
    """Whether a plan surely gives the same rows each time."""
    if not plan.deterministic() or any(plan.containsPattern(patterns[p]) for p in _OPAQUE if p in patterns):
        return False
    return all(_is_plain_operator(node) for node in _nodes(plan))


def _is_plain_operator(node: Any) -> bool:
    name = node.getClass().getSimpleName()
    return name in _PLAIN or (name in _OWN and _OWN_MARK in node.expressions().toString())


def _is_closed(plan: Any) -> bool:
    """Whether a plan can be computed by itself: it does not refer to a common table expression around it."""
    if "CTERelationRef" not in (text := plan.toString()):
        return True
    mentions: dict[str, set[str]] = {"Def": set(), "Ref": set()}
    for kind, number in _CTE.findall(text):
        mentions[kind].add(number)
    return mentions["Ref"] <= mentions["Def"]


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _listed(plan.children()):
        yield from _nodes(child)


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _patterns(frame: DataFrame) -> dict[str, Any]:
    """Spark's marks of what a plan contains, by name; those that this version of Spark has."""
    session: Any = frame.sparkSession
    marks = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    known = set(marks.values().mkString(" ").split())
    return {name: getattr(marks, name)() for name in (*_OPAQUE, "OUTER_REFERENCE") if name in known}


def _frame_of(plan: Any, like: DataFrame) -> DataFrame:
    session: Any = like.sparkSession
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(dataset, session)
