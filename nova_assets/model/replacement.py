"""Replacement: all rows of a channel, returned by a task whose output takes deltas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Replacement:
    """Rows that replace all rows of the output's channel. They are written as a base instead of a delta.

    Args:
        frame: the rows, without ``_deleted``.
    """

    frame: Any
