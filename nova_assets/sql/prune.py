"""Which partitions a query reads, by what it says in FROM, ON, WHERE and HAVING (BigDataFlow, part 2).

Each place that reads a dataset begins with all partitions that the dataset should have, whether they exist or not. A
condition takes away those whose rows it would drop whatever their data. Conditions are followed down into subqueries,
as far as rows may be dropped there just as well; and from one source to another, where partition columns are compared,
by the values that these can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import partial
from itertools import product
from math import prod
from typing import TypeAlias

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, build_scope

from nova_assets.errors import SqlError
from nova_assets.sql.calculator import Calculator, Computed
from nova_assets.sql.conditions import Condition, conditions, optional_sources
from nova_assets.sql.passing import is_cut_off, is_spread
from nova_assets.sql.query import Query, scan_number
from nova_assets.sql.sources import MANY, Among, Partition, Source, combined
from nova_assets.sql.values import UNKNOWN, Key, Value, Values, alike, is_true_or_unknown, same

Needed: TypeAlias = Mapping[int, tuple[int, ...]]
"""Scan -> the partitions that it reads, by their positions in the list of its dataset's."""

_ROUNDS = 8


def needed(
    query: Query,
    partitions: Mapping[str, Sequence[Partition]],
    variables: Mapping[str, Value],
    zone: tzinfo = UTC,
) -> Needed:
    """The partitions that each scan of a query reads.

    Args:
        partitions: dataset -> all that it should have. One that is not partitioned has a single one, without values.
        variables: of the scope.
        zone: in which moments are told apart by day.

    Raises:
        SqlError: a condition on partitions cannot be computed.
    """
    root = build_scope(query.tree)
    assert root is not None
    walk = _Walk(query, partitions, {("", n): v for n, v in variables.items()}, zone)
    walk.visit(root, Call(record=True))
    everything = {s.number: range(len(partitions.get(s.dataset, ()))) for s in query.scans}
    return {n: tuple(sorted(walk.found.get(n, every))) for n, every in everything.items()}  # of one not met, all


@dataclass(frozen=True)
class Call:
    """How a query is looked at by whatever it is a part of.

    Args:
        record: whether what it reads is wanted; otherwise only what its output can be.
        asked: conditions on its output that whoever reads it puts. Their columns are those of the output, under the
            name of ``source``, and others whose values are in ``beside``.
        source: what it is called there.
        beside: the values that columns of its surroundings can have.
    """

    record: bool
    asked: Sequence[exp.Expr] = ()
    source: str = ""
    beside: Mapping[Key, Among] = field(default_factory=dict)


@dataclass
class _Walk:
    """One question about a query, on its way through it, outermost first."""

    query: Query
    partitions: Mapping[str, Sequence[Partition]]
    variables: Mapping[Key, Value]
    zone: tzinfo
    found: dict[int, set[int]] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

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
                return _Select(self, scope, scope.expression, call).visit()
            for inner in (*scope.derived_table_scopes, *scope.subquery_scopes):
                self.visit(inner, Call(call.record, beside=call.beside))
            return {}
        finally:
            self.open.discard(id(scope))

    def _passing(self, scope: Scope, call: Call) -> list[exp.Expr]:
        """What is asked of columns that are of the same type on both sides: of two types they become a third."""
        if not call.asked:
            return []
        look = Call(False, beside=call.beside)
        sides = [list(self._outputs(side, look)) for side in scope.set_operation_scopes]
        names = _names(scope.expression)
        same = {
            name.lower()
            for name, left, right in zip(names, *sides, strict=False)
            if left is not None and right is not None and len(_kinds(left) | _kinds(right)) <= 1
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
        names = node.named_selects
        sides = []
        passing = [] if is_cut_off(node) else self._passing(scope, call)
        for side in scope.set_operation_scopes:
            theirs = _names(side.expression)
            asked = [] if is_cut_off(side.expression) else [_renamed(a, call.source, names, theirs) for a in passing]
            output = self.visit(side, Call(call.record, asked, call.source, call.beside))
            sides.append([output.get(name) for name in theirs])
        found = {name: _either(node, *pair) for name, *pair in zip(names, *sides, strict=False)}
        return {name: among for name, among in found.items() if among is not None}


def _kinds(among: Among | None) -> set[type]:
    return {object} if among is None else {type(v) for v in among if v is not None}


def _names(node: exp.Expr) -> list[str]:
    return list(node.named_selects) if isinstance(node, exp.Query) else []


def _either(node: exp.SetOperation, left: Among | None, right: Among | None) -> Among | None:
    if left is None or right is None or len(_kinds(left) | _kinds(right)) > 1:
        return None  # both become what neither is
    if isinstance(node, exp.Except):
        return left
    return left & right if isinstance(node, exp.Intersect) else left | right


def _renamed(asked: exp.Expr, source: str, names: Sequence[str], theirs: Sequence[str]) -> exp.Expr:
    by_name = dict(zip(names, theirs, strict=False))
    found = asked.copy()
    for column in found.find_all(exp.Column):
        if column.table == source and column.name in by_name:
            column.set("this", exp.to_identifier(by_name[column.name]))
    return found


class _Select:
    """One SELECT."""

    def __init__(self, walk: _Walk, scope: Scope, node: exp.Select, call: Call) -> None:
        self.walk = walk
        self.scope = scope
        self.node = node
        self.call = call
        self.sources = {s.name: s for s in self._sources()}
        self.calculator = Calculator(walk.query.text, self._known, walk.zone)
        self.conditions = self._conditions(frozenset())
        firm = self._firm()
        if firm:
            self.conditions = self._conditions(firm)
        self.optional = optional_sources(node, list(self.sources), firm)

    def visit(self) -> dict[str, Among]:
        for source in self.sources.values():
            if source.inner is not None:
                output = self.walk.visit(source.inner, self._call_of(source, alone=True))
                source.output = {} if _is_recursive(source.inner) else output
        computed = [(c, self._computed(c)) for c in self.conditions]
        computed.sort(key=lambda one: 0 if one[1] is None else len(self.sources.keys() & _by_source(one[1]).keys()))
        for _ in range(_ROUNDS):
            before = self._left()
            for condition, how in computed:
                self._apply(condition, how)
            if self._left() == before:
                break
        if self.call.record:
            self._record()
        return self._output()

    # what there is

    def _sources(self) -> Iterator[Source]:
        for name, node in self.scope.references:  # those of SEMI and ANTI joins, too
            source = self.scope.sources.get(name)
            sampled = node.args.get("sample") is not None
            number = scan_number(source) if isinstance(source, exp.Table) else None
            if number is not None:
                scan = self.walk.query.scans[number]
                rows = dict(enumerate(self.walk.partitions.get(scan.dataset, ())))
                yield Source(name, scan, rows=rows, sampled=sampled)
            else:
                yield Source(name, inner=source if isinstance(source, Scope) else None, sampled=sampled)

    def _known(self, column: exp.Column) -> Key | None:
        """Under what a column's values are kept: a partition column's, or one's that a subquery hands on."""
        key = (column.table, column.name.lower())
        source = self.sources.get(column.table)
        if source is None:
            return key if key in self.call.beside else None
        if source.scan is not None:
            first = next(iter(self.walk.partitions.get(source.scan.dataset, ())), {})
            return key if key[1] in first else None
        return key if key[1] in source.output else None

    # what it asks

    def _conditions(self, firm: frozenset[str]) -> list[Condition]:
        return list(conditions(self.node, list(self.sources), self.call.asked, self.call.source, firm))

    def _firm(self) -> frozenset[str]:
        """The sources of which rows with nulls in their place are dropped in the end."""
        last = [c for c in self.conditions if c.is_last]
        return frozenset(n for c in last for n in c.optional if self._refuses_nulls(c, n))

    def _computed(self, condition: Condition) -> Computed | None:
        """How a condition is computed; None where it cannot take anything away."""
        node = condition.node
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._in_subquery(node)
        found = self.calculator.computed(node)
        return found if found.keys or not found.by_data else None

    def _in_subquery(self, node: exp.In) -> Computed | None:
        """``day IN (SELECT day FROM ...)``, where the inner one is a partition's, too."""
        inner = next((s for s in self.scope.subquery_scopes if s.expression is node.args["query"].unnest()), None)
        output = {} if inner is None else self.walk.visit(inner, Call(False, beside=self._around()))
        if len(output) != 1:
            return None
        [among] = output.values()
        of, zone = self.calculator.computed(node.this), self.walk.zone

        def held(values: Values) -> Value:
            found = of.of(values)
            if found is UNKNOWN or found is None:
                return found
            return any(same(*alike(found, v, zone)) for v in among if v is not None)

        return Computed(held, of.keys, of.by_data)

    # what follows

    def _left(self) -> list[int]:
        return [len(s.rows) + sum(map(len, s.output.values())) for s in self.sources.values()]

    def _apply(self, condition: Condition, how: Computed | None) -> None:
        """Take away what cannot meet a condition, whatever else there is."""
        if how is None:
            return
        by_source = _by_source(how)
        if not by_source.keys() & self.sources.keys():
            others = self._others(condition, by_source, "")
            if others is not None and not any(is_true_or_unknown(how.of(other)) for other in others):
                for name in condition.against:
                    self.sources[name].empty()
            return
        for name in sorted(condition.against & by_source.keys()):
            others = self._others(condition, by_source, name)
            if others is None or (name in condition.optional and not self._refuses_nulls(condition, name)):
                continue
            self._keep(self.sources[name], by_source[name], self._test(condition, how, name, others))

    def _test(
        self, condition: Condition, how: Computed, name: str, others: Sequence[Mapping[Key, Value]]
    ) -> Callable[[Values], bool]:
        """Whether a condition may hold for some values of one source, beside something that the others can be."""
        equal = self._equal(condition, name, others)

        def may_pass(mine: Values) -> bool:
            found = None if equal is None else equal(mine)
            if found is None:
                return any(is_true_or_unknown(how.of({**other, **mine})) for other in others)
            return found

        return may_pass

    def _equal(
        self, condition: Condition, name: str, others: Sequence[Mapping[Key, Value]]
    ) -> Callable[[Values], bool | None] | None:
        """Of ``a = b`` between a source and others, whether the others can be what it is of the source: looked up among
        their values, if these are all of one type, and not tried out with each. None where that does not tell."""
        node = condition.node.unnest()
        if not isinstance(node, exp.EQ):
            return None
        for mine, other in ((node.this, node.expression), (node.expression, node.this)):
            of, to = self.calculator.computed(mine), self.calculator.computed(other)
            apart = {k[0] for k in of.keys} == {name} and name not in {k[0] for k in to.keys}
            if apart and not of.by_data and not to.by_data:
                try:
                    among = frozenset(map(to.of, others))
                except SqlError:  # of one that may never be met
                    return None
                kinds = {type(v) for v in among}
                if len(kinds) == 1 and not kinds & {type(None), type(UNKNOWN), float}:
                    return partial(_is_among, of, among, self.walk.zone)
        return None

    def _others(
        self, condition: Condition, by_source: Mapping[str, list[Key]], name: str
    ) -> list[dict[Key, Value]] | None:
        """All that the columns of other sources, and the variables, can be together."""
        parts: list[list[dict[Key, Value]]] = []
        for other, keys in by_source.items():
            if other == name and name:
                continue
            found = self._combinations(other, keys)
            if found is None:
                return None
            if other in condition.optional:
                found = [*found, dict.fromkeys(keys)]
            parts.append(found)
        if prod(map(len, parts)) > MANY:
            return None
        return [{k: v for one in some for k, v in one.items()} for some in product(*parts)]

    def _combinations(self, name: str, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        if name == "":
            return [{k: self.walk.variables[k] for k in keys}]
        source = self.sources.get(name)
        return combined([(k, self.call.beside[k]) for k in keys]) if source is None else source.combinations(keys)

    def _refuses_nulls(self, condition: Condition, name: str) -> bool:
        """Whether a condition drops rows that have nulls in place of a source: otherwise rows of that source are wanted
        even where they are dropped, so that there are none."""
        if condition.node.find(exp.Query) or not any(c.table == name for c in condition.node.find_all(exp.Column)):
            return False
        without = condition.node.copy()
        for column in list(without.find_all(exp.Column)):
            if column.table == name:
                column.replace(exp.null())
        how = self.calculator.computed(without)
        by_source = _by_source(how)
        others = self._others(condition, by_source, name)
        return others is not None and not any(is_true_or_unknown(how.of(other)) for other in others)

    def _keep(self, source: Source, keys: list[Key], may_pass: Callable[[Values], bool]) -> None:
        if source.sampled:  # which rows are taken hangs on all
            return
        if source.scan is not None:
            each = {n: tuple(row[k[1]] for k in keys) for n, row in source.rows.items()}
            good = {v for v in set(each.values()) if may_pass(dict(zip(keys, v, strict=True)))}
            source.rows = {n: source.rows[n] for n, values in each.items() if values in good}
        elif len(keys) == 1:
            column = keys[0][1]
            source.output[column] = frozenset(v for v in source.output[column] if may_pass({keys[0]: v}))

    # further in

    def _record(self) -> None:
        for source in self.sources.values():
            if source.scan is not None:
                whole = source.scan.mode == "whole"
                count = len(self.walk.partitions.get(source.scan.dataset, ()))
                self.walk.found.setdefault(source.scan.number, set()).update(range(count) if whole else source.rows)
            elif source.inner is not None:
                self.walk.visit(source.inner, self._call_of(source, alone=False))
        for inner in self.scope.subquery_scopes:
            self.walk.visit(inner, Call(True, beside=self._around()))

    def _around(self) -> dict[Key, Among]:
        """The values that columns can have here, for a subquery that refers to them."""
        found = dict(self.call.beside)
        for source in self.sources.values():
            names = source.output if source.scan is None else next(iter(source.rows.values()), {})
            for name in names:
                among = source.among(name)
                if among is not None:
                    nulls = source.name in self.optional or is_spread(self.node)
                    found[source.name, name] = among | {None} if nulls else among
        return found

    def _call_of(self, source: Source, alone: bool) -> Call:
        """How a subquery in FROM is looked at: with what is asked of it.

        Args:
            alone: only by what is asked of it and nothing else.
        """
        inner = source.inner
        assert inner is not None
        beside = {} if inner.is_cte else dict(self.call.beside)
        if _is_recursive(inner) or is_cut_off(inner.expression) or source.sampled:
            return Call(not alone, (), source.name, beside)
        asked: list[exp.Expr] = []
        for condition in self.conditions:
            if source.name not in condition.against:
                continue
            node, others = self._apart(condition.node, source.name)
            if node is None or (source.name in condition.optional and not self._refuses_nulls(condition, source.name)):
                continue
            if not (alone and others):
                asked.append(node)
                beside |= others
        return Call(not alone, asked, source.name, beside)

    def _apart(self, node: exp.Expr, name: str) -> tuple[exp.Expr | None, dict[Key, Among]]:
        """A condition as it is put to one source: columns of others under names that mean nothing inside it, and the
        values that these can have. None where it is not about the source."""
        if not any(c.table == name for c in node.find_all(exp.Column)) or node.find(exp.Query, exp.Subquery):
            return None, {}
        found, others = node.copy(), dict[Key, Among]()
        for column in found.find_all(exp.Column):
            if column.table == name:
                continue
            among = self._around().get((column.table, column.name.lower()))
            apart = f"{column.table}@{id(self)}"
            column.set("table", exp.to_identifier(apart))
            if among is not None:
                others[apart, column.name.lower()] = among
        return found, others

    def _output(self) -> dict[str, Among]:
        """The values that output columns can have."""
        if is_spread(self.node):
            return {}
        found = {}
        for select in self.node.selects:
            among = self._values_of(select.unalias())
            if among is not None:
                found[select.alias_or_name] = among
        return found

    def _values_of(self, node: exp.Expr) -> Among | None:
        if node.find(exp.AggFunc, exp.Window, exp.Query, exp.Explode):
            return None
        try:
            how = self.calculator.computed(node)
            by_source = _by_source(how)
            parts = [self._with_nulls(name, keys) for name, keys in by_source.items()]
            if how.by_data or any(p is None for p in parts) or prod(len(p or ()) for p in parts) > MANY:
                return None
            each = product(*(p or () for p in parts))
            found = {how.of({k: v for one in some for k, v in one.items()}) for some in each}
        except SqlError:  # said of a condition that needs it, if there is one
            return None
        return None if UNKNOWN in found else frozenset(found)

    def _with_nulls(self, name: str, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        found = self._combinations(name, keys)
        return [*found, dict.fromkeys(keys)] if found is not None and name in self.optional else found


def _is_among(of: Computed, among: Among, zone: tzinfo, mine: Values) -> bool | None:
    """Whether what something comes to is one of some values; None where it is of another kind than they."""
    value, other = of.of(mine), next(iter(among))
    if type(value) is not type(other):
        try:
            value, same_still = alike(value, other, zone)
        except (ValueError, TypeError):
            return None
        if type(value) is not type(other) or same_still is not other:
            return None
    return value in among


def _by_source(how: Computed) -> dict[str, list[Key]]:
    found: dict[str, list[Key]] = {}
    for key in sorted(how.keys):
        found.setdefault(key[0], []).append(key)
    return found


def _is_recursive(scope: Scope) -> bool:
    within = scope.expression.find_ancestor(exp.With)
    return within is not None and bool(within.args.get("recursive"))
