"""Firings: a trigger's request for a run, recorded before the run is requested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from nova_assets.model.json_form import JsonForm
from nova_assets.model.partitions import WHOLE
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class Firing(JsonForm):
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


FiringRunState = Literal["active", "succeeded", "canceled", "failed", "open"]


@dataclass(frozen=True, slots=True)
class FiringRun:
    """A run of a firing: a run of Dagster, or an execution in another process.

    Args:
        kind: ``run`` of Dagster, or ``execution``.
        state: ``failed`` also if it was aborted; ``open`` for an execution that has not ended, whose owner may be dead.
        ended_at: time of its end, or of its begin if it has not ended.
        failures: number of failed attempts for which it counts.
        run_id: run of Dagster that carried out the execution.
        run_key: key under which a trigger requested the run; empty for executions.
    """

    __repr__ = short_repr

    kind: Literal["run", "execution"]
    id: str
    state: FiringRunState
    ended_at: datetime
    failures: int = 0
    run_id: str | None = None
    run_key: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class FiringEnd:
    """End of a firing.

    Args:
        why: why it is abandoned; empty if it is committed.
        failures: description of the failed runs that left no attempt; empty if something else ended it.
    """

    state: Literal["committed", "abandoned"]
    why: str = ""
    failures: str = ""

    def describe(self, firing: Firing) -> str:
        if self.state == "committed":
            return f"firing {firing.n} is done"
        how = f" after {self.failures}; after a repair, run the binding by hand" if self.failures else f": {self.why}"
        return f"firing {firing.n} of {firing.binding} is abandoned{how}"
