"""Checks of tokens: syntax that Spark's parser rejects and the SQL parser accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.sql.text import Span, SqlText, span_of_tokens

_TOKENS_AFTER_LIST = (
    TokenType.COMMA,
    TokenType.R_PAREN,
    TokenType.FROM,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ORDER_BY,
    TokenType.LIMIT,
    TokenType.UNION,
    TokenType.SEMICOLON,
)
_TOKENS_BEFORE_LIST = (
    TokenType.FROM,
    TokenType.GROUP_BY,
    TokenType.L_PAREN,
    TokenType.ORDER_BY,
    TokenType.PARTITION_BY,
    TokenType.SELECT,
)


def find_unclosed_quote(sql: str) -> Span | None:
    """Span of the opening of a quote or comment that is not closed. None if all are closed."""
    offset = 0
    while offset < len(sql):
        opening = next((o for o in ("--", "/*", "'", '"', "`") if sql.startswith(o, offset)), None)
        if opening is None:
            offset += 1
            continue
        end = _find_quote_end(sql, offset, opening)
        if end is None:
            return offset, offset + len(opening)
        offset = end
    return None


def _find_quote_end(sql: str, begin: int, opening: str) -> int | None:
    """Offset of the end of a quote or comment. None if it is not closed."""
    offset = begin + len(opening)
    if opening == "--":
        return next((n for n in (sql.find("\n", offset),) if n >= 0), len(sql))
    closing = "*/" if opening == "/*" else opening
    while offset < len(sql):
        if sql.startswith(closing, offset):
            return offset + len(closing)
        offset += 2 if opening in ("'", '"') and sql[offset] == "\\" else 1
    return None


def check_tokens(text: SqlText, tokens: list[Token]) -> None:
    """Raise SqlError for token sequences that Spark's parser rejects."""
    _check_brackets(text, tokens)
    _check_lists(text, tokens)
    _check_case_branches(text, tokens)
    _check_token_pairs(text, tokens)
    _check_interval_numbers_and_units(text, tokens)
    _check_window_frames(text, tokens)


_CLOSING = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}


def _check_brackets(text: SqlText, tokens: list[Token]) -> None:
    """Raise SqlError for brackets that do not match. The parser accepts some that are not closed."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type in _CLOSING:
            opened.append(token)
        elif token.token_type in _CLOSING.values() and (
            not opened or _CLOSING[opened.pop().token_type] != token.token_type
        ):
            raise text.error(f"syntax error: {token.text} closes no bracket", span_of_tokens(token))
    if opened:
        raise text.error(f"syntax error: {opened[-1].text} is not closed", span_of_tokens(opened[-1]))


def _check_lists(text: SqlText, tokens: list[Token]) -> None:
    """Raise SqlError for empty list elements, and for aliases in double quotes."""
    for before, token in zip([None, *tokens], tokens, strict=False):
        empty = token.token_type == TokenType.COMMA and (before is None or before.token_type in _TOKENS_BEFORE_LIST)
        if before is not None and before.token_type == TokenType.COMMA and token.token_type in _TOKENS_AFTER_LIST:
            empty = True
        if (
            before is not None
            and before.token_type == TokenType.PARTITION_BY
            and token.token_type in _TOKENS_AFTER_LIST
        ):
            raise text.error(
                "syntax error: PARTITION BY has no columns", span_of_tokens(before), expected="PARTITION BY column"
            )
        if empty:
            raise text.error(
                "syntax error: a list element is missing beside a comma", span_of_tokens(token), expected="Spark's SQL"
            )
        if before is not None and before.token_type == TokenType.ALIAS and token.token_type == TokenType.STRING:
            raise text.error(
                "syntax error: a string is not a name",
                span_of_tokens(token),
                expected=f"AS `{token.text}`",
                next="use backquotes",
            )
    if tokens and tokens[-1].token_type == TokenType.COMMA:
        raise text.error(
            "syntax error: a list element is missing beside a comma", span_of_tokens(tokens[-1]), expected="Spark's SQL"
        )


def _check_case_branches(text: SqlText, tokens: list[Token]) -> None:
    """Raise SqlError for a WHEN of a CASE without its THEN."""
    open_whens: list[bool] = []
    """For each open CASE, innermost last: whether a WHEN still needs its THEN."""
    for before, token in zip([None, *tokens], tokens, strict=False):
        kind = token.token_type
        if kind == TokenType.CASE and (before is None or before.token_type != TokenType.DOT):
            open_whens.append(False)
        elif open_whens and kind in (TokenType.WHEN, TokenType.ELSE, TokenType.END):
            if open_whens[-1]:
                raise text.error("syntax error: WHEN has no THEN", span_of_tokens(token), expected="WHEN ... THEN ...")
            open_whens[-1] = kind == TokenType.WHEN
            if kind == TokenType.END:
                open_whens.pop()
        elif open_whens and kind == TokenType.THEN:
            open_whens[-1] = False


@dataclass(frozen=True)
class _TokenPair:
    """Two consecutive tokens.

    Args:
        before: the token before the pair.
        gap: the text between the two tokens.
        declares_columns: whether the statement declares columns.
    """

    before: Token | None
    first: Token
    second: Token
    gap: str
    declares_columns: bool

    def second_is(self, *kinds: TokenType) -> bool:
        return self.second.token_type in kinds


def _check_token_pairs(text: SqlText, tokens: list[Token]) -> None:
    """Raise SqlError for symbols unknown to Spark, and for token pairs that only the parser accepts."""
    for token in tokens:
        if token.token_type in _UNKNOWN_SYMBOLS:
            raise text.error(
                f"syntax error: {token.text} is not a symbol of SQL", span_of_tokens(token), expected="Spark's SQL"
            )
    declares = any(t.token_type == TokenType.CREATE for t in tokens)  # price INT NOT NULL
    for before, (first, second) in zip([None, *tokens], pairwise(tokens), strict=False):
        for what, expected, is_refused in _REJECTED_PAIRS.get(first.token_type, ()):
            if is_refused(_TokenPair(before, first, second, text.sql[first.end + 1 : second.start], declares)):
                raise text.error(f"syntax error: {what}", span_of_tokens(first, second), expected=expected)


_UNKNOWN_SYMBOLS = (TokenType.PARAMETER, TokenType.SESSION_PARAMETER, TokenType.PLACEHOLDER)
_TOKENS_AFTER_OVER = (TokenType.L_PAREN, TokenType.VAR, TokenType.IDENTIFIER)

_OPERATORS_WITH_NOT = (
    TokenType.BETWEEN,
    TokenType.ILIKE,
    TokenType.IN,
    TokenType.LIKE,
    TokenType.NULL,
    TokenType.RLIKE,
)


def _is_end_of_value(token: Token | None) -> bool:
    ends = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, TokenType.R_PAREN)
    return token is not None and token.token_type in ends


def _is_order_by_in_non_window_parentheses(pair: _TokenPair) -> bool:
    """Whether ORDER BY begins parentheses other than those of OVER, WITHIN GROUP and WINDOW ... AS: ``ABS(ORDER BY
    x)``.
    """
    opening = pair.before.text.upper() if pair.before is not None else ""
    return pair.second_is(TokenType.ORDER_BY) and opening not in ("OVER", "GROUP", "AS")


def _is_alias_without_name(pair: _TokenPair) -> bool:
    return not pair.second_is(TokenType.IDENTIFIER) and re.match(r"[\w(]", pair.second.text) is None


def _is_bare_not_null(pair: _TokenPair) -> bool:
    """Whether NOT NULL follows a value outside a column declaration: ``price NOT NULL``."""
    return pair.second_is(TokenType.NULL) and _is_end_of_value(pair.before) and not pair.declares_columns


def _is_dot_without_name(pair: _TokenPair) -> bool:
    """Whether a dot follows a token other than a name or a value: ``FROM sales, . stores``."""
    return pair.second_is(TokenType.DOT)


_DOT_WITHOUT_NAME = ("the name before the dot is missing", "name.field", _is_dot_without_name)


def _make_split_operator_test(*kinds: TokenType) -> Callable[[_TokenPair], bool]:
    """Test for a split operator or number: ``< <`` for ``<<``, ``. 5`` for ``.5``."""
    return lambda pair: bool(pair.gap) and pair.second_is(*kinds)


_OPERATOR_WITHOUT_VALUE = ("an operator has no value", "value + value")

_REJECTED_PAIRS: Mapping[TokenType, Sequence[tuple[str, str, Callable[[_TokenPair], bool]]]] = {
    TokenType.ALIAS: [("AS has no name", "AS name", _is_alias_without_name)],
    TokenType.COMMA: [
        ("DISTINCT follows a comma", "DISTINCT a, b", lambda pair: pair.second_is(TokenType.DISTINCT)),
        _DOT_WITHOUT_NAME,
    ],
    TokenType.DOT: [
        ("a string is not a field", "value.field", lambda pair: pair.second_is(TokenType.STRING)),
        (*_OPERATOR_WITHOUT_VALUE, _make_split_operator_test(TokenType.NUMBER)),
    ],
    TokenType.FROM: [
        ("the value before FOR is missing", "FROM n FOR m", lambda pair: pair.second_is(TokenType.FOR)),
        _DOT_WITHOUT_NAME,
    ],
    TokenType.GT: [(*_OPERATOR_WITHOUT_VALUE, _make_split_operator_test(TokenType.GT))],
    TokenType.L_PAREN: [
        (
            "the value before FROM is missing",
            "(value FROM n)",
            lambda pair: pair.second_is(TokenType.FROM, TokenType.FOR),
        ),
        ("ORDER BY is not allowed here", "OVER (ORDER BY ...)", _is_order_by_in_non_window_parentheses),
    ],
    TokenType.LT: [(*_OPERATOR_WITHOUT_VALUE, _make_split_operator_test(TokenType.LT))],
    TokenType.NOT: [
        ("! is used as NOT", "NOT", lambda pair: pair.first.text == "!" and pair.second_is(*_OPERATORS_WITH_NOT)),
        ("NOT NULL without IS", "IS NOT NULL", _is_bare_not_null),
    ],
    TokenType.OVER: [("OVER has no window", "OVER (...)", lambda pair: not pair.second_is(*_TOKENS_AFTER_OVER))],
    TokenType.STAR: [
        (*_OPERATOR_WITHOUT_VALUE, lambda pair: pair.second_is(*_TOKENS_AFTER_LIST) and _is_end_of_value(pair.before)),
    ],
}
"""First token of a pair -> rejected pairs, each with the problem, the expected syntax, and the test."""


_UNITS = frozenset("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND".split())


def _check_interval_numbers_and_units(text: SqlText, tokens: list[Token]) -> None:
    """Raise SqlError for an interval without a unit or number: ``INTERVAL 5``."""
    for n, token in enumerate(tokens):
        following = tokens[n + 1 : n + 4]
        if token.token_type != TokenType.INTERVAL or not following:
            continue
        if following[0].token_type == TokenType.STRING and not any(c.isdigit() for c in following[0].text):
            raise text.error(
                "syntax error: an interval has no number", span_of_tokens(following[0]), expected="'5 days'"
            )
        number = following[1:] if following[0].token_type in (TokenType.DASH, TokenType.PLUS) else following
        if (
            number
            and number[0].token_type == TokenType.NUMBER
            and not (number[1:] and number[1].text.upper().rstrip("S") in _UNITS)
        ):
            raise text.error(
                "syntax error: an interval has no unit", span_of_tokens(number[0]), expected="INTERVAL 5 DAYS"
            )


def _check_window_frames(text: SqlText, tokens: list[Token]) -> None:
    """Raise SqlError for a frame with two bounds but no BETWEEN: ``ROWS 1 PRECEDING AND CURRENT ROW``."""
    has_single_bound = False
    for before, token in pairwise(tokens):
        if before.text.upper() in ("ROWS", "RANGE"):
            has_single_bound = token.token_type not in (TokenType.BETWEEN, TokenType.L_PAREN)
        elif token.token_type == TokenType.AND and before.text.upper() in ("PRECEDING", "FOLLOWING", "ROW"):
            if has_single_bound:
                raise text.error(
                    "syntax error: a window frame has two bounds without BETWEEN",
                    span_of_tokens(token),
                    expected="ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
                )
        elif token.token_type == TokenType.R_PAREN:
            has_single_bound = False


_CLAUSE_KEYWORDS = (
    TokenType.ALIAS,
    TokenType.AND,
    TokenType.DISTINCT,
    TokenType.ELSE,
    TokenType.FROM,
    TokenType.HAVING,
    TokenType.IN,
    TokenType.LIKE,
    TokenType.LIMIT,
    TokenType.NOT,
    TokenType.OR,
    TokenType.OVER,
    TokenType.SELECT,
    TokenType.THEN,
    TokenType.WHEN,
    TokenType.WHERE,
    TokenType.WITH,
)
_TOKENS_BEFORE_NEXT_CLAUSE = (
    TokenType.COMMA,
    TokenType.FROM,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ON,
    TokenType.ORDER_BY,
    TokenType.R_PAREN,
    TokenType.WHERE,
)
_FIXED_KEYWORD_PAIRS = (
    (TokenType.DISTINCT, TokenType.FROM),  # IS DISTINCT FROM
    (TokenType.ALIAS, TokenType.FROM),  # a keyword after AS is an alias
    (TokenType.ALIAS, TokenType.HAVING),
    (TokenType.ALIAS, TokenType.WHERE),
)


def convert_keywords_to_names(tokens: list[Token]) -> list[Token]:
    """The tokens, with keywords that begin no clause turned into names, as in Spark: ``FROM sales having, stores``.

    Spark SQL has no reserved words. A keyword followed by the next clause, a comma or a closing parenthesis begins no
    clause itself.
    """
    converted = list(tokens)
    for n, (token, following) in enumerate(pairwise(tokens)):
        if token.token_type not in _CLAUSE_KEYWORDS or following.token_type not in _TOKENS_BEFORE_NEXT_CLAUSE:
            continue
        if not token.text.isalpha():  # ! for NOT
            continue
        if (token.token_type, following.token_type) in _FIXED_KEYWORD_PAIRS and not _is_as_used_as_name(
            tokens[n : n + 3]
        ):
            continue
        converted[n] = Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments)
    return converted


def _is_as_used_as_name(tokens: list[Token]) -> bool:
    """Whether AS is used as a name: ``SELECT 1 AS FROM sales``."""
    kinds = [t.token_type for t in tokens]
    return kinds[:2] == [TokenType.ALIAS, TokenType.FROM] and kinds[2:] not in ([TokenType.FROM], [TokenType.COMMA])
