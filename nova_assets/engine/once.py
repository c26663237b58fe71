"""Several outputs of one task, from one evaluation (R4).

Frames are lazy: writing two that descend from one evaluates what they share twice, and a function that draws random
numbers, reads a clock, or picks any of several rows gives something else each time. So the largest plans that the
outputs share are found in their analysed plans and kept while the outputs are written; Spark then puts the kept rows
wherever such a plan occurs. Its Python interface shows no plans, so this file, alone, asks the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from nova_assets.errors import NotSupported


@contextmanager
def one_evaluation(frames: Mapping[str, DataFrame]) -> Iterator[Mapping[str, DataFrame]]:
    """The frames, such that what they share is evaluated once while the block runs.

    Rows are kept in memory and spill to disk. A worker that is lost takes its part with it; what is evaluated again
    then is as deterministic as the task.

    Raises:
        NotSupported: on Spark Connect, which shows no plans.
    """
    given = list(frames.values())
    if any(not hasattr(f, "_jdf") or f._jdf is None for f in given):
        raise NotSupported(
            "several outputs of one task from one evaluation need a classic Spark session",
            next="say deterministic=True on the task if evaluating again gives the same rows, or use a classic one",
        )
    with ExitStack() as kept:
        for plan in shared_plans([f._jdf.queryExecution().analyzed() for f in given]):
            frame = _frame_of(plan, given[0])
            frame.persist(StorageLevel.MEMORY_AND_DISK)
            kept.callback(frame.unpersist, True)
        yield frames


def shared_plans(plans: list[Any]) -> list[Any]:
    """The largest plans that occur in more than one of these, and are more than the reading of a table."""
    found: list[Any] = []
    for n, plan in enumerate(plans):
        elsewhere = [node for other in plans[n + 1 :] for node in _nodes(other)]
        _collect(plan, _by_hash(elsewhere), found)
    return found


def _collect(plan: Any, elsewhere: dict[int, list[Any]], found: list[Any]) -> None:
    children = _children(plan)
    if not children:
        return
    if any(plan.sameResult(node) for node in elsewhere.get(plan.semanticHash(), ())):
        if not any(plan.sameResult(known) for known in found):
            found.append(plan)
        return
    for child in children:
        _collect(child, elsewhere, found)


def _by_hash(nodes: list[Any]) -> dict[int, list[Any]]:
    by: dict[int, list[Any]] = {}
    for node in nodes:
        if _children(node):
            by.setdefault(node.semanticHash(), []).append(node)
    return by


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _children(plan):
        yield from _nodes(child)


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(i) for i in range(children.size())]


def _frame_of(plan: Any, like: DataFrame) -> DataFrame:
    session: Any = like.sparkSession
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(dataset, session)
