"""Shared plans of several frames of a classic session, found through the JVM. Spark's Python interface does not expose
plans."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from nova_assets.engine.rows.spark_versions import jvm_dataset_class

# Operators that return the same rows for the same input, independent of row order and partitions.
_REPEATABLE_OPERATORS = frozenset(
    "LogicalRelation LocalRelation OneRowRelation Range EmptyRelation Project Filter SubqueryAlias View Union Join "
    "ResolvedHint Distinct Except Intersect Expand Generate Sort Repartition RepartitionByExpression".split()
)
# Repeatable if this engine built them (merge, diff): its windows and aggregates are deterministic.
_REPEATABLE_IF_OWN = frozenset({"Window", "Aggregate"})
_OWN_MARK = "__nova_"

# Expressions that Spark regards as deterministic although they might not be.
_UNTRUSTED_PATTERNS = (
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


def find_shared_frames(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Frames of the largest plans that several of the given frames share and that might return other rows on a second
    evaluation.

    Lower plans come first, so that higher plans are computed from the cached rows. Parts of a plan inside a correlated
    subquery are not found.
    """
    first: Any = frames[0]
    plans = [f._jdf.queryExecution().analyzed() for f in frames]
    return [_frame_of_plan(p, first) for p in find_shared_plans(plans, _tree_pattern_by_name(first))]


@dataclass
class _EqualPlans:
    """A group of equal plans: the outputs in which they occur, and their parents."""

    plan: Any
    height: int
    outputs: set[int] = field(default_factory=set)
    parents: set[int] = field(default_factory=set)


_ROOT = -1


def find_shared_plans(plans: list[Any], tree_patterns: Mapping[str, Any]) -> list[Any]:
    """Plans to cache, lowest plans first, so that higher plans are computed from the cached rows.

    A shared plan is skipped if it occurs only inside one other plan that the same outputs share.
    """
    plan_groups: list[_EqualPlans] = []
    by_hash: dict[int, list[int]] = {}
    for output, plan in enumerate(plans):
        _register_plan(plan, output, _ROOT, plan_groups, by_hash, tree_patterns)
    shared_groups = [
        s
        for s in plan_groups
        if len(s.outputs) > 1 and not _is_inside_shared_plan(s, plan_groups) and _is_self_contained(s.plan)
    ]
    return [s.plan for s in sorted(shared_groups, key=lambda s: s.height) if not _is_repeatable(s.plan, tree_patterns)]


def _is_inside_shared_plan(equal_plans: _EqualPlans, all_plans: list[_EqualPlans]) -> bool:
    if len(equal_plans.parents) > 1 or _ROOT in equal_plans.parents:
        return False
    parent = all_plans[next(iter(equal_plans.parents))]
    return parent.outputs == equal_plans.outputs and _is_self_contained(parent.plan)


def _register_plan(
    plan: Any,
    output_index: int,
    parent_index: int,
    all_plans: list[_EqualPlans],
    indexes_by_hash: dict[int, list[int]],
    tree_patterns: Mapping[str, Any],
) -> int:
    """Register a plan and all plans below it. Returns the height of the plan."""
    candidate_indexes = indexes_by_hash.setdefault(plan.semanticHash(), [])
    index = next((i for i in candidate_indexes if all_plans[i].plan.sameResult(plan)), None)
    if index is None:
        index = len(all_plans)
        candidate_indexes.append(index)
        all_plans.append(_EqualPlans(plan, 0))
    plan_group = all_plans[index]
    plan_group.parents.add(parent_index)
    plan_group.outputs.add(output_index)
    child_heights = [
        _register_plan(child, output_index, index, all_plans, indexes_by_hash, tree_patterns)
        for child in _child_plans(plan, tree_patterns)
    ]
    plan_group.height = 1 + max(child_heights, default=0)
    return plan_group.height


def _child_plans(plan: Any, tree_patterns: Mapping[str, Any]) -> list[Any]:
    children = _scala_seq_to_list(plan.children())
    if plan.containsPattern(tree_patterns["PLAN_EXPRESSION"]):
        subqueries = _scala_seq_to_list(plan.subqueries())
        children += [p for p in subqueries if not p.containsPattern(tree_patterns["OUTER_REFERENCE"])]
    return children


def _is_repeatable(plan: Any, tree_patterns: Mapping[str, Any]) -> bool:
    """Whether a plan certainly returns the same rows on each evaluation."""
    if not plan.deterministic() or any(
        plan.containsPattern(tree_patterns[p]) for p in _UNTRUSTED_PATTERNS if p in tree_patterns
    ):
        return False
    return all(_is_repeatable_operator(node) for node in _walk_plan(plan))


def _is_repeatable_operator(node: Any) -> bool:
    name = node.getClass().getSimpleName()
    return name in _REPEATABLE_OPERATORS or (name in _REPEATABLE_IF_OWN and _OWN_MARK in node.expressions().toString())


def _is_self_contained(plan: Any) -> bool:
    """Whether a plan can be computed alone: it does not refer to a common table expression outside the plan."""
    if "CTERelationRef" not in (text := plan.toString()):
        return True
    mentions: dict[str, set[str]] = {"Def": set(), "Ref": set()}
    for kind, number in _CTE.findall(text):
        mentions[kind].add(number)
    return mentions["Ref"] <= mentions["Def"]


def _walk_plan(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _scala_seq_to_list(plan.children()):
        yield from _walk_plan(child)


def _scala_seq_to_list(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _tree_pattern_by_name(frame: DataFrame) -> dict[str, Any]:
    """Spark's tree patterns by name, limited to the patterns of this Spark version."""
    session: Any = frame.sparkSession
    tree_pattern_class = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    pattern_names = set(tree_pattern_class.values().mkString(" ").split())
    return {
        name: getattr(tree_pattern_class, name)()
        for name in (*_UNTRUSTED_PATTERNS, "OUTER_REFERENCE")
        if name in pattern_names
    }


def _frame_of_plan(plan: Any, template_frame: DataFrame) -> DataFrame:
    session: Any = template_frame.sparkSession
    return DataFrame(jvm_dataset_class(session).ofRows(session._jsparkSession, plan), session)
