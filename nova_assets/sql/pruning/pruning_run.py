"""State of a pruning run: its inputs and results for the whole query, the context in which each subquery is visited,
and the inputs of each SELECT.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.evaluation.casting import TYPES_READ_FROM_NAMES
from nova_assets.sql.evaluation.evaluator import Evaluator
from nova_assets.sql.evaluation.operand import Evaluable, Key, NotUnderstood, Value
from nova_assets.sql.pruning.select_source import MAX_COMBINATIONS, IndexedRows, Memo, PossibleValues, SelectSource
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


# the inputs of one SELECT


VARIABLES_SOURCE = ""
"""Name of the source that holds the scope's variables."""


class SelectInputs:
    """Everything that expressions of one SELECT can refer to, for one visit.

    Sources lose rows during the visit. Their column types stay the same, except when a subquery's output becomes known.

    Args:
        scope: the scope of the SELECT.
        context: the context of the visit.
    """

    def __init__(self, pruning_run: PruningRun, scope: Scope, context: VisitContext) -> None:
        self.pruning_run = pruning_run
        self.memo = pruning_run.memo
        self.scope = scope
        self.context = context
        self.sources = {s.name: s for s in self._iter_sources()}
        self.variables = self.variables_in_scopes(context.scopes)
        self._evaluator = Evaluator(self._resolve_column)
        self._column_types_key = self._make_column_types_key()

    def _iter_sources(self) -> Iterator[SelectSource]:
        for name, node in self.scope.references:  # ``references`` includes the sources of SEMI and ANTI joins
            source = self.scope.sources.get(name)
            is_sampled = node.args.get("sample") is not None
            number = scan_number(source) if isinstance(source, exp.Table) else None
            if number is not None:
                yield self._make_scan_source(name, number, is_sampled)
            else:
                yield SelectSource(
                    name, subquery_scope=source if isinstance(source, Scope) else None, is_sampled=is_sampled
                )

    def _make_scan_source(self, name: str, number: int, is_sampled: bool) -> SelectSource:
        scan = self.pruning_run.query.scans[number]
        all_rows = self.pruning_run.expected_partitions(scan.dataset)
        is_target = self.context.records_reads and number == self.pruning_run.target_scan
        return SelectSource(
            name,
            self.pruning_run.column_types(scan.dataset),
            scan,
            is_sampled=is_sampled,
            all_rows=all_rows,
            rows=self.pruning_run.target_rows if is_target else all_rows,
        )

    def variables_in_scopes(self, scopes: IndexedRows) -> SelectSource:
        """The variables as a source, with one row for each of some scopes."""
        return SelectSource(
            VARIABLES_SOURCE,
            self.pruning_run.variable_types,
            all_rows=self.pruning_run.scopes,
            rows=scopes,
        )

    def set_output_values(self, source: SelectSource, output_values: dict[str, PossibleValues]) -> None:
        """Set the possible values of a subquery's columns. Expressions that use them can be compiled from now on."""
        source.output_values = output_values
        self._column_types_key = self._make_column_types_key()

    def contains_target_scan(self, source: SelectSource) -> bool:
        """Whether a source is or contains the scan whose reading scopes are to be found."""
        if self.pruning_run.target_scan is None or not self.context.records_reads:
            return False
        if source.scan is not None:
            return source.scan.number == self.pruning_run.target_scan
        return source.subquery_scope is not None and self.pruning_run.contains_target_scan(source.subquery_scope)

    def compile_expression(self, node: exp.Expr) -> Evaluable:
        """The compiled expression, memoized for the query."""
        evaluable = self.memo.memoize(
            ("compiled expression", id(node), self._column_types_key), lambda: self._evaluator.compile_expression(node)
        )
        self.memo.depends_on_zone |= evaluable.depends_on_zone
        return evaluable

    def value_combinations(
        self, keys_by_source: Mapping[str, Sequence[Key]], nullable_sources: Collection[str]
    ) -> list[dict[Key, Value]] | None:
        """All combinations of values of some columns and variables. None if there are too many.

        Args:
            keys_by_source: source -> its columns.
            nullable_sources: names of the sources that may be replaced by nulls.
        """
        parts: list[list[dict[Key, Value]]] = []
        for source_name, keys in keys_by_source.items():
            part = self._combinations_of_source(source_name, keys)
            if part is None:
                return None
            parts.append([*part, dict.fromkeys(keys)] if source_name in nullable_sources else part)
        if len(parts) == 1:
            return parts[0]
        if prod(map(len, parts)) > MAX_COMBINATIONS:
            return None
        return [{key: value for part in combination for key, value in part.items()} for combination in product(*parts)]

    def _combinations_of_source(self, source_name: str, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        if source_name == VARIABLES_SOURCE:
            return self.variables.distinct_combinations(keys)
        source = self.sources.get(source_name)
        if source is None:
            source = SelectSource(source_name, output_values={k[1]: self.context.outer_values[k] for k in keys})
        return source.distinct_combinations(keys)

    def _resolve_column(self, column: exp.Column | exp.Placeholder) -> tuple[Key, DataType] | None:
        """Key and type of a variable, a partition column, or an output column of a subquery. None for other columns."""
        if isinstance(column, exp.Placeholder):
            type_ = self.pruning_run.variable_types.get(column.name)
            return None if type_ is None else ((VARIABLES_SOURCE, column.name), type_)
        key = (column.table, column.name.lower())
        source = self.sources.get(column.table)
        if source is None:
            outer_values = self.context.outer_values.get(key)
            return None if outer_values is None else (key, outer_values.type)
        type_ = source.type_of_column(key[1])
        return None if type_ is None else (key, type_)

    def _make_column_types_key(self) -> tuple[object, ...]:
        """Memo key that covers everything on which ``_resolve_column`` depends."""
        columns_by_source = (
            s.all_rows.columns
            if s.all_rows is not None
            else frozenset((name, values.type) for name, values in s.output_values.items())
            for s in self.sources.values()
        )
        outer_columns = frozenset((key, values.type) for key, values in self.context.outer_values.items())
        return (id(self.scope), outer_columns, *columns_by_source)
