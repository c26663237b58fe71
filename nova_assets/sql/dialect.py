"""Spark's SQL with the head of a dataset before it: for which scopes a query is run, and which partition each of them
writes.

    FOR t IN TIMESERIES(last => 2), store IN ('Detroit', 'Paris')
    LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
    INSERT OVERWRITE store_sales PARTITION (day, store)
    SELECT ...

From ``INSERT`` on it is Spark's own. The head is a comprehension, as in BigDataFlow.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from nova_assets.errors import NotSupported, SqlError
from nova_assets.sql.text import Text


class For(exp.Expression):
    """A statement that is carried out for each combination of some values."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "generators": True, "lets": False}


class Generator(exp.Expression):
    """``name IN (values)``, or ``name IN TIMESERIES(...)``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class Let(exp.Expression):
    """``name = expression``"""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class _Parser(SparkParser):
    STATEMENT_PARSERS: ClassVar[dict[Any, Any]] = {
        **SparkParser.STATEMENT_PARSERS,
        TokenType.FOR: lambda self: self._parse_for(),
    }

    def _parse_placeholder(self) -> exp.Expr | None:
        """With its place, which the parser keeps of names alone."""
        first = self._curr
        found = super()._parse_placeholder()
        if isinstance(found, exp.Placeholder) and "start" not in found.meta:
            found.update_positions(first)
            found.meta["end"] = self._prev.end
        return found

    def _parse_for(self) -> For:
        generators = self._parse_csv(self._parse_generator)
        lets = self._parse_csv(self._parse_let) if self._match_text_seq("LET") else []
        statement = self._parse_statement()
        if statement is None:
            self.raise_error("Expected INSERT after the scopes")
        return self.expression(For(this=statement, generators=generators, lets=lets))

    def _parse_generator(self) -> Generator | None:
        name = self._parse_id_var()
        if not self._match(TokenType.IN):
            self.raise_error("Expected IN after the name of a variable")
        among = self._parse_wrapped_csv(self._parse_disjunction) if self._curr.text == "(" else None
        if among is not None:
            return self.expression(Generator(this=name, expression=exp.Tuple(expressions=among)))
        function = self._parse_function()
        if function is None:
            self.raise_error("Expected (values) or TIMESERIES(...) after IN")
        return self.expression(Generator(this=name, expression=function))

    def _parse_let(self) -> Let | None:
        name = self._parse_id_var()
        if not self._match(TokenType.EQ):
            self.raise_error("Expected = after the name of a variable")
        return self.expression(Let(this=name, expression=self._parse_disjunction()))


class NovaSpark(Spark):
    """Spark's dialect with ``FOR``."""

    Parser = _Parser


DIALECT = NovaSpark()


def parsed(text: Text) -> exp.Expr:
    """The one statement of a text.

    Raises:
        SqlError: it cannot be read, or is not one statement.
        NotSupported: the parser of SQL is not the one that is expected.
    """
    _refuse_compiled()
    _refuse_pipes(text)
    try:
        made = sqlglot.parse(text.sql, dialect=DIALECT)
        found = [s for s in made if s is not None and not isinstance(s, exp.Semicolon)]  # which may carry a comment
    except ParseError as error:
        raise _refused(text, error) from None
    except TokenError as error:
        raise text.error(f"cannot be read: {_first_line(error)}", None, expected="Spark's SQL") from None
    if len(found) != 1:
        raise text.error(
            "holds no statement" if not found else f"holds {len(found)} statements",
            found[1] if len(found) > 1 else None,
            expected="one: SELECT ..., or FOR ... INSERT OVERWRITE ... SELECT ...",
        )
    if isinstance(found[0], exp.Command):
        raise text.error("cannot be read as a query", None, expected="one: SELECT ..., or FOR ... INSERT ...")
    return found[0]


def _refuse_compiled() -> None:
    """A parser that was compiled cannot be given a statement of our own."""
    if not str(sqlglot.parser.__file__).endswith(".py"):
        raise NotSupported(
            "the parser of SQL is a compiled one, which knows no FOR",
            found=sqlglot.parser.__file__,
            expected="sqlglot without sqlglotc",
            next="pip uninstall sqlglotc",
        )


def _refuse_pipes(text: Text) -> None:
    """The parser makes one SELECT of what Spark takes step by step, which is not always the same."""
    if "|>" not in text.sql:
        return
    with suppress(TokenError):
        for token in DIALECT.tokenize(text.sql):
            if token.token_type == TokenType.PIPE_GT:
                raise text.error(
                    "pipes are not understood", (token.start, token.end + 1), expected="SELECT ... FROM ..."
                )


def end_of(text: Text) -> int:
    """Where a statement ends, before a semicolon."""
    tokens = DIALECT.tokenize(text.sql)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    return int(tokens[-1].end) + 1 if tokens else 0


def _refused(text: Text, error: ParseError) -> SqlError:
    said = error.errors[0] if error.errors else {}
    where = None
    if said.get("line") is not None and said.get("highlight") is not None:
        end = _offset(text.sql, said["line"], said["col"])
        where = (max(0, end - len(said["highlight"])), max(1, end))
    what = str(said.get("description") or _first_line(error)).split(" but got <")[0].rstrip(".")
    return text.error(f"cannot be read: {what}", where, expected="Spark's SQL")


def _offset(sql: str, line: int, column: int) -> int:
    """Where a line's column ends, in characters."""
    lines = sql.split("\n")
    return sum(len(one) + 1 for one in lines[: line - 1]) + column


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
