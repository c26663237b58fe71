"""What Spark's parser and analyser refuse, and the parser of SQL takes: what the tree of a statement shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import isfinite

from sqlglot import exp

from nova_assets.sql.text import Text

TYPED_LITERAL = "nova_typed_literal"
"""Under this, a cast keeps the type of ``DATE '2022-03-31'``, that it was written as."""


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
