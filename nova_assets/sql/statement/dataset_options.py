"""The options of a dataset statement, which stand before its query: how the dataset is brought up to date.

    INSERT OVERWRITE totals PARTITION (day)
    REFRESH INCREMENTAL
    FRESHNESS '10 minutes'
    FROZEN WHERE day < CURRENT_DATE - INTERVAL 30 DAYS
    CHECK not_null(day), unique(day)
    WARN freshness(day, '25h')
    SELECT ...

A file with a query alone begins with its options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.plan.staleness import DOWNSTREAM
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.parse.parser_errors import convert_parser_errors
from nova_assets.sql.statement.written_checks import CHECK_WORDS, WrittenCheck, depth_change, parse_checks
from nova_assets.sql.text import Span, SqlText

QUERY_START_TOKENS = (TokenType.SELECT, TokenType.WITH, TokenType.FROM)

_POLICIES = ("FULL", "AUTO", "INCREMENTAL")
_NAMES = ("REFRESH", "FRESHNESS", "FROZEN", *CHECK_WORDS)
_ANY_NAME = re.compile("|".join(_NAMES), re.IGNORECASE)
_EXPECTED = (
    "SELECT ..., REFRESH INCREMENTAL, FRESHNESS '10 minutes', FROZEN WHERE condition, CHECK not_null(column) or "
    "WARN not_null(column)"
)


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
                raise self.text.error("is no option of a dataset", self._span(at, at), expected=_EXPECTED)
            name = self.tokens[at].text.upper()
            if name in CHECK_WORDS:
                written, at = parse_checks(self.text, self.tokens, at, self.query)
                checks += written
                continue
            if name in found:
                raise self.text.error(f"{name} is given twice", self._span(at, at), expected=f"{name} once")
            found[name] = at
            at = self._end_of_condition(at + 2) if name == "FROZEN" else at + 2
        frozen = found.get("FROZEN")
        return DatasetOptions(
            self.tokens[found["REFRESH"] + 1].text.lower() if "REFRESH" in found else "",
            self._freshness(found["FRESHNESS"] + 1) if "FRESHNESS" in found else "",
            None if frozen is None else self._span(frozen + 1, self._end_of_condition(frozen + 2) - 1),
            (int(self.tokens[self.start].start), int(self.tokens[self.query].start)),
            tuple(checks),
        )

    def _freshness(self, at: int) -> str:
        token = self.tokens[at]
        if token.token_type != TokenType.STRING:
            return DOWNSTREAM
        if period_seconds(token.text) is None and token.text != DOWNSTREAM:
            expected = f"{EXPECTED_PERIOD}, or DOWNSTREAM"
            raise self.text.error(f"{token.text!r} is not a period", self._span(at, at), expected=expected)
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
            raise self.text.error("FROZEN WHERE has no condition", self._span(first - 2, first - 1))
        return at

    def _span(self, first: int, last: int) -> Span:
        return int(self.tokens[first].start), int(self.tokens[last].end) + 1


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
        at += 1
        depth = 0
        while at < len(tokens):
            depth += depth_change(tokens[at])
            at += 1
            if depth <= 0:
                break
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
    if name in CHECK_WORDS:
        return at + 2 < len(tokens) and tokens[at + 2].token_type == TokenType.L_PAREN
    return value.text.upper() in _POLICIES


def _query_start(text: SqlText, tokens: Sequence[Token], start: int) -> int:
    depth = 0
    for n in range(start, len(tokens)):
        is_distinct_from = n > 0 and tokens[n - 1].token_type == TokenType.DISTINCT
        if depth == 0 and tokens[n].token_type in QUERY_START_TOKENS and not is_distinct_from:
            return n
        depth += depth_change(tokens[n])
    span = (int(tokens[start].start), int(tokens[start].end) + 1)
    raise text.error("options without a query", span, expected="SELECT ... after the options")
