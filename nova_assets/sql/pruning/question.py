"""A question about a query, on its way through: what is asked of the whole, and of each part by what is around it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.evaluation.operand import NotUnderstood
from nova_assets.sql.evaluation.values import TYPES_READ_FROM_NAMES, Key
from nova_assets.sql.pruning.partition_lookup import IndexedRows, Row
from nova_assets.sql.pruning.sources import PossibleValues
from nova_assets.sql.query.query import Query
from nova_assets.sql.query.scans import scan_number

T = TypeVar("T")


class QueryMemo:
    """What was made of parts of one query before, and hangs on nothing but the query.

    Parts are known by who they are: the memory keeps whatever it was given, so that no other takes their place.
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def memoize(self, memo_key: Hashable, compute: Callable[[], T]) -> T:
        if memo_key not in self._values:
            self._values.setdefault(memo_key, compute())  # of two that make it at once, both take the first
        found: T = self._values[memo_key]
        return found


@dataclass(frozen=True)
class VisitContext:
    """How a query is looked at by whatever it is a part of.

    Args:
        records_reads: whether what it reads is wanted; otherwise only what its output can be.
        scopes: for which it is asked.
        outer_conditions: conditions on its output that whoever reads it puts. Their columns are those of the output,
            under the name of ``outer_name``, and others whose values are in ``outer_values``.
        outer_name: what it is called there.
        outer_values: the values that columns of its surroundings can have.
        returns_values: whether the values of its output are wanted.
    """

    records_reads: bool
    scopes: Mapping[int, Row]
    outer_conditions: Sequence[exp.Expr] = ()
    outer_name: str = ""
    outer_values: Mapping[Key, PossibleValues] = field(default_factory=dict)
    returns_values: bool = True


@dataclass
class PruningRun:
    """Which partitions its scans read, in some scopes; or in which scopes one of its scans reads some partitions.

    Args:
        query: with every column told.
        partitions_by_dataset: dataset -> all that it should have.
        scopes: the values of the variables, one row for each scope.
        zone: in which moments are told apart by day.
        target_scan: the scan whose readers are wanted.
        target_rows: of that scan, the partitions that matter. They stand for it only where rows are recorded: what a
            subquery gives hangs on all, by a LIMIT or a window.
        positions_by_scan: scan -> the partitions that it reads.
        reading_scopes: the scopes in which the target reads some of those that matter.
        is_target_visited: whether the target was come by.
        ignored_conditions: parts of conditions on partitions that prune none, by where they are.
    """

    query: Query
    partitions_by_dataset: Mapping[str, IndexedRows]
    scopes: IndexedRows
    zone: tzinfo
    memo: QueryMemo
    target_scan: int | None = None
    target_rows: Mapping[int, Row] = field(default_factory=dict)
    positions_by_scan: dict[int, set[int]] = field(default_factory=dict)
    reading_scopes: set[int] = field(default_factory=set)
    is_target_visited: bool = False
    ignored_conditions: dict[int, NotUnderstood] = field(default_factory=dict)

    def expected_partitions(self, dataset: str) -> IndexedRows:
        return self.partitions_by_dataset.get(dataset) or _NO_ROWS

    @cached_property
    def variable_types(self) -> dict[str, DataType]:
        """Spark type of each variable."""
        return {name: parse_type(type_) for name, type_ in self.query.variables.items()}

    def column_types(self, dataset: str) -> Mapping[str, DataType]:
        """Small name -> Spark type, of the columns of a dataset whose values the names of partitions tell."""
        schema = self.query.schemas.get(dataset)
        if schema is None:
            return {}
        return self.memo.memoize(
            ("types", dataset),
            lambda: {f.name.lower(): f.type for f in schema.fields if f.type.name in TYPES_READ_FROM_NAMES},
        )

    def contains_target(self, scope: Scope) -> bool:
        """Whether a part of the query has the target within it."""
        target_scan = self.target_scan
        return target_scan is not None and target_scan in self._scan_numbers_within(scope)

    def record_read(
        self, number_of_scan: int, rows: Mapping[int, Row], scopes: Mapping[int, Row], *, reads_everything: bool
    ) -> None:
        """A scan was come by, in a place where these of its partitions are read, in these scopes."""
        if self.target_scan is None:
            everything = range(len(self.expected_partitions(self.query.scans[number_of_scan].dataset)))
            self.positions_by_scan.setdefault(number_of_scan, set()).update(everything if reads_everything else rows)
        elif number_of_scan == self.target_scan:
            self.is_target_visited = True
            if reads_everything or rows:
                self.reading_scopes |= (self.scopes.rows if reads_everything else scopes).keys()

    def record_no_reads(self, scope: Scope) -> None:
        """The scans within a part of the query were come by, in a place where none of their partitions is read."""
        for number in self._scan_numbers_within(scope):
            self.record_read(number, {}, {}, reads_everything=self.query.scans[number].mode == "whole")

    def _scan_numbers_within(self, scope: Scope) -> frozenset[int]:
        return self.memo.memoize(("scans", id(scope)), lambda: frozenset(_iter_scan_numbers(scope, set())))


_NO_ROWS = IndexedRows([])


def _iter_scan_numbers(scope: Scope, visited: set[int]) -> Iterator[int]:
    """The scans within a part of the query."""
    if id(scope) in visited:
        return
    visited.add(id(scope))
    for source in scope.sources.values():
        number = None if isinstance(source, Scope) else scan_number(source)
        if number is not None:
            yield number
    for inner in _inner_scopes(scope):
        yield from _iter_scan_numbers(inner, visited)


def _inner_scopes(scope: Scope) -> list[Scope]:
    sources = [s for s in scope.sources.values() if isinstance(s, Scope)]
    return [*scope.subquery_scopes, *scope.derived_table_scopes, *(scope.set_operation_scopes or ()), *sources]
