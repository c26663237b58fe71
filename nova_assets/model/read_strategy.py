"""The ways by which rows are had, what one is expected to cost, and what it did cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Way: TypeAlias = Literal["memory", "cells", "frame"]
"""``memory``: computed in this process, without Spark. ``cells``: bucket by bucket in Spark's Python workers, with no
shuffle. ``frame``: by Spark's own joins, the general one."""

WAYS: tuple[Way, ...] = ("memory", "cells", "frame")


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one way would cost.

    Args:
        rows, bytes: of the files that are opened.
        seconds: of CPU.
    """

    way: Way
    rows: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.way}, {self.seconds:.1f} s of CPU"

    def as_json(self) -> dict[str, Any]:
        return {"way": self.way, "rows": self.rows, "bytes": self.bytes, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True)
class Spent:
    """What was done, beside what was expected of it.

    Args:
        way: that was gone.
        estimate: the one of that way; None where there was none.
        seconds: on the clock.
        rows, bytes: of the files that were written; those that were kept as they are do not count.
    """

    way: Way
    estimate: Estimate | None
    seconds: float
    rows: int
    bytes: int

    def as_json(self) -> dict[str, Any]:
        return {
            "way": self.way,
            "estimate": None if self.estimate is None else self.estimate.as_json(),
            "seconds": round(self.seconds, 3),
            "rows": self.rows,
            "bytes": self.bytes,
        }


def by_way(spent: Iterable[Spent]) -> list[Spent]:
    """What was done side by side, summed up for each way and each kind of estimate."""
    found: dict[tuple[Way, bool], Spent] = {}
    for one in spent:
        before = found.get(key := (one.way, one.estimate is None))
        found[key] = one if before is None else _sum(before, one)
    return list(found.values())


def _sum(a: Spent, b: Spent) -> Spent:
    x, y = a.estimate, b.estimate
    both = (
        None if x is None or y is None else Estimate(a.way, x.rows + y.rows, x.bytes + y.bytes, x.seconds + y.seconds)
    )
    return Spent(a.way, both, a.seconds + b.seconds, a.rows + b.rows, a.bytes + b.bytes)
