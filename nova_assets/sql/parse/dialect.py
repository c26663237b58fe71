"""Spark SQL with a dataset header: the scopes for which a query runs, and the partition that each scope writes.

    FOR t IN TIMESERIES(last => 2), store IN ('Detroit', 'Paris')
    LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
    INSERT OVERWRITE store_sales PARTITION (day, store)
    SELECT ...

Everything from ``INSERT`` on is Spark SQL. The header is a comprehension, as in BigDataFlow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.errors import NotSupported
from nova_assets.sql.parse import spark_functions
from nova_assets.sql.parse.parser_errors import convert_parser_errors
from nova_assets.sql.parse.spark_syntax import TYPED_LITERAL_KEY, WRITTEN_PARENTHESES_KEY, check_tree
from nova_assets.sql.parse.spark_tokens import check_tokens, convert_keywords_to_names, find_unclosed_quote
from nova_assets.sql.text import Span, SqlText, span_of_tokens


class For(exp.Expression):
    """A statement that runs once for each combination of the generators' values."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "generators": True, "lets": False}


class Generator(exp.Expression):
    """``name IN (values)``, or ``name IN TIMESERIES(...)``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class Let(exp.Expression):
    """``name = expression``"""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


_UNITS = frozenset("YEAR QUARTER MONTH WEEK DAY DAYOFYEAR HOUR MINUTE SECOND MILLISECOND MICROSECOND".split())

_FUNCTIONS_WITH_UNIT = frozenset("DATE_ADD DATEADD DATE_DIFF DATEDIFF TIMEDIFF TIMESTAMPADD TIMESTAMPDIFF".split())
"""Functions that take an unquoted unit before two other arguments."""

_FUNCTIONS_WITH_OWN_SYNTAX = (
    "CAST TRY_CAST CEIL CEILING FLOOR EXTRACT OVERLAY POSITION SUBSTRING SUBSTR TRIM LISTAGG STRING_AGG PERCENTILE "
    "PERCENTILE_APPROX APPROX_PERCENTILE MAX_BY MIN_BY BROADCAST BROADCASTJOIN MAPJOIN MERGE SHUFFLEMERGE MERGEJOIN "
    "SHUFFLE_HASH SHUFFLE_REPLICATE_NL"
).split()
"""Functions whose arguments are not a plain list of expressions, and hints."""


_ARRAY_FUNCTION = "ARRAY"
"""Kept as a function, because the parser would take any other node of this name for the beginning of ``ARRAY[...]``."""


def _make_aggregate_builder(name: str) -> Callable[..., exp.Expr]:
    return lambda args: exp.AnonymousAggFunc(this=name, expressions=args)


_PLAIN_AGGREGATES = frozenset(
    "APPROX_TOP_K APPROX_TOP_K_ACCUMULATE APPROX_TOP_K_COMBINE BITMAP_OR_AGG GROUPING_ID MEDIAN MODE REGR_AVGX "
    "REGR_AVGY REGR_COUNT REGR_INTERCEPT REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY".split()
)
"""Aggregates that are parsed by name, because the type rules do not cover the parser's classes for them."""


def _builders_of_row_changing_functions() -> dict[str, Callable[..., exp.Expr]]:
    """Builders of calls that change the number of rows. All other calls are kept as written: a name with arguments."""
    aggregates = set(map(str.upper, spark_functions.AGGREGATES))
    builders = {name: _make_aggregate_builder(name) for name in aggregates}
    others = spark_functions.WINDOW_FUNCTIONS | spark_functions.GENERATOR_FUNCTIONS | spark_functions.TABLE_FUNCTIONS
    names_with_own_class = {*(aggregates - _PLAIN_AGGREGATES), *map(str.upper, others), _ARRAY_FUNCTION}
    return builders | {name: build for name, build in SparkParser.FUNCTIONS.items() if name in names_with_own_class}


class _Parser(SparkParser):
    """Spark's parser, without functions of other dialects.

    A scalar function keeps its name and arguments as written, because Spark's semantics depend on them.
    """

    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = _builders_of_row_changing_functions()
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        n: parse for n, parse in SparkParser.FUNCTION_PARSERS.items() if n in _FUNCTIONS_WITH_OWN_SYNTAX
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        n: parse for n, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if n in ("CASE",)
    }

    UNARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **SparkParser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: self._parse_positive(),
    }
    COLUMN_OPERATORS: ClassVar[dict[Any, Any]] = {
        token: parse
        for token, parse in SparkParser.COLUMN_OPERATORS.items()
        if token in (TokenType.DOT, TokenType.DCOLON)
    }

    STATEMENT_PARSERS: ClassVar[dict[Any, Any]] = {
        **SparkParser.STATEMENT_PARSERS,
        TokenType.FOR: lambda self: self._parse_for(),
    }

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        """Parse arguments. An unquoted unit is not a column."""
        name = self._tokens[self._index - 2].text.upper() if self._index >= 2 else ""
        args: list[exp.Expr] = super()._parse_function_args(alias)
        if (
            name in _FUNCTIONS_WITH_UNIT
            and len(args) == 3
            and isinstance(args[0], exp.Column)
            and args[0].name.upper() in _UNITS
        ):
            args[0] = exp.var(args[0].name)
        return args

    def _parse_positive(self) -> exp.Expr:
        operand = self._parse_unary()
        if operand is None:
            self.raise_error("Expected a value after +")
        return exp.Anonymous(this="positive", expressions=[operand])

    def _parse_string_as_identifier(self) -> None:
        """Reject string literals as identifiers."""

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("Expected AND between the limits of BETWEEN")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        """Parse a type, and mark typed literals such as ``DATE '2022-03-31'``, which are no casts in the text."""
        first, second = self._curr, self._next
        parsed_type: exp.Expr | None = super()._parse_type(parse_interval, fallback_to_identifier)
        if isinstance(parsed_type, exp.Cast) and second and second.token_type in (TokenType.STRING, TokenType.NUMBER):
            parsed_type.meta[TYPED_LITERAL_KEY] = first.text.upper()
        return parsed_type

    def _parse_table_parts(
        self, schema: bool = False, is_db_reference: bool = False, wildcard: bool = False, fast: bool = False
    ) -> exp.Table | exp.Dot | None:
        """Parse a table name. Reject ``*`` after the name, which PostgreSQL allows."""
        found = super()._parse_table_parts(schema, is_db_reference, wildcard, fast)
        if found is not None and self._curr and self._curr.token_type == TokenType.STAR:
            self.raise_error("* follows the name of a table", self._curr)
        return found

    def _parse_paren(self) -> exp.Expr | None:
        """Parse parentheses, and mark them as written by the author."""
        parsed: exp.Expr | None = super()._parse_paren()
        if isinstance(parsed, exp.Paren):
            parsed.meta[WRITTEN_PARENTHESES_KEY] = True
        return parsed

    def _parse_placeholder(self) -> exp.Expr | None:
        """Parse a placeholder with its position, which the parser records for names only."""
        first = self._curr
        found = super()._parse_placeholder()
        if isinstance(found, exp.Placeholder) and "start" not in found.meta:
            found.update_positions(first)
            found.meta["end"] = self._prev.end
        return found

    def _parse_for(self) -> For:
        generators = self._parse_csv(self._parse_generator)
        lets: list[exp.Expr] = []
        while self._match_text_seq("LET"):
            lets += self._parse_csv(self._parse_let)
        statement = self._parse_statement()
        if statement is None:
            self.raise_error("Expected INSERT after the scopes")
        return self.expression(For(this=statement, generators=generators, lets=lets))

    def _parse_generator(self) -> Generator | None:
        name = self._parse_id_var()
        if not self._match(TokenType.IN):
            self.raise_error("Expected IN after the name of a variable")
        listed_values = self._parse_wrapped_csv(self._parse_disjunction) if self._curr.text == "(" else None
        if listed_values is not None:
            return self.expression(Generator(this=name, expression=exp.Tuple(expressions=listed_values)))
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
    """Spark's dialect, extended by ``FOR``."""

    Parser = _Parser


DIALECT = NovaSpark()


def parse_statement(text: SqlText) -> exp.Expr:
    """Parse the single statement of a text.

    Raises:
        SqlError: the text cannot be parsed, or does not hold exactly one statement.
        NotSupported: the installed SQL parser is a compiled one.
    """
    _check_parser_not_compiled()
    open_quote = find_unclosed_quote(text.sql)
    if open_quote is not None:
        raise text.error(
            f"syntax error: {text.substring(open_quote)} is not closed", open_quote, expected="Spark's SQL"
        )
    with convert_parser_errors(text):
        made = DIALECT.parser().parse(_checked_tokens(text), text.sql)
        found = [s for s in made if s is not None and not isinstance(s, exp.Semicolon)]  # kept for comments
        for statement in found:
            check_tree(text, statement)
    if len(found) != 1:
        raise text.error(
            "contains no statement" if not found else f"contains {len(found)} statements",
            found[1] if len(found) > 1 else None,
            expected="one statement: SELECT ..., or FOR ... INSERT OVERWRITE ... SELECT ...",
        )
    if isinstance(found[0], exp.Command):
        raise text.error("is not a query", None, expected="one query: SELECT ..., or FOR ... INSERT ...")
    return convert_table_functions(found[0])


def parse_condition(text: SqlText, span: Span) -> exp.Expr:
    """Parse a condition that stands in a text after ``WHERE``.

    Args:
        span: the characters of ``WHERE condition``.

    Raises:
        SqlError: the condition cannot be parsed.
    """
    start, end = span
    alone = SqlText(text.name, re.sub(r"\S", " ", text.sql[:start]) + text.sql[start:end])
    with convert_parser_errors(text):
        where = DIALECT.parser().parse_into(exp.Where, _checked_tokens(alone), text.sql)[0]
        assert where is not None
        check_tree(text, where)
    condition: exp.Expr = where.this.unnest()
    return condition


def _checked_tokens(text: SqlText) -> list[Token]:
    tokens: list[Token] = convert_keywords_to_names(DIALECT.tokenize(text.sql))
    check_tokens(text, tokens)
    _check_no_pipes(text, tokens)
    return tokens


def _check_parser_not_compiled() -> None:
    """Raise NotSupported if the SQL parser is compiled. A compiled parser cannot be extended by own statements."""
    if not str(sqlglot.parser.__file__).endswith(".py"):
        raise NotSupported(
            "the installed SQL parser is compiled, and cannot parse FOR",
            found=sqlglot.parser.__file__,
            expected="sqlglot without sqlglotc",
            next="pip uninstall sqlglotc",
        )


def _check_no_pipes(text: SqlText, tokens: list[Token]) -> None:
    """Raise SqlError for pipe syntax. The parser turns pipes into one SELECT, which can differ from Spark's
    step-by-step meaning.
    """
    for token in tokens:
        if token.token_type == TokenType.PIPE_GT:
            raise text.error("pipe syntax is not supported", span_of_tokens(token), expected="SELECT ... FROM ...")


def statement_end(text: SqlText) -> int:
    """Character offset at which the statement ends, excluding the semicolon."""
    tokens = DIALECT.tokenize(text.sql)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    return int(tokens[-1].end) + 1 if tokens else 0


def convert_table_functions(tree: exp.Expr) -> exp.Expr:
    """The tree, with each built-in table function replaced by a source with known columns.

    A generator becomes a LATERAL source. ``RANGE`` becomes a query with one column, ``id``, whose values are unknown.
    The text that Spark runs does not change.
    """
    for table in list(tree.find_all(exp.Table)):
        call = table.this
        name = _function_name(call)
        if name not in spark_functions.TABLE_FUNCTIONS:
            continue
        alias = _complete_alias(table, name, _column_names_known_without_types(call, name))
        source = _range_subquery(call, alias) if name == "range" else exp.Lateral(this=call, view=False, alias=alias)
        for key in ("joins", "laterals"):
            source.set(key, table.args.get(key))
        table.replace(source)
    for named in list(tree.find_all(exp.Aliases)):
        _move_to_lateral(named)
    for values in tree.find_all(exp.Values):
        first = values.expressions[0] if values.expressions else None
        width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
        values.set("alias", _complete_alias(values, "values", [f"col{n}" for n in range(1, width + 1)]))
    return tree


def _move_to_lateral(aliased_generator: exp.Aliases) -> None:
    """Turn ``SELECT day, POSEXPLODE(a) AS (n, x)`` into a SELECT from a LATERAL source."""
    select = aliased_generator.parent
    if not isinstance(select, exp.Select) or not isinstance(aliased_generator.this, exp.Func):
        return
    laterals = select.args.get("laterals") or []
    name = f"generated_{len(laterals)}"
    alias = exp.TableAlias(this=exp.to_identifier(name), columns=[i.copy() for i in aliased_generator.expressions])
    lateral = exp.Lateral(this=aliased_generator.this.copy(), view=True, alias=alias)
    if select.args.get("from_") is None:
        select.set("from_", exp.From(this=lateral))
    else:
        select.set("laterals", [*laterals, lateral])
    columns = [exp.column(i.copy(), table=name) for i in aliased_generator.expressions]
    place = select.expressions.index(aliased_generator)
    select.set("expressions", [*select.expressions[:place], *columns, *select.expressions[place + 1 :]])


def _complete_alias(source: exp.Expr, default_name: str, default_columns: Sequence[str]) -> exp.TableAlias:
    """The alias of a source, completed with Spark's default names."""
    alias: exp.TableAlias = source.args.get("alias") or exp.TableAlias()
    if alias.this is None:
        alias.set("this", exp.to_identifier(default_name))
    if not alias.columns:
        alias.set("columns", [exp.to_identifier(column) for column in default_columns])
    return alias


def _column_names_known_without_types(call: exp.Expr, function_name: str) -> list[str]:
    """Default column names of a generator. Empty if they depend on the types of its arguments."""
    if function_name == "json_tuple":
        return [f"c{n}" for n in range(len(call.expressions) - 1)]
    if function_name == "stack" and call.this.name.isdigit() and int(call.this.name):
        return [f"col{n}" for n in range(-(-len(call.expressions) // int(call.this.name)))]
    return []


def _function_name(call: exp.Expr) -> str:
    if isinstance(call, exp.Anonymous):
        return call.name.lower()
    return call.sql_name().lower() if isinstance(call, exp.Func) else ""


def _range_subquery(call: exp.Expr, alias: exp.TableAlias) -> exp.Subquery:
    value = exp.Cast(this=call, to=exp.DataType.build("bigint"))
    return exp.Subquery(this=exp.Select(expressions=[exp.alias_(value, "id")]), alias=alias)
