"""Sources of a SELECT: datasets, subqueries and variables, with the possible values of their columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import product
from math import prod
from typing import Any, TypeAlias, TypeVar

from sqlglot.optimizer.scope import Scope

from nova_assets.model.partition_rule import FewRows
from nova_assets.model.schema import DataType, Schema
from nova_assets.sql.evaluation.operand import Key, Value
from nova_assets.sql.query.scans import Scan

Row: TypeAlias = Mapping[str, Value]
"""Values of a partition's columns by lower-case name, or values of a scope's variables by name."""

ValueTuple: TypeAlias = tuple[Value, ...]

MAX_COMBINATIONS = 200_000
"""Most combinations of values to evaluate. A condition with more combinations prunes nothing."""

T = TypeVar("T")


class Memo:
    """Results that are computed on first use."""

    def __init__(self) -> None:
        self._results: dict[Hashable, Any] = {}

    def memoize(self, memo_key: Hashable, compute: Callable[[], T]) -> T:
        """The memoized result for a key, computed on first use."""
        if memo_key not in self._results:
            self._results.setdefault(memo_key, compute())  # threads share the first result stored
        result: T = self._results[memo_key]
        return result


class IndexedRows(Memo):
    """Immutable rows of partition values or scope variables, with memoized indexes for repeated lookups.

    Args:
        rows: rows that all have the same columns, in order or by position.
    """

    def __init__(self, rows: Sequence[Row] | Mapping[int, Row] = ()) -> None:
        super().__init__()
        # In UTC: Python takes two local times in the repeated hour of a clock change for one.
        self.by_position: Mapping[int, Row] = (
            rows
            if isinstance(rows, Mapping)
            else {n: {c: _in_utc(value) for c, value in row.items()} for n, row in enumerate(rows)}
        )
        self.columns: frozenset[str] = frozenset(next(iter(self.by_position.values()), ()))

    def __len__(self) -> int:
        return len(self.by_position)

    def at(self, positions: Collection[int]) -> IndexedRows:
        """The rows at some positions, which they keep."""
        rows = {n: self.by_position[n] for n in positions}
        return self if len(rows) == len(self) else IndexedRows(rows)

    def positions_by_values(self, columns: Sequence[str]) -> Mapping[ValueTuple, list[int]]:
        """Values of some columns -> positions of the rows with these values."""

        def compute() -> dict[ValueTuple, list[int]]:
            positions: dict[ValueTuple, list[int]] = {}
            for n, row in self.by_position.items():
                positions.setdefault(tuple(row[c] for c in columns), []).append(n)
            return positions

        return self.memoize(("positions", *columns), compute)

    def distinct_combinations(self, keys: Sequence[Key]) -> list[dict[Key, Value]]:
        """Distinct combinations of the values of some columns."""
        columns = [column for _, column in keys]
        return self.memoize(
            ("combinations", *keys),
            lambda: [dict(zip(keys, v, strict=True)) for v in self.positions_by_values(columns)],
        )

    def distinct_values(self, column: str) -> frozenset[Value]:
        """Distinct values of a column."""
        return self.memoize(("values", column), lambda: frozenset(row[column] for row in self.by_position.values()))


Rows: TypeAlias = IndexedRows | Sequence[Row]


def as_indexed_rows(rows: Rows) -> IndexedRows:
    """The rows as ``IndexedRows``. An ``IndexedRows`` is returned as it is."""
    return rows if isinstance(rows, IndexedRows) else IndexedRows(rows)


def index_data_rows(rows: FewRows, schema: Schema) -> IndexedRows:
    """The rows of a dataset, with those columns whose values are compared as Spark compares them."""
    names = {name.lower(): name for name in (rows[0] if rows else ())}
    columns = {f.name.lower(): f.type.name for f in schema.fields if f.name.lower() in names}
    known = [c for c, type_ in columns.items() if all(_is_value_of(type_, row[names[c]]) for row in rows)]
    return IndexedRows([{column: _in_utc(row[names[column]]) for column in known} for row in rows])


def _is_value_of(type_: str, value: Value) -> bool:
    """Whether a Python value is a value of a Spark type, for types that are compared as Spark compares them."""
    python_type = _PYTHON_TYPES.get(type_)
    if isinstance(value, datetime) and value.tzinfo is None:
        return False
    return python_type is not None and (value is None or type(value) is python_type)


_PYTHON_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    "string": str,
    "boolean": bool,
    "date": date,
    "timestamp": datetime,
}


def _in_utc(value: Value) -> Value:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


@dataclass(frozen=True, slots=True)
class PossibleValues:
    """The values that a column can have.

    Args:
        type: the column's Spark type.
    """

    type: DataType
    values: frozenset[Value]


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
        rows: the rows of ``all_rows`` that are not pruned.
        output_values: for a subquery, the possible values of its columns.
        has_no_effect: whether none of the rows reaches the result, so that nothing has to be read.
    """

    name: str
    column_types: Mapping[str, DataType] = field(default_factory=dict)
    scan: Scan | None = None
    subquery_scope: Scope | None = None
    is_sampled: bool = False
    all_rows: IndexedRows | None = None
    rows: IndexedRows = field(default_factory=IndexedRows)
    output_values: dict[str, PossibleValues] = field(default_factory=dict)
    has_no_effect: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the source has no rows, regardless of its data. A sampled source may have rows."""
        if self.is_sampled:
            return False
        if self.all_rows is not None:
            return len(self.all_rows) > 0 and not self.rows
        return any(not column.values for column in self.output_values.values())

    @property
    def known_columns(self) -> frozenset[str]:
        """The columns whose values can be determined."""
        return frozenset(self.output_values) if self.all_rows is None else self.rows.columns

    def type_of_column(self, column: str) -> DataType | None:
        """Spark type of a column whose values can be determined. None for other columns."""
        if self.all_rows is None:
            return self.output_values[column].type if column in self.output_values else None
        return self.column_types.get(column) if column in self.all_rows.columns else None

    def possible_values(self, column: str) -> PossibleValues | None:
        """The values that a column can have. None if they cannot be determined."""
        if self.all_rows is None:
            return self.output_values.get(column)
        type_ = self.column_types.get(column)
        return None if type_ is None else PossibleValues(type_, self.rows.distinct_values(column))

    def remove_all_rows(self) -> None:
        """Prune all rows, unless the source is sampled."""
        if not self.is_sampled:
            self.rows = IndexedRows()
            self.output_values = {c: PossibleValues(v.type, frozenset()) for c, v in self.output_values.items()}

    def distinct_combinations(self, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        """Distinct combinations of the values of some columns. None if there are too many."""
        if self.all_rows is not None:
            return self.rows.distinct_combinations(keys)
        values_by_key = [self.output_values[c].values if c in self.output_values else () for _, c in keys]
        if prod(map(len, values_by_key)) > MAX_COMBINATIONS:
            return None
        return [dict(zip(keys, values, strict=True)) for values in product(*values_by_key)]
