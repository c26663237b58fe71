"""Firings: a trigger's request for a run, recorded before the run is requested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nova_assets.model.partitions import WHOLE
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class Firing:
    """One firing of a trigger: a row of the outbox that waits for an execution.

    Args:
        n: counts the firings of the binding in its partition, from 1.
        positions: trigger leaf -> position up to which it has fired.
        attempt: counts the runs requested for this firing, from 1.
        state: ``requested``, ``committed`` or ``abandoned``.
        why: readable reason of the firing, or of its abandonment.
    """

    __repr__ = short_repr

    id: str
    binding: str
    n: int
    positions: Mapping[str, Any]
    attempt: int
    state: str
    at: datetime
    partition: str = WHOLE
    why: str = ""

    @property
    def run_key(self) -> str:
        where = f"[{self.partition}]" if self.partition else ""
        return f"{self.binding}{where}#{self.n}#{self.attempt}"
