"""Calls of user-defined table functions: ``FROM rates(:day, (SELECT * FROM orders WHERE orders.day = :day))``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.sql.parse import spark_functions
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.text import Span, SqlText, closing_index, depth_change, span_of_tokens

_CALL_KEY = "nova_call"
_INPUT_QUERIES_KEY = "nova_inputs"


@dataclass(frozen=True)
class CallArgument:
    """An argument of a table function.

    Args:
        name: the keyword, or empty for a positional argument.
        node: a value of the scope, or a query.
        query_span: for a query, its span in the text without the parentheses around it.
    """

    name: str
    node: exp.Expr = field(compare=False)
    query_span: Span | None = None


@dataclass(frozen=True)
class TableFunctionCall:
    """A call of a table function in FROM.

    Args:
        number: position among the calls of the query.
        function: the function's name.
        node: the table node, for error messages.
        call_span: span of the call in the text, without the alias.
        has_alias: whether the query gives the call an alias.
    """

    number: int
    function: str
    arguments: tuple[CallArgument, ...]
    node: exp.Table = field(compare=False)
    call_span: Span = (0, 0)
    has_alias: bool = False

    @property
    def query_spans(self) -> tuple[Span, ...]:
        """Spans of the queries passed as arguments."""
        return tuple(a.query_span for a in self.arguments if a.query_span is not None)


def is_free_function_name(name: str) -> bool:
    """Whether SQL has no built-in function of this name. A built-in function would be called instead."""
    if name.lower() in spark_functions.EXPRESSION_FUNCTIONS | spark_functions.TABLE_FUNCTIONS:
        return False
    try:
        call = sqlglot.parse_one(f"{name}(x)", dialect=DIALECT)
    except SqlglotError:
        return False
    return isinstance(call, exp.Anonymous)


def is_table_function(table: exp.Expr, read_modes: Mapping[str, object]) -> bool:
    """Whether a table node is a function call, and not a dataset with a read mode."""
    return (
        isinstance(table, exp.Table)
        and isinstance(table.this, exp.Anonymous)
        and table.this.name.upper() not in read_modes
    )


def mark_table_function_calls(
    text: SqlText, tree: exp.Expr, read_modes: Mapping[str, object]
) -> tuple[TableFunctionCall, ...]:
    """Find the table function calls of a query and mark their nodes in the tree.

    Raises:
        SqlError: an argument is neither a value nor a query.
    """
    calls: list[TableFunctionCall] = []
    for table in tree.find_all(exp.Table):
        if is_table_function(table, read_modes):
            table.meta[_CALL_KEY] = len(calls)
            calls.append(_parse_call(text, table, len(calls)))
    return tuple(calls)


def call_number(table: exp.Expr) -> int | None:
    """Number of the call that a table node represents. None for other nodes."""
    return table.meta.get(_CALL_KEY)


def replace_call_with_table(table: exp.Table, call: TableFunctionCall) -> None:
    """Replace a call by a table with the function's name, so that its columns are resolved like those of any table.
    The queries passed as arguments stay attached to the node as subqueries.
    """
    inputs = [a.node for a in call.arguments if a.query_span is not None]
    table.set("this", exp.to_identifier(call.function))
    table.set(_INPUT_QUERIES_KEY, [i.copy() for i in inputs])
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(call.function)))


def check_no_outer_ctes(text: SqlText, call: TableFunctionCall) -> None:
    """Raise SqlError if a query passed to a function uses a CTE of the surrounding query. Such a query runs on its
    own.
    """
    outer_query = call.node.find_ancestor(exp.Query)
    outer_names = set[str]()
    while outer_query is not None:
        outer_names |= {c.alias for c in outer_query.ctes}
        outer_query = outer_query.find_ancestor(exp.Query)
    for argument in call.arguments:
        own_names = {c.alias for c in argument.node.find_all(exp.CTE)} if argument.query_span is not None else set()
        for table in argument.node.find_all(exp.Table) if argument.query_span is not None else ():
            if isinstance(table.this, exp.Identifier) and table.name in outer_names - own_names:
                raise text.error(
                    f"{table.name} is defined by WITH of the surrounding query",
                    table,
                    expected="a query that uses nothing of the surrounding query",
                    next=f"move WITH {table.name} AS (...) into the parentheses",
                )


def check_no_outer_columns(text: SqlText, tree: exp.Expr) -> None:
    """Raise SqlError if a query passed to a function refers to columns of the surrounding query."""
    for table in tree.find_all(exp.Table):
        for inner in table.args.get(_INPUT_QUERIES_KEY) or ():
            own_names = {t.alias_or_name for t in inner.find_all(exp.Table, exp.Subquery, exp.CTE)}
            for column in inner.find_all(exp.Column):
                if column.table and column.table not in own_names:
                    raise text.error(
                        f"{column.sql('spark')} is a column of another source",
                        column,
                        expected="a query that uses nothing of the surrounding query",
                    )


def table_function_schemas(function_types: Mapping[str, str]) -> dict[str, Schema]:
    """Output schemas of the table functions, whose types have the form ``table(product string, price decimal(10,2))``.

    Raises:
        DefinitionError: a type cannot be parsed.
    """
    schema_by_function = {}
    for name, type_ in function_types.items():
        if _is_table_type(type_):
            try:
                schema_by_function[name] = parse_ddl(type_.strip()[len("table(") : -1])
            except DefinitionError as error:
                raise DefinitionError(
                    f"function {name!r}: {error.what}", found=type_, expected=error.expected
                ) from None
    return schema_by_function


def scalar_function_types(function_types: Mapping[str, str]) -> dict[str, str]:
    """Return types of the scalar functions, by name."""
    return {n: t for n, t in function_types.items() if not _is_table_type(t)}


def _is_table_type(type_: str) -> bool:
    return type_.strip().lower().startswith("table(")


def _parse_call(text: SqlText, table: exp.Table, number: int) -> TableFunctionCall:
    call = table.this
    if table.args.get("db") is not None:
        raise text.error(f"table function {call.name} is named with a database", table, expected=f"{call.name}(...)")
    start = int(call.meta["start"])  # the position of the function name
    *groups, end = _argument_tokens(text, start)
    arguments = tuple(
        _parse_argument(text, node, argument_tokens)
        for node, argument_tokens in zip(call.expressions, groups, strict=False)
    )
    return TableFunctionCall(number, call.name, arguments, table, (start, end[-1].end + 1), bool(table.alias))


def _parse_argument(text: SqlText, argument_node: exp.Expr, tokens: list[Token]) -> CallArgument:
    name, node = "", argument_node
    if isinstance(argument_node, exp.Kwarg):
        name, node = argument_node.this.name, argument_node.expression
        tokens = tokens[next(n for n, t in enumerate(tokens) if t.token_type == TokenType.FARROW) + 1 :]
    if isinstance(node, exp.Anonymous) and node.name.upper() == "TABLE" and len(node.expressions) == 1:
        tokens, node = tokens[1:], node.expressions[0]
    if isinstance(node, exp.Query):
        inner = node.unnest()
        tokens = _strip_parentheses(tokens)
        return CallArgument(name, inner if isinstance(inner, exp.Query) else node, span_of_tokens(*tokens))
    if node.find(exp.Query, exp.Star):
        raise text.error(
            "an argument is neither a value nor a query", node, expected="a value of the scope, or (SELECT ...)"
        )
    return CallArgument(name, node)


def _strip_parentheses(tokens: list[Token]) -> list[Token]:
    """The tokens without parentheses that enclose all of them."""
    while tokens[0].token_type == TokenType.L_PAREN and closing_index(tokens) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _argument_tokens(text: SqlText, call_start: int) -> Iterator[list[Token]]:
    """The tokens of each argument of a call, and finally the closing parenthesis."""
    depth, group = 0, list[Token]()
    for token in DIALECT.tokenize(text.sql):
        if token.start < call_start:
            continue
        closes = token.token_type == TokenType.R_PAREN and depth == 1
        if closes or (token.token_type == TokenType.COMMA and depth == 1):
            yield group
            group = []
        elif depth >= 1:
            group.append(token)
        depth += depth_change(token)
        if closes:
            yield [token]
            return
