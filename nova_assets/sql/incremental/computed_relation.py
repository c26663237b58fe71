"""Relations of a statement whose rows are computed before the statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from nova_assets.sql.incremental.column_bounds import ColumnBounds


@dataclass(frozen=True)
class ComputedRelation:
    """A relation whose rows are in this process.

    Args:
        frame: name of the frame in the SQL.
        bounds: column -> its bounds, for columns of which Spark can skip files by bounds.
        columns_with_true: columns with at least one value that is true.
    """

    frame: str
    bounds: Mapping[str, ColumnBounds]
    columns_with_true: frozenset[str] = frozenset()


ComputeRelation: TypeAlias = Callable[[str, Mapping[str, Any]], ComputedRelation | None]
"""Function that computes a statement with its parameters now; None if its rows are too many."""
