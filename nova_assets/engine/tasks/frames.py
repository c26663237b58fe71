"""Frames of the engine: Spark DataFrames, and Arrow tables of rows that are in this process.

Several outputs of one task come from one evaluation (R4). Frames are lazy. Writing two frames with a common ancestor
evaluates the shared part twice. A function that draws random numbers, reads a clock, or picks arbitrary rows
(``dropDuplicates``, ``limit``) returns other rows each time. The plans that several outputs share are therefore found
and cached while the outputs are written. Spark substitutes the cached rows wherever such a plan occurs, even in
existing frames. The rows are *persisted* and not written to a separate place, because a frame cannot be changed to read
from another source.

Only the largest shared plans are cached, and only if they might return other rows on a second evaluation. File scans
are not cached. The same holds, where the session exposes plans, for results that Spark's own deterministic functions
compute from files row by row or by joins: caching the snapshot of a large channel would cost more than it gains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from nova_assets.engine.buckets import arrow_merge
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.spark_config import is_connect_session
from nova_assets.errors import SchemaMismatch
from nova_assets.formats import schema_fit
from nova_assets.model.schema import DELETED, Schema
from nova_assets.suggestions import did_you_mean

_PYTHON_OPERATOR = re.compile(r"\b\w*(EvalPython|InPandas|InArrow|AggregatePython|WindowPython|InBatch)\w*\b")
"""Operators of a physical plan that pass rows to Python workers: ``ArrowEvalPython``, ``MapInArrow`` and so on."""


class SparkFrames:
    """The protocol ``Frames`` over Spark DataFrames and Arrow tables."""

    def __init__(self, session: LazySparkSession) -> None:
        self.session = session

    def to_frame(self, rows: Any) -> Any:
        return self.session.to_frame(rows) if isinstance(rows, pa.Table) else rows

    def to_arrow(self, frame: Any) -> pa.Table:
        return frame if isinstance(frame, pa.Table) else self.session.to_table(frame)

    def is_frame(self, data: Any) -> bool:
        return isinstance(data, pa.Table) or (hasattr(data, "schema") and type(data).__module__.startswith("pyspark."))

    def is_empty(self, frame: Any) -> bool:
        return frame.num_rows == 0 if isinstance(frame, pa.Table) else bool(frame.isEmpty())

    def count(self, frame: Any) -> int:
        return int(frame.num_rows if isinstance(frame, pa.Table) else frame.count())

    def column_names(self, frame: Any) -> Sequence[str]:
        names: Sequence[str] = frame.column_names if isinstance(frame, pa.Table) else frame.columns
        return names

    def schema_of(self, frame: Any) -> Schema:
        if isinstance(frame, pa.Table):
            return schema_fit.schema_of(frame)
        if not self.is_frame(frame):
            raise SchemaMismatch(
                "a task returned an object that is not a DataFrame",
                found=type(frame).__name__,
                expected="a Spark DataFrame",
            )
        from nova_assets.engine.rows.spark_types import from_struct

        return from_struct(frame.schema)

    def select(self, frame: Any, columns: Sequence[str]) -> Any:
        existing = list(self.column_names(frame))
        if missing := [c for c in columns if c not in existing]:
            raise SchemaMismatch(
                f"there are no columns {', '.join(map(repr, missing))}{did_you_mean(missing[0], existing)}",
                found=", ".join(columns),
                expected=f"some of {', '.join(existing)}",
            )
        kept = [*columns, *(c for c in existing if c == DELETED and c not in columns)]
        if isinstance(frame, pa.Table):
            return frame.select(kept)
        from nova_assets.engine.rows.spark_columns import col

        return frame.select(*map(col, kept))

    def drop_deletions(self, change: Any) -> Any:
        if isinstance(change, pa.Table):
            return arrow_merge.drop_deletions(change)
        from nova_assets.engine.rows.spark_columns import col

        return change.where(~col(DELETED)).drop(DELETED)

    @contextmanager
    def evaluate_once(self, frames: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        spark_frames = [f for f in frames.values() if not isinstance(f, pa.Table)]
        with ExitStack() as stack:
            # To cache the outputs would not help: nova never sees a common ancestor that the function keeps to itself.
            # To write the shared rows to storage would survive a lost worker, but costs a full write and read.
            for frame in _find_shared_frames(spark_frames) if len(spark_frames) > 1 else ():
                stack.enter_context(self.persisted_rows(frame))
            yield frames

    @contextmanager
    def persisted_rows(self, frame: Any) -> Iterator[Any]:
        """The rows of a frame, computed once. They are in memory, and on disk where they do not fit.

        A lost worker loses its part of the rows, which is then computed again, as deterministically as the frame is.
        """
        if isinstance(frame, pa.Table):
            yield frame
            return
        from pyspark import StorageLevel

        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield kept
        finally:
            kept.unpersist()

    def runs_python(self, frame: Any) -> bool:
        if isinstance(frame, pa.Table):
            return False
        if is_connect_session(frame.sparkSession):
            plan = frame._explain_string()
        else:
            plan = frame._jdf.queryExecution().executedPlan().toString()
        return _PYTHON_OPERATOR.search(plan) is not None


def _find_shared_frames(frames: list[Any]) -> list[Any]:
    if is_connect_session(frames[0].sparkSession):
        from nova_assets.engine.tasks import shared_plans_connect

        return shared_plans_connect.find_shared_frames(frames)
    from nova_assets.engine.tasks import shared_plans_classic

    return shared_plans_classic.find_shared_frames(frames)
