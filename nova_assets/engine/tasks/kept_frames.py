"""Frames whose rows Spark keeps, and what tells whether keeping them pays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from nova_assets.engine.session.spark_session import is_connect_session

_PYTHON_OPERATOR = re.compile(r"\b\w*(EvalPython|InPandas|InArrow|AggregatePython|WindowPython|InBatch)\w*\b")
"""Operators of a physical plan that pass rows to Python workers: ``ArrowEvalPython``, ``MapInArrow`` and so on."""


@contextmanager
def keep_frame(frame: Any) -> Iterator[Any]:
    """Context in which the rows of a frame are computed once. They are in memory, and on disk where they do not fit.

    A lost worker loses its part of the rows, which is then computed again.
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


def runs_python(frame: Any) -> bool:
    """Whether rows of a frame pass through Python functions in Spark's workers."""
    if isinstance(frame, pa.Table):
        return False
    if is_connect_session(frame.sparkSession):
        plan = frame._explain_string()
    else:
        plan = frame._jdf.queryExecution().executedPlan().toString()
    return _PYTHON_OPERATOR.search(plan) is not None
