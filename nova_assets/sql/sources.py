"""The things that a SELECT reads, and which values their columns can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TypeAlias

from sqlglot.optimizer.scope import Scope

from nova_assets.sql.query import Scan
from nova_assets.sql.values import Key, Value

Partition: TypeAlias = Mapping[str, Value]
"""The values of a partition's columns, by their names in small letters."""

Among: TypeAlias = frozenset[Value]
"""The values that a column can have."""

MANY = 200_000
"""Combinations of values that are tried; a condition with more of them takes nothing away."""


@dataclass
class Source:
    """One of the things that a SELECT reads.

    Args:
        name: in the query.
        scan: where it is a dataset.
        inner: where it is a subquery.
        sampled: whether only a sample of its rows is read, so that all have to be there.
        rows: of a dataset, the partitions that are left, by position.
        output: of a subquery, the values that its columns can have.
    """

    name: str
    scan: Scan | None = None
    inner: Scope | None = None
    sampled: bool = False
    rows: dict[int, Partition] = field(default_factory=dict)
    output: dict[str, Among] = field(default_factory=dict)

    def among(self, column: str) -> Among | None:
        """The values that a column can have."""
        if self.scan is None:
            return self.output.get(column)
        return frozenset(row[column] for row in self.rows.values())

    def empty(self) -> None:
        """Nothing of it is left."""
        if self.sampled:
            return
        self.rows = {}
        self.output = {column: frozenset() for column in self.output}

    def combinations(self, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        """What some of its columns can be together; None for too many."""
        if self.scan is not None:
            distinct = {tuple(row[k[1]] for k in keys) for row in self.rows.values()}
            return [dict(zip(keys, values, strict=True)) for values in distinct]
        return combined([(k, self.output.get(k[1], frozenset())) for k in keys])


def combined(parts: Sequence[tuple[Key, Among]]) -> list[dict[Key, Value]] | None:
    """What columns can be together, each of which can have some values; None for too many."""
    if prod(len(among) for _, among in parts) > MANY:
        return None
    keys = [key for key, _ in parts]
    return [dict(zip(keys, values, strict=True)) for values in product(*(among for _, among in parts))]
