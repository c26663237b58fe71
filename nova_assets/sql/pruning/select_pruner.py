"""Partition pruning within one SELECT: apply its conditions to its sources until nothing more is pruned.

A condition prunes the rows of a source that match no combination of rows of the other sources. Everything that depends
on the query alone is memoized, so a question about another scope needs only lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.sql.evaluation.casting import BOOLEAN, comparison_casts
from nova_assets.sql.evaluation.operand import UNKNOWN, Evaluable, Value, Values
from nova_assets.sql.pruning.condition_tester import ConditionTester
from nova_assets.sql.pruning.conditions import (
    Condition,
    NullRejecting,
    find_nullable_sources,
    select_conditions,
    sources_not_reaching_result,
)
from nova_assets.sql.pruning.indexed_rows import Row
from nova_assets.sql.pruning.pruning_run import PruningRun, VisitContext
from nova_assets.sql.pruning.select_inputs import VARIABLES_SOURCE, SelectInputs
from nova_assets.sql.pruning.select_output import SelectOutput
from nova_assets.sql.pruning.select_source import PossibleValues, SelectSource
from nova_assets.sql.pruning.subquery_contexts import SubqueryContexts, is_recursive_cte

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
        self.output = SelectOutput(self.inputs, node, self._find_nullable_sources())
        self.contexts = SubqueryContexts(self.inputs, self.output, self.tester, self.conditions)
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
        return self.output.values_of_output_columns() if self.context.returns_values else {}

    def _find_output_of_subqueries(self) -> None:
        for source in self.sources.values():
            inner = source.subquery_scope
            if inner is not None:
                output_values = self.visit_inner(inner, self.contexts.to_find_output(source, inner))
                self.inputs.set_output_values(source, {} if is_recursive_cte(inner) else output_values)

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
        context = self.contexts.within_expression(records_reads=False)
        output_values = {} if inner is None else self.visit_inner(inner, context)
        if len(output_values) != 1:
            return None
        [listed] = output_values.values()
        tested = self.inputs.compile_expression(node.this)
        if tested.type != listed.type or comparison_casts(listed.type, listed.type, self.pruning_run.zone) is None:
            return None  # two different types are cast to a third

        def is_listed(values: Values) -> Value:
            value = tested.value(values)
            return value if value is UNKNOWN or value is None else value in listed.values

        return Evaluable(is_listed, tested.keys, BOOLEAN, tested.depends_on_data)

    # pruning

    def _remaining_counts(self) -> list[int]:
        """How much is left of each source and of the scopes. Pruning ends when a round leaves the counts unchanged."""
        rows = [len(s.remaining_rows) + sum(map(len, s.output_values.values())) for s in self.sources.values()]
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
            source = self.sources[name]
            if not self.tester.can_prune(condition, source):
                continue
            if source.all_rows is not None:
                self._filter_rows(source, condition, evaluable)
            elif len(keys_by_source[name]) == 1:
                self.tester.filter_output_values(source, condition, evaluable)

    def _filter_rows(self, source: SelectSource, condition: Condition, evaluable: Evaluable) -> None:
        positions = self.tester.passing_positions(source, condition, evaluable)
        if positions is not None:
            source.keep_positions(positions)

    def _filter_target_scopes(self, condition: Condition, evaluable: Evaluable) -> None:
        """Remove the scopes in which a condition drops all rows that stem from the target scan."""
        if VARIABLES_SOURCE not in evaluable.keys_by_source:
            return
        for name in condition.filtered_sources & self.scopes_by_target_source.keys():
            if self.tester.can_prune(condition, self.sources[name]):
                scopes = self.inputs.variables_in_scopes(self.scopes_by_target_source[name])
                self._filter_rows(scopes, condition, evaluable)
                self.scopes_by_target_source[name] = scopes.remaining_rows

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
                self.pruning_run.record_read(
                    source.scan.number, source.remaining_rows, scopes, reads_everything=reads_everything
                )
            elif source.subquery_scope is not None:
                self._record_reads_of_subquery(source, source.subquery_scope, scopes)
        for inner in self.scope.subquery_scopes:
            self.visit_inner(inner, self.contexts.within_expression(records_reads=True))

    def _record_reads_of_subquery(self, source: SelectSource, inner: Scope, scopes: Mapping[int, Row]) -> None:
        if source.has_no_effect and not is_recursive_cte(inner):
            self.pruning_run.record_scans_without_partitions(inner)
        else:
            self.visit_inner(inner, self.contexts.to_record_reads(source, inner, scopes))
