"""Where every column of a query comes from: which columns of what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from nova_assets.sql.query.query import Query, scan_number
from nova_assets.sql.text import Span, span

Origin = tuple[int, str]
"""A scan, and a column of what it reads, in small letters."""


@dataclass(frozen=True)
class Use:
    """A place in a query where a column of what it reads is named.

    Args:
        span: where in the text; None where a ``*`` stands for it.
    """

    origin: Origin
    span: Span | None


@dataclass(frozen=True)
class Lineage:
    """Of a query.

    Args:
        outputs: column, in small letters -> what its values are made of.
        uses: every place where a column is named, in SELECT, WHERE, ON or elsewhere.
    """

    outputs: Mapping[str, frozenset[Origin]]
    uses: tuple[Use, ...]


def lineage(query: Query) -> Lineage:
    """Where the columns of a query come from."""
    return _Tracer(query).traced()


class _Tracer:
    def __init__(self, query: Query) -> None:
        self.query = query
        self.scopes = traverse_scope(query.tree)
        self.owners = {id(c): s for s in self.scopes for c in s.find_all(exp.Column)}
        self.known: dict[tuple[int, str], frozenset[Origin]] = {}

    def traced(self) -> Lineage:
        root = self.scopes[-1]
        outputs = {n.lower(): self._output(root, n) for n in self.query.tree.named_selects}
        uses = []
        for scope in self.scopes:
            for column in scope.find_all(exp.Column):
                uses += [Use(origin, span(column)) for origin in sorted(self._origins(column))]
        return Lineage(outputs, tuple(dict.fromkeys(uses)))

    def _origins(self, column: exp.Column) -> frozenset[Origin]:
        source = self._source(column)
        if isinstance(source, exp.Table):
            number = scan_number(source)
            return frozenset() if number is None else frozenset({(number, column.name.lower())})
        return self._output(source, column.name) if isinstance(source, Scope) else frozenset()

    def _source(self, column: exp.Column) -> exp.Table | Scope | None:
        scope: Scope | None = self.owners.get(id(column))
        while scope is not None:
            found = scope.sources.get(column.table)
            if found is not None:
                return found if isinstance(found, exp.Table | Scope) else None
            scope = scope.parent
        return None

    def _output(self, scope: Scope, name: str) -> frozenset[Origin]:
        """What a column that a subquery gives is made of."""
        key = (id(scope), name.lower())
        if key not in self.known:
            self.known[key] = frozenset()  # of a recursive one, while it is looked at
            self.known[key] = frozenset(o for c in self._behind(scope, name) for o in c)
        return self.known[key]

    def _behind(self, scope: Scope, name: str) -> Iterator[frozenset[Origin]]:
        node = scope.expression
        if isinstance(node, exp.SetOperation):
            names = [n.lower() for n in scope.outer_columns or node.named_selects]
            at = names.index(name.lower()) if name.lower() in names else -1
            for side in scope.set_operation_scopes:
                theirs = side.expression.named_selects if isinstance(side.expression, exp.Query) else []
                if 0 <= at < len(theirs):
                    yield self._output(side, theirs[at])
        elif isinstance(node, exp.Select):
            names = [n.lower() for n in scope.outer_columns or node.named_selects]
            if name.lower() in names:
                made = node.selects[names.index(name.lower())]
                yield from (self._origins(c) for c in made.find_all(exp.Column))
        else:
            yield from (self._origins(c) for c in node.find_all(exp.Column))
