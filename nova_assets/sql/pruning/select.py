"""Partition pruning within one SELECT: apply its conditions to its sources until nothing more is pruned.

A condition prunes the rows of a source that match no combination of rows of the other sources. Everything that depends
on the query alone is memoized, so a question about another scope needs only lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import TypeAlias

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import BOOLEAN, Cast
from nova_assets.sql.evaluation.comparing import comparison_casts
from nova_assets.sql.evaluation.evaluator import Evaluator
from nova_assets.sql.evaluation.operand import Evaluable
from nova_assets.sql.evaluation.values import UNKNOWN, Key, Value, Values, is_true_or_unknown
from nova_assets.sql.pruning.conditions import (
    Condition,
    NullRejecting,
    find_nullable_sources,
    rename_other_sources,
    select_conditions,
    sources_not_reaching_result,
    with_source_nulled,
)
from nova_assets.sql.pruning.expression_index import ExpressionIndex, comparable_or_none
from nova_assets.sql.pruning.predicate_pushdown import has_grouping_sets, keeps_only_some_rows
from nova_assets.sql.pruning.question import PruningRun, VisitContext
from nova_assets.sql.pruning.sources import MAX_COMBINATIONS, PossibleValues, SelectSource
from nova_assets.sql.query.scans import scan_number

VisitScope: TypeAlias = Callable[[Scope, VisitContext], dict[str, PossibleValues]]
"""Visits a subquery and returns the possible values of its output columns."""

_EqualitySides: TypeAlias = tuple[exp.Expr, Evaluable, exp.Expr, Evaluable]
"""The two sides of ``a = b``: the side of one source, and the side of the others, each as node and evaluable."""

_MAX_ROUNDS = 8

_VARIABLES_SOURCE = ""
"""Name of the source that holds the scope's variables."""


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
        self.sources = {s.name: s for s in self._make_sources()}
        self.variables = SelectSource(
            _VARIABLES_SOURCE, pruning_run.variable_types, all_rows=pruning_run.scopes, remaining_rows=context.scopes
        )
        self.scopes_by_target_source = {n: context.scopes for n, s in self.sources.items() if self._contains_target(s)}
        self.evaluator = Evaluator(self._resolve_column, pruning_run.zone)
        self.column_types_key = self._make_column_types_key()
        null_rejecting = self.rejecting = self._null_rejecting_sources()
        self.conditions = self._conditions_of_select(null_rejecting)
        names = list(self.sources)
        self.nullable_sources = self.memo.memoize(
            ("optional", id(node), null_rejecting), lambda: find_nullable_sources(node, names, null_rejecting)
        )

    def visit(self) -> dict[str, PossibleValues]:
        for source in self.sources.values():
            if source.subquery_scope is not None:
                output = self.visit_inner(source.subquery_scope, self._inner_context(source, for_output_only=True))
                source.output_values = {} if _is_recursive_cte(source.subquery_scope) else output
                self.column_types_key = self._make_column_types_key()
        compiled = [(c, how) for c in self.conditions if (how := self._compile_condition(c)) is not None]
        compiled.sort(key=lambda one: len(self.sources.keys() & one[1].keys_by_source.keys()))
        for _ in range(_MAX_ROUNDS):
            before = self._remaining_counts()
            for condition, how in compiled:
                self._apply_condition(condition, how)
            if self._remaining_counts() == before:
                break
        self._empty_sources_without_effect()
        if self.context.records_reads:
            self._record_reads()
        return self._output_values() if self.context.returns_values else {}

    # sources

    def _make_sources(self) -> Iterator[SelectSource]:
        for name, node in self.scope.references:  # ``references`` includes the sources of SEMI and ANTI joins
            source = self.scope.sources.get(name)
            sampled = node.args.get("sample") is not None
            number = scan_number(source) if isinstance(source, exp.Table) else None
            if number is not None:
                scan = self.pruning_run.query.scans[number]
                listing = self.pruning_run.expected_partitions(scan.dataset)
                is_target = self.context.records_reads and number == self.pruning_run.target_scan
                rows = self.pruning_run.target_rows if is_target else listing.rows
                types = self.pruning_run.column_types(scan.dataset)
                yield SelectSource(name, types, scan, is_sampled=sampled, all_rows=listing, remaining_rows=rows)
            else:
                yield SelectSource(
                    name, subquery_scope=source if isinstance(source, Scope) else None, is_sampled=sampled
                )

    def _contains_target(self, source: SelectSource) -> bool:
        if self.pruning_run.target_scan is None or not self.context.records_reads:
            return False
        if source.scan is not None:
            return source.scan.number == self.pruning_run.target_scan
        return source.subquery_scope is not None and self.pruning_run.contains_target(source.subquery_scope)

    def _resolve_column(self, column: exp.Column | exp.Placeholder) -> tuple[Key, DataType] | None:
        """Key and type of a variable, a partition column, or an output column of a subquery. None for other columns."""
        if isinstance(column, exp.Placeholder):
            type_ = self.pruning_run.variable_types.get(column.name)
            return None if type_ is None else ((_VARIABLES_SOURCE, column.name), type_)
        key = (column.table, column.name.lower())
        source = self.sources.get(column.table)
        if source is None:
            among = self.context.outer_values.get(key)
            return None if among is None else (key, among.type)
        type_ = source.type_of_column(key[1])
        return None if type_ is None else (key, type_)

    def _make_column_types_key(self) -> tuple[object, ...]:
        """Memo key that covers everything on which ``_resolve_column`` depends."""
        columns = (
            s.all_rows.columns if s.all_rows is not None else frozenset((n, a.type) for n, a in s.output_values.items())
            for s in self.sources.values()
        )
        return (id(self.scope), frozenset((k, a.type) for k, a in self.context.outer_values.items()), *columns)

    # conditions

    def _conditions_of_select(self, null_rejecting: NullRejecting) -> list[Condition]:
        asked, source, names = self.context.outer_conditions, self.context.outer_name, list(self.sources)
        return self.memo.memoize(
            ("conditions", id(self.node), source, null_rejecting, *map(id, asked)),
            lambda: list(select_conditions(self.node, names, asked, source, null_rejecting)),
        )

    def _null_rejecting_sources(self) -> NullRejecting:
        """The sources for which rows with nulls in their place are dropped, and the join that drops them. Rejecting
        nulls at one join can make conditions of earlier joins drop more rows, so the search repeats until it is
        stable. The result depends on the scopes and on the listed partitions, so the query's memo does not keep it.
        """
        found: NullRejecting = frozenset()
        for _ in range(_MAX_ROUNDS):
            more = frozenset(
                (name, c.join_index)
                for c in self._conditions_of_select(found)
                if c.join_index is not None
                for name in c.nullable_sources & c.filtered_sources
                if self._rejects_nulls(c, name)
            )
            if more <= found:
                break
            found |= more
        return found

    def _compile(self, node: exp.Expr) -> Evaluable:
        """The compiled expression, memoized for the query."""
        return self.memo.memoize(
            ("how", id(node), self.column_types_key), lambda: self.evaluator.compile_expression(node)
        )

    def _compile_condition(self, condition: Condition) -> Evaluable | None:
        """The compiled condition. None if the condition cannot prune anything."""
        node = condition.node
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._compile_in_subquery(node)
        found = self._compile(node)
        if self.context.records_reads:
            self.pruning_run.ignored_conditions |= {id(part.node): part for part in found.not_understood}
        return found if found.keys or not found.depends_on_data else None

    def _compile_in_subquery(self, node: exp.In) -> Evaluable | None:
        """The compiled ``day IN (SELECT day FROM ...)``. None unless the possible values of the inner column are
        known.
        """
        inner = next((s for s in self.scope.subquery_scopes if s.expression is node.args["query"].unnest()), None)
        call = VisitContext(False, self.context.scopes, outer_values=self._visible_values())
        output = {} if inner is None else self.visit_inner(inner, call)
        if len(output) != 1:
            return None
        [among] = output.values()
        of = self._compile(node.this)
        if of.type != among.type or comparison_casts(among.type, among.type, self.pruning_run.zone) is None:
            return None  # two different types are cast to a third

        def held(values: Values) -> Value:
            found = of.value(values)
            return found if found is UNKNOWN or found is None else found in among.values

        return Evaluable(held, of.keys, BOOLEAN, of.depends_on_data)

    # pruning

    def _remaining_counts(self) -> list[int]:
        left = [len(s.remaining_rows) + sum(map(len, s.output_values.values())) for s in self.sources.values()]
        return [*left, *map(len, self.scopes_by_target_source.values())]

    def _empty_sources_without_effect(self) -> None:
        """Prune all rows of sources that are joined with an empty source."""
        empty = frozenset(n for n, s in self.sources.items() if s.is_empty)
        of = ("no effect", id(self.node), empty, self.rejecting)
        lost = self.memo.memoize(of, lambda: sources_not_reaching_result(self.node, empty, self.rejecting))
        for name in lost & self.sources.keys():
            source = self.sources[name]
            source.remove_all_rows()
            source.has_no_effect = not source.is_sampled

    def _apply_condition(self, condition: Condition, evaluable: Evaluable) -> None:
        """Prune the rows that cannot meet a condition, whatever rows the other sources have."""
        keys_by_source = evaluable.keys_by_source
        self._filter_target_scopes(condition, evaluable)
        if (
            not keys_by_source.keys() & condition.filtered_sources
        ):  # the condition names no filtered source: it drops all rows, or none
            other_values = self._combinations_of_others(condition, keys_by_source, None)
            if other_values is not None and not any(
                is_true_or_unknown(evaluable.value(other)) for other in other_values
            ):
                for name in condition.filtered_sources:
                    self.sources[name].remove_all_rows()
            return
        for name in sorted(condition.filtered_sources & keys_by_source.keys()):
            source = self.sources[name]
            if source.is_sampled or (name in condition.nullable_sources and not self._rejects_nulls(condition, name)):
                continue
            if source.all_rows is not None:
                self._filter_rows(source, condition, evaluable)
            elif len(keys_by_source[name]) == 1:
                self._filter_output_values(source, condition, evaluable)

    def _filter_rows(self, source: SelectSource, condition: Condition, evaluable: Evaluable) -> None:
        good = self._passing_positions(source, condition, evaluable)
        if good is not None:
            source.keep_positions(good)

    def _filter_output_values(self, source: SelectSource, condition: Condition, evaluable: Evaluable) -> None:
        """Remove the values of a subquery's column that cannot meet a condition."""
        [key] = evaluable.keys_by_source[source.name]
        other_values = self._combinations_of_others(condition, evaluable.keys_by_source, source.name)
        if other_values is None:
            return
        test = self._make_condition_test(condition, evaluable, source.name, other_values)
        source.output_values[key[1]] = source.output_values[key[1]].matching(lambda v: test({key: v}))

    def _filter_target_scopes(self, condition: Condition, evaluable: Evaluable) -> None:
        """Remove the scopes in which a condition drops all rows that stem from the target scan."""
        if _VARIABLES_SOURCE not in evaluable.keys_by_source:
            return
        for name in condition.filtered_sources & self.scopes_by_target_source.keys():
            if self.sources[name].is_sampled or (
                name in condition.nullable_sources and not self._rejects_nulls(condition, name)
            ):
                continue
            scopes = SelectSource(
                _VARIABLES_SOURCE, all_rows=self.pruning_run.scopes, remaining_rows=self.scopes_by_target_source[name]
            )
            good = self._passing_positions(scopes, condition, evaluable)
            if good is not None:
                scopes.keep_positions(good)
                self.scopes_by_target_source[name] = scopes.remaining_rows

    def _passing_positions(self, source: SelectSource, condition: Condition, evaluable: Evaluable) -> list[int] | None:
        """Positions of the rows that meet a condition together with some combination of the other sources. None if
        there are too many combinations.
        """
        keys = evaluable.keys_by_source[source.name]
        other_values = self._combinations_of_others(condition, evaluable.keys_by_source, source.name)
        if other_values is None:
            return None
        columns = [k[1] for k in keys]
        found = self._rows_by_index(source, condition, columns, other_values)
        together = source.positions_by_values(columns)
        if found is None:
            test = self._make_condition_test(condition, evaluable, source.name, other_values)
            found = [values for values in together if test(dict(zip(keys, values, strict=True)))]
        return [n for values in found for n in together[values]]

    def _rows_by_index(
        self, source: SelectSource, condition: Condition, columns: Sequence[str], other_values: Sequence[Values]
    ) -> list[tuple[Value, ...]] | None:
        """For ``a = b`` between one complete source and others: the source's values that equal a value of the
        others, looked up in an index instead of evaluated row by row. None if the index cannot decide.
        """
        listing = source.unfiltered_rows
        sides = self._equality_sides(condition, source.name) if listing is not None else None
        if listing is None or sides is None:
            return None
        mine, of, _, to = sides
        casts = self._side_casts(of, to)
        if casts is None:
            return None
        to_mine, to_other = casts
        keys = [(source.name, c) for c in columns]
        among = self._comparable_values(self._values_of_other_side(sides, other_values), to_other)
        told = listing.memoize(
            ("told", self._expression_key(mine, of), *columns),
            lambda: ExpressionIndex(of, keys, listing.positions_by_values(columns)),
        )
        assert to.type is not None
        values = told.rows_by_comparable(to.type, to_mine)
        if values is None or among is None:
            return None
        return [row for v in among for row in values.get(v, ())]

    def _side_casts(self, own_side: Evaluable, other_side: Evaluable) -> tuple[Cast, Cast] | None:
        """Casts that make the values of the two sides comparable. None if the types cannot be compared."""
        return (
            None
            if own_side.type is None or other_side.type is None
            else comparison_casts(own_side.type, other_side.type, self.pruning_run.zone)
        )

    @staticmethod
    def _comparable_values(values: Collection[Value], to_comparable: Cast) -> frozenset[Value] | None:
        """All non-null values, cast for the comparison. None if one of them is unknown."""
        found = [comparable_or_none(v, to_comparable) for v in values if v is not None]
        return None if None in found else frozenset(found)

    def _expression_key(self, node: exp.Expr, evaluable: Evaluable) -> Hashable:
        """Memo key of an expression. An expression of variables alone has the same values in all queries, so its key
        is its text, which other queries share.
        """
        if evaluable.keys_by_source.keys() != {_VARIABLES_SOURCE}:
            return id(evaluable)
        return self.memo.memoize(("named", id(node)), lambda: node.sql("spark")), str(self.pruning_run.zone)

    def _values_of_other_side(self, sides: _EqualitySides, other_values: Sequence[Values]) -> frozenset[Value]:
        """All values of the other side of ``a = b``."""
        _, _, node, to = sides
        all_scopes = to.keys_by_source.keys() == {_VARIABLES_SOURCE} and self.variables.unfiltered_rows
        if not all_scopes:
            return frozenset(map(to.value, other_values))
        return all_scopes.memoize(
            ("come to", self._expression_key(node, to)), lambda: frozenset(map(to.value, other_values))
        )

    def _make_condition_test(
        self, condition: Condition, evaluable: Evaluable, source_name: str, other_values: Sequence[Values]
    ) -> Callable[[Values], bool]:
        """Test whether a condition may hold for some values of one source, with some combination of the other
        sources.
        """
        is_equal = self._make_equality_test(condition, source_name, other_values)

        def may_pass(mine: Values) -> bool:
            found = None if is_equal is None else is_equal(mine)
            if found is None:
                return any(is_true_or_unknown(evaluable.value({**other, **mine})) for other in other_values)
            return found

        return may_pass

    def _equality_sides(self, condition: Condition, source_name: str) -> _EqualitySides | None:
        """The two sides of ``a = b``, one of a single source and one of the others. None if the condition has
        another form or depends on data.
        """
        node = condition.node.unnest()
        if not isinstance(node, exp.EQ):
            return None
        for mine, other in ((node.this, node.expression), (node.expression, node.this)):
            of, to = self._compile(mine), self._compile(other)
            apart = of.keys_by_source.keys() == {source_name} and source_name not in to.keys_by_source
            if apart and not of.depends_on_data and not to.depends_on_data:
                return mine, of, other, to
        return None

    def _make_equality_test(
        self, condition: Condition, source_name: str, other_values: Sequence[Values]
    ) -> Callable[[Values], bool | None] | None:
        """Test whether the others can equal the source's side of ``a = b``. The test returns None if it cannot
        decide.
        """
        sides = self._equality_sides(condition, source_name)
        if sides is None:
            return None
        _, of, _, to = sides
        casts = self._side_casts(of, to)
        among = (
            None
            if casts is None
            else self._comparable_values(self._values_of_other_side(sides, other_values), casts[1])
        )
        if casts is None or among is None:
            return None
        to_mine = casts[0]

        def is_among(mine: Values) -> bool | None:
            found = of.value(mine)
            value = None if found is None else comparable_or_none(found, to_mine)
            return None if value is None else value in among

        return is_among

    def _combinations_of_others(
        self, condition: Condition, keys_by_source: Mapping[str, Sequence[Key]], excluded_source: str | None
    ) -> list[dict[Key, Value]] | None:
        """All combinations of values of the other sources' columns and of the variables. None if there are too many.

        Args:
            excluded_source: the source to leave out.
        """
        parts: list[list[dict[Key, Value]]] = []
        for other, keys in keys_by_source.items():
            if other == excluded_source:
                continue
            found = self._combinations_of_source(other, keys)
            if found is None:
                return None
            if other in condition.nullable_sources:
                found = [*found, dict.fromkeys(keys)]
            parts.append(found)
        if len(parts) == 1:
            return parts[0]
        if prod(map(len, parts)) > MAX_COMBINATIONS:
            return None
        return [{k: v for one in some for k, v in one.items()} for some in product(*parts)]

    def _combinations_of_source(self, source_name: str, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        if source_name == _VARIABLES_SOURCE:
            return self.variables.distinct_combinations(keys)
        source = self.sources.get(source_name)
        if source is None:
            beside = SelectSource(source_name, output_values={k[1]: self.context.outer_values[k] for k in keys})
            return beside.distinct_combinations(keys)
        return source.distinct_combinations(keys)

    def _rejects_nulls(self, condition: Condition, source_name: str) -> bool:
        """Whether a condition drops rows with nulls in place of a source. If not, an outer join keeps rows without a
        match in this source, and pruning the source would create such rows.
        """
        without = self.memo.memoize(
            ("without", id(condition.node), source_name), lambda: with_source_nulled(condition.node, source_name)
        )
        if without is None:
            return False
        evaluable = self._compile(without)
        other_values = self._combinations_of_others(condition, evaluable.keys_by_source, None)
        return other_values is not None and not any(
            is_true_or_unknown(evaluable.value(other)) for other in other_values
        )

    # subqueries and output

    def _record_reads(self) -> None:
        for source in self.sources.values():
            scopes = self.scopes_by_target_source.get(source.name, self.context.scopes)
            if source.scan is not None:
                whole = source.scan.mode == "whole"
                self.pruning_run.record_read(source.scan.number, source.remaining_rows, scopes, reads_everything=whole)
            elif (
                source.subquery_scope is not None
                and source.has_no_effect
                and not _is_recursive_cte(source.subquery_scope)
            ):
                self.pruning_run.record_no_reads(source.subquery_scope)
            elif source.subquery_scope is not None:
                self.visit_inner(source.subquery_scope, self._inner_context(source, for_output_only=False))
        for inner in self.scope.subquery_scopes:
            self.visit_inner(
                inner,
                VisitContext(True, self.context.scopes, outer_values=self._visible_values(), returns_values=False),
            )

    def _visible_values(self) -> dict[Key, PossibleValues]:
        """Possible values of all columns that a correlated subquery can refer to."""
        found = dict(self.context.outer_values)
        for source in self.sources.values():
            for name in source.known_columns:
                among = self._values_of_column(source, name)
                if among is not None:
                    found[source.name, name] = among
        return found

    def _values_of_column(self, source: SelectSource, column: str) -> PossibleValues | None:
        """Possible values of a source's column in this SELECT, including null where an outer join or grouping sets
        produce it.
        """
        among = source.possible_values(column)
        nulls = source.name in self.nullable_sources or has_grouping_sets(self.node)
        return among.with_null() if among is not None and nulls else among

    def _inner_context(self, source: SelectSource, for_output_only: bool) -> VisitContext:
        """The context in which a subquery in FROM is visited, with the conditions on its output.

        Args:
            for_output_only: whether the visit determines the output values, with conditions on the subquery alone.
                Otherwise the visit records reads, with all conditions.
        """
        inner = source.subquery_scope
        assert inner is not None
        scopes = (
            self.context.scopes
            if for_output_only
            else self.scopes_by_target_source.get(source.name, self.context.scopes)
        )
        beside = {} if inner.is_cte else dict(self.context.outer_values)
        if _is_recursive_cte(inner) or keeps_only_some_rows(inner.expression) or source.is_sampled:
            return VisitContext(not for_output_only, scopes, (), source.name, beside, returns_values=for_output_only)
        asked: list[exp.Expr] = []
        for condition in self.conditions:
            if source.name not in condition.filtered_sources:
                continue
            node, others = self._rename_other_sources(condition.node, source.name)
            if node is None or (
                source.name in condition.nullable_sources and not self._rejects_nulls(condition, source.name)
            ):
                continue
            if not (for_output_only and others):
                asked.append(node)
                beside |= others
        return VisitContext(not for_output_only, scopes, asked, source.name, beside, returns_values=for_output_only)

    def _rename_other_sources(
        self, condition: exp.Expr, source_name: str
    ) -> tuple[exp.Expr | None, dict[Key, PossibleValues]]:
        """A condition as an outer condition for one source: columns of other sources get names that are unique
        inside the subquery, and their possible values are returned. None if the condition does not refer to the
        source.
        """
        found, named = self.memo.memoize(
            ("apart", id(condition), source_name, id(self.scope)),
            lambda: rename_other_sources(condition, source_name, f"@{id(self.scope)}"),
        )
        others = {}
        for apart, (table, column) in named.items():
            among = self._values_by_name(table, column)
            if among is not None:
                others[apart] = among
        return found, others

    def _values_by_name(self, source_name: str, column: str) -> PossibleValues | None:
        source = self.sources.get(source_name)
        if source is None or column not in source.known_columns:
            return self.context.outer_values.get((source_name, column))
        return self._values_of_column(source, column)

    def _output_values(self) -> dict[str, PossibleValues]:
        """Possible values of the output columns."""
        if has_grouping_sets(self.node):
            return {}
        found = {}
        for select in self.node.selects:
            among = self._expression_values(select.unalias())
            if among is not None:
                found[select.alias_or_name] = among
        return found

    def _expression_values(self, node: exp.Expr) -> PossibleValues | None:
        if self.memo.memoize(("by row", id(node)), lambda: node.find(*_MULTI_ROW_NODES) is not None):
            return None
        how = self._compile(node)
        parts = [self._combinations_with_nulls(name, keys) for name, keys in how.keys_by_source.items()]
        if how.type is None or how.depends_on_data or any(p is None for p in parts):
            return None
        if prod(len(p or ()) for p in parts) > MAX_COMBINATIONS:
            return None
        each = product(*(p or () for p in parts))
        found = {how.value({k: v for one in some for k, v in one.items()}) for some in each}
        return None if UNKNOWN in found else PossibleValues(how.type, frozenset(found))

    def _combinations_with_nulls(self, source_name: str, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        found = self._combinations_of_source(source_name, keys)
        return [*found, dict.fromkeys(keys)] if found is not None and source_name in self.nullable_sources else found


_MULTI_ROW_NODES = (exp.AggFunc, exp.Window, exp.Query, exp.Explode)


def _is_recursive_cte(scope: Scope) -> bool:
    within = scope.expression.find_ancestor(exp.With)
    return within is not None and bool(within.args.get("recursive"))
