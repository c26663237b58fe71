"""How a dataset's task calls functions of users, and what it makes of what they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from nova_assets.errors import SchemaMismatch
from nova_assets.model.task import Context
from nova_assets.sql.datasets.graph import Dataset, Graph
from nova_assets.sql.evaluation.operand import Evaluable
from nova_assets.sql.evaluation.values import Value
from nova_assets.sql.query.function import SqlFunction
from nova_assets.sql.query.table_function_calls import Argument, Call, scalars_of, tables_of
from nova_assets.sql.statement.header import of_scope
from nova_assets.sql.text import Span

Run = Callable[[str, Mapping[str, Any]], Any]
"""Gives the frame of a text, in which frames that functions gave may stand."""


@dataclass(frozen=True)
class _Given:
    """An argument: a value that follows from the scope, or a query by its place."""

    name: str
    value: Evaluable | None
    place: Span | None


class Calling:
    """The calls of a dataset's query.

    Args:
        bodies: the functions that are given; others are the session's own.

    Raises:
        SqlError: one is called as it cannot be, or is not given.
    """

    def __init__(self, graph: Graph, dataset: Dataset, bodies: Mapping[str, SqlFunction]) -> None:
        self.name = dataset.name
        self.schemas = tables_of(graph.functions)
        self.calls = [(c, _function(dataset, c, bodies), _given(dataset, c)) for c in dataset.query.calls]
        used = {n.name.lower() for n in dataset.query.tree.find_all(exp.Anonymous)}
        self.values = {n: bodies[n] for n in scalars_of(graph.functions) if n in bodies and n.lower() in used}
        _refuse_wrong_values(dataset, self.values)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """Those of users, whose modules have to reach Spark's workers."""
        return tuple(f.function for f in (*self.values.values(), *(f for _, f, _ in self.calls)))

    def register(self, ctx: Context) -> None:
        """Make functions of values known to the session, for this task's query."""
        for name, f in self.values.items():
            if hasattr(f.function, "returnType"):  # Spark's own kind, which says it itself
                ctx.spark.udf.register(name, f.function)
            else:
                ctx.spark.udf.register(name, f.function, f.returns)

    def frames(
        self, ctx: Context, scope: Mapping[str, Value], queries: Mapping[str, Mapping[Span, str]], run: Run
    ) -> dict[str, Any]:
        """What each call gives, by the name of its frame.

        Args:
            queries: the texts of the queries that it takes.
            run: runs one.

        Raises:
            SchemaMismatch: a function gives other columns than it declares.
        """
        values = {("", n): v for n, v in scope.items()}
        found: dict[str, Any] = {}
        for call, function, given in reversed(self.calls):  # the inner ones first
            name = f"call_{call.number}"
            each = [
                (g.name, run(queries[name][g.place], found) if g.place is not None else g.value.value(values))  # type: ignore[union-attr]
                for g in given
            ]
            gave = function.called(ctx, [v for n, v in each if not n], {n: v for n, v in each if n})
            made = ctx.frame(gave, self.schemas[call.function])
            found[name] = self._fitted(ctx, made, call.function)
        return found

    def _fitted(self, ctx: Context, frame: Any, name: str) -> Any:
        """A frame with just the columns that are declared, in their types."""
        schema = self.schemas[name]
        there = {c.lower() for c in frame.columns}
        if there != {c.lower() for c in schema.names}:
            raise SchemaMismatch(
                f"function {name!r} gives other columns than it declares, for dataset {self.name!r}",
                found=", ".join(frame.columns),
                expected=str(schema),
                next='change the function, or its returns="table(...)"',
            )
        columns = ", ".join(f"CAST({_quoted(f.name)} AS {f.type}) AS {_quoted(f.name)}" for f in schema.fields)
        return ctx.spark.sql(f"SELECT {columns} FROM {{made}}", made=frame)


def _function(dataset: Dataset, call: Call, bodies: Mapping[str, SqlFunction]) -> SqlFunction:
    text = dataset.written.text
    if call.function not in bodies:
        raise text.error(
            f"nothing is known of {call.function}(...) but what it gives",
            call.place,
            expected="the function itself",
            next="nova.datasets(..., functions=[...]) with what @nova.sql_function makes",
        )
    function = bodies[call.function]
    why = function.refuses(sum(not a.name for a in call.arguments), [a.name for a in call.arguments if a.name])
    if why is not None:
        raise text.error(f"{call.function}(...) cannot be called so: {why}", call.place)
    return function


def _refuse_wrong_values(dataset: Dataset, values: Mapping[str, SqlFunction]) -> None:
    by_name = {name.lower(): f for name, f in values.items()}
    for node in dataset.query.tree.find_all(exp.Anonymous):
        function = by_name.get(node.name.lower())
        why = None if function is None else function.refuses(len(node.expressions), [])
        if why is not None:
            raise dataset.written.text.error(f"{node.name}(...) cannot be called so: {why}", node)


def _given(dataset: Dataset, call: Call) -> list[_Given]:
    return [_Given(a.name, _value(dataset, a), a.place) for a in call.arguments]


def _value(dataset: Dataset, argument: Argument) -> Evaluable | None:
    head = dataset.written.head
    if argument.place is not None:
        return None
    return of_scope(dataset.written.text, argument.node, head.known_variables, head.zone)


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("spark")
