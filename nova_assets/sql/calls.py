"""Functions of users called like tables: ``FROM rates(:day, (SELECT * FROM orders WHERE orders.day = :day))``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.sql.dialect import DIALECT
from nova_assets.sql.text import Span, Text

_CALL = "nova_call"
_INPUTS = "nova_inputs"
_OPEN, _CLOSE = TokenType.L_PAREN, TokenType.R_PAREN


@dataclass(frozen=True)
class Argument:
    """What a function is called with.

    Args:
        name: by which it is given; empty where its place says it.
        node: a value of the scope, or a query.
        place: of a query, where it is in the text, without what is around it.
    """

    name: str
    node: exp.Expr = field(compare=False)
    place: Span | None = None


@dataclass(frozen=True)
class Call:
    """A place in a query where a function stands as a table.

    Args:
        number: counts the calls of a query.
        function: its name.
        node: the table, for errors.
        place: in the text, without an alias.
        has_alias: whether the query knows it by another name.
    """

    number: int
    function: str
    arguments: tuple[Argument, ...]
    node: exp.Table = field(compare=False)
    place: Span = (0, 0)
    has_alias: bool = False

    @property
    def queries(self) -> tuple[Span, ...]:
        """Where in the text the queries are that it takes."""
        return tuple(a.place for a in self.arguments if a.place is not None)


def is_call(table: exp.Expr, modes: Mapping[str, object]) -> bool:
    """Whether a table is a call of a function, and no dataset read in a mode of its own."""
    return (
        isinstance(table, exp.Table) and isinstance(table.this, exp.Anonymous) and table.this.name.upper() not in modes
    )


def calls_of(text: Text, tree: exp.Expr, modes: Mapping[str, object]) -> tuple[Call, ...]:
    """Where a query calls functions as tables. Marks each place in the tree.

    Raises:
        SqlError: an argument is neither a value nor a query.
    """
    found: list[Call] = []
    for table in tree.find_all(exp.Table):
        if is_call(table, modes):
            table.meta[_CALL] = len(found)
            found.append(_call(text, table, len(found)))
    return tuple(found)


def call_number(table: exp.Expr) -> int | None:
    """Which call a table of a qualified tree is."""
    return table.meta.get(_CALL)


def as_table(table: exp.Table, call: Call) -> None:
    """A call by the function's name alone, so that its columns are told as those of any table; the queries that it
    takes stay inside it, as any subquery's would."""
    inputs = [a.node for a in call.arguments if a.place is not None]
    table.set("this", exp.to_identifier(call.function))
    table.set(_INPUTS, [i.copy() for i in inputs])
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(call.function)))


def refuse_names_from_outside(text: Text, call: Call) -> None:
    """A query that a function takes is run by itself, and sees no WITH of the query around it. Raises SqlError."""
    around = call.node.find_ancestor(exp.Query)
    outside = set[str]()
    while around is not None:
        outside |= {c.alias for c in around.ctes}
        around = around.find_ancestor(exp.Query)
    for argument in call.arguments:
        own = {c.alias for c in argument.node.find_all(exp.CTE)} if argument.place is not None else set()
        for table in argument.node.find_all(exp.Table) if argument.place is not None else ():
            if isinstance(table.this, exp.Identifier) and table.name in outside - own:
                raise text.error(
                    f"{table.name} is a name of the query around it",
                    table,
                    expected="a query that can stand alone",
                    next=f"take WITH {table.name} AS (...) into the brackets",
                )


def tables_of(functions: Mapping[str, str]) -> dict[str, Schema]:
    """The functions that give tables: those whose type is ``table(product string, price decimal(10,2))``.

    Raises:
        DefinitionError: that cannot be read.
    """
    found = {}
    for name, type_ in functions.items():
        if _is_table(type_):
            try:
                found[name] = parse_ddl(type_.strip()[len("table(") : -1])
            except DefinitionError as error:
                raise DefinitionError(
                    f"function {name!r}: {error.what}", found=type_, expected=error.expected
                ) from None
    return found


def scalars_of(functions: Mapping[str, str]) -> dict[str, str]:
    """The functions that give values, with their types."""
    return {n: t for n, t in functions.items() if not _is_table(t)}


def _is_table(type_: str) -> bool:
    return type_.strip().lower().startswith("table(")


def _call(text: Text, table: exp.Table, number: int) -> Call:
    call = table.this
    begin = int(call.meta["start"])  # of its name
    *places, (_, end) = _places(text, begin)
    arguments = tuple(_argument(text, node, place) for node, place in zip(call.expressions, places, strict=False))
    return Call(number, call.name, arguments, table, (begin, end), bool(table.alias))


def _argument(text: Text, given: exp.Expr, place: Span) -> Argument:
    name, node = ("", given) if not isinstance(given, exp.Kwarg) else (given.this.name, given.expression)
    if isinstance(given, exp.Kwarg):
        place = (text.sql.index("=>", place[0]) + 2, place[1])
    if isinstance(node, exp.Anonymous) and node.name.upper() == "TABLE" and len(node.expressions) == 1:
        place = (text.sql.index("(", place[0]), place[1])
        node = node.expressions[0]
    if isinstance(node, exp.Query):
        inner = node.unnest()
        begin, end = place
        while text.sql[begin:end].lstrip().startswith("("):
            begin, end = text.sql.index("(", begin) + 1, text.sql.rindex(")", begin, end)
        return Argument(name, inner if isinstance(inner, exp.Query) else node, (begin, end))
    if node.find(exp.Query, exp.Star):
        raise text.error(
            "an argument is neither a value nor a query", node, expected="a value of the scope, or (SELECT ...)"
        )
    return Argument(name, node)


def _places(text: Text, begin: int) -> Iterator[Span]:
    """Where the arguments of a call are, from bracket to comma to bracket; and last the whole of it."""
    depth, start = 0, 0
    for token in DIALECT.tokenize(text.sql):
        if token.start < begin:
            continue
        if token.token_type == _OPEN:
            depth += 1
            if depth == 1:
                start = token.end + 1
        elif token.token_type == _CLOSE:
            depth -= 1
        if (depth == 1 and token.token_type == TokenType.COMMA) or (depth == 0 and token.token_type == _CLOSE):
            yield start, token.start
            start = token.end + 1
        if depth == 0 and token.token_type == _CLOSE:
            yield begin, token.end + 1
            return
