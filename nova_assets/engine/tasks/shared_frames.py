"""Several outputs of one task from one evaluation (R4).

Frames are lazy. Writing two frames with a common ancestor evaluates the shared part twice. A function that draws random
numbers, reads a clock, or picks arbitrary rows (``dropDuplicates``, ``limit``) returns other rows each time. The plans
that several outputs share are therefore found and cached while the outputs are written. Spark substitutes the cached
rows wherever such a plan occurs, even in existing frames. The rows are *persisted* and not written to a separate place,
because a frame cannot be changed to read from another source.

Only the largest shared plans are cached, and only if they might return other rows on a second evaluation. File scans
are not cached. The same holds, where the session exposes plans, for results that Spark's own deterministic functions
compute from files row by row or by joins: caching the snapshot of a large channel would cost more than it gains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark import StorageLevel

from nova_assets.engine.session.spark_session import is_connect_session


@contextmanager
def persist_shared_frames(frames: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Context in which the shared parts of the frames are evaluated only once.

    Rows are cached in memory and spill to disk. A lost worker loses its part of the cache. That part is then as
    deterministic as the task itself.
    """
    with ExitStack() as cleanup:
        # To cache the outputs would not help: nova never sees a common ancestor that the function keeps to itself. To
        # write the shared rows to storage would survive a lost worker, but costs a full write and read.
        for frame in _find_shared_frames(list(frames.values())):
            frame.persist(StorageLevel.MEMORY_AND_DISK)
            cleanup.callback(frame.unpersist)
        yield frames


def _find_shared_frames(frames: list[Any]) -> list[Any]:
    if is_connect_session(frames[0].sparkSession):
        from nova_assets.engine.tasks import shared_plans_connect

        return shared_plans_connect.find_shared_frames(frames)
    from nova_assets.engine.tasks import shared_plans_classic

    return shared_plans_classic.find_shared_frames(frames)
