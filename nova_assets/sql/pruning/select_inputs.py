"""The inputs of one SELECT: its sources, the scope's variables, and the expressions that are compiled against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.evaluator import Evaluator
from nova_assets.sql.evaluation.operand import Evaluable, Key, Value
from nova_assets.sql.pruning.pruning_run import PruningRun, VisitContext
from nova_assets.sql.pruning.select_source import IndexedRows, PossibleValues, SelectSource
from nova_assets.sql.query.scans import scan_number

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
        self._evaluator = Evaluator(self._resolve_column, pruning_run.zone)
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

    def value_combinations(self, source_name: str, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        """Distinct combinations of the values of some columns of one source. None if there are too many."""
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
