"""Read strategies, with their estimated and actual costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from nova_assets.model.json_form import JsonForm, json_key

ReadStrategy: TypeAlias = Literal["arrow", "buckets", "spark"]
"""``arrow``: computed in this process, without Spark. ``buckets``: merge unit by merge unit in Spark's Python workers,
without a shuffle. ``spark``: by Spark's own joins, which is always applicable.
"""

READ_STRATEGIES: tuple[ReadStrategy, ...] = ("arrow", "buckets", "spark")


def forced_strategy(setting: str) -> ReadStrategy | None:
    """Read strategy of ``Settings.strategy``; None for ``auto``, which picks the cheapest."""
    return next((strategy for strategy in READ_STRATEGIES if strategy == setting), None)


@dataclass(frozen=True, slots=True)
class CostEstimate(JsonForm):
    """Estimated cost of one strategy.

    Args:
        rows, bytes: size of the files to open.
        seconds: CPU time.
    """

    strategy: ReadStrategy = field(metadata=json_key("way"))
    rows: int
    bytes: int
    seconds: float = field(metadata=json_key(digits=3))

    def __str__(self) -> str:
        return f"{self.strategy}, {self.seconds:.1f} s of CPU"


@dataclass(frozen=True, slots=True)
class ActualCost(JsonForm):
    """Actual cost of an operation, with its estimate.

    Args:
        strategy: the strategy that was used.
        estimate: estimate for that strategy; None if there was none.
        seconds: wall time.
        rows, bytes: size of the written files, without reused files.
    """

    strategy: ReadStrategy = field(metadata=json_key("way"))
    estimate: CostEstimate | None
    seconds: float = field(metadata=json_key(digits=3))
    rows: int
    bytes: int


def total_costs_by_strategy(costs: Iterable[ActualCost]) -> list[ActualCost]:
    """Total cost of concurrent operations, per strategy and separately for operations without an estimate."""
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
