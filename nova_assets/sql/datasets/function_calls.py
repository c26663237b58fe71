"""Calls of user-defined functions by the task of a dataset, and the frames made from their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from nova_assets.errors import SchemaMismatch
from nova_assets.model.task import Context
from nova_assets.sql.datasets.graph import Dataset, Graph
from nova_assets.sql.evaluation.operand import Evaluable, Value
from nova_assets.sql.query.table_function_calls import (
    CallArgument,
    TableFunctionCall,
    scalar_function_types,
    table_function_schemas,
)
from nova_assets.sql.query.user_functions import SqlFunction
from nova_assets.sql.statement.header import compile_scope_expression
from nova_assets.sql.text import Span

RunSql = Callable[[str, Mapping[str, Any]], Any]
"""Runs a SQL text and returns its frame. The mapping holds the frames that earlier function calls returned."""


@dataclass(frozen=True)
class _BoundArgument:
    """An argument of a call: a value computed from the scope, or a query by its place in the text."""

    name: str
    evaluable: Evaluable | None
    query_span: Span | None


class FunctionCalls:
    """The calls of user-defined functions in a dataset's query.

    Args:
        sql_functions: the functions whose bodies are known. Other scalar functions have to exist in the session.

    Raises:
        SqlError: a call has invalid arguments, or the body of a table function is missing.
    """

    def __init__(self, graph: Graph, dataset: Dataset, sql_functions: Mapping[str, SqlFunction]) -> None:
        self.dataset_name = dataset.name
        self.schema_by_function = table_function_schemas(graph.function_types)
        self.bound_calls = [
            (c, _function_of_call(dataset, c, sql_functions), _bind_arguments(dataset, c)) for c in dataset.query.calls
        ]
        used = {n.name.lower() for n in dataset.query.tree.find_all(exp.Anonymous)}
        self.scalar_functions = {
            n: sql_functions[n]
            for n in scalar_function_types(graph.function_types)
            if n in sql_functions and n.lower() in used
        }
        _check_scalar_calls(dataset, self.scalar_functions)

    @property
    def python_functions(self) -> tuple[Callable[..., Any], ...]:
        """The user's Python functions, whose modules have to reach Spark's workers."""
        return tuple(f.function for f in (*self.scalar_functions.values(), *(f for _, f, _ in self.bound_calls)))

    def register_scalar_functions(self, ctx: Context) -> None:
        """Register the scalar functions of this task's query with the session."""
        for name, f in self.scalar_functions.items():
            if hasattr(f.function, "returnType"):  # a Spark UDF carries its return type
                ctx.spark.udf.register(name, f.function)
            else:
                ctx.spark.udf.register(name, f.function, f.returns)

    def frames_by_call(
        self,
        ctx: Context,
        scope: Mapping[str, Value],
        query_texts_by_call: Mapping[str, Mapping[Span, str]],
        run_sql: RunSql,
    ) -> dict[str, Any]:
        """The frame that each call returns, by the name of the frame in the SQL.

        Args:
            query_texts_by_call: for each call, the texts of the queries passed as arguments.
            run_sql: runs one such text.

        Raises:
            SchemaMismatch: a function returns other columns than it declares.
        """
        values = {("", n): v for n, v in scope.items()}
        frame_by_name: dict[str, Any] = {}
        for call, function, arguments in reversed(self.bound_calls):  # inner calls first
            name = f"call_{call.number}"
            evaluated_arguments = [
                (
                    argument.name,
                    run_sql(query_texts_by_call[name][argument.query_span], frame_by_name)
                    if argument.query_span is not None
                    else argument.evaluable.value(values),  # type: ignore[union-attr]
                )
                for argument in arguments
            ]
            returned = function.call_with_context(
                ctx, [v for n, v in evaluated_arguments if not n], {n: v for n, v in evaluated_arguments if n}
            )
            made = ctx.frame(returned, self.schema_by_function[call.function])
            frame_by_name[name] = self._cast_to_declared_columns(ctx, made, call.function)
        return frame_by_name

    def _cast_to_declared_columns(self, ctx: Context, frame: Any, function_name: str) -> Any:
        """The frame, reduced to the declared columns and cast to their types."""
        schema = self.schema_by_function[function_name]
        actual_columns = {c.lower() for c in frame.columns}
        if actual_columns != {c.lower() for c in schema.names}:
            raise SchemaMismatch(
                f"function {function_name!r} returns other columns than it declares, for dataset {self.dataset_name!r}",
                found=", ".join(frame.columns),
                expected=str(schema),
                next='change the function, or its returns="table(...)"',
            )
        columns = ", ".join(
            f"CAST({_quote_identifier(f.name)} AS {f.type}) AS {_quote_identifier(f.name)}" for f in schema.fields
        )
        return ctx.spark.sql(f"SELECT {columns} FROM {{made}}", made=frame)


def _function_of_call(
    dataset: Dataset, call: TableFunctionCall, sql_functions: Mapping[str, SqlFunction]
) -> SqlFunction:
    text = dataset.statement.text
    if call.function not in sql_functions:
        raise text.error(
            f"the body of table function {call.function}(...) is missing",
            call.call_span,
            expected="the function itself",
            next="nova.datasets(..., functions=[...]) with a function decorated by @nova.sql_function",
        )
    function = sql_functions[call.function]
    problem = function.argument_problem(
        sum(not a.name for a in call.arguments), [a.name for a in call.arguments if a.name]
    )
    if problem is not None:
        raise text.error(f"{call.function}(...) has invalid arguments: {problem}", call.call_span)
    return function


def _check_scalar_calls(dataset: Dataset, scalar_functions: Mapping[str, SqlFunction]) -> None:
    by_name = {name.lower(): f for name, f in scalar_functions.items()}
    for node in dataset.query.tree.find_all(exp.Anonymous):
        function = by_name.get(node.name.lower())
        problem = None if function is None else function.argument_problem(len(node.expressions), [])
        if problem is not None:
            raise dataset.statement.text.error(f"{node.name}(...) has invalid arguments: {problem}", node)


def _bind_arguments(dataset: Dataset, call: TableFunctionCall) -> list[_BoundArgument]:
    return [_BoundArgument(a.name, _compile_argument_unless_query(dataset, a), a.query_span) for a in call.arguments]


def _compile_argument_unless_query(dataset: Dataset, argument: CallArgument) -> Evaluable | None:
    header = dataset.statement.header
    if argument.query_span is not None:
        return None
    return compile_scope_expression(dataset.statement.text, argument.node, header.variable_data_types, header.zone)


def _quote_identifier(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("spark")
