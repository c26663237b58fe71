"""Which partitions a query reads, by what it says in FROM, ON, WHERE and HAVING (BigDataFlow, part 2).

Each place that reads a dataset begins with all partitions that the dataset should have, whether they exist or not. A
condition takes away those whose rows it would drop whatever their data. Conditions are followed down into subqueries,
as far as rows may be dropped there just as well; and from one source to another, where partition columns are compared,
by the values that these can have.

The other way round, in which scopes some partitions are read, all scopes are a source like any other, and conditions
take those of them away that no such partition goes together with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from functools import partial
from typing import TypeAlias

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, build_scope

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.operand import NotUnderstood
from nova_assets.sql.evaluation.values import Value
from nova_assets.sql.pruning.partition_lookup import Listing, Row, listed
from nova_assets.sql.pruning.predicate_pushdown import is_cut_off
from nova_assets.sql.pruning.question import Call, Memory, Question
from nova_assets.sql.pruning.select import Select
from nova_assets.sql.pruning.sources import Among, Partition
from nova_assets.sql.query.query import Query
from nova_assets.sql.types.widening import VOID

Needed: TypeAlias = Mapping[int, tuple[int, ...]]
"""Scan -> the partitions that it reads, by their positions in the list of its dataset's."""


class Pruning:
    """Answers questions about one query, and remembers what hangs on nothing else.

    Args:
        query: with every column told.
        zone: in which moments are told apart by day.
    """

    def __init__(self, query: Query, zone: tzinfo = UTC) -> None:
        self.query = query
        self.zone = zone
        root = build_scope(query.tree)
        assert root is not None
        self.root = root
        self.memory = Memory()

    def needed(self, partitions: Mapping[str, Sequence[Partition]], variables: Mapping[str, Value]) -> Needed:
        """The partitions that each scan reads.

        Args:
            partitions: dataset -> all that it should have. One that is not partitioned has a single one, without
                values.
            variables: of the scope.

        Raises:
            SqlError: a condition on partitions cannot be computed.
        """
        found = self._asked(partitions, Listing([variables])).found
        everything = {s.number: range(len(partitions.get(s.dataset, ()))) for s in self.query.scans}
        return {n: tuple(sorted(found.get(n, every))) for n, every in everything.items()}  # of one not met, all

    def not_understood(
        self, partitions: Mapping[str, Sequence[Partition]], variables: Mapping[str, Value]
    ) -> tuple[NotUnderstood, ...]:
        """Parts of conditions on partitions that prune none, since no rule understands them. Asked as ``needed``."""
        return tuple(self._asked(partitions, Listing([variables])).not_understood.values())

    def readers(
        self,
        partitions: Mapping[str, Sequence[Partition]],
        scopes: Sequence[Row],
        scan: int,
        wanted: Collection[int],
    ) -> frozenset[int]:
        """In which scopes a scan may read some partitions; never too few, and sometimes more than do.

        Args:
            partitions: dataset -> all that it should have.
            scopes: by their positions in this list.
            wanted: of the scan's dataset, by their positions.

        Raises:
            SqlError: a condition on partitions cannot be computed.
        """
        alike = not self.query.variables  # what one of them reads, all do
        asked = self._asked(partitions, listed(scopes[:1] if alike else scopes), scan, wanted)
        found = asked.readers if asked.is_met else asked.scopes.rows.keys()
        return frozenset(range(len(scopes)) if alike and found else found)

    def _asked(
        self,
        partitions: Mapping[str, Sequence[Partition]],
        scopes: Listing,
        target: int | None = None,
        wanted: Collection[int] = (),
    ) -> Question:
        listings = {name: listed(rows) for name, rows in partitions.items()}
        question = Question(self.query, listings, scopes, self.zone, self.memory, target)
        if target is not None:
            rows = question.listing(self.query.scans[target].dataset)
            question.wanted = {n: rows[n] for n in wanted}
        _Walk(question).visit(self.root, Call(True, scopes.rows, gives=False))
        return question


def needed(
    query: Query,
    partitions: Mapping[str, Sequence[Partition]],
    variables: Mapping[str, Value],
    zone: tzinfo = UTC,
) -> Needed:
    """The partitions that each scan of a query reads, for who asks once. See ``Pruning.needed``."""
    return Pruning(query, zone).needed(partitions, variables)


class _Walk:
    """The way of a question through a query, outermost first."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.open: set[int] = set()

    def visit(self, scope: Scope, call: Call) -> dict[str, Among]:
        """Find what a query and all inside it read. Gives the values that its output columns can have, of those of
        which that can be told."""
        if id(scope) in self.open:  # a recursive one
            return {}
        self.open.add(id(scope))
        try:
            if isinstance(scope.expression, exp.SetOperation):
                return self._set_operation(scope, scope.expression, call)
            if isinstance(scope.expression, exp.Select):
                return Select(self.question, scope, scope.expression, call, self.visit).visit()
            for inner in (*scope.derived_table_scopes, *scope.subquery_scopes):
                self.visit(inner, Call(call.record, call.scopes, beside=call.beside))
            return {}
        finally:
            self.open.discard(id(scope))

    def _passing(self, scope: Scope, call: Call) -> list[exp.Expr]:
        """What is asked of columns that are of the same type on both sides: of two types they become a third."""
        if not call.asked:
            return []
        look = Call(False, call.scopes, beside=call.beside)
        sides = [list(self._outputs(side, look)) for side in scope.set_operation_scopes]
        names = _names(scope.expression)
        same = {
            name.lower()
            for name, left, right in zip(names, *sides, strict=False)
            if left is not None and right is not None and _type_of_both(left, right) is not None
        }
        return [
            a
            for a in call.asked
            if all(c.name.lower() in same for c in a.find_all(exp.Column) if c.table == call.source)
        ]

    def _outputs(self, side: Scope, call: Call) -> Iterator[Among | None]:
        found = self.visit(side, call)
        yield from (found.get(name) for name in _names(side.expression))

    def _set_operation(self, scope: Scope, node: exp.SetOperation, call: Call) -> dict[str, Among]:
        """What is asked of a union may be asked of each of its sides, column by column; likewise of the others."""
        names, memory = node.named_selects, self.question.memory
        sides = []
        passing = [] if is_cut_off(node) else self._passing(scope, call)
        for side in scope.set_operation_scopes:
            theirs = _names(side.expression)
            cut = is_cut_off(side.expression)
            asked = [
                memory.kept(("renamed", id(a), id(side)), partial(_renamed, a, call.source, names, theirs))
                for a in (() if cut else passing)
            ]
            output = self.visit(side, Call(call.record, call.scopes, asked, call.source, call.beside))
            sides.append([output.get(name) for name in theirs])
        found = {name: _either(node, *pair) for name, *pair in zip(names, *sides, strict=False)}
        return {name: among for name, among in found.items() if among is not None}


def _type_of_both(left: Among, right: Among) -> DataType | None:
    """The type of a column on both sides of a set operation; None where they become a third type, or one of them does
    not stay as it is."""
    if VOID in (left.type, right.type):
        return right.type if left.type == VOID else left.type
    return left.type if left.type == right.type else None


def _names(node: exp.Expr) -> list[str]:
    return list(node.named_selects) if isinstance(node, exp.Query) else []


def _either(node: exp.SetOperation, left: Among | None, right: Among | None) -> Among | None:
    type_ = None if left is None or right is None else _type_of_both(left, right)
    if left is None or right is None or type_ is None:
        return None
    if isinstance(node, exp.Except):
        return Among(type_, left.values)
    if isinstance(node, exp.Intersect):
        return Among(type_, left.values & right.values)
    return Among(type_, left.values | right.values)


def _renamed(asked: exp.Expr, source: str, names: Sequence[str], theirs: Sequence[str]) -> exp.Expr:
    by_name = dict(zip(names, theirs, strict=False))
    found = asked.copy()
    for column in found.find_all(exp.Column):
        if column.table == source and column.name in by_name:
            column.set("this", exp.to_identifier(by_name[column.name]))
    return found
