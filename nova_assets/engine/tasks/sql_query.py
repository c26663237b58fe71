"""Queries in Spark SQL, and conversion of parser and analyzer errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException

from nova_assets.errors import QueryRefused

_NEAR = re.compile(r"near '(?P<token>[^']+)'")
_PLACE = re.compile(r"[;.]?\s*(SQLSTATE: \w+)?[;.]?\s*(\(?line \d+, pos \d+\)?|line \d+ pos \d+)?;?\s*$")


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
