"""Queries in Spark SQL, and conversion of parser and analyzer errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException

from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.errors import QueryRefused

_NEAR = re.compile(r"near '(?P<token>[^']+)'")
_PLACE = re.compile(r"[;.]?\s*(SQLSTATE: \w+)?[;.]?\s*(\(?line \d+, pos \d+\)?|line \d+ pos \d+)?;?\s*$")
_OPTIMIZED_PLAN = re.compile(r"== Optimized Logical Plan ==\n(.*?)(?=\n== |\Z)", re.DOTALL)

_COMPLETE_PLANS = {
    "spark.sql.debug.maxToStringFields": str(2**31 - 1),
    "spark.sql.maxPlanStringLength": str(2**31 - 16),
}
"""Settings with which Spark shortens no plan. By default, it leaves out columns beyond the 25th."""


def analyze_query(spark: Any, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any]) -> Any:
    """Frame of a query, analyzed but not computed.

    Args:
        sql: query as ``SparkSession.sql`` accepts it, with ``{name}`` for each frame and ``:name`` for each value.

    Raises:
        QueryRefused: Spark's parser or analyzer rejects the query.
    """
    try:
        # Spark unescapes doubled braces only if the query has a frame.
        frame = spark.sql(sql if frames else sql.format(), args=dict(values), **frames)
        _ = frame.schema  # Spark Connect analyzes the query only now
    except AnalysisException as error:
        raise _query_refused_error(error) from error
    return frame


def optimized_plan(spark: Any, frame: Any) -> str | None:
    """Spark's optimised plan of a frame as text, complete under any settings of the session; None if Spark fails to
    plan the frame.
    """
    with temporary_settings(spark, _COMPLETE_PLANS):
        lines = spark.sql("EXPLAIN EXTENDED SELECT * FROM {rows}", rows=frame).collect()
    found = _OPTIMIZED_PLAN.search("\n".join(line[0] for line in lines))
    return None if found is None else found[1]


def _query_refused_error(error: AnalysisException) -> QueryRefused:
    message = " ".join(line for line in str(error).strip().split("\n\n")[0].splitlines() if not line.startswith("'"))
    reason = _PLACE.sub("", message)
    near = _NEAR.search(message)
    return QueryRefused(reason, fragment=near["token"] if near else _failing_fragment(error), reason=reason)


def _failing_fragment(error: AnalysisException) -> str | None:
    """Part of the query to which the analyzer's error refers, if the error names one."""
    for context in error.getQueryContext() or ():
        fragment: str = context.fragment()
        if fragment:
            return fragment
    return None
