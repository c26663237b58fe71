"""The things that a SELECT reads, and which values their columns can have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TypeAlias

from sqlglot.optimizer.scope import Scope

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.values import Key, Value
from nova_assets.sql.pruning.partition_lookup import Listing, Row
from nova_assets.sql.query.query import Scan

Partition: TypeAlias = Row
"""The values of a partition's columns, by their names in small letters."""

MANY = 200_000
"""Combinations of values that are tried; a condition with more of them takes nothing away."""


@dataclass(frozen=True, slots=True)
class Among:
    """The values that a column can have.

    Args:
        type: its Spark type.
    """

    type: DataType
    values: frozenset[Value]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    def or_null(self) -> Among:
        return Among(self.type, self.values | {None})

    def none_of_them(self) -> Among:
        return Among(self.type, frozenset())

    def those(self, test: Callable[[Value], bool]) -> Among:
        """Those that pass a test."""
        return Among(self.type, frozenset(v for v in self.values if test(v)))


@dataclass
class Source:
    """One of the things that a SELECT reads; or, under no name, the variables of its scopes.

    Args:
        name: in the query.
        types: Spark type of each column of a listing.
        scan: where it is a dataset.
        inner: where it is a subquery.
        sampled: whether only a sample of its rows is read, so that all have to be there.
        listing: of a dataset, all partitions that it should have; of variables, all scopes.
        rows: those of the listing that are left, by position.
        output: of a subquery, the values that its columns can have.
        has_no_effect: whether none of its rows reaches the result, so that none is read.
    """

    name: str
    types: Mapping[str, DataType] = field(default_factory=dict)
    scan: Scan | None = None
    inner: Scope | None = None
    sampled: bool = False
    listing: Listing | None = None
    rows: Mapping[int, Row] = field(default_factory=dict)
    output: dict[str, Among] = field(default_factory=dict)
    has_no_effect: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it has no row, whatever its data. One of which only a sample is read may have some."""
        if self.sampled:
            return False
        if self.listing is not None:
            return len(self.listing) > 0 and not self.rows
        return any(not among.values for among in self.output.values())

    @property
    def all_of(self) -> Listing | None:
        """The listing, where all of it is left."""
        return self.listing if self.listing is not None and self.rows is self.listing.rows else None

    @property
    def columns(self) -> frozenset[str]:
        """Those whose values can be told."""
        if self.listing is None:
            return frozenset(self.output)
        return self.listing.columns if self.rows else frozenset()

    def type_of(self, column: str) -> DataType | None:
        """The Spark type of a column whose values can be told; None of any other."""
        if self.listing is None:
            among = self.output.get(column)
            return None if among is None else among.type
        return self.types.get(column) if column in self.listing.columns else None

    def among(self, column: str) -> Among | None:
        """The values that a column can have; None where they cannot be told."""
        if self.listing is None:
            return self.output.get(column)
        type_ = self.types.get(column)
        if type_ is None:
            return None
        if self.all_of is not None:
            return Among(type_, self.all_of.among(column))
        return Among(type_, frozenset(row[column] for row in self.rows.values()))

    def empty(self) -> None:
        """Nothing of it is left."""
        if self.sampled:
            return
        self.rows = {}
        self.output = {column: among.none_of_them() for column, among in self.output.items()}

    def keep(self, rows: Sequence[int]) -> None:
        """Only these of its rows are left."""
        if len(rows) < len(self.rows):
            self.rows = {n: self.rows[n] for n in rows}

    def combinations(self, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        """What some of its columns can be together; None for too many."""
        if self.all_of is not None:
            return self.all_of.combinations(keys)
        if self.listing is not None:
            distinct = {tuple(row[k[1]] for k in keys) for row in self.rows.values()}
            return [dict(zip(keys, values, strict=True)) for values in distinct]
        return combined([(k, self.output[k[1]].values if k[1] in self.output else frozenset()) for k in keys])

    def together(self, columns: Sequence[str]) -> Mapping[tuple[Value, ...], Sequence[int]]:
        """What columns of its rows are together -> the rows in which they are."""
        if self.all_of is not None:
            return self.all_of.by(columns)
        found: dict[tuple[Value, ...], list[int]] = {}
        for n, row in self.rows.items():
            found.setdefault(tuple(row[c] for c in columns), []).append(n)
        return found


def combined(parts: Sequence[tuple[Key, frozenset[Value]]]) -> list[dict[Key, Value]] | None:
    """What columns can be together, each of which can have some values; None for too many."""
    if prod(len(values) for _, values in parts) > MANY:
        return None
    keys = [key for key, _ in parts]
    return [dict(zip(keys, values, strict=True)) for values in product(*(values for _, values in parts))]
