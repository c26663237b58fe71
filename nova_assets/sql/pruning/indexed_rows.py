"""Rows of partition values or scope variables, with memoized indexes for repeated lookups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from nova_assets.sql.evaluation.operand import Key, Value

Row: TypeAlias = Mapping[str, Value]
"""Values of a partition's columns by lower-case name, or values of a scope's variables by name."""

ValueTuple: TypeAlias = tuple[Value, ...]

T = TypeVar("T")


class IndexedRows(Sequence[Row]):
    """An immutable list of rows, with memoized indexes.

    Args:
        rows: rows that all have the same columns.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows: dict[int, Row] = dict(enumerate(rows))
        self.columns: frozenset[str] = frozenset(self.rows[0]) if self.rows else frozenset()
        self._memo: dict[Hashable, Any] = {}

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        return self.rows[at] if isinstance(at, int) else list(self.rows.values())[at]

    def __len__(self) -> int:
        return len(self.rows)

    def positions_by_values(self, columns: Sequence[str]) -> Mapping[ValueTuple, tuple[int, ...]]:
        """Values of some columns -> positions of the rows with these values."""
        return self.memoize(("by", *columns), lambda: _group_positions(self.rows, columns))

    def distinct_combinations(self, keys: Sequence[Key]) -> list[dict[Key, Value]]:
        """Distinct combinations of the values of some columns."""
        columns = [k[1] for k in keys]
        return self.memoize(
            ("combinations", *keys),
            lambda: [dict(zip(keys, v, strict=True)) for v in self.positions_by_values(columns)],
        )

    def distinct_values(self, column: str) -> frozenset[Value]:
        """Distinct values of a column."""
        return self.memoize(("among", column), lambda: frozenset(row[column] for row in self.rows.values()))

    def memoize(self, memo_key: Hashable, compute: Callable[[], T]) -> T:
        """The memoized result for a key, computed on first use."""
        if memo_key not in self._memo:
            self._memo.setdefault(memo_key, compute())
        found: T = self._memo[memo_key]
        return found


def _group_positions(rows: Mapping[int, Row], columns: Sequence[str]) -> dict[ValueTuple, tuple[int, ...]]:
    found: dict[ValueTuple, list[int]] = {}
    for n, row in rows.items():
        found.setdefault(tuple(row[c] for c in columns), []).append(n)
    return {values: tuple(some) for values, some in found.items()}


def as_indexed_rows(rows: Sequence[Row]) -> IndexedRows:
    """The rows as ``IndexedRows``. An ``IndexedRows`` is returned as it is."""
    return rows if isinstance(rows, IndexedRows) else IndexedRows(rows)
