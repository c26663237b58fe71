"""User-defined functions in SQL: scalar functions and table functions (BigDataFlow's foreign transformations, part
2).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from nova_assets.errors import DefinitionError
from nova_assets.model.function_reference import wants_context
from nova_assets.model.names import check_name
from nova_assets.model.schema import parse_type
from nova_assets.model.task import Context
from nova_assets.sql.query.table_function_calls import (
    is_free_function_name,
    scalar_function_types,
    table_function_schemas,
)


@dataclass(frozen=True)
class SqlFunction:
    """A function that SQL datasets may call. Calling the object calls the plain Python function.

    Args:
        name: the function's name in SQL.
        function: the Python function, which returns a value or a table.
        returns: the return type, or ``table(...)`` with the output columns.
    """

    name: str
    function: Callable[..., Any]
    returns: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def call_with_context(self, ctx: Context, args: Sequence[Any], keyword_args: Mapping[str, Any]) -> Any:
        """The function's result. The task's context is inserted if the function has a parameter ``ctx``, which the
        query never passes.
        """
        names = list(inspect.signature(self.function).parameters)
        if "ctx" not in names:
            return self.function(*args, **keyword_args)
        at = names.index("ctx")
        if at < len(args):
            return self.function(*args[:at], ctx, *args[at:], **keyword_args)
        return self.function(*args, **keyword_args, ctx=ctx)

    def argument_problem(self, positional_count: int, keyword_names: Sequence[str]) -> str | None:
        """Why the function rejects this number of positional arguments and these keyword arguments. None for valid
        arguments.
        """
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # some built-in functions have no signature
            return None
        known = [p for n, p in signature.parameters.items() if n != "ctx"]
        try:
            signature.replace(parameters=known).bind(*[None] * positional_count, **dict.fromkeys(keyword_names))
        except TypeError as error:
            return str(error)
        return None


Functions: TypeAlias = Mapping[str, "str | SqlFunction"] | Sequence[SqlFunction]
"""User-defined functions of datasets: functions made with ``nova.sql_function``, or the types of functions that the
session already has.
"""


def sql_function(returns: str, *, name: str | None = None) -> Callable[[Callable[..., Any]], SqlFunction]:
    """Decorator that makes a Python function callable from SQL datasets.

        @nova.sql_function(returns="string")
        def slug(text): return text.lower().replace(" ", "-")

        @nova.sql_function(returns="table(currency string, rate decimal(10,4))")
        def rates(ctx, day, orders): ...

    A scalar function becomes a Spark user-defined function. A table function is called in FROM: ``FROM rates(:day,
    (SELECT * FROM orders WHERE orders.day = :day))``. A table function is called once per task, in the process of the
    task. Its arguments are values of the scope, and one Spark DataFrame for each query in parentheses. The function may
    read a database by JDBC, by ADBC or in any other way. A table function returns the declared columns as a DataFrame,
    an Arrow table, a pandas DataFrame, or a list of dicts. If the function has a parameter ``ctx``, this parameter
    receives the task's context.

    Args:
        returns: the Spark type of the value, or ``table(column type, ...)``.
        name: the name in SQL, by default the function's name.

    Raises:
        DefinitionError: the type cannot be parsed.
    """

    def decorate(function: Callable[..., Any]) -> SqlFunction:
        sql_function_ = SqlFunction(check_name(name or function.__name__, "a function"), function, returns.strip())
        if scalar_function_types(type_by_function([sql_function_])) and wants_context(function):
            raise DefinitionError(
                f"function {sql_function_.name!r}: a scalar function runs in Spark's workers, and gets no ctx"
            )
        return sql_function_

    return decorate


def type_by_function(functions: Functions | None) -> dict[str, str]:
    """Function name -> its return type.

    Raises:
        DefinitionError: a type cannot be parsed, or SQL has a built-in function of that name.
    """
    function_by_name: Mapping[str, str | SqlFunction]
    function_by_name = functions if isinstance(functions, Mapping) else {f.name: f for f in functions or ()}
    types = {name: f.returns if isinstance(f, SqlFunction) else f for name, f in function_by_name.items()}
    for name in types:
        if not is_free_function_name(name):
            raise DefinitionError(
                f"function {name!r}: SQL has a built-in function of this name", next="choose another name: name=..."
            )
    table_function_schemas(types)
    for name, type_ in scalar_function_types(types).items():
        try:
            parse_type(type_)
        except DefinitionError as error:
            raise DefinitionError(f"function {name!r}: {error.what}", found=type_, expected=error.expected) from None
    return types


def sql_functions_by_name(functions: Functions | None) -> dict[str, SqlFunction]:
    """Function name -> the function. Functions declared by type only are left out."""
    each = functions.items() if isinstance(functions, Mapping) else ((f.name, f) for f in functions or ())
    return {name: f for name, f in each if isinstance(f, SqlFunction)}
