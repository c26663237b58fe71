"""The change of one dataset, as the SQL of a maintenance names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nova_assets.sql.incremental.column_bounds import ColumnBounds


@dataclass(frozen=True)
class DatasetChange:
    """Names of the frames of a dataset in the SQL.

    Args:
        all_frame: the rows after the change.
        old_frame: the rows before the change.
        removed_frame: rows that were there before the change; None if the dataset only grows.
        added_frame: rows that are there after the change. A row of both frames has not changed.
        is_changed: whether there is a change.
        netted_frame: the change, added up, with weights; None if Spark adds it up.
        has_single_rows: whether each row of the change stands for one row only, so that its weight is 1 or -1.
        bounds: lower-case column -> bounds of its values in all rows of the change, as far as they are known.
    """

    all_frame: str
    old_frame: str
    removed_frame: str | None
    added_frame: str
    is_changed: bool = True
    netted_frame: str | None = None
    has_single_rows: bool = False
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict)
