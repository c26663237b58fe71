"""Contexts in which the subqueries of a SELECT are visited: the scopes, conditions and values that they get from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.sql.evaluation.operand import Key
from nova_assets.sql.pruning.condition_tester import ConditionTester
from nova_assets.sql.pruning.conditions import Condition, rename_other_sources
from nova_assets.sql.pruning.indexed_rows import Row
from nova_assets.sql.pruning.predicate_pushdown import keeps_only_some_rows
from nova_assets.sql.pruning.pruning_run import VisitContext
from nova_assets.sql.pruning.select_inputs import SelectInputs
from nova_assets.sql.pruning.select_output import SelectOutput
from nova_assets.sql.pruning.select_source import PossibleValues, SelectSource


class SubqueryContexts:
    """Creates the contexts for the subqueries of one SELECT.

    Args:
        inputs: the sources and variables of the SELECT.
        conditions: the conditions of the SELECT.
    """

    def __init__(
        self, inputs: SelectInputs, output: SelectOutput, tester: ConditionTester, conditions: Sequence[Condition]
    ) -> None:
        self.inputs = inputs
        self.output = output
        self.tester = tester
        self.conditions = conditions

    def to_find_output(self, source: SelectSource, inner: Scope) -> VisitContext:
        """The context that determines the output values of a subquery in FROM. It passes the conditions that use the
        subquery alone, because the rows of the other sources are not pruned yet.
        """
        outer_values = self._outer_values_of(inner)
        return VisitContext(
            False,
            self.inputs.context.scopes,
            [
                condition
                for condition, values_of_others in self._conditions_on_output(source, inner)
                if not values_of_others
            ],
            source.name,
            outer_values,
        )

    def to_record_reads(self, source: SelectSource, inner: Scope, scopes: Mapping[int, Row]) -> VisitContext:
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

    def within_expression(self, *, records_reads: bool) -> VisitContext:
        """The context of a subquery in an expression, which can refer to all columns of the SELECT."""
        return VisitContext(
            records_reads,
            self.inputs.context.scopes,
            outer_values=self.output.values_visible_to_subqueries(),
            returns_values=not records_reads,
        )

    def _outer_values_of(self, inner: Scope) -> dict[Key, PossibleValues]:
        """The values of the surrounding query that a subquery can refer to. A CTE can refer to none."""
        return {} if inner.is_cte else dict(self.inputs.context.outer_values)

    def _conditions_on_output(
        self, source: SelectSource, inner: Scope
    ) -> Iterator[tuple[exp.Expr, dict[Key, PossibleValues]]]:
        """The conditions that a subquery in FROM may apply to its own output, each with the possible values of the
        columns of other sources. None if the output depends on all rows of the subquery.
        """
        if is_recursive_cte(inner) or keeps_only_some_rows(inner.expression) or source.is_sampled:
            return
        for condition in self.conditions:
            if source.name not in condition.filtered_sources:
                continue
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
        scope_id = id(self.inputs.scope)
        renamed, original_by_alias = self.inputs.memo.memoize(
            ("other sources renamed", id(condition), source_name, scope_id),
            lambda: rename_other_sources(condition, source_name, f"@{scope_id}"),
        )
        values_by_alias = {}
        for alias, (table, column) in original_by_alias.items():
            values = self.output.values_of_column(table, column)
            if values is not None:
                values_by_alias[alias] = values
        return renamed, values_by_alias


def is_recursive_cte(scope: Scope) -> bool:
    with_clause = scope.expression.find_ancestor(exp.With)
    return with_clause is not None and bool(with_clause.args.get("recursive"))
