"""State of a pruning run: its inputs and results for the whole query, and the context in which each subquery is
visited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.evaluation.casting import TYPES_READ_FROM_NAMES
from nova_assets.sql.evaluation.operand import Key, NotUnderstood
from nova_assets.sql.pruning.select_source import IndexedRows, Memo, PossibleValues
from nova_assets.sql.query.resolved_query import Query
from nova_assets.sql.query.scans import scan_number


class QueryMemo(Memo):
    """Memoized results for parts of one query that depend on the query alone.

    Keys contain the ``id`` of syntax nodes and scopes. The memo keeps these objects alive, so no other object takes
    their ids.
    """

    depends_on_zone = False
    """Whether a condition that was evaluated depends on the time zone."""


@dataclass(frozen=True)
class VisitContext:
    """The context in which the surrounding query visits a subquery.

    Args:
        records_reads: whether to record which partitions the subquery reads. Otherwise only the output values matter.
        scopes: the scopes to consider.
        outer_conditions: conditions that the surrounding query puts on the output. Their columns are output columns
            under the name ``outer_name``, and columns whose values are in ``outer_values``.
        outer_name: the subquery's name in the surrounding query.
        outer_values: possible values of columns of the surrounding query.
        returns_values: whether the values of the output columns are needed.
    """

    records_reads: bool
    scopes: IndexedRows
    outer_conditions: Sequence[exp.Expr] = ()
    outer_name: str = ""
    outer_values: Mapping[Key, PossibleValues] = field(default_factory=dict)
    returns_values: bool = True


@dataclass
class PruningRun:
    """One pruning question and its answer: which partitions the scans read in some scopes, or in which scopes one scan
    reads some partitions.

    Args:
        query: the query, with every column resolved.
        partitions_by_dataset: dataset -> all partitions that it should have.
        scopes: values of the variables, one row per scope.
        zone: time zone in which timestamps are converted to days.
        target_scan: the scan whose reading scopes are to be found.
        target_rows: the partitions of the target scan to look for. They replace the full list only where reads are
            recorded, because the output of a subquery with LIMIT or a window depends on all rows.
        positions_by_scan: result: scan number -> positions of the partitions that it reads.
        reading_scopes: result: positions of the scopes in which the target scan reads at least one target partition.
        is_target_visited: whether the target scan was visited.
        ignored_conditions: parts of conditions on partition columns that prune nothing, by the ``id`` of their node.
    """

    query: Query
    partitions_by_dataset: Mapping[str, IndexedRows]
    scopes: IndexedRows
    zone: tzinfo
    memo: QueryMemo
    target_scan: int | None = None
    target_rows: IndexedRows = field(default_factory=IndexedRows)
    positions_by_scan: dict[int, set[int]] = field(default_factory=dict)
    reading_scopes: set[int] = field(default_factory=set)
    is_target_visited: bool = False
    ignored_conditions: dict[int, NotUnderstood] = field(default_factory=dict)

    def expected_partitions(self, dataset: str) -> IndexedRows:
        return self.partitions_by_dataset.get(dataset, _NO_ROWS)

    @cached_property
    def variable_types(self) -> dict[str, DataType]:
        """Spark type of each variable."""
        return {name: parse_type(type_) for name, type_ in self.query.variables.items()}

    def column_types(self, dataset: str) -> Mapping[str, DataType]:
        """Lower-case name -> Spark type of the columns whose values can be parsed from partition names."""
        schema = self.query.schemas.get(dataset)
        if schema is None:
            return {}
        return self.memo.memoize(
            ("types", dataset),
            lambda: {f.name.lower(): f.type for f in schema.fields if f.type.name in TYPES_READ_FROM_NAMES},
        )

    def contains_target_scan(self, scope: Scope) -> bool:
        """Whether a scope contains the target scan."""
        target_scan = self.target_scan
        return target_scan is not None and target_scan in self._scan_numbers_within(scope)

    def record_read(
        self, number_of_scan: int, rows: IndexedRows, scopes: IndexedRows, *, reads_everything: bool
    ) -> None:
        """Record a visit of a scan, with the partitions that it reads there and the scopes in which it reads them."""
        if self.target_scan is None:
            all_rows = self.expected_partitions(self.query.scans[number_of_scan].dataset)
            read = all_rows if reads_everything else rows
            self.positions_by_scan.setdefault(number_of_scan, set()).update(read.by_position)
        elif number_of_scan == self.target_scan:
            self.is_target_visited = True
            if reads_everything or rows:
                self.reading_scopes |= (self.scopes if reads_everything else scopes).by_position.keys()

    def record_scans_without_partitions(self, scope: Scope) -> None:
        """Record a visit of all scans within a scope at a place where none of their partitions is read."""
        for number in self._scan_numbers_within(scope):
            self.record_read(number, _NO_ROWS, _NO_ROWS, reads_everything=self.query.scans[number].mode == "whole")

    def _scan_numbers_within(self, scope: Scope) -> frozenset[int]:
        return self.memo.memoize(("scans", id(scope)), lambda: frozenset(iter_scan_numbers(scope)))


_NO_ROWS = IndexedRows()


def iter_scan_numbers(scope: Scope) -> Iterator[int]:
    """Numbers of the scans within a scope."""
    visited, waiting = set[int](), [scope]
    while waiting:
        scope = waiting.pop()
        if id(scope) not in visited:
            visited.add(id(scope))
            numbers = (scan_number(s) for s in scope.sources.values() if not isinstance(s, Scope))
            yield from (number for number in numbers if number is not None)
            waiting += _inner_scopes(scope)


def _inner_scopes(scope: Scope) -> list[Scope]:
    sources = [s for s in scope.sources.values() if isinstance(s, Scope)]
    return [*scope.subquery_scopes, *scope.derived_table_scopes, *(scope.set_operation_scopes or ()), *sources]
