"""What Spark's parser and analyser refuse, and the parser of SQL takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import isfinite

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.sql.text import Span, Text

TYPED_LITERAL = "nova_typed_literal"
"""Under this, a cast keeps the type of ``DATE '2022-03-31'``, that it was written as."""

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
_BEGINS_A_LIST = (
    TokenType.FROM,
    TokenType.GROUP_BY,
    TokenType.L_PAREN,
    TokenType.ORDER_BY,
    TokenType.PARTITION_BY,
    TokenType.SELECT,
)


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
    """Refuse what Spark's parser refuses, as far as tokens tell. Raises SqlError."""
    _check_brackets(text, tokens)
    _check_lists(text, tokens)
    _check_case(text, tokens)
    _check_operators(text, tokens)
    _check_literals(text, tokens)


_CLOSING = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}


def _check_brackets(text: Text, tokens: list[Token]) -> None:
    """Refuse brackets that do not match; the parser forgives some that are not closed. Raises SqlError."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type in _CLOSING:
            opened.append(token)
        elif token.token_type in _CLOSING.values() and (
            not opened or _CLOSING[opened.pop().token_type] != token.token_type
        ):
            raise text.error(f"cannot be read: nothing is open that {token.text} closes", _place(token))
    if opened:
        raise text.error(f"cannot be read: {opened[-1].text} is not closed", _place(opened[-1]))


def _check_lists(text: Text, tokens: list[Token]) -> None:
    """Refuse lists with nothing between two commas, and names in double quotes. Raises SqlError."""
    for before, token in zip([None, *tokens], tokens, strict=False):
        empty = token.token_type == TokenType.COMMA and (before is None or before.token_type in _BEGINS_A_LIST)
        if before is not None and before.token_type == TokenType.COMMA and token.token_type in _ENDS_A_LIST:
            empty = True
        if before is not None and before.token_type == TokenType.PARTITION_BY and token.token_type in _ENDS_A_LIST:
            raise text.error("cannot be read: PARTITION BY nothing", _place(before), expected="PARTITION BY column")
        if empty:
            raise text.error("cannot be read: nothing stands beside a comma", _place(token), expected="Spark's SQL")
        if before is not None and before.token_type == TokenType.ALIAS and token.token_type == TokenType.STRING:
            raise text.error(
                "cannot be read: a text is no name", _place(token), expected=f"AS `{token.text}`", next="use backquotes"
            )
    if tokens and tokens[-1].token_type == TokenType.COMMA:
        raise text.error("cannot be read: nothing stands beside a comma", _place(tokens[-1]), expected="Spark's SQL")


def _check_case(text: Text, tokens: list[Token]) -> None:
    """Refuse a WHEN of a CASE without its THEN. Raises SqlError."""
    open_whens: list[bool] = []
    """For each CASE that is open, the inner ones last: whether a WHEN waits for its THEN."""
    for before, token in zip([None, *tokens], tokens, strict=False):
        kind = token.token_type
        if kind == TokenType.CASE and (before is None or before.token_type != TokenType.DOT):
            open_whens.append(False)
        elif open_whens and kind in (TokenType.WHEN, TokenType.ELSE, TokenType.END):
            if open_whens[-1]:
                raise text.error("cannot be read: WHEN has no THEN", _place(token), expected="WHEN ... THEN ...")
            open_whens[-1] = kind == TokenType.WHEN
            if kind == TokenType.END:
                open_whens.pop()
        elif open_whens and kind == TokenType.THEN:
            open_whens[-1] = False


def _check_operators(text: Text, tokens: list[Token]) -> None:
    """Refuse signs that Spark does not have, and those that the parser reads otherwise. Raises SqlError."""
    declares = any(t.token_type == TokenType.CREATE for t in tokens)  # price INT NOT NULL
    for n, (before, token) in enumerate(zip([None, *tokens], tokens, strict=False)):
        kind = token.token_type
        if kind in (TokenType.PARAMETER, TokenType.SESSION_PARAMETER, TokenType.PLACEHOLDER):
            raise text.error(f"cannot be read: {token.text} is no sign of SQL", _place(token), expected="Spark's SQL")
        if before is None:
            continue
        if kind in _NEGATED and before.token_type == TokenType.NOT and before.text == "!":
            raise text.error("cannot be read: ! stands before a condition", _place(before), expected="NOT")
        not_null = kind == TokenType.NULL and before.token_type == TokenType.NOT and _ends_a_value(tokens[: n - 1])
        if not_null and not declares:
            raise text.error("cannot be read: NOT NULL without IS", _place(before), expected="IS NOT NULL")
        if kind in (TokenType.FROM, TokenType.FOR) and before.token_type == TokenType.L_PAREN:
            raise text.error(f"cannot be read: nothing stands before {token.text}", _place(token))
        if before.token_type == TokenType.OVER and kind not in (TokenType.L_PAREN, TokenType.VAR, TokenType.IDENTIFIER):
            raise text.error("cannot be read: OVER without a window", _place(before), expected="OVER (...)")
        if kind in _ENDS_A_LIST and before.token_type == TokenType.STAR and _ends_a_value(tokens[: n - 1]):
            raise text.error("cannot be read: an operator without a value", _place(before), expected="Spark's SQL")
        opens_window = n > 1 and tokens[n - 2].text.upper() in ("OVER", "GROUP", "AS")
        if kind == TokenType.ORDER_BY and before.token_type == TokenType.L_PAREN and not opens_window:
            raise text.error("cannot be read: nothing stands before ORDER BY", _place(token), expected="Spark's SQL")
        if before.token_type == TokenType.ALIAS and not re.match(r"[\w(`]", text.sql[token.start]):
            raise text.error("cannot be read: AS without a name", _place(before), expected="AS name")
        if before.token_type == TokenType.DOT and kind == TokenType.STRING:
            raise text.error("cannot be read: a text is no field", _place(token), expected="value.field")
        if token.start == before.end + 1:
            continue
        twice = kind in (TokenType.LT, TokenType.GT) and before.token_type == kind
        if twice or (before.token_type == TokenType.DOT and kind == TokenType.NUMBER):
            raise text.error("cannot be read: an operator without a value", _place(token), expected="Spark's SQL")


_NEGATED = (TokenType.BETWEEN, TokenType.ILIKE, TokenType.IN, TokenType.LIKE, TokenType.NULL, TokenType.RLIKE)


def _ends_a_value(tokens: list[Token]) -> bool:
    ends = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, TokenType.R_PAREN)
    return bool(tokens) and tokens[-1].token_type in ends


_UNITS = frozenset("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND".split())


def _check_literals(text: Text, tokens: list[Token]) -> None:
    """Refuse ``INTERVAL 5`` without a unit. Raises SqlError."""
    for n, token in enumerate(tokens):
        following = tokens[n + 1 : n + 4]
        if token.token_type != TokenType.INTERVAL or not following:
            continue
        number = following[1:] if following[0].token_type in (TokenType.DASH, TokenType.PLUS) else following
        if (
            number
            and number[0].token_type == TokenType.NUMBER
            and not (number[1:] and number[1].text.upper().rstrip("S") in _UNITS)
        ):
            raise text.error("cannot be read: an interval has no unit", _place(number[0]), expected="INTERVAL 5 DAYS")


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
    TokenType.SELECT,
    TokenType.THEN,
    TokenType.WHEN,
    TokenType.WHERE,
    TokenType.WITH,
)
_BEGINS_NO_OPERAND = (
    TokenType.COMMA,
    TokenType.FROM,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ON,
    TokenType.ORDER_BY,
    TokenType.R_PAREN,
    TokenType.WHERE,
)
_TOGETHER = (
    (TokenType.DISTINCT, TokenType.FROM),  # IS DISTINCT FROM
    (TokenType.ALIAS, TokenType.FROM),  # a keyword behind AS is the name
    (TokenType.ALIAS, TokenType.HAVING),
    (TokenType.ALIAS, TokenType.WHERE),
)


def with_keywords_as_names(tokens: list[Token]) -> list[Token]:
    """The tokens, in which a keyword that begins no clause is a name, as Spark takes it: ``FROM sales having, stores``.

    No word is reserved in Spark's SQL. A keyword that is followed by the next clause, a comma or a closing parenthesis
    begins no clause itself.
    """
    found = list(tokens)
    for n, (token, following) in enumerate(pairwise(tokens)):
        if token.token_type not in _CLAUSE_KEYWORDS or following.token_type not in _BEGINS_NO_OPERAND:
            continue
        if (token.token_type, following.token_type) in _TOGETHER and not _is_as_before_from(tokens[n : n + 3]):
            continue
        found[n] = Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments)
    return found


def _is_as_before_from(tokens: list[Token]) -> bool:
    """Whether AS is a name: ``SELECT 1 AS FROM sales``."""
    kinds = [t.token_type for t in tokens]
    return kinds[:2] == [TokenType.ALIAS, TokenType.FROM] and kinds[2:] not in ([TokenType.FROM], [TokenType.COMMA])


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
        if not any(node.args.get(k) for k in ("expressions", "query")):
            yield node, "cannot be read: IN of nothing", "IN (value, ...)"


def _stars(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Star):
        if isinstance(node.parent, exp.Binary | exp.Unary | exp.Between | exp.In) and not isinstance(
            node.parent, exp.Dot
        ):
            yield node.parent, "cannot be read: * is no value", "a column"


def _is_what(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Is):
        if not isinstance(node.expression, exp.Null | exp.Boolean | exp.Not):
            yield node, "cannot be read: IS takes no value", "IS NULL, IS TRUE, IS FALSE, or = for a value"


def _names_inside(tree: exp.Expr) -> _Refusals:
    """Values within expressions have no names, but for those of ``struct(a AS b)``."""
    kinds = exp.Paren | exp.Binary | exp.Unary | exp.Cast | exp.Between | exp.If | exp.Ordered | exp.Func
    for node in tree.find_all(exp.Alias):
        if isinstance(node.parent, kinds) and node.parent.name.lower() != "struct":
            yield node, f"cannot be read: {node.alias} stands behind a value", "an operator, or a comma"


def _groups_by_nothing(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Group):
        every = node.args.get("all") is not None
        if every and node.expressions:
            yield node, "cannot be read: GROUP BY ALL takes no columns", "GROUP BY ALL, or GROUP BY columns"
        if not any(node.args.values()):
            yield node, "cannot be read: GROUP BY nothing", "GROUP BY column, ..."


def _windows_of_values(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Window):
        if isinstance(node.this, exp.Paren):
            yield node, "cannot be read: OVER stands behind a value", "function(...) OVER (...)"

        if node.alias and (node.args.get("partition_by") or node.args.get("order")):
            yield node, f"cannot be read: the window is {node.alias}, and described", "a name, or a description"


def _tables(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Star | exp.Placeholder | exp.Parameter):
            yield node, "cannot be read: no table", "the name of a dataset"


def _parameters_of_types(tree: exp.Expr) -> _Refusals:
    for cast in tree.find_all(exp.Cast, exp.TryCast):
        if cast.to.args.get("nullable") is not None:
            yield cast, "cannot be read: no type", "CAST(... AS type)"
    for node in tree.find_all(exp.DataTypeParam):
        if node.args.get("expression") is not None or not isinstance(node.this, exp.Literal):
            yield node, "cannot be read: no type", "a type such as DECIMAL(10, 2)"


def _queries_as_values(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Anonymous, exp.AnonymousAggFunc, exp.In, exp.Tuple):
        for value in () if node.name.upper() == "TABLE" else node.expressions:
            if isinstance(value, exp.Select | exp.SetOperation):
                yield value, "cannot be read: a query stands where a value does", "(SELECT ...) in parentheses"


def _quantified(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.All, exp.Any):
        if not isinstance(node.parent, exp.Like | exp.ILike):
            yield (
                node,
                f"cannot be read: {node.key.upper()} is for LIKE alone",
                "LIKE ANY ('a%', 'b%'), IN (SELECT ...)",
            )


def _limits(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Limit, exp.Fetch):
        if isinstance(node, exp.Fetch) or node.args.get("limit_options") is not None or node.expressions:
            yield node, "cannot be read: LIMIT takes a number of rows", "LIMIT 10"


def _frames(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.WindowSpec):
        for end in ("start", "end"):
            if node.args.get(end) not in (None, "CURRENT ROW") and not node.args.get(f"{end}_side"):
                yield node, "cannot be read: a frame has no direction", "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW"


def _fields(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Dot):
        if isinstance(node.expression, exp.Subquery | exp.Paren | exp.Literal):
            yield node, "cannot be read: no field", "value.field"


_PREDICATES = (exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Is, exp.Not, exp.Exists)


def _predicates_as_values(tree: exp.Expr) -> _Refusals:
    """``a IN (b) < c``: what an operator takes is a value, and a condition is one in parentheses alone."""
    for node in tree.find_all(exp.Binary, exp.Neg, *_PREDICATES):
        if isinstance(node, exp.Connector | exp.Not | exp.Is | exp.Exists | exp.Escape | exp.PropertyEQ | exp.Kwarg):
            continue
        sides = (node.args.get(key) for key in ("this", "expression", "low", "high"))
        if any(isinstance(side, _PREDICATES) for side in sides):
            yield node, "cannot be read: a condition stands where a value does", "(condition) in parentheses"


_LITERALS = frozenset("DATE TIMESTAMP TIMESTAMP_NTZ TIMESTAMP_LTZ TIME".split())


_MOMENT = re.compile(
    r"[+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([ T].*)?)?)?|T?\d{1,2}:\d.*|(epoch|now|today|tomorrow|yesterday)( .*)?",
    re.I | re.S,
)
"""How a date or timestamp may begin."""


def _literals_of_types(tree: exp.Expr) -> _Refusals:
    """``DATE '2022-03-31'``: of few types, and a value of that type."""
    for node in tree.find_all(exp.Cast):
        type_ = node.meta.get(TYPED_LITERAL)
        if type_ is None:
            continue
        if type_ not in _LITERALS or not node.this.is_string:
            yield node, f"cannot be read: no value of type {type_}", "DATE '2022-03-31', TIMESTAMP '...', or CAST"
        elif not _MOMENT.fullmatch(node.this.name.strip()):
            yield node, f"cannot be read: {node.this.name[:50]!r} is no {type_}", "DATE '2022-03-31'"


def _intervals(tree: exp.Expr) -> _Refusals:
    for node in tree.find_all(exp.Interval):
        value = node.this.this if isinstance(node.this, exp.Neg) else node.this
        if not isinstance(value, exp.Literal):
            yield node, "cannot be read: an interval is written as a number and a unit", "INTERVAL 5 DAYS"


_ORDER = (("from_",), ("joins",), ("laterals",), ("where",), ("group",), ("having",))
"""The clauses of a SELECT in their order; those behind it may stand in any."""

_LAST = ("order", "sort", "cluster", "distribute", "limit", "offset")


def _order_of_clauses(tree: exp.Expr) -> _Refusals:
    """The parser takes clauses in any order."""
    for node in tree.find_all(exp.Select):
        last_end = -1
        for keys in (*_ORDER, _LAST):
            parts = [p for k in keys for p in _listed(node.args.get(k))]
            starts = [place for p in parts for place in _starts(p)]
            if starts and min(starts) < last_end:
                yield parts[0], "cannot be read: the clauses of SELECT stand in another order", _IN_ORDER
            last_end = max([last_end, *starts])


_IN_ORDER = "SELECT ... FROM ... WHERE ... GROUP BY ... HAVING ... ORDER BY ... LIMIT ..."


def _listed(found: object) -> list[exp.Expr]:
    parts = found if isinstance(found, list) else [found]
    return [p for p in parts if isinstance(p, exp.Expr)]


def _starts(node: exp.Expr) -> Iterator[int]:
    return (part.meta["start"] for part in node.walk() if "start" in part.meta)


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
    _is_what,
    _names_inside,
    _groups_by_nothing,
    _windows_of_values,
    _tables,
    _parameters_of_types,
    _fields,
    _queries_as_values,
    _frames,
    _limits,
    _quantified,
    _predicates_as_values,
    _literals_of_types,
    _intervals,
    _order_of_clauses,
    _twice_with,
    _aggregates_of_rows,
    _numbers_of_no_type,
)
