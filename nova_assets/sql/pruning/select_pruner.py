"""Partition pruning within one SELECT: apply its conditions to its sources until nothing more is pruned.

A condition prunes the rows of a source that match no combination of rows of the other sources. Everything that depends
on the query alone is memoized, so a question about another scope needs only lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC
from typing import TypeAlias

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.sql.evaluation.casting import BOOLEAN, comparison_casts
from nova_assets.sql.evaluation.operand import UNKNOWN, Evaluable, Key, Value, Values
from nova_assets.sql.pruning.condition_tester import ConditionTester
from nova_assets.sql.pruning.conditions import (
    Condition,
    NullRejecting,
    find_nullable_sources,
    has_grouping_sets,
    keeps_only_some_rows,
    rename_other_sources,
    select_conditions,
    sources_not_reaching_result,
)
from nova_assets.sql.pruning.pruning_run import VARIABLES_SOURCE, PruningRun, SelectInputs, VisitContext
from nova_assets.sql.pruning.select_source import IndexedRows, PossibleValues, SelectSource

VisitScope: TypeAlias = Callable[[Scope, VisitContext], dict[str, PossibleValues]]
"""Visits a subquery and returns the possible values of its output columns."""

_MAX_ROUNDS = 8


class SelectPruner:
    """Prunes the sources of one SELECT, for one visit.

    Args:
        visit_inner: visits a subquery of the SELECT.
    """

    def __init__(
        self, pruning_run: PruningRun, scope: Scope, node: exp.Select, context: VisitContext, visit_inner: VisitScope
    ) -> None:
        self.pruning_run = pruning_run
        self.memo = pruning_run.memo
        self.scope = scope
        self.node = node
        self.context = context
        self.visit_inner = visit_inner
        self.inputs = SelectInputs(pruning_run, scope, context)
        self.sources = self.inputs.sources
        self.tester = ConditionTester(self.inputs)
        self.null_rejecting = self._find_null_rejecting()
        self.conditions = self._select_conditions(self.null_rejecting)
        self.nullable_sources = self._find_nullable_sources()
        self.has_grouping_sets = has_grouping_sets(node)
        self.scopes_by_target_source = {
            name: context.scopes for name, source in self.sources.items() if self.inputs.contains_target_scan(source)
        }
        """For each source that contains the target scan: the scopes in which rows of the target can reach the result.
        """

    def visit(self) -> dict[str, PossibleValues]:
        """Prune the sources, record what they read, and return the possible values of the output columns."""
        self._find_output_of_subqueries()
        compiled = [(c, evaluable) for c in self.conditions if (evaluable := self._compile_condition(c)) is not None]
        compiled.sort(key=lambda pair: len(self.sources.keys() & pair[1].keys_by_source.keys()))
        for _ in range(_MAX_ROUNDS):
            counts_before = self._remaining_counts()
            for condition, evaluable in compiled:
                self._apply_condition(condition, evaluable)
            if self._remaining_counts() == counts_before:
                break
        self._empty_sources_without_effect()
        if self.context.records_reads:
            self._record_reads()
        return self._values_of_output_columns() if self.context.returns_values else {}

    def _find_output_of_subqueries(self) -> None:
        for source in self.sources.values():
            inner = source.subquery_scope
            if inner is not None:
                output_values = self.visit_inner(inner, self._context_to_find_output(source, inner))
                self.inputs.set_output_values(source, {} if _is_recursive_cte(inner) else output_values)

    # conditions

    def _select_conditions(self, null_rejecting: NullRejecting) -> list[Condition]:
        outer_conditions, outer_name = self.context.outer_conditions, self.context.outer_name
        return self.memo.memoize(
            ("conditions", id(self.node), outer_name, null_rejecting, *map(id, outer_conditions)),
            lambda: list(
                select_conditions(self.node, list(self.sources), outer_conditions, outer_name, null_rejecting)
            ),
        )

    def _find_null_rejecting(self) -> NullRejecting:
        """The sources for which rows with nulls in their place are dropped, and the join that drops them. Rejecting
        nulls at one join can make conditions of earlier joins drop more rows, so the search repeats until it is
        stable. The result depends on the scopes and on the listed partitions, so the query's memo does not keep it.
        """
        null_rejecting: NullRejecting = frozenset()
        for _ in range(_MAX_ROUNDS):
            rejected = frozenset(
                (name, condition.join_index)
                for condition in self._select_conditions(null_rejecting)
                if condition.join_index is not None
                for name in condition.nullable_sources & condition.filtered_sources
                if self.tester.rejects_nulls(condition, name)
            )
            if rejected <= null_rejecting:
                break
            null_rejecting |= rejected
        return null_rejecting

    def _find_nullable_sources(self) -> frozenset[str]:
        return self.memo.memoize(
            ("nullable sources", id(self.node), self.null_rejecting),
            lambda: find_nullable_sources(self.node, list(self.sources), self.null_rejecting),
        )

    def _compile_condition(self, condition: Condition) -> Evaluable | None:
        """The compiled condition. None if the condition cannot prune anything."""
        node = condition.node
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._compile_in_subquery(node)
        evaluable = self.inputs.compile_expression(node)
        if self.context.records_reads:
            self.pruning_run.ignored_conditions |= {id(part.node): part for part in evaluable.not_understood}
        return evaluable if evaluable.keys or not evaluable.depends_on_data else None

    def _compile_in_subquery(self, node: exp.In) -> Evaluable | None:
        """The compiled ``day IN (SELECT day FROM ...)``. None unless the possible values of the inner column are
        known.
        """
        query = node.args["query"].unnest()
        inner = next((s for s in self.scope.subquery_scopes if s.expression is query), None)
        context = self._context_within_expression(records_reads=False)
        output_values = {} if inner is None else self.visit_inner(inner, context)
        if len(output_values) != 1:
            return None
        [listed] = output_values.values()
        tested = self.inputs.compile_expression(node.this)
        if tested.type != listed.type or comparison_casts(listed.type, listed.type, UTC) is None:
            return None  # two different types are cast to a third

        def is_listed(values: Values) -> Value:
            value = tested.value(values)
            return value if value is UNKNOWN or value is None else value in listed.values

        return Evaluable(is_listed, tested.keys, BOOLEAN, tested.depends_on_data)

    # pruning

    def _remaining_counts(self) -> list[int]:
        """How much is left of each source and of the scopes. Pruning ends when a round leaves the counts unchanged."""
        rows = [len(s.rows) + sum(len(v.values) for v in s.output_values.values()) for s in self.sources.values()]
        return [*rows, *map(len, self.scopes_by_target_source.values())]

    def _apply_condition(self, condition: Condition, evaluable: Evaluable) -> None:
        """Prune the rows that cannot meet a condition, whatever rows the other sources have."""
        self._filter_target_scopes(condition, evaluable)
        keys_by_source = evaluable.keys_by_source
        if not keys_by_source.keys() & condition.filtered_sources:
            # The condition uses no source that it filters: it drops all rows, or none.
            if self.tester.never_holds(condition, evaluable):
                for name in condition.filtered_sources:
                    self.sources[name].remove_all_rows()
            return
        for name in sorted(condition.filtered_sources & keys_by_source.keys()):
            if self.tester.can_prune(condition, self.sources[name]):
                self.tester.filter_source(self.sources[name], condition, evaluable)

    def _filter_target_scopes(self, condition: Condition, evaluable: Evaluable) -> None:
        """Remove the scopes in which a condition drops all rows that stem from the target scan."""
        if VARIABLES_SOURCE not in evaluable.keys_by_source:
            return
        for name in condition.filtered_sources & self.scopes_by_target_source.keys():
            if self.tester.can_prune(condition, self.sources[name]):
                scopes = self.inputs.variables_in_scopes(self.scopes_by_target_source[name])
                self.tester.filter_source(scopes, condition, evaluable)
                self.scopes_by_target_source[name] = scopes.rows

    def _empty_sources_without_effect(self) -> None:
        """Prune all rows of sources that are joined with an empty source."""
        empty = frozenset(name for name, source in self.sources.items() if source.is_empty)
        without_effect = self.memo.memoize(
            ("sources without effect", id(self.node), empty, self.null_rejecting),
            lambda: sources_not_reaching_result(self.node, empty, self.null_rejecting),
        )
        for name in without_effect & self.sources.keys():
            source = self.sources[name]
            source.remove_all_rows()
            source.has_no_effect = not source.is_sampled

    # results

    def _record_reads(self) -> None:
        """Record what the sources and the subqueries in expressions read."""
        for source in self.sources.values():
            scopes = self.scopes_by_target_source.get(source.name, self.context.scopes)
            if source.scan is not None:
                reads_everything = source.scan.mode == "whole"
                self.pruning_run.record_read(source.scan.number, source.rows, scopes, reads_everything=reads_everything)
            elif source.subquery_scope is not None:
                self._record_reads_of_subquery(source, source.subquery_scope, scopes)
        for inner in self.scope.subquery_scopes:
            self.visit_inner(inner, self._context_within_expression(records_reads=True))

    def _record_reads_of_subquery(self, source: SelectSource, inner: Scope, scopes: IndexedRows) -> None:
        if source.has_no_effect and not _is_recursive_cte(inner):
            self.pruning_run.record_scans_without_partitions(inner)
        else:
            self.visit_inner(inner, self._context_to_record_reads(source, inner, scopes))

    # output values

    def _values_of_output_columns(self) -> dict[str, PossibleValues]:
        """Possible values of the output columns for which they can be determined."""
        if self.has_grouping_sets:
            return {}
        values_by_column = {c.alias_or_name: self._values_of_expression(c.unalias()) for c in self.node.selects}
        return {column: values for column, values in values_by_column.items() if values is not None}

    def _values_of_expression(self, node: exp.Expr) -> PossibleValues | None:
        evaluable = self.inputs.compile_expression(node)
        if evaluable.type is None or evaluable.depends_on_data:
            return None
        combinations = self.inputs.value_combinations(evaluable.keys_by_source, self.nullable_sources)
        if combinations is None:
            return None
        values = frozenset(map(evaluable.value, combinations))
        return None if UNKNOWN in values else PossibleValues(evaluable.type, values)

    def _values_of_column(self, source_name: str, column: str) -> PossibleValues | None:
        """Possible values after the joins of a column of a source, or of the surrounding query. None if they cannot be
        determined.
        """
        source = self.sources.get(source_name)
        if source is None or column not in source.known_columns:
            return self.context.outer_values.get((source_name, column))
        values = source.possible_values(column)
        may_be_null = source_name in self.nullable_sources or self.has_grouping_sets
        return PossibleValues(values.type, values.values | {None}) if values is not None and may_be_null else values

    # contexts of subqueries

    def _context_to_find_output(self, source: SelectSource, inner: Scope) -> VisitContext:
        """The context that determines the output values of a subquery in FROM. It passes the conditions that use the
        subquery alone, because the rows of the other sources are not pruned yet.
        """
        conditions = [c for c, values_of_others in self._conditions_on_output(source, inner) if not values_of_others]
        return VisitContext(False, self.context.scopes, conditions, source.name, self._outer_values_of(inner))

    def _context_to_record_reads(self, source: SelectSource, inner: Scope, scopes: IndexedRows) -> VisitContext:
        """The context that records what a subquery in FROM reads, with all conditions on its output.

        Args:
            scopes: the scopes in which rows of the subquery can reach the result.
        """
        outer_values = self._outer_values_of(inner)
        conditions: list[exp.Expr] = []
        for condition, values_of_others in self._conditions_on_output(source, inner):
            conditions.append(condition)
            outer_values |= values_of_others
        return VisitContext(True, scopes, conditions, source.name, outer_values, returns_values=False)

    def _context_within_expression(self, *, records_reads: bool) -> VisitContext:
        """The context of a subquery in an expression, which can refer to all columns of the SELECT."""
        keys = [(source.name, column) for source in self.sources.values() for column in source.known_columns]
        visible = {key: values for key in keys if (values := self._values_of_column(*key)) is not None}
        outer_values = {**self.context.outer_values, **visible}
        return VisitContext(
            records_reads, self.context.scopes, outer_values=outer_values, returns_values=not records_reads
        )

    def _outer_values_of(self, inner: Scope) -> dict[Key, PossibleValues]:
        """The values of the surrounding query that a subquery can refer to. A CTE can refer to none."""
        return {} if inner.is_cte else dict(self.context.outer_values)

    def _conditions_on_output(
        self, source: SelectSource, inner: Scope
    ) -> Iterator[tuple[exp.Expr, dict[Key, PossibleValues]]]:
        """The conditions that a subquery in FROM may apply to its own output, each with the possible values of the
        columns of other sources. None if the output depends on all rows of the subquery.
        """
        if _is_recursive_cte(inner) or keeps_only_some_rows(inner.expression) or source.is_sampled:
            return
        for condition in self.conditions:
            if source.name in condition.filtered_sources:
                node, values_of_others = self._rename_other_sources(condition.node, source.name)
                if node is not None and self.tester.can_prune(condition, source):
                    yield node, values_of_others

    def _rename_other_sources(
        self, condition: exp.Expr, source_name: str
    ) -> tuple[exp.Expr | None, dict[Key, PossibleValues]]:
        """A condition as an outer condition for one source: columns of other sources get names that are unique
        inside the subquery, and their possible values are returned. None if the condition does not refer to the
        source.
        """
        scope_id = id(self.scope)
        renamed, original_by_alias = self.memo.memoize(
            ("other sources renamed", id(condition), source_name, scope_id),
            lambda: rename_other_sources(condition, source_name, f"@{scope_id}"),
        )
        values_by_alias = {alias: self._values_of_column(*original) for alias, original in original_by_alias.items()}
        return renamed, {alias: values for alias, values in values_by_alias.items() if values is not None}


def _is_recursive_cte(scope: Scope) -> bool:
    with_clause = scope.expression.find_ancestor(exp.With)
    return with_clause is not None and bool(with_clause.args.get("recursive"))
