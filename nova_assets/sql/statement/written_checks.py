"""The data checks of a dataset statement, which stand before its query.

    CHECK not_null(shop), expression(total >= 0)
    WARN freshness(day, '25h')
    SELECT ...

The functions are those of ``nova.checks``. The channel under test is the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.errors import DefinitionError
from nova_assets.model import checks
from nova_assets.model.channel import Channel
from nova_assets.model.data_check import Check
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.parse.parser_errors import convert_parser_errors
from nova_assets.sql.text import Span, SqlText
from nova_assets.suggestions import did_you_mean

CHECK_WORDS = ("CHECK", "WARN")

_FUNCTIONS: Mapping[str, Callable[..., Check]] = {
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
            return _FUNCTIONS[self.function](channel, *arguments, blocking=self.is_blocking)
        except DefinitionError as error:
            raise text.error(error.what, self.span, expected=error.expected) from None
        except TypeError:
            raise text.error(
                f"{self.function} has other arguments", self.span, expected=f"those of nova.checks.{self.function}"
            ) from None


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
        raise text.error("is not one check", _span(tokens, 1, len(tokens) - 1), expected="one check in each text")
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
        if at + 1 >= end or tokens[at + 1].token_type != TokenType.L_PAREN or name not in _FUNCTIONS:
            raise text.error(
                f"{tokens[at].text} is no check{did_you_mean(name, list(_FUNCTIONS))}",
                _span(tokens, at, at),
                expected=" or ".join(f"{f}(...)" for f in _FUNCTIONS),
            )
        close = _closing_parenthesis(text, tokens, at + 1, end)
        span = _span(tokens, at, close)
        found.append(WrittenCheck(name, _arguments(text, tokens, name, at + 2, close), is_blocking, span))
        at = close + 1
        if at + 1 >= end or tokens[at].token_type != TokenType.COMMA:
            return found, at


def depth_change(token: Token) -> int:
    """By how many levels of parentheses the text after a token is deeper than the text before it."""
    return {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)


def _closing_parenthesis(text: SqlText, tokens: Sequence[Token], opening: int, end: int) -> int:
    depth = 0
    for at in range(opening, end):
        depth += depth_change(tokens[at])
        if depth == 0:
            return at
    raise text.error(
        "the parenthesis is not closed",
        _span(tokens, opening, opening),
        expected="a closing parenthesis; in a list in YAML, a text with a comma needs quotes",
    )


def _arguments(
    text: SqlText, tokens: Sequence[Token], function: str, first: int, close: int
) -> tuple[str | int | float, ...]:
    """The arguments between two tokens. A condition is one argument, as it is written."""
    if first == close:
        return ()
    if function == "expression":
        start, stop = _span(tokens, first, close - 1)
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
        last = max(start, end - 1)
        raise text.error(
            "is no argument of a check", _span(tokens, start, last), expected="a column, a text in quotes, or a number"
        )
    return "".join(str(w.text) for w in words)


def _span(tokens: Sequence[Token], first: int, last: int) -> Span:
    return int(tokens[first].start), int(tokens[last].end) + 1
