"""Column lineage of queries: the input columns from which each output column is computed, and all names of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from nova_assets.sql.query.resolved_query import Query
from nova_assets.sql.query.scans import scan_number
from nova_assets.sql.text import Span, span_of

Origin = tuple[int, str]
"""An input column: the number of the scan, and the column's lower-case name."""


@dataclass(frozen=True)
class ColumnUse:
    """A place in a query that refers to an input column.

    Args:
        span: the place in the text. None if the reference comes from ``*``.
    """

    origin: Origin
    span: Span | None


@dataclass(frozen=True)
class Lineage:
    """Column lineage of a query.

    Args:
        outputs: lower-case output column -> the input columns from which it is computed.
        uses: every reference to an input column, in SELECT, WHERE, ON or elsewhere.
    """

    outputs: Mapping[str, frozenset[Origin]]
    uses: tuple[ColumnUse, ...]


def trace_lineage(query: Query) -> Lineage:
    """Column lineage of a query."""
    return _LineageTracer(query).trace()


class _LineageTracer:
    def __init__(self, query: Query) -> None:
        self.query = query
        self.scopes = traverse_scope(query.tree)
        self.scope_by_column = {id(c): s for s in self.scopes for c in s.find_all(exp.Column)}
        self.origins_by_output: dict[tuple[int, str], frozenset[Origin]] = {}

    def trace(self) -> Lineage:
        root = self.scopes[-1]
        outputs = {n.lower(): self._output_origins(root, n) for n in self.query.tree.named_selects}
        uses = []
        for scope in self.scopes:
            for column in scope.find_all(exp.Column):
                uses += [ColumnUse(origin, span_of(column)) for origin in sorted(self._column_origins(column))]
        return Lineage(outputs, tuple(dict.fromkeys(uses)))

    def _column_origins(self, column: exp.Column) -> frozenset[Origin]:
        source = self._source_of_column(column)
        if isinstance(source, exp.Table):
            number = scan_number(source)
            return frozenset() if number is None else frozenset({(number, column.name.lower())})
        return self._output_origins(source, column.name) if isinstance(source, Scope) else frozenset()

    def _source_of_column(self, column: exp.Column) -> exp.Table | Scope | None:
        scope: Scope | None = self.scope_by_column.get(id(column))
        while scope is not None:
            source = scope.sources.get(column.table)
            if source is not None:
                return source if isinstance(source, exp.Table | Scope) else None
            scope = scope.parent
        return None

    def _output_origins(self, scope: Scope, column: str) -> frozenset[Origin]:
        """Input columns from which an output column of a subquery is computed."""
        key = (id(scope), column.lower())
        if key not in self.origins_by_output:
            self.origins_by_output[key] = frozenset()  # ends the recursion of a recursive CTE
            self.origins_by_output[key] = frozenset(o for c in self._iter_origins(scope, column) for o in c)
        return self.origins_by_output[key]

    def _iter_origins(self, scope: Scope, column: str) -> Iterator[frozenset[Origin]]:
        node = scope.expression
        if isinstance(node, exp.SetOperation):
            names = [n.lower() for n in scope.outer_columns or node.named_selects]
            column_index = names.index(column.lower()) if column.lower() in names else -1
            for side in scope.set_operation_scopes:
                side_columns = side.expression.named_selects if isinstance(side.expression, exp.Query) else []
                if 0 <= column_index < len(side_columns):
                    yield self._output_origins(side, side_columns[column_index])
        elif isinstance(node, exp.Select):
            names = [n.lower() for n in scope.outer_columns or node.named_selects]
            if column.lower() in names:
                output_expression = node.selects[names.index(column.lower())]
                yield from (self._column_origins(c) for c in output_expression.find_all(exp.Column))
        else:
            yield from (self._column_origins(c) for c in node.find_all(exp.Column))


def used_column_names(tree: exp.Query) -> frozenset[str] | None:
    """Names that occur in a query, in lower case. A column with another name has no effect on the result.

    None if the query may use columns without their names: by a star, by a pivot, or by names that it gives to the
    columns of a dataset (``orders AS o(a, b)``).

    Args:
        tree: syntax tree with resolved columns.
    """
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)) or tree.find(exp.Pivot):
        return None
    if any(isinstance(a.parent, exp.Table) and a.args.get("columns") for a in tree.find_all(exp.TableAlias)):
        return None
    return frozenset(node.name.lower() for node in tree.find_all(exp.Identifier, exp.Var))
