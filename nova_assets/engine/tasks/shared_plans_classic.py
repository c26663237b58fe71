"""Which plans several frames of a classic session share, by asking the JVM: Spark's Python interface shows no plans."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from nova_assets.engine.rows.spark_versions import datasets

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


def shared_frames(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Frames of the largest plans that several of these share and that might not give the same rows twice.

    Lower ones come first, so that those above are computed from what is kept. Parts of a plan inside a correlated
    subquery are not found.
    """
    first: Any = frames[0]
    plans = [f._jdf.queryExecution().analyzed() for f in frames]
    return [_frame_of(p, first) for p in shared_plans(plans, _patterns(first))]


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
    return DataFrame(datasets(session).ofRows(session._jsparkSession, plan), session)
