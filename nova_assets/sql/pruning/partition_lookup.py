"""Partitions that are asked for again and again, by the values of their columns: each question is answered once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from nova_assets.sql.evaluation.values import Key, Value

Row: TypeAlias = Mapping[str, Value]
"""The values of a partition's columns by their names in small letters; or of a scope's variables."""

ValueTuple: TypeAlias = tuple[Value, ...]

T = TypeVar("T")


class IndexedRows(Sequence[Row]):
    """Rows in an order, that stay as they are.

    Args:
        rows: all with the same columns.
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
        """What columns are together -> the rows in which they are."""
        return self.memoize(("by", *columns), lambda: _group_positions(self.rows, columns))

    def distinct_combinations(self, keys: Sequence[Key]) -> list[dict[Key, Value]]:
        """What columns are together."""
        columns = [k[1] for k in keys]
        return self.memoize(
            ("combinations", *keys),
            lambda: [dict(zip(keys, v, strict=True)) for v in self.positions_by_values(columns)],
        )

    def distinct_values(self, column: str) -> frozenset[Value]:
        """What a column can be."""
        return self.memoize(("among", column), lambda: frozenset(row[column] for row in self.rows.values()))

    def memoize(self, memo_key: Hashable, compute: Callable[[], T]) -> T:
        """What was made of these rows before."""
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
    """Rows as a listing, if they are none yet."""
    return rows if isinstance(rows, IndexedRows) else IndexedRows(rows)
