"""Spark's recompute of a query over the rows of channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import nova_assets as nova


def create_views(spark: Any, store: nova.Store, channels: Iterable[str]) -> None:
    """Create a temporary view of each channel's rows. Spark plans local rows faster than files."""
    for channel in channels:
        spark.createDataFrame(store.read(channel).to_arrow()).createOrReplaceTempView(channel)


def stored_rows(store: nova.Store, channel: str, columns: Iterable[str] | None = None) -> list[tuple[Any, ...]]:
    """The rows of a channel as tuples, read without Spark.

    Args:
        columns: names of the columns. None for all.
    """
    table = store.read(channel).to_arrow()
    return [tuple(row.values()) for row in (table.select(list(columns)) if columns else table).to_pylist()]
