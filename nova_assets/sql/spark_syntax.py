"""What Spark's parser and analyser refuse, and the parser of SQL takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.sql.text import Span, Text

_ENDS_A_LIST = (
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
_BEGINS_A_LIST = (TokenType.L_PAREN, TokenType.SELECT, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.FROM)


def unclosed(sql: str) -> Span | None:
    """Where a quote or comment opens that is not closed."""
    at = 0
    while at < len(sql):
        opening = next((o for o in ("--", "/*", "'", '"', "`") if sql.startswith(o, at)), None)
        if opening is None:
            at += 1
            continue
        end = _end_of(sql, at, opening)
        if end is None:
            return at, at + len(opening)
        at = end
    return None


def _end_of(sql: str, begin: int, opening: str) -> int | None:
    """Where a quote or comment ends; None where it does not."""
    at = begin + len(opening)
    if opening == "--":
        return next((n for n in (sql.find("\n", at),) if n >= 0), len(sql))
    closing = "*/" if opening == "/*" else opening
    while at < len(sql):
        if sql.startswith(closing, at):
            return at + len(closing)
        at += 2 if opening in ("'", '"') and sql[at] == "\\" else 1
    return None


def check_tokens(text: Text, tokens: list[Token]) -> None:
    """Refuse lists with nothing between two commas, and names in double quotes. Raises SqlError."""
    for before, token in zip([None, *tokens], tokens, strict=False):
        empty = token.token_type == TokenType.COMMA and (before is None or before.token_type in _BEGINS_A_LIST)
        if before is not None and before.token_type == TokenType.COMMA and token.token_type in _ENDS_A_LIST:
            empty = True
        if empty:
            raise text.error("cannot be read: nothing stands beside a comma", _place(token), expected="Spark's SQL")
        if before is not None and before.token_type == TokenType.ALIAS and token.token_type == TokenType.STRING:
            raise text.error(
                "cannot be read: a text is no name", _place(token), expected=f"AS `{token.text}`", next="use backquotes"
            )
    if tokens and tokens[-1].token_type == TokenType.COMMA:
        raise text.error("cannot be read: nothing stands beside a comma", _place(tokens[-1]), expected="Spark's SQL")


def _place(token: Token) -> Span:
    return int(token.start), int(token.end) + 1


def check_tree(text: Text, tree: exp.Expr) -> None:
    """Refuse what is no query of Spark's. Raises SqlError."""
    for check in _CHECKS:
        for node, what, expected in check(tree):
            raise text.error(what, node, expected=expected)


_Refusals = Iterator[tuple[exp.Expr, str, str]]


def _selects_nothing(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Select):
        if not node.expressions and not node.args.get("kind"):
            yield node, "cannot be read: SELECT of nothing", "SELECT column, ..."


def _in_nothing(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.In):
        if not any(node.args.get(k) for k in ("expressions", "query", "unnest", "field")):
            yield node, "cannot be read: IN of nothing", "IN (value, ...)"


def _stars(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Star):
        if isinstance(node.parent, exp.Binary | exp.Unary | exp.Between | exp.In) and not isinstance(
            node.parent, exp.Dot
        ):
            yield node.parent, "cannot be read: * is no value", "a column"


def _twice_with(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.With):
        names: set[str] = set()
        for cte in node.expressions:
            if cte.alias.lower() in names:
                yield cte.args["alias"], f"{cte.alias} stands twice in WITH", "different names"
            names.add(cte.alias.lower())


def _aggregates_of_rows(tree: exp.Expr) -> _Refusals:
    """WHERE, GROUP BY and ON are about rows, of which nothing is added up yet."""
    for kind, clause in ((exp.Where, "WHERE"), (exp.Group, "GROUP BY")):
        for node in tree.find_all(kind):
            if isinstance(node.parent, exp.Filter):
                continue
            for part in node.walk(prune=lambda n: isinstance(n, exp.Query | exp.Subquery)):
                if isinstance(part, exp.AggFunc) and not isinstance(part.parent, exp.Window):
                    yield part, f"{clause} has an aggregate", "a condition on rows; HAVING is about groups"


def _numbers_of_no_type(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Literal):
        text = str(node.name)
        digits = sum(c.isdigit() for c in text.lower().partition("e")[0].lstrip("0."))
        if not node.is_string and (digits > 38 or ("e" in text.lower() and not isfinite(_as_float(text)))):
            yield node, f"{text[:50]} is too large a number", "up to 38 digits, or a double"


def _as_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # with a letter behind it
        return 0.0


_CHECKS: tuple[Callable[[exp.Expr], _Refusals], ...] = (
    _selects_nothing,
    _in_nothing,
    _stars,
    _twice_with,
    _aggregates_of_rows,
    _numbers_of_no_type,
)
