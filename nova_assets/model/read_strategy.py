"""The ways by which rows are had, what one is expected to cost, and what it did cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

ReadStrategy: TypeAlias = Literal["arrow", "buckets", "spark"]
"""``arrow``: Arrow computes the rows in this process, without Spark. ``buckets``: Spark's Python workers compute them
bucket by bucket, without a shuffle. ``spark``: Spark's own joins compute them, for every kind of read."""

READ_STRATEGIES: tuple[ReadStrategy, ...] = ("arrow", "buckets", "spark")


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What one way would cost.

    Args:
        rows, bytes: of the files that are opened.
        seconds: of CPU.
    """

    strategy: ReadStrategy
    rows: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.strategy}, {self.seconds:.1f} s of CPU"

    def as_json(self) -> dict[str, Any]:
        return {"way": self.strategy, "rows": self.rows, "bytes": self.bytes, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True)
class ActualCost:
    """What was done, beside what was expected of it.

    Args:
        strategy: that was gone.
        estimate: the one of that way; None where there was none.
        seconds: on the clock.
        rows, bytes: of the files that were written; those that were kept as they are do not count.
    """

    strategy: ReadStrategy
    estimate: CostEstimate | None
    seconds: float
    rows: int
    bytes: int

    def as_json(self) -> dict[str, Any]:
        return {
            "way": self.strategy,
            "estimate": None if self.estimate is None else self.estimate.as_json(),
            "seconds": round(self.seconds, 3),
            "rows": self.rows,
            "bytes": self.bytes,
        }


def sum_costs_by_strategy(costs: Iterable[ActualCost]) -> list[ActualCost]:
    """What was done side by side, summed up for each way and each kind of estimate."""
    sum_by_key: dict[tuple[ReadStrategy, bool], ActualCost] = {}
    for cost in costs:
        so_far = sum_by_key.get(key := (cost.strategy, cost.estimate is None))
        sum_by_key[key] = cost if so_far is None else _add_costs(so_far, cost)
    return list(sum_by_key.values())


def _add_costs(a: ActualCost, b: ActualCost) -> ActualCost:
    x, y = a.estimate, b.estimate
    both = (
        None
        if x is None or y is None
        else CostEstimate(a.strategy, x.rows + y.rows, x.bytes + y.bytes, x.seconds + y.seconds)
    )
    return ActualCost(a.strategy, both, a.seconds + b.seconds, a.rows + b.rows, a.bytes + b.bytes)
