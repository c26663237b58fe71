"""Several outputs of one task, from one evaluation (R4).

Frames are lazy: writing two that descend from one evaluates what they share twice, and a function that draws random
numbers, reads a clock, or takes any of several rows (``dropDuplicates``, ``limit``) gives something else each time. So
the plans that several outputs share are looked up and kept while the outputs are written; Spark puts the kept rows
wherever such a plan occurs, in frames that exist already, too. That is why the rows are *persisted*, not written aside:
a frame cannot be made to read something else than it was built on.

What is kept are the largest shared plans, and only those that might not give the same rows again. Reading files, and
(where the session shows it) what is computed from them by Spark's own deterministic functions row by row or by joining,
is left alone: keeping the snapshot of a large channel would cost more than it could mend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark import StorageLevel

from nova_assets.engine.session.session import is_connect_session


@contextmanager
def persist_shared_frames(frames: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The frames, such that what several of them share is evaluated once while the block runs.

    Rows are kept in memory and spill to disk. A worker that is lost takes its part with it; what is evaluated again
    then is as deterministic as the task.
    """
    with ExitStack() as kept:
        for frame in _find_shared_frames(list(frames.values())):
            frame.persist(StorageLevel.MEMORY_AND_DISK)
            kept.callback(frame.unpersist)
        yield frames


def _find_shared_frames(frames: list[Any]) -> list[Any]:
    if is_connect_session(frames[0].sparkSession):
        from nova_assets.engine.tasks import shared_plans_connect

        return shared_plans_connect.find_shared_frames(frames)
    from nova_assets.engine.tasks import shared_plans_classic

    return shared_plans_classic.find_shared_frames(frames)
