"""Shared plans of several frames of a Spark Connect session. The client holds plans as Python objects.

A frame that is derived from another frame refers to the plan object of that frame, so a shared plan is the same object
in both frames. The client does not know whether a function is deterministic. Every shared plan is therefore cached,
except for plain file scans, which do not change. Plans do not show what frames share by name, through SQL or a view.
Such frames are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.plan import LogicalPlan

from nova_assets.errors import NotSupported

_REPEATABLE_PLANS = frozenset({"SubqueryAlias", "Hint", "Range", "LocalRelation", "CachedRemoteRelation"})
_FILE_FORMATS = frozenset({"parquet", "orc", "avro", "csv", "json", "text"})
_NAMED_SOURCE_PLANS = frozenset({"SQL", "Read"})


def find_shared_frames(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Frames of the largest plans that several of the given frames share, lowest plans first.

    Raises:
        NotSupported: several frames read a source by name, each one separately.
    """
    outputs: dict[int, set[int]] = {}
    parents: dict[int, set[int]] = {}
    plans: dict[int, LogicalPlan] = {}
    for n, frame in enumerate(frames):
        for plan, parent in _walk_with_parents(frame._plan, None):
            plans[id(plan)] = plan
            outputs.setdefault(id(plan), set()).add(n)
            parents.setdefault(id(plan), set()).add(id(parent))

    def is_covered_by_parents(plan: int) -> bool:
        return all(p in outputs and outputs[p] == outputs[plan] for p in parents[plan])

    outputs_with_named_sources = [
        n for p, of in outputs.items() if len(of) == 1 and type(plans[p]).__name__ in _NAMED_SOURCE_PLANS for n in of
    ]
    if len(set(outputs_with_named_sources)) > 1:
        raise NotSupported(
            "several outputs of a task read views or SQL separately; on Spark Connect, nova cannot tell whether "
            "one evaluation would produce them all (R4)",
            next="read the view once, as a frame from which the outputs are derived; or declare "
            "@nova.task(..., deterministic=True) if a second evaluation gives the same rows",
        )
    shared_plans = [
        plans[p]
        for p, of in outputs.items()
        if len(of) > 1 and not is_covered_by_parents(p) and not _is_repeatable(plans[p])
    ]
    return [DataFrame(p, frames[0].sparkSession) for p in sorted(shared_plans, key=_plan_height)]


def _walk_with_parents(
    plan: LogicalPlan, parent: LogicalPlan | None
) -> Iterator[tuple[LogicalPlan, LogicalPlan | None]]:
    yield plan, parent
    for child in _child_plans(plan):
        yield from _walk_with_parents(child, plan)


def _child_plans(plan: LogicalPlan) -> list[LogicalPlan]:
    """All plans inside a plan: children, sides of a join, and subqueries."""
    children: list[LogicalPlan] = []
    for value in vars(plan).values():
        values: Any = value if isinstance(value, list | tuple) else [value]
        children += [v for v in values if isinstance(v, LogicalPlan)]
    return list({id(p): p for p in children}.values())


def _plan_height(plan: LogicalPlan) -> int:
    return 1 + max(map(_plan_height, _child_plans(plan)), default=0)


def _is_repeatable(plan: LogicalPlan) -> bool:
    if type(plan).__name__ == "DataSource":
        source: Any = plan
        return bool(source._paths) and source._format in _FILE_FORMATS
    return type(plan).__name__ in _REPEATABLE_PLANS and all(map(_is_repeatable, _child_plans(plan)))
