"""What Spark's parser and analyser refuse, and the parser of SQL takes: what the tree of a statement shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from math import isfinite
from typing import Any, TypeAlias

from sqlglot import exp

from nova_assets.sql.text import Text

TYPED_LITERAL = "nova_typed_literal"
"""Under this, a cast keeps the type of ``DATE '2022-03-31'``, that it was written as."""

WRITTEN = "nova_written"
"""Marks parentheses that stand in the statement; the parser adds others around operands."""


def check_tree(text: Text, tree: exp.Expr) -> None:
    """Refuse what is no query of Spark's. Raises SqlError."""
    for node in tree.walk():
        kind: Any = type(node)
        for check in _checks_of(kind):
            for place, what, expected in check(node):
                raise text.error(what, place, expected=expected)


_Refusals: TypeAlias = Iterator[tuple[exp.Expr, str, str]]
"""The part of a statement that is refused, what is said of it, and what is expected."""

_Check: TypeAlias = Callable[[Any], _Refusals]

_CHECKS: list[tuple[tuple[type[exp.Expr], ...], _Check]] = []


def _checks(*kinds: type[exp.Expr]) -> Callable[[_Check], _Check]:
    """Declares a check of nodes of some kinds."""

    def declare(check: _Check) -> _Check:
        _CHECKS.append((kinds, check))
        return check

    return declare


@cache
def _checks_of(kind: Any) -> tuple[_Check, ...]:
    return tuple(check for kinds, check in _CHECKS if issubclass(kind, kinds))


@_checks(exp.Select)
def _selects_nothing(node: Any) -> _Refusals:
    if not node.expressions and not node.args.get("kind"):
        yield node, "cannot be read: SELECT of nothing", "SELECT column, ..."


@_checks(exp.In)
def _in_nothing(node: Any) -> _Refusals:
    if not any(node.args.get(k) for k in ("expressions", "query")):
        yield node, "cannot be read: IN of nothing", "IN (value, ...)"


@_checks(exp.Star)
def _stars(node: Any) -> _Refusals:
    if isinstance(node.parent, exp.Binary | exp.Unary | exp.Between | exp.In) and not isinstance(node.parent, exp.Dot):
        yield node.parent, "cannot be read: * is no value", "a column"


@_checks(exp.Is)
def _is_what(node: Any) -> _Refusals:
    if not isinstance(node.expression, exp.Null | exp.Boolean | exp.Not):
        yield node, "cannot be read: IS takes no value", "IS NULL, IS TRUE, IS FALSE, or = for a value"


_UNNAMED = (exp.Paren, exp.Binary, exp.Unary, exp.Cast, exp.Between, exp.If, exp.Ordered, exp.Func)


@_checks(exp.Alias)
def _names_inside(node: Any) -> _Refusals:
    """Values within expressions have no names, but for those of ``struct(a AS b)``."""
    if isinstance(node.parent, _UNNAMED) and node.parent.name.lower() != "struct":
        yield node, f"cannot be read: {node.alias} stands behind a value", "an operator, or a comma"


@_checks(exp.Group)
def _groups_by_nothing(node: Any) -> _Refusals:
    every = node.args.get("all") is not None
    if every and node.expressions:
        yield node, "cannot be read: GROUP BY ALL takes no columns", "GROUP BY ALL, or GROUP BY columns"
    if not any(node.args.values()):
        yield node, "cannot be read: GROUP BY nothing", "GROUP BY column, ..."


@_checks(exp.Window)
def _windows_of_values(node: Any) -> _Refusals:
    if isinstance(node.this, exp.Paren):
        yield node, "cannot be read: OVER stands behind a value", "function(...) OVER (...)"

    if node.alias and (node.args.get("partition_by") or node.args.get("order")):
        yield node, f"cannot be read: the window is {node.alias}, and described", "a name, or a description"


@_checks(exp.Table)
def _tables(node: Any) -> _Refusals:
    if isinstance(node.this, exp.Star | exp.Placeholder | exp.Parameter):
        yield node, "cannot be read: no table", "the name of a dataset"


@_checks(exp.Cast)
def _types_with_more(node: Any) -> _Refusals:
    if node.to.args.get("nullable") is not None:
        yield node, "cannot be read: no type", "CAST(... AS type)"


_TYPES = frozenset(
    "ARRAY BIGINT BINARY BOOLEAN CHAR DATE DECIMAL DOUBLE FLOAT GEOGRAPHY GEOMETRY INT INTERVAL MAP NULL SMALLINT "
    "STRUCT TEXT TIME TIMESTAMP TIMESTAMPLTZ TIMESTAMPNTZ TIMESTAMPTZ TINYINT VARCHAR VARIANT".split()
)
"""Spark's types, by the parser's names of them."""


@_checks(exp.DataType)
def _other_types(node: Any) -> _Refusals:
    if isinstance(node.this, exp.DType) and node.this.name not in _TYPES:
        yield node.parent or node, f"cannot be read: {node.this.name} is no type of Spark's", "a type such as INT"


@_checks(exp.DataTypeParam)
def _parameters_of_types(node: Any) -> _Refusals:
    if node.args.get("expression") is not None or not isinstance(node.this, exp.Literal):
        yield node, "cannot be read: no type", "a type such as DECIMAL(10, 2)"


@_checks(exp.Anonymous, exp.AnonymousAggFunc, exp.In, exp.Tuple)
def _queries_as_values(node: Any) -> _Refusals:
    for value in () if node.name.upper() == "TABLE" else node.expressions:
        if isinstance(value, exp.Select | exp.SetOperation):
            yield value, "cannot be read: a query stands where a value does", "(SELECT ...) in parentheses"


@_checks(exp.All, exp.Any)
def _quantified(node: Any) -> _Refusals:
    if not isinstance(node.parent, exp.Like | exp.ILike):
        yield (
            node,
            f"cannot be read: {node.key.upper()} is for LIKE alone",
            "LIKE ANY ('a%', 'b%'), IN (SELECT ...)",
        )


@_checks(exp.Limit, exp.Fetch)
def _limits(node: Any) -> _Refusals:
    if isinstance(node, exp.Fetch) or node.args.get("limit_options") is not None or node.expressions:
        yield node, "cannot be read: LIMIT takes a number of rows", "LIMIT 10"


@_checks(exp.WindowSpec)
def _frames(node: Any) -> _Refusals:
    for end in ("start", "end"):
        if node.args.get(end) not in (None, "CURRENT ROW") and not node.args.get(f"{end}_side"):
            yield node, "cannot be read: a frame has no direction", "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW"


@_checks(exp.Dot)
def _fields(node: Any) -> _Refusals:
    if isinstance(node.expression, exp.Subquery | exp.Paren | exp.Literal):
        yield node, "cannot be read: no field", "value.field"
    if isinstance(node.expression, exp.Func) and not isinstance(node.this, exp.Column | exp.Identifier | exp.Dot):
        yield node, "cannot be read: a function is no field", "value.field, or schema.function(...)"


_PREDICATES = (
    exp.In,
    exp.Between,
    exp.Like,
    exp.ILike,
    exp.RegexpLike,
    exp.Is,
    exp.Not,
    exp.Exists,
    exp.NullSafeNEQ,  # IS DISTINCT FROM
)


@_checks(exp.Binary, exp.Neg, *_PREDICATES)
def _predicates_as_values(node: Any) -> _Refusals:
    """``a IN (b) < c``: what an operator takes is a value, and a condition is one in parentheses alone."""
    if isinstance(node, exp.Connector | exp.Not | exp.Exists | exp.Escape | exp.PropertyEQ | exp.Kwarg):
        return
    keys = ("this",) if isinstance(node, exp.Is) else ("this", "expression", "low", "high")  # IS NOT TRUE
    sides = (_without_added_parentheses(node.args.get(key)) for key in keys)
    if any(isinstance(side, _PREDICATES) for side in sides):
        yield node, "cannot be read: a condition stands where a value does", "(condition) in parentheses"


def _without_added_parentheses(node: object) -> object:
    while isinstance(node, exp.Paren) and WRITTEN not in node.meta:
        node = node.this
    return node


_LITERALS = frozenset("DATE TIMESTAMP TIMESTAMP_NTZ TIMESTAMP_LTZ TIME".split())


_MOMENT = re.compile(
    r"[+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([ T].*)?)?)?|T?\d{1,2}:\d.*|(epoch|now|today|tomorrow|yesterday)( .*)?",
    re.I | re.S,
)
"""How a date or timestamp may begin."""


@_checks(exp.Cast)
def _literals_of_types(node: Any) -> _Refusals:
    """``DATE '2022-03-31'``: of few types, and a value of that type."""
    type_ = node.meta.get(TYPED_LITERAL)
    if type_ is None:
        return
    if type_ not in _LITERALS or not node.this.is_string:
        yield node, f"cannot be read: no value of type {type_}", "DATE '2022-03-31', TIMESTAMP '...', or CAST"
    elif not _MOMENT.fullmatch(node.this.name.strip()):
        yield node, f"cannot be read: {node.this.name[:50]!r} is no {type_}", "DATE '2022-03-31'"


@_checks(exp.Interval)
def _intervals(node: Any) -> _Refusals:
    if isinstance(node.parent, exp.DataType):  # CAST(... AS INTERVAL DAY)
        return
    value = node.this.this if isinstance(node.this, exp.Neg) else node.this
    if not isinstance(value, exp.Literal):
        yield node, "cannot be read: an interval is written as a number and a unit", "INTERVAL 5 DAYS"


_ORDER = (("from_",), ("joins",), ("laterals",), ("where",), ("group",), ("having",))
"""The clauses of a SELECT in their order; those behind it may stand in any."""

_LAST = ("order", "sort", "cluster", "distribute", "limit", "offset")


@_checks(exp.Select)
def _order_of_clauses(node: Any) -> _Refusals:
    """The parser takes clauses in any order."""
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


@_checks(exp.With)
def _twice_with(node: Any) -> _Refusals:
    names: set[str] = set()
    for cte in node.expressions:
        if cte.alias.lower() in names:
            yield cte.args["alias"], f"{cte.alias} stands twice in WITH", "different names"
        names.add(cte.alias.lower())


@_checks(exp.Where, exp.Group)
def _aggregates_of_rows(node: Any) -> _Refusals:
    """WHERE, GROUP BY and ON are about rows, of which nothing is added up yet."""
    if isinstance(node.parent, exp.Filter):
        return
    clause = "WHERE" if isinstance(node, exp.Where) else "GROUP BY"
    for part in node.walk(prune=lambda n: isinstance(n, exp.Query | exp.Subquery)):
        if isinstance(part, exp.AggFunc) and not isinstance(part.parent, exp.Window):
            yield part, f"{clause} has an aggregate", "a condition on rows; HAVING is about groups"


@_checks(exp.Literal)
def _numbers_of_no_type(node: Any) -> _Refusals:
    text = str(node.name)
    digits = sum(c.isdigit() for c in text.lower().partition("e")[0].lstrip("0."))
    if not node.is_string and (digits > 38 or ("e" in text.lower() and not isfinite(_as_float(text)))):
        yield node, f"{text[:50]} is too large a number", "up to 38 digits, or a double"


def _as_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # with a letter behind it
        return 0.0
