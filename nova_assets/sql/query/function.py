"""Functions of your own in SQL: of values, and of tables (BigDataFlow's foreign transformations, part 2)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from nova_assets.errors import DefinitionError
from nova_assets.model.function_parameters import wants_context
from nova_assets.model.names import check_name
from nova_assets.model.schema import parse_type
from nova_assets.model.task import Context
from nova_assets.sql.query.table_function_calls import is_unused_by_sql, scalar_function_types, table_function_schemas


@dataclass(frozen=True)
class SqlFunction:
    """A function that datasets in SQL may call. Calling it calls the plain function.

    Args:
        name: in SQL.
        function: of values; or one that gives a table.
        returns: its type; or ``table(...)`` with the columns that it gives.
    """

    name: str
    function: Callable[..., Any]
    returns: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def call_with_context(self, ctx: Context, args: Sequence[Any], keyword_args: Mapping[str, Any]) -> Any:
        """What it gives; the task's context is no argument of the query's."""
        names = list(inspect.signature(self.function).parameters)
        if "ctx" not in names:
            return self.function(*args, **keyword_args)
        at = names.index("ctx")
        if at < len(args):
            return self.function(*args[:at], ctx, *args[at:], **keyword_args)
        return self.function(*args, **keyword_args, ctx=ctx)

    def argument_problem(self, positional_count: int, keyword_names: Sequence[str]) -> str | None:
        """Why it cannot be called with so many arguments, and these; None where it can."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # some built-in ones have none
            return None
        known = [p for n, p in signature.parameters.items() if n != "ctx"]
        try:
            signature.replace(parameters=known).bind(*[None] * positional_count, **dict.fromkeys(keyword_names))
        except TypeError as error:
            return str(error)
        return None


Functions: TypeAlias = Mapping[str, "str | SqlFunction"] | Sequence[SqlFunction]
"""Functions that datasets call: made with ``nova.sql_function``; or the types of those that the session has already."""


def sql_function(returns: str, *, name: str | None = None) -> Callable[[Callable[..., Any]], SqlFunction]:
    """Make a plain function one that datasets in SQL can call.

        @nova.sql_function(returns="string")
        def slug(text): return text.lower().replace(" ", "-")

        @nova.sql_function(returns="table(currency string, rate decimal(10,4))")
        def rates(ctx, day, orders): ...

    A function of values becomes a user-defined function of Spark's. One that returns a table stands in FROM:
    ``FROM rates(:day, (SELECT * FROM orders WHERE orders.day = :day))``. It is called once for each task, where the
    task runs, with values of the scope, and with a Spark DataFrame for each query; it may read a database, by JDBC or
    ADBC or anything else. It gives a DataFrame, an Arrow or pandas table, or a list of dicts, of the columns that it
    declares. ``ctx`` is the task's context, where it asks for that.

    Args:
        returns: the type of the value, as Spark calls it; or ``table(column type, ...)``.
        name: in SQL; that of the function by default.

    Raises:
        DefinitionError: the type cannot be read.
    """

    def make(function: Callable[..., Any]) -> SqlFunction:
        made = SqlFunction(check_name(name or function.__name__, "a function"), function, returns.strip())
        if scalar_function_types(type_by_function([made])) and wants_context(function):
            raise DefinitionError(f"function {made.name!r}: one of values runs in Spark's workers, and has no ctx")
        return made

    return make


def type_by_function(functions: Functions | None) -> dict[str, str]:
    """Name -> what a function gives.

    Raises:
        DefinitionError: a type cannot be read.
    """
    each: Mapping[str, str | SqlFunction]
    each = functions if isinstance(functions, Mapping) else {f.name: f for f in functions or ()}
    found = {name: f.returns if isinstance(f, SqlFunction) else f for name, f in each.items()}
    for name in found:
        if not is_unused_by_sql(name):
            raise DefinitionError(f"function {name!r}: SQL has one of this name", next="give it another: name=...")
    table_function_schemas(found)
    for name, type_ in scalar_function_types(found).items():
        try:
            parse_type(type_)
        except DefinitionError as error:
            raise DefinitionError(f"function {name!r}: {error.what}", found=type_, expected=error.expected) from None
    return found


def sql_functions_by_name(functions: Functions | None) -> dict[str, SqlFunction]:
    """Name -> the function, of those that are given and not only known of."""
    each = functions.items() if isinstance(functions, Mapping) else ((f.name, f) for f in functions or ())
    return {name: f for name, f in each if isinstance(f, SqlFunction)}
