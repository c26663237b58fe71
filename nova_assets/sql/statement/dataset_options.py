"""The options of a dataset statement, which stand before its query: how the dataset is brought up to date.

    INSERT OVERWRITE totals PARTITION (day)
    REFRESH INCREMENTAL
    FRESHNESS '10 minutes'
    FROZEN WHERE day < CURRENT_DATE - INTERVAL 30 DAYS
    CHECK not_null(day), unique(day)
    WARN freshness(day, '25h')
    SELECT ...

A file with a query alone begins with its options. The functions of the checks are those of ``nova.checks``. The channel
under test is the dataset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.errors import DefinitionError
from nova_assets.model import checks
from nova_assets.model.channel import Channel
from nova_assets.model.data_check import Check
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.plan.staleness import DOWNSTREAM
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.parse.parser_errors import convert_parser_errors
from nova_assets.sql.text import Span, SqlText, closing_index, depth_change, span_of_tokens
from nova_assets.suggestions import did_you_mean

QUERY_START_TOKENS = (TokenType.SELECT, TokenType.WITH, TokenType.FROM)

_CHECK_WORDS = ("CHECK", "WARN")
_POLICIES = ("FULL", "AUTO", "INCREMENTAL")
_NAMES = ("REFRESH", "FRESHNESS", "FROZEN", *_CHECK_WORDS)
_ANY_NAME = re.compile("|".join(_NAMES), re.IGNORECASE)
_EXPECTED = (
    "SELECT ..., REFRESH INCREMENTAL, FRESHNESS '10 minutes', FROZEN WHERE condition, CHECK not_null(column) or "
    "WARN not_null(column)"
)


_CHECKS_BY_NAME: Mapping[str, Callable[..., Check]] = {
    "not_null": checks.not_null,
    "unique": checks.unique,
    "accepted_values": lambda channel, column, *values, **options: checks.accepted_values(
        channel, column, values, **options
    ),
    "relationships": checks.relationships,
    "expression": checks.expression,
    "row_count_between": checks.row_count_between,
    "freshness": checks.freshness,
}


@dataclass(frozen=True, slots=True)
class WrittenCheck:
    """One check in a dataset statement.

    Args:
        function: name of the function of ``nova.checks``.
        arguments: names, texts and numbers after the channel. A condition is one text.
        is_blocking: whether a failure prevents the commit: ``CHECK``, not ``WARN``.
        span: characters of the call.
    """

    function: str
    arguments: tuple[str | int | float, ...]
    is_blocking: bool
    span: Span

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> WrittenCheck:
        start, end = data["span"]
        return WrittenCheck(data["function"], tuple(data["arguments"]), data["is_blocking"], (start, end))

    def build(self, text: SqlText, channel: Channel, find_channel: Callable[[str], Channel | str | None]) -> Check:
        """The check of a channel.

        Args:
            find_channel: function from a name to the channel or dataset with this name; None if there is none. Or to
                the name itself, if the project is to find the channel.

        Raises:
            SqlError: the arguments are wrong.
        """
        arguments: list[Any] = list(self.arguments)
        if self.function == "relationships" and len(arguments) > 1:
            other, _, column = str(arguments[1]).partition(".")
            partner = find_channel(other)
            if partner is None:
                raise text.error(f"{other} is no channel", self.span, expected="relationships(column, CHANNEL.COLUMN)")
            arguments[1:] = [partner, column or arguments[0]]
        try:
            return _CHECKS_BY_NAME[self.function](channel, *arguments, blocking=self.is_blocking)
        except DefinitionError as error:
            raise text.error(error.what, self.span, expected=error.expected) from None
        except TypeError:
            raise text.error(
                f"{self.function} has other arguments", self.span, expected=f"those of nova.checks.{self.function}"
            ) from None


@dataclass(frozen=True)
class DatasetOptions:
    """How a dataset is brought up to date, as far as its statement says so.

    Args:
        refresh: ``full``, ``auto`` or ``incremental``; empty if the statement does not say it.
        freshness: how long changes of the inputs may wait; empty if the statement does not say it.
        frozen_span: characters of ``WHERE condition`` after ``FROZEN``; None without this option.
        span: characters of all options; None without options.
        checks: the checks after ``CHECK`` and ``WARN``.
    """

    refresh: str = ""
    freshness: str = ""
    frozen_span: Span | None = None
    span: Span | None = None
    checks: tuple[WrittenCheck, ...] = ()

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> DatasetOptions:
        frozen_span, span = (None if data[name] is None else tuple(data[name]) for name in ("frozen_span", "span"))
        checks = tuple(map(WrittenCheck.from_json, data["checks"]))
        return DatasetOptions(data["refresh"], data["freshness"], frozen_span, span, checks)

    def blank_out(self, text: SqlText) -> SqlText:
        """The text with blanks in place of the options. Everything else keeps its position."""
        if self.span is None:
            return text
        start, end = self.span
        blanks = "".join(c if c.isspace() else " " for c in text.sql[start:end])
        return SqlText(text.name, text.sql[:start] + blanks + text.sql[end:])


def parse_options(text: SqlText) -> DatasetOptions:
    """The options of a statement.

    Raises:
        SqlError: an option is incomplete, or is given twice.
    """
    if not _ANY_NAME.search(text.sql):
        return DatasetOptions()
    with convert_parser_errors(text):
        tokens = list(DIALECT.tokenize(text.sql))
    start = _options_start(tokens)
    if start is None or not _is_option(tokens, start):
        return DatasetOptions()
    return _OptionsParser(text, tokens, start).parse()


class _OptionsParser:
    def __init__(self, text: SqlText, tokens: Sequence[Token], start: int) -> None:
        self.text = text
        self.tokens = tokens
        self.start = start
        self.query = _query_start(text, tokens, start)

    def parse(self) -> DatasetOptions:
        found: dict[str, int] = {}
        checks: list[WrittenCheck] = []
        at = self.start
        while at < self.query:
            if not _is_option(self.tokens, at):
                raise self.text.error("is no option of a dataset", span_of_tokens(self.tokens[at]), expected=_EXPECTED)
            name = self.tokens[at].text.upper()
            if name in _CHECK_WORDS:
                written, at = parse_checks(self.text, self.tokens, at, self.query)
                checks += written
                continue
            if name in found:
                raise self.text.error(
                    f"{name} is given twice", span_of_tokens(self.tokens[at]), expected=f"{name} once"
                )
            found[name] = at
            at = self._end_of_condition(at + 2) if name == "FROZEN" else at + 2
        frozen = found.get("FROZEN")
        return DatasetOptions(
            self.tokens[found["REFRESH"] + 1].text.lower() if "REFRESH" in found else "",
            self._freshness(found["FRESHNESS"] + 1) if "FRESHNESS" in found else "",
            None if frozen is None else span_of_tokens(*self.tokens[frozen + 1 : self._end_of_condition(frozen + 2)]),
            (int(self.tokens[self.start].start), int(self.tokens[self.query].start)),
            tuple(checks),
        )

    def _freshness(self, at: int) -> str:
        token = self.tokens[at]
        if token.token_type != TokenType.STRING:
            return DOWNSTREAM
        if period_seconds(token.text) is None and token.text != DOWNSTREAM:
            expected = f"{EXPECTED_PERIOD}, or DOWNSTREAM"
            raise self.text.error(f"{token.text!r} is not a period", span_of_tokens(self.tokens[at]), expected=expected)
        return str(token.text)

    def _end_of_condition(self, at: int) -> int:
        """Number of the first token after a condition."""
        first, depth = at, 0
        while at < self.query:
            if depth == 0 and at > first and _is_option(self.tokens, at):
                break
            depth += depth_change(self.tokens[at])
            at += 1
        if at == first:
            raise self.text.error("FROZEN WHERE has no condition", span_of_tokens(*self.tokens[first - 2 : first]))
        return at


def _options_start(tokens: Sequence[Token]) -> int | None:
    """Number of the token at which options can begin: after the target of INSERT, or at the beginning. None if the
    statement ends before."""
    insert = next((n for n, t in enumerate(tokens) if t.token_type == TokenType.INSERT), None)
    if insert is None:
        return 0 if tokens else None
    at = insert + 1
    while at < len(tokens) and tokens[at].text.upper() in ("OVERWRITE", "INTO", "TABLE"):
        at += 1
    at += 1  # the name
    while at + 1 < len(tokens) and tokens[at].token_type == TokenType.DOT:
        at += 2
    if at < len(tokens) and tokens[at].token_type == TokenType.PARTITION:
        closing = closing_index(tokens, at + 1)
        at = len(tokens) if closing is None else closing + 1
    return at if at < len(tokens) else None


def _is_option(tokens: Sequence[Token], at: int) -> bool:
    """Whether an option begins at a token. Its second word tells it from a name."""
    if at + 1 >= len(tokens) or tokens[at].text.upper() not in _NAMES:
        return False
    name, value = tokens[at].text.upper(), tokens[at + 1]
    if name == "FROZEN":
        return value.token_type == TokenType.WHERE
    if name == "FRESHNESS":
        return value.token_type == TokenType.STRING or value.text.lower() == DOWNSTREAM
    if name in _CHECK_WORDS:
        return at + 2 < len(tokens) and tokens[at + 2].token_type == TokenType.L_PAREN
    return value.text.upper() in _POLICIES


def _query_start(text: SqlText, tokens: Sequence[Token], start: int) -> int:
    depth = 0
    for n in range(start, len(tokens)):
        is_distinct_from = n > 0 and tokens[n - 1].token_type == TokenType.DISTINCT
        if depth == 0 and tokens[n].token_type in QUERY_START_TOKENS and not is_distinct_from:
            return n
        depth += depth_change(tokens[n])
    span = span_of_tokens(tokens[start])
    raise text.error("options without a query", span, expected="SELECT ... after the options")


# checks


def check_from_text(written: str, channel: Channel, *, is_blocking: bool) -> Check:
    """The check of a channel from a text such as ``not_null(shop)``. The project finds the channels that it names.

    Raises:
        SqlError: the text is not one check, or its arguments are wrong.
    """
    word = "CHECK" if is_blocking else "WARN"
    text = SqlText(f"check of {channel.name}", f"{word} {written}")
    with convert_parser_errors(text):
        tokens = list(DIALECT.tokenize(text.sql))
    if len(tokens) < 2:
        raise text.error("there is no check", None, expected="not_null(COLUMN) or another check")
    found, at = parse_checks(text, tokens, 0, len(tokens))
    if len(found) != 1 or at < len(tokens):
        raise text.error("is not one check", span_of_tokens(*tokens[1:]), expected="one check in each text")
    return found[0].build(text, channel, lambda name: name)


def parse_checks(text: SqlText, tokens: Sequence[Token], at: int, end: int) -> tuple[list[WrittenCheck], int]:
    """The checks after ``CHECK`` or ``WARN``, and the number of the token after them.

    Args:
        at: number of the token ``CHECK`` or ``WARN``.
        end: number of the first token of the query.

    Raises:
        SqlError: a check is unknown or incomplete.
    """
    is_blocking = tokens[at].text.upper() == "CHECK"
    found: list[WrittenCheck] = []
    while True:
        at += 1
        name = tokens[at].text.lower()
        if at + 1 >= end or tokens[at + 1].token_type != TokenType.L_PAREN or name not in _CHECKS_BY_NAME:
            raise text.error(
                f"{tokens[at].text} is no check{did_you_mean(name, list(_CHECKS_BY_NAME))}",
                span_of_tokens(tokens[at]),
                expected=" or ".join(f"{f}(...)" for f in _CHECKS_BY_NAME),
            )
        close = closing_index(tokens[:end], at + 1)
        if close is None:
            raise text.error(
                "the parenthesis is not closed",
                span_of_tokens(tokens[at + 1]),
                expected="a closing parenthesis; in a list in YAML, a text with a comma needs quotes",
            )
        span = span_of_tokens(*tokens[at : close + 1])
        found.append(WrittenCheck(name, _arguments(text, tokens, name, at + 2, close), is_blocking, span))
        at = close + 1
        if at + 1 >= end or tokens[at].token_type != TokenType.COMMA:
            return found, at


def _arguments(
    text: SqlText, tokens: Sequence[Token], function: str, first: int, close: int
) -> tuple[str | int | float, ...]:
    """The arguments between two tokens. A condition is one argument, as it is written."""
    if first == close:
        return ()
    if function == "expression":
        start, stop = span_of_tokens(*tokens[first:close])
        return (text.sql[start:stop],)
    found: list[str | int | float] = []
    start = first
    for at in range(first, close + 1):
        if at == close or tokens[at].token_type == TokenType.COMMA:
            found.append(_argument(text, tokens, start, at))
            start = at + 1
    return tuple(found)


def _argument(text: SqlText, tokens: Sequence[Token], start: int, end: int) -> str | int | float:
    """A name such as ``shop`` or ``shops.id``, a text, or a number."""
    words = tokens[start:end]
    sign = 1
    if len(words) == 2 and words[0].token_type == TokenType.DASH:
        sign, words = -1, words[1:]
    if len(words) == 1 and words[0].token_type == TokenType.NUMBER:
        number = float(words[0].text)
        return sign * (int(number) if number.is_integer() and "." not in words[0].text else number)
    is_name = all(w.token_type == TokenType.DOT for w in words[1::2]) and len(words) % 2 == 1
    if not is_name or sign < 0 or any(w.token_type in (TokenType.L_PAREN, TokenType.COMMA) for w in words[::2]):
        written = span_of_tokens(*tokens[start : max(start + 1, end)])
        raise text.error("is no argument of a check", written, expected="a column, a text in quotes, or a number")
    return "".join(str(w.text) for w in words)
