"""One SELECT of a query: what it says of partitions, and what of each of its sources is left by that.

Conditions take rows away from sources, again and again, until nothing changes: those whose values no row of the others
could go together with. What hangs on nothing but the query is kept in its memory, so that a question about another
scope costs no more than looking values up.
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
from nova_assets.sql.evaluation.comparing import comparison
from nova_assets.sql.evaluation.evaluator import Evaluator
from nova_assets.sql.evaluation.operand import Evaluable
from nova_assets.sql.evaluation.values import UNKNOWN, Key, Value, Values, is_true_or_unknown
from nova_assets.sql.pruning.conditions import (
    Condition,
    NullRejecting,
    conditions,
    optional_sources,
    said_apart,
    sources_without_effect,
    without_source,
)
from nova_assets.sql.pruning.expression_index import Told, made_comparable
from nova_assets.sql.pruning.predicate_pushdown import is_cut_off, is_spread
from nova_assets.sql.pruning.question import Call, Question
from nova_assets.sql.pruning.sources import MANY, Among, Source
from nova_assets.sql.query.query import scan_number

Visit: TypeAlias = Callable[[Scope, Call], dict[str, Among]]
"""Looks at a part of the query, and gives the values that its output can have."""

_Sides: TypeAlias = tuple[exp.Expr, Evaluable, exp.Expr, Evaluable]
"""Of ``a = b``, what is of one source, and what is of others."""

_ROUNDS = 8

_VARIABLES = ""
"""The source that variables are of."""


class Select:
    """One SELECT, looked at once.

    Args:
        visit: looks at what is inside it.
    """

    def __init__(self, question: Question, scope: Scope, node: exp.Select, call: Call, visit: Visit) -> None:
        self.question = question
        self.memory = question.memory
        self.scope = scope
        self.node = node
        self.call = call
        self.visit_inner = visit
        self.sources = {s.name: s for s in self._sources()}
        self.variables = Source(_VARIABLES, question.variable_types, listing=question.scopes, rows=call.scopes)
        self.bearing = {n: call.scopes for n, s in self.sources.items() if self._bears(s)}
        self.evaluator = Evaluator(self._known, question.zone)
        self.told = self._what_is_told()
        rejecting = self.rejecting = self._null_rejecting()
        self.conditions = self._conditions(rejecting)
        names = list(self.sources)
        self.optional = self.memory.kept(
            ("optional", id(node), rejecting), lambda: optional_sources(node, names, rejecting)
        )

    def visit(self) -> dict[str, Among]:
        for source in self.sources.values():
            if source.inner is not None:
                output = self.visit_inner(source.inner, self._call_of(source, alone=True))
                source.output = {} if _is_recursive(source.inner) else output
                self.told = self._what_is_told()
        computed = [(c, how) for c in self.conditions if (how := self._computed(c)) is not None]
        computed.sort(key=lambda one: len(self.sources.keys() & one[1].keys_by_source.keys()))
        for _ in range(_ROUNDS):
            before = self._left()
            for condition, how in computed:
                self._apply(condition, how)
            if self._left() == before:
                break
        self._empty_what_has_no_effect()
        if self.call.record:
            self._record()
        return self._output() if self.call.gives else {}

    # what there is

    def _sources(self) -> Iterator[Source]:
        for name, node in self.scope.references:  # those of SEMI and ANTI joins, too
            source = self.scope.sources.get(name)
            sampled = node.args.get("sample") is not None
            number = scan_number(source) if isinstance(source, exp.Table) else None
            if number is not None:
                scan = self.question.query.scans[number]
                listing = self.question.listing(scan.dataset)
                is_target = self.call.record and number == self.question.target
                rows = self.question.wanted if is_target else listing.rows
                types = self.question.column_types(scan.dataset)
                yield Source(name, types, scan, sampled=sampled, listing=listing, rows=rows)
            else:
                yield Source(name, inner=source if isinstance(source, Scope) else None, sampled=sampled)

    def _bears(self, source: Source) -> bool:
        if self.question.target is None or not self.call.record:
            return False
        if source.scan is not None:
            return source.scan.number == self.question.target
        return source.inner is not None and self.question.bears(source.inner)

    def _known(self, column: exp.Column | exp.Placeholder) -> tuple[Key, DataType] | None:
        """Under what the values of a variable are kept, of a partition column, or of a column that a subquery hands on;
        and their type."""
        if isinstance(column, exp.Placeholder):
            type_ = self.question.variable_types.get(column.name)
            return None if type_ is None else ((_VARIABLES, column.name), type_)
        key = (column.table, column.name.lower())
        source = self.sources.get(column.table)
        if source is None:
            among = self.call.beside.get(key)
            return None if among is None else (key, among.type)
        type_ = source.type_of(key[1])
        return None if type_ is None else (key, type_)

    def _what_is_told(self) -> tuple[object, ...]:
        """All that ``_known`` goes by."""
        columns = (
            s.listing.columns if s.listing is not None else frozenset((n, a.type) for n, a in s.output.items())
            for s in self.sources.values()
        )
        return (id(self.scope), frozenset((k, a.type) for k, a in self.call.beside.items()), *columns)

    # what it asks

    def _conditions(self, rejecting: NullRejecting) -> list[Condition]:
        asked, source, names = self.call.asked, self.call.source, list(self.sources)
        return self.memory.kept(
            ("conditions", id(self.node), source, rejecting, *map(id, asked)),
            lambda: list(conditions(self.node, names, asked, source, rejecting)),
        )

    def _null_rejecting(self) -> NullRejecting:
        of = ("null rejecting", id(self.node), self.call.source, self.told, *map(id, self.call.asked))
        return self.memory.kept(of, self._find_null_rejecting)

    def _find_null_rejecting(self) -> NullRejecting:
        """The sources of which rows with nulls in their place are dropped, and where. What is dropped in one place
        makes conditions of joins before it drop more."""
        found: NullRejecting = frozenset()
        for _ in range(_ROUNDS):
            more = frozenset(
                (name, c.place)
                for c in self._conditions(found)
                if c.place is not None
                for name in c.optional & c.against
                if self._refuses_nulls(c, name)
            )
            if more <= found:
                break
            found |= more
        return found

    def _how(self, node: exp.Expr) -> Evaluable:
        """How an expression is computed that the query's memory keeps."""
        return self.memory.kept(("how", id(node), self.told), lambda: self.evaluator.evaluable(node))

    def _computed(self, condition: Condition) -> Evaluable | None:
        """How a condition is computed; None where it cannot take anything away."""
        node = condition.node
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._in_subquery(node)
        found = self._how(node)
        if self.call.record:
            self.question.not_understood |= {id(part.node): part for part in found.not_understood}
        return found if found.keys or not found.depends_on_data else None

    def _in_subquery(self, node: exp.In) -> Evaluable | None:
        """``day IN (SELECT day FROM ...)``, where the inner one is a partition's, too."""
        inner = next((s for s in self.scope.subquery_scopes if s.expression is node.args["query"].unnest()), None)
        call = Call(False, self.call.scopes, beside=self._around())
        output = {} if inner is None else self.visit_inner(inner, call)
        if len(output) != 1:
            return None
        [among] = output.values()
        of = self._how(node.this)
        if of.type != among.type or comparison(among.type, among.type, self.question.zone) is None:
            return None  # of two types they become a third

        def held(values: Values) -> Value:
            found = of.value(values)
            return found if found is UNKNOWN or found is None else found in among.values

        return Evaluable(held, of.keys, BOOLEAN, of.depends_on_data)

    # what follows

    def _left(self) -> list[int]:
        left = [len(s.rows) + sum(map(len, s.output.values())) for s in self.sources.values()]
        return [*left, *map(len, self.bearing.values())]

    def _empty_what_has_no_effect(self) -> None:
        """Nothing is read that is joined with what has no row."""
        empty = frozenset(n for n, s in self.sources.items() if s.is_empty)
        of = ("no effect", id(self.node), empty, self.rejecting)
        lost = self.memory.kept(of, lambda: sources_without_effect(self.node, empty, self.rejecting))
        for name in lost & self.sources.keys():
            source = self.sources[name]
            source.empty()
            source.has_no_effect = not source.sampled

    def _apply(self, condition: Condition, how: Evaluable) -> None:
        """Take away what cannot meet a condition, whatever else there is."""
        of = how.keys_by_source
        self._apply_to_scopes(condition, how)
        if not of.keys() & condition.against:  # it says of no row which one it drops: it drops all, or none
            others = self._others(condition, of, None)
            if others is not None and not any(is_true_or_unknown(how.value(other)) for other in others):
                for name in condition.against:
                    self.sources[name].empty()
            return
        for name in sorted(condition.against & of.keys()):
            source = self.sources[name]
            if source.sampled or (name in condition.optional and not self._refuses_nulls(condition, name)):
                continue
            if source.listing is not None:
                self._keep_rows(source, condition, how)
            elif len(of[name]) == 1:
                self._keep_values(source, condition, how)

    def _keep_rows(self, source: Source, condition: Condition, how: Evaluable) -> None:
        good = self._good(source, condition, how)
        if good is not None:
            source.keep(good)

    def _keep_values(self, source: Source, condition: Condition, how: Evaluable) -> None:
        """Of a subquery, what one of its columns can still be."""
        [key] = how.keys_by_source[source.name]
        others = self._others(condition, how.keys_by_source, source.name)
        if others is None:
            return
        test = self._test(condition, how, source.name, others)
        source.output[key[1]] = source.output[key[1]].those(lambda v: test({key: v}))

    def _apply_to_scopes(self, condition: Condition, how: Evaluable) -> None:
        """Leave out the scopes in which a condition drops all rows in which the target has a part."""
        if _VARIABLES not in how.keys_by_source:
            return
        for name in condition.against & self.bearing.keys():
            if self.sources[name].sampled or (name in condition.optional and not self._refuses_nulls(condition, name)):
                continue
            scopes = Source(_VARIABLES, listing=self.question.scopes, rows=self.bearing[name])
            good = self._good(scopes, condition, how)
            if good is not None:
                scopes.keep(good)
                self.bearing[name] = scopes.rows

    def _good(self, source: Source, condition: Condition, how: Evaluable) -> list[int] | None:
        """The rows of a source that may meet a condition beside something that the others can be; None where that is
        more than can be tried."""
        keys = how.keys_by_source[source.name]
        others = self._others(condition, how.keys_by_source, source.name)
        if others is None:
            return None
        columns = [k[1] for k in keys]
        found = self._looked_up(source, condition, columns, others)
        together = source.together(columns)
        if found is None:
            test = self._test(condition, how, source.name, others)
            found = [values for values in together if test(dict(zip(keys, values, strict=True)))]
        return [n for values in found for n in together[values]]

    def _looked_up(
        self, source: Source, condition: Condition, columns: Sequence[str], others: Sequence[Values]
    ) -> list[tuple[Value, ...]] | None:
        """Of ``a = b`` between all of a source and others: what of it is equal to one of the others, looked up by the
        values that it comes to, if these are all of one type, and not tried out. None where that does not tell."""
        listing = source.all_of
        sides = self._sides(condition, source.name) if listing is not None else None
        if listing is None or sides is None:
            return None
        mine, of, _, to = sides
        casts = self._compared(of, to)
        if casts is None:
            return None
        to_mine, to_other = casts
        keys = [(source.name, c) for c in columns]
        among = self._comparable(self._come_to(sides, others), to_other)
        told = listing.kept(("told", self._named(mine, of), *columns), lambda: Told(of, keys, listing.by(columns)))
        assert to.type is not None
        values = told.compared_with(to.type, to_mine)
        if values is None or among is None:
            return None
        return [row for v in among for row in values.get(v, ())]

    def _compared(self, of: Evaluable, to: Evaluable) -> tuple[Cast, Cast] | None:
        """How the values of two sides are made comparable; None where that is not understood."""
        return None if of.type is None or to.type is None else comparison(of.type, to.type, self.question.zone)

    @staticmethod
    def _comparable(values: Collection[Value], to_both: Cast) -> frozenset[Value] | None:
        """All values that are not null, as they are compared; None where one is unknown."""
        found = [made_comparable(v, to_both) for v in values if v is not None]
        return None if None in found else frozenset(found)

    def _named(self, node: exp.Expr, of: Evaluable) -> Hashable:
        """By what an expression is known to rows that other queries ask, too: where it has variables alone, by how it
        is written, since it comes to the same in all."""
        if of.keys_by_source.keys() != {_VARIABLES}:
            return id(of)
        return self.memory.kept(("named", id(node)), lambda: node.sql("spark")), str(self.question.zone)

    def _come_to(self, sides: _Sides, others: Sequence[Values]) -> frozenset[Value]:
        """All that the other side of ``a = b`` comes to."""
        _, _, node, to = sides
        all_scopes = to.keys_by_source.keys() == {_VARIABLES} and self.variables.all_of
        if not all_scopes:
            return frozenset(map(to.value, others))
        return all_scopes.kept(("come to", self._named(node, to)), lambda: frozenset(map(to.value, others)))

    def _test(
        self, condition: Condition, how: Evaluable, name: str, others: Sequence[Values]
    ) -> Callable[[Values], bool]:
        """Whether a condition may hold for some values of one source, beside something that the others can be."""
        equal = self._equal(condition, name, others)

        def may_pass(mine: Values) -> bool:
            found = None if equal is None else equal(mine)
            if found is None:
                return any(is_true_or_unknown(how.value({**other, **mine})) for other in others)
            return found

        return may_pass

    def _sides(self, condition: Condition, name: str) -> _Sides | None:
        """Of ``a = b``, what is of one source, and what is of others; None where that is not apart, or data tells."""
        node = condition.node.unnest()
        if not isinstance(node, exp.EQ):
            return None
        for mine, other in ((node.this, node.expression), (node.expression, node.this)):
            of, to = self._how(mine), self._how(other)
            apart = of.keys_by_source.keys() == {name} and name not in to.keys_by_source
            if apart and not of.depends_on_data and not to.depends_on_data:
                return mine, of, other, to
        return None

    def _equal(
        self, condition: Condition, name: str, others: Sequence[Values]
    ) -> Callable[[Values], bool | None] | None:
        """Of ``a = b``, whether the others can be what it is of the source; None where that does not tell."""
        sides = self._sides(condition, name)
        if sides is None:
            return None
        _, of, _, to = sides
        casts = self._compared(of, to)
        among = None if casts is None else self._comparable(self._come_to(sides, others), casts[1])
        if casts is None or among is None:
            return None
        to_mine = casts[0]

        def is_among(mine: Values) -> bool | None:
            found = of.value(mine)
            value = None if found is None else made_comparable(found, to_mine)
            return None if value is None else value in among

        return is_among

    def _others(
        self, condition: Condition, of: Mapping[str, Sequence[Key]], apart: str | None
    ) -> list[dict[Key, Value]] | None:
        """All that the columns of other sources, and the variables, can be together; None for too many.

        Args:
            apart: the source that is left out.
        """
        parts: list[list[dict[Key, Value]]] = []
        for other, keys in of.items():
            if other == apart:
                continue
            found = self._combinations(other, keys)
            if found is None:
                return None
            if other in condition.optional:
                found = [*found, dict.fromkeys(keys)]
            parts.append(found)
        if len(parts) == 1:
            return parts[0]
        if prod(map(len, parts)) > MANY:
            return None
        return [{k: v for one in some for k, v in one.items()} for some in product(*parts)]

    def _combinations(self, name: str, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        if name == _VARIABLES:
            return self.variables.combinations(keys)
        source = self.sources.get(name)
        if source is None:
            beside = Source(name, output={k[1]: self.call.beside[k] for k in keys})
            return beside.combinations(keys)
        return source.combinations(keys)

    def _refuses_nulls(self, condition: Condition, name: str) -> bool:
        """Whether a condition drops rows that have nulls in place of a source: otherwise rows of that source are wanted
        even where they are dropped, so that there are none."""
        without = self.memory.kept(("without", id(condition.node), name), lambda: without_source(condition.node, name))
        if without is None:
            return False
        how = self._how(without)
        others = self._others(condition, how.keys_by_source, None)
        return others is not None and not any(is_true_or_unknown(how.value(other)) for other in others)

    # further in

    def _record(self) -> None:
        for source in self.sources.values():
            scopes = self.bearing.get(source.name, self.call.scopes)
            if source.scan is not None:
                whole = source.scan.mode == "whole"
                self.question.record(source.scan.number, source.rows, scopes, whole=whole)
            elif source.inner is not None and source.has_no_effect and not _is_recursive(source.inner):
                self.question.record_nothing(source.inner)
            elif source.inner is not None:
                self.visit_inner(source.inner, self._call_of(source, alone=False))
        for inner in self.scope.subquery_scopes:
            self.visit_inner(inner, Call(True, self.call.scopes, beside=self._around(), gives=False))

    def _around(self) -> dict[Key, Among]:
        """The values that columns can have here, for a subquery that refers to them."""
        found = dict(self.call.beside)
        for source in self.sources.values():
            for name in source.columns:
                among = self._among(source, name)
                if among is not None:
                    found[source.name, name] = among
        return found

    def _among(self, source: Source, column: str) -> Among | None:
        """The values that a column of a source can have here."""
        among = source.among(column)
        nulls = source.name in self.optional or is_spread(self.node)
        return among.or_null() if among is not None and nulls else among

    def _call_of(self, source: Source, alone: bool) -> Call:
        """How a subquery in FROM is looked at: with what is asked of it.

        Args:
            alone: only by what is asked of it and nothing else, for the values of its output; else for what it reads.
        """
        inner = source.inner
        assert inner is not None
        scopes = self.call.scopes if alone else self.bearing.get(source.name, self.call.scopes)
        beside = {} if inner.is_cte else dict(self.call.beside)
        if _is_recursive(inner) or is_cut_off(inner.expression) or source.sampled:
            return Call(not alone, scopes, (), source.name, beside, gives=alone)
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
        return Call(not alone, scopes, asked, source.name, beside, gives=alone)

    def _apart(self, node: exp.Expr, name: str) -> tuple[exp.Expr | None, dict[Key, Among]]:
        """A condition as it is put to one source: columns of others under names that mean nothing inside it, and the
        values that these can have. None where it is not about the source."""
        found, named = self.memory.kept(
            ("apart", id(node), name, id(self.scope)), lambda: said_apart(node, name, f"@{id(self.scope)}")
        )
        others = {}
        for apart, (table, column) in named.items():
            among = self._among_of(table, column)
            if among is not None:
                others[apart] = among
        return found, others

    def _among_of(self, table: str, column: str) -> Among | None:
        source = self.sources.get(table)
        if source is None or column not in source.columns:
            return self.call.beside.get((table, column))
        return self._among(source, column)

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
        if self.memory.kept(("by row", id(node)), lambda: node.find(*_NOT_BY_ROW) is not None):
            return None
        how = self._how(node)
        parts = [self._with_nulls(name, keys) for name, keys in how.keys_by_source.items()]
        if how.type is None or how.depends_on_data or any(p is None for p in parts):
            return None
        if prod(len(p or ()) for p in parts) > MANY:
            return None
        each = product(*(p or () for p in parts))
        found = {how.value({k: v for one in some for k, v in one.items()}) for some in each}
        return None if UNKNOWN in found else Among(how.type, frozenset(found))

    def _with_nulls(self, name: str, keys: Sequence[Key]) -> list[dict[Key, Value]] | None:
        found = self._combinations(name, keys)
        return [*found, dict.fromkeys(keys)] if found is not None and name in self.optional else found


_NOT_BY_ROW = (exp.AggFunc, exp.Window, exp.Query, exp.Explode)


def _is_recursive(scope: Scope) -> bool:
    within = scope.expression.find_ancestor(exp.With)
    return within is not None and bool(within.args.get("recursive"))
