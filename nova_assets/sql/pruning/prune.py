"""Partition pruning: which partitions a query reads, given its FROM, ON, WHERE and HAVING clauses (BigDataFlow, part
2).

Each scan starts with all partitions that the dataset should have, whether or not they exist. A condition prunes the
partitions whose rows it would drop regardless of their data. Conditions are pushed down into subqueries as far as they
drop the same rows there. Comparisons of partition columns propagate from one source to another through the values that
these columns can have.

The reverse question is in which scopes a scan reads given partitions. For it, the scopes are a source like any other,
and conditions prune the scopes that match none of these partitions.

Timestamps are converted to days and hours in UTC. A session in another time zone is refused where this matters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TypeAlias

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, build_scope

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.operand import NotUnderstood, Value
from nova_assets.sql.pruning.conditions import keeps_only_some_rows
from nova_assets.sql.pruning.pruning_run import PruningRun, QueryMemo, VisitContext, iter_scan_numbers
from nova_assets.sql.pruning.select_pruner import SelectPruner
from nova_assets.sql.pruning.select_source import IndexedRows, PossibleValues, Rows, as_indexed_rows
from nova_assets.sql.query.resolved_query import Query
from nova_assets.sql.types.widening import VOID

PartitionsByScan: TypeAlias = Mapping[int, tuple[int, ...]]
"""Scan number -> the partitions that it reads, as positions in the list of its dataset's partitions."""


_NO_ROWS_BY_DATASET: Mapping[str, IndexedRows] = {}


class PartitionPruner:
    """Prunes partitions for one query, and caches everything that depends on the query alone.

    Args:
        query: the query, with every column resolved.
        partition_columns: lower-case names of the partition columns of all datasets.
    """

    def __init__(self, query: Query, partition_columns: frozenset[str] = frozenset()) -> None:
        self.query = query
        self.partition_columns = partition_columns
        root_scope = build_scope(query.tree)
        assert root_scope is not None
        self.root = root_scope
        self.memo = QueryMemo()

    @cached_property
    def datasets_with_listed_values(self) -> frozenset[str]:
        """Datasets in subqueries that list values of partition columns, as in ``day IN (SELECT day FROM calendar WHERE
        open)``, if only their newest state is read. Their rows, if they are few, can take the place of their partitions
        in a pruning run. Everything else follows: conditions of the subquery keep some of the rows, and the values that
        are left prune the partitions of other datasets.

        A join with a small dataset does not prune like that: each change of a dimension would then change which
        partitions its readers read, and replace their results.
        """
        listed = {self.query.scans[number].dataset for number in _listing_scans(self.root, self.partition_columns)}
        return frozenset(listed - {scan.dataset for scan in self.query.scans if scan.mode not in ("all", "whole")})

    def required_partitions(
        self,
        partitions_by_dataset: Mapping[str, Rows],
        variables: Mapping[str, Value],
        listed_rows: Mapping[str, IndexedRows] = _NO_ROWS_BY_DATASET,
    ) -> PartitionsByScan:
        """The partitions that each scan reads.

        Args:
            partitions_by_dataset: dataset -> all partitions that it should have. An unpartitioned dataset has a single
                partition without values.
            variables: values of the scope's variables.
            listed_rows: for some of ``datasets_with_listed_values``, all their rows.

        Raises:
            SqlError: a condition on partitions cannot be evaluated.
        """
        scopes = IndexedRows([variables])
        positions_by_scan = self._run(partitions_by_dataset, scopes).positions_by_scan
        if any(len(rows) for rows in listed_rows.values()):
            by_values = self._run({**partitions_by_dataset, **listed_rows}, scopes).positions_by_scan
            positions_by_scan |= {
                n: p for n, p in by_values.items() if self.query.scans[n].dataset not in listed_rows
            }  # where the rows stand for a dataset's partitions, positions are those of rows
        everything = {s.number: range(len(partitions_by_dataset.get(s.dataset, ()))) for s in self.query.scans}
        return {
            n: tuple(sorted(positions_by_scan.get(n, every))) for n, every in everything.items()
        }  # a scan that was not visited reads all

    def ignored_conditions(
        self,
        partitions_by_dataset: Mapping[str, Rows],
        variables: Mapping[str, Value],
        listed_rows: Mapping[str, IndexedRows] = _NO_ROWS_BY_DATASET,
    ) -> tuple[NotUnderstood, ...]:
        """Parts of conditions on partition columns that prune nothing because no rule can evaluate them. Arguments
        as for ``required_partitions``.
        """
        run = self._run({**partitions_by_dataset, **listed_rows}, IndexedRows([variables]))
        return tuple(run.ignored_conditions.values())

    def reading_scopes(
        self,
        partitions_by_dataset: Mapping[str, Rows],
        scopes: Rows,
        scan_number: int,
        partition_positions: Collection[int],
    ) -> frozenset[int]:
        """The scopes in which a scan may read some partitions. The result never misses a scope, and may contain too
        many.

        Args:
            partitions_by_dataset: dataset -> all partitions that it should have.
            scopes: the values of the variables. The result contains positions in this list.
            partition_positions: positions of the partitions in the list of the scan's dataset.

        Raises:
            SqlError: a condition on partitions cannot be evaluated.
        """
        all_scopes = as_indexed_rows(scopes)
        is_same_in_all_scopes = not self.query.variables  # without variables, all scopes read the same
        considered = all_scopes.at(range(min(1, len(all_scopes)))) if is_same_in_all_scopes else all_scopes
        pruning_run = self._run(partitions_by_dataset, considered, scan_number, partition_positions)
        positions = pruning_run.reading_scopes if pruning_run.is_target_visited else considered.by_position.keys()
        return frozenset(all_scopes.by_position if is_same_in_all_scopes and positions else positions)

    def _run(
        self,
        partitions_by_dataset: Mapping[str, Rows],
        scopes: IndexedRows,
        target_scan: int | None = None,
        target_positions: Collection[int] = (),
    ) -> PruningRun:
        listings = {name: as_indexed_rows(rows) for name, rows in partitions_by_dataset.items()}
        pruning_run = PruningRun(self.query, listings, scopes, self.memo, target_scan)
        if target_scan is not None:
            all_rows = pruning_run.expected_partitions(self.query.scans[target_scan].dataset)
            pruning_run.target_rows = all_rows.at(target_positions)
        _QueryWalk(pruning_run).visit(self.root, VisitContext(True, scopes, returns_values=False))
        return pruning_run


def _listing_scans(root: Scope, partition_columns: frozenset[str]) -> Iterator[int]:
    for scope in root.traverse():
        for inner in scope.subquery_scopes:
            parent = inner.expression.find_ancestor(exp.In, exp.Select)
            if isinstance(parent, exp.In) and _has_only(parent.this, partition_columns):
                yield from iter_scan_numbers(inner)


def _has_only(tested: exp.Expr, partition_columns: frozenset[str]) -> bool:
    columns = {column.name.lower() for column in tested.find_all(exp.Column)}
    return bool(columns) and columns <= partition_columns


class _QueryWalk:
    """Visits the scopes of a query for one pruning run, outermost first."""

    def __init__(self, pruning_run: PruningRun) -> None:
        self.pruning_run = pruning_run
        self.open_scopes: set[int] = set()

    def visit(self, scope: Scope, context: VisitContext) -> dict[str, PossibleValues]:
        """Record what a query and all its subqueries read. Returns the possible values of the output columns for
        which they can be determined.
        """
        if id(scope) in self.open_scopes:  # a recursive CTE
            return {}
        self.open_scopes.add(id(scope))
        try:
            if isinstance(scope.expression, exp.SetOperation):
                return self._visit_set_operation(scope, scope.expression, context)
            if isinstance(scope.expression, exp.Select):
                return SelectPruner(self.pruning_run, scope, scope.expression, context, self.visit).visit()
            for inner in (*scope.derived_table_scopes, *scope.subquery_scopes):
                self.visit(
                    inner, VisitContext(context.records_reads, context.scopes, outer_values=context.outer_values)
                )
            return {}
        finally:
            self.open_scopes.discard(id(scope))

    def _conditions_for_sides(self, scope: Scope, context: VisitContext) -> list[exp.Expr]:
        """Outer conditions on columns that have the same type on both sides. Columns of two different types are cast
        to a third type.
        """
        if not context.outer_conditions:
            return []
        output_context = VisitContext(False, context.scopes, outer_values=context.outer_values)
        sides = [list(self._output_values_of_side(side, output_context)) for side in scope.set_operation_scopes]
        names = _output_names(scope.expression)
        columns_with_one_type = {
            name.lower()
            for name, left, right in zip(names, *sides, strict=False)
            if left is not None and right is not None and _shared_type(left, right) is not None
        }
        return [
            condition
            for condition in context.outer_conditions
            if all(
                c.name.lower() in columns_with_one_type
                for c in condition.find_all(exp.Column)
                if c.table == context.outer_name
            )
        ]

    def _output_values_of_side(self, side: Scope, context: VisitContext) -> Iterator[PossibleValues | None]:
        values_by_column = self.visit(side, context)
        yield from (values_by_column.get(name) for name in _output_names(side.expression))

    def _visit_set_operation(
        self, scope: Scope, node: exp.SetOperation, context: VisitContext
    ) -> dict[str, PossibleValues]:
        """Visit a set operation. Outer conditions are passed to each side with that side's column names, for UNION,
        INTERSECT and EXCEPT alike.
        """
        names, memo = node.named_selects, self.pruning_run.memo
        sides = []
        passed_conditions = [] if keeps_only_some_rows(node) else self._conditions_for_sides(scope, context)
        for side in scope.set_operation_scopes:
            side_names = _output_names(side.expression)
            is_truncated = keeps_only_some_rows(side.expression)
            side_conditions = [
                memo.memoize(
                    ("renamed", id(a), id(side)), partial(_rename_columns, a, context.outer_name, names, side_names)
                )
                for a in (() if is_truncated else passed_conditions)
            ]
            output = self.visit(
                side,
                VisitContext(
                    context.records_reads, context.scopes, side_conditions, context.outer_name, context.outer_values
                ),
            )
            sides.append([output.get(name) for name in side_names])
        values_by_column = {name: _combine_sides(node, *pair) for name, *pair in zip(names, *sides, strict=False)}
        return {name: values for name, values in values_by_column.items() if values is not None}


def _shared_type(left: PossibleValues, right: PossibleValues) -> DataType | None:
    """The type that a column keeps on both sides of a set operation. None if the types differ, so that a side is
    cast.
    """
    if VOID in (left.type, right.type):
        return right.type if left.type == VOID else left.type
    return left.type if left.type == right.type else None


def _output_names(node: exp.Expr) -> list[str]:
    return list(node.named_selects) if isinstance(node, exp.Query) else []


def _combine_sides(
    node: exp.SetOperation, left: PossibleValues | None, right: PossibleValues | None
) -> PossibleValues | None:
    type_ = None if left is None or right is None else _shared_type(left, right)
    if left is None or right is None or type_ is None:
        return None
    if isinstance(node, exp.Except):
        return PossibleValues(type_, left.values)
    if isinstance(node, exp.Intersect):
        return PossibleValues(type_, left.values & right.values)
    return PossibleValues(type_, left.values | right.values)


def _rename_columns(condition: exp.Expr, source: str, old_names: Sequence[str], new_names: Sequence[str]) -> exp.Expr:
    new_name_by_old = dict(zip(old_names, new_names, strict=False))
    renamed = condition.copy()
    for column in renamed.find_all(exp.Column):
        if column.table == source and column.name in new_name_by_old:
            column.set("this", exp.to_identifier(new_name_by_old[column.name]))
    return renamed
