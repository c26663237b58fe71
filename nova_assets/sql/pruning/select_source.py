"""Sources of a SELECT: datasets, subqueries and variables, with the possible values of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TypeAlias

from sqlglot.optimizer.scope import Scope

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.operand import Key, Value
from nova_assets.sql.pruning.indexed_rows import IndexedRows, Row
from nova_assets.sql.query.scans import Scan

Partition: TypeAlias = Row
"""Values of a partition's columns, by lower-case column name."""

MAX_COMBINATIONS = 200_000
"""Most combinations of values to evaluate. A condition with more combinations prunes nothing."""


@dataclass(frozen=True, slots=True)
class PossibleValues:
    """The values that a column can have.

    Args:
        type: the column's Spark type.
    """

    type: DataType
    values: frozenset[Value]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    def with_null(self) -> PossibleValues:
        return PossibleValues(self.type, self.values | {None})

    def without_values(self) -> PossibleValues:
        return PossibleValues(self.type, frozenset())

    def matching(self, test: Callable[[Value], bool]) -> PossibleValues:
        """The values that pass a test."""
        return PossibleValues(self.type, frozenset(v for v in self.values if test(v)))


@dataclass
class SelectSource:
    """A source of a SELECT. The source with an empty name holds the variables of the scopes.

    Args:
        name: the source's name in the query.
        column_types: Spark type of each column of ``all_rows``.
        scan: for a dataset, its scan.
        subquery_scope: for a subquery, its scope.
        is_sampled: whether TABLESAMPLE reads only a sample of the rows, so that all partitions are required.
        all_rows: for a dataset, all partitions that it should have. For variables, all scopes.
        remaining_rows: the rows of ``all_rows`` that are not pruned, by position.
        output_values: for a subquery, the possible values of its columns.
        has_no_effect: whether none of the rows reaches the result, so that nothing has to be read.
    """

    name: str
    column_types: Mapping[str, DataType] = field(default_factory=dict)
    scan: Scan | None = None
    subquery_scope: Scope | None = None
    is_sampled: bool = False
    all_rows: IndexedRows | None = None
    remaining_rows: Mapping[int, Row] = field(default_factory=dict)
    output_values: dict[str, PossibleValues] = field(default_factory=dict)
    has_no_effect: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the source has no rows, regardless of its data. A sampled source may have rows."""
        if self.is_sampled:
            return False
        if self.all_rows is not None:
            return len(self.all_rows) > 0 and not self.remaining_rows
        return any(not values.values for values in self.output_values.values())

    @property
    def unfiltered_rows(self) -> IndexedRows | None:
        """``all_rows``, if nothing is pruned yet."""
        return self.all_rows if self.all_rows is not None and self.remaining_rows is self.all_rows.rows else None

    @property
    def known_columns(self) -> frozenset[str]:
        """The columns whose values can be determined."""
        if self.all_rows is None:
            return frozenset(self.output_values)
        return self.all_rows.columns if self.remaining_rows else frozenset()

    def type_of_column(self, column: str) -> DataType | None:
        """Spark type of a column whose values can be determined. None for other columns."""
        if self.all_rows is None:
            among = self.output_values.get(column)
            return None if among is None else among.type
        return self.column_types.get(column) if column in self.all_rows.columns else None

    def possible_values(self, column: str) -> PossibleValues | None:
        """The values that a column can have. None if they cannot be determined."""
        if self.all_rows is None:
            return self.output_values.get(column)
        type_ = self.column_types.get(column)
        if type_ is None:
            return None
        if self.unfiltered_rows is not None:
            return PossibleValues(type_, self.unfiltered_rows.distinct_values(column))
        return PossibleValues(type_, frozenset(row[column] for row in self.remaining_rows.values()))

    def remove_all_rows(self) -> None:
        """Prune all rows, unless the source is sampled."""
        if self.is_sampled:
            return
        self.remaining_rows = {}
        self.output_values = {column: values.without_values() for column, values in self.output_values.items()}

    def keep_positions(self, positions: Sequence[int]) -> None:
        """Prune all rows except those at some positions."""
        if len(positions) < len(self.remaining_rows):
            self.remaining_rows = {n: self.remaining_rows[n] for n in positions}

    def distinct_combinations(self, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        """Distinct combinations of the values of some columns. None if there are too many."""
        if self.unfiltered_rows is not None:
            return self.unfiltered_rows.distinct_combinations(keys)
        if self.all_rows is not None:
            distinct = {tuple(row[k[1]] for k in keys) for row in self.remaining_rows.values()}
            return [dict(zip(keys, values, strict=True)) for values in distinct]
        return combine_values(
            [(k, self.output_values[k[1]].values if k[1] in self.output_values else frozenset()) for k in keys]
        )

    def positions_by_values(self, columns: Sequence[str]) -> Mapping[tuple[Value, ...], Sequence[int]]:
        """Values of some columns -> positions of the rows with these values."""
        if self.unfiltered_rows is not None:
            return self.unfiltered_rows.positions_by_values(columns)
        positions: dict[tuple[Value, ...], list[int]] = {}
        for n, row in self.remaining_rows.items():
            positions.setdefault(tuple(row[c] for c in columns), []).append(n)
        return positions


def combine_values(values_by_key: Sequence[tuple[Key, frozenset[Value]]]) -> list[dict[Key, Value]] | None:
    """All combinations of the columns' possible values. None if there are too many."""
    if prod(len(values) for _, values in values_by_key) > MAX_COMBINATIONS:
        return None
    keys = [key for key, _ in values_by_key]
    return [dict(zip(keys, values, strict=True)) for values in product(*(values for _, values in values_by_key))]
