"""Checks of syntax trees: syntax that Spark's parser or analyser rejects and the SQL parser accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from math import isfinite
from typing import Any, TypeAlias

from sqlglot import exp

from nova_assets.sql.text import SqlText

TYPED_LITERAL_KEY = "nova_typed_literal"
"""Metadata key of a cast that was written as a typed literal such as ``DATE '2022-03-31'``. The value is the type's
name.
"""

WRITTEN_PARENTHESES_KEY = "nova_written"
"""Metadata key of parentheses that the author wrote. The parser adds others around operands."""


def check_tree(text: SqlText, tree: exp.Expr) -> None:
    """Raise SqlError for trees that are no Spark queries."""
    for node in tree.walk():
        kind: Any = type(node)
        for check in _checks_of_class(kind):
            for place, what, expected in check(node):
                raise text.error(what, place, expected=expected)


_Violations: TypeAlias = Iterator[tuple[exp.Expr, str, str]]
"""For each violation: the rejected node, the problem, and the expected syntax."""

_Check: TypeAlias = Callable[[Any], _Violations]

_CHECKS: list[tuple[tuple[type[exp.Expr], ...], _Check]] = []


def _syntax_check(*node_classes: type[exp.Expr]) -> Callable[[_Check], _Check]:
    """Decorator that registers a check of some node classes."""

    def declare(check: _Check) -> _Check:
        _CHECKS.append((node_classes, check))
        return check

    return declare


@cache
def _checks_of_class(node_class: Any) -> tuple[_Check, ...]:
    return tuple(check for kinds, check in _CHECKS if issubclass(node_class, kinds))


@_syntax_check(exp.SetOperation)
def _check_widths_of_set_operation(node: Any) -> _Violations:
    sides = (node.left, node.right)
    if all(isinstance(side, exp.Query) and not side.is_star for side in sides):
        left, right = (len(side.selects) for side in sides)
        if left != right and not node.args.get("by_name"):
            yield node.right, f"{node.key.upper()} combines {left} and {right} columns", "as many columns on both sides"


@_syntax_check(exp.Select)
def _check_select_columns(node: Any) -> _Violations:
    if not node.expressions and not node.args.get("kind"):
        yield node, "syntax error: SELECT has no columns", "SELECT column, ..."


@_syntax_check(exp.In)
def _check_in_values(node: Any) -> _Violations:
    if not any(node.args.get(k) for k in ("expressions", "query")):
        yield node, "syntax error: IN has no values", "IN (value, ...)"


@_syntax_check(exp.Star)
def _check_star_position(node: Any) -> _Violations:
    if isinstance(node.parent, exp.Binary | exp.Unary | exp.Between | exp.In) and not isinstance(node.parent, exp.Dot):
        yield node.parent, "syntax error: * is not a value", "a column"


@_syntax_check(exp.Is)
def _check_operand_of_is(node: Any) -> _Violations:
    if not isinstance(node.expression, exp.Null | exp.Boolean | exp.Not):
        yield node, "syntax error: IS does not compare with a value", "IS NULL, IS TRUE, IS FALSE, or = for a value"


_PARENTS_WITHOUT_ALIASES = (exp.Paren, exp.Binary, exp.Unary, exp.Cast, exp.Between, exp.If, exp.Ordered, exp.Func)


@_syntax_check(exp.Alias)
def _check_no_inner_alias(node: Any) -> _Violations:
    """Values within expressions have no alias, except in ``struct(a AS b)``."""
    if isinstance(node.parent, _PARENTS_WITHOUT_ALIASES) and node.parent.name.lower() != "struct":
        yield node, f"syntax error: alias {node.alias} is not allowed within an expression", "an operator, or a comma"


@_syntax_check(exp.Group)
def _check_group_by(node: Any) -> _Violations:
    every = node.args.get("all") is not None
    if every and node.expressions:
        yield node, "syntax error: GROUP BY ALL takes no columns", "GROUP BY ALL, or GROUP BY columns"
    if not any(node.args.values()):
        yield node, "syntax error: GROUP BY has no columns", "GROUP BY column, ..."


@_syntax_check(exp.Window)
def _check_window(node: Any) -> _Violations:
    if isinstance(node.this, exp.Paren):
        yield node, "syntax error: OVER does not follow a function call", "function(...) OVER (...)"

    if node.alias and (node.args.get("partition_by") or node.args.get("order")):
        yield (
            node,
            f"syntax error: window {node.alias} has a name and a definition",
            "a window's name, or its definition",
        )


@_syntax_check(exp.Table)
def _check_table_name(node: Any) -> _Violations:
    if isinstance(node.this, exp.Star | exp.Placeholder | exp.Parameter):
        yield node, "syntax error: this is not a table name", "the name of a dataset"


@_syntax_check(exp.Cast)
def _check_cast_type(node: Any) -> _Violations:
    if node.to.args.get("nullable") is not None:
        yield node, "syntax error: this is not a type", "CAST(... AS type)"


_SPARK_TYPES = frozenset(
    "ARRAY BIGINT BINARY BOOLEAN CHAR DATE DECIMAL DOUBLE FLOAT GEOGRAPHY GEOMETRY INT INTERVAL MAP NULL SMALLINT "
    "STRUCT TEXT TIME TIMESTAMP TIMESTAMPLTZ TIMESTAMPNTZ TIMESTAMPTZ TINYINT VARCHAR VARIANT".split()
)
"""Spark's types, by the parser's names."""


@_syntax_check(exp.DataType)
def _check_type_is_known(node: Any) -> _Violations:
    if isinstance(node.this, exp.DType) and node.this.name not in _SPARK_TYPES:
        yield node.parent or node, f"syntax error: {node.this.name} is not a Spark type", "a type such as INT"


@_syntax_check(exp.DataTypeParam)
def _check_type_parameters(node: Any) -> _Violations:
    if node.args.get("expression") is not None or not isinstance(node.this, exp.Literal):
        yield node, "syntax error: this is not a type", "a type such as DECIMAL(10, 2)"


@_syntax_check(exp.Anonymous, exp.AnonymousAggFunc, exp.In, exp.Tuple)
def _check_query_has_parentheses(node: Any) -> _Violations:
    for value in () if node.name.upper() == "TABLE" else node.expressions:
        if isinstance(value, exp.Select | exp.SetOperation):
            yield value, "syntax error: a query is used as a value without parentheses", "(SELECT ...) in parentheses"


@_syntax_check(exp.All, exp.Any)
def _check_any_and_all_follow_like(node: Any) -> _Violations:
    if not isinstance(node.parent, exp.Like | exp.ILike):
        yield (
            node,
            f"syntax error: {node.key.upper()} is only allowed after LIKE",
            "LIKE ANY ('a%', 'b%'), IN (SELECT ...)",
        )


@_syntax_check(exp.Limit, exp.Fetch)
def _check_limit(node: Any) -> _Violations:
    if isinstance(node, exp.Fetch) or node.args.get("limit_options") is not None or node.expressions:
        yield node, "syntax error: LIMIT takes a number of rows", "LIMIT 10"


@_syntax_check(exp.WindowSpec)
def _check_window_frame(node: Any) -> _Violations:
    for end in ("start", "end"):
        if node.args.get(end) not in (None, "CURRENT ROW") and not node.args.get(f"{end}_side"):
            yield (
                node,
                "syntax error: a bound of a window frame has no direction",
                "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
            )


@_syntax_check(exp.Dot)
def _check_field_access(node: Any) -> _Violations:
    if isinstance(node.expression, exp.Subquery | exp.Paren | exp.Literal):
        yield node, "syntax error: this is not a field", "value.field"
    if isinstance(node.expression, exp.Func) and not isinstance(node.this, exp.Column | exp.Identifier | exp.Dot):
        yield node, "syntax error: a function is not a field", "value.field, or schema.function(...)"


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


@_syntax_check(exp.Binary, exp.Neg, *_PREDICATES)
def _check_condition_has_parentheses(node: Any) -> _Violations:
    """Operands are values, so a condition as an operand needs parentheses: ``a IN (b) < c``."""
    if isinstance(node, exp.Connector | exp.Not | exp.Exists | exp.Escape | exp.PropertyEQ | exp.Kwarg):
        return
    keys = ("this",) if isinstance(node, exp.Is) else ("this", "expression", "low", "high")  # IS NOT TRUE
    sides = (_strip_added_parentheses(node.args.get(key)) for key in keys)
    if any(isinstance(side, _PREDICATES) for side in sides):
        yield node, "syntax error: a condition is used as a value without parentheses", "(condition) in parentheses"


def _strip_added_parentheses(node: object) -> object:
    while isinstance(node, exp.Paren) and WRITTEN_PARENTHESES_KEY not in node.meta:
        node = node.this
    return node


_TYPES_WITH_LITERALS = frozenset("DATE TIMESTAMP TIMESTAMP_NTZ TIMESTAMP_LTZ TIME".split())


_DATE_OR_TIMESTAMP_TEXT = re.compile(
    r"[+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([ T].*)?)?)?|T?\d{1,2}:\d.*|(epoch|now|today|tomorrow|yesterday)( .*)?",
    re.I | re.S,
)
"""Formats with which a date or timestamp may begin."""


@_syntax_check(exp.Cast)
def _check_typed_literal(node: Any) -> _Violations:
    """Typed literals such as ``DATE '2022-03-31'`` have one of few types, and a value of that type."""
    type_ = node.meta.get(TYPED_LITERAL_KEY)
    if type_ is None:
        return
    if type_ not in _TYPES_WITH_LITERALS or not node.this.is_string:
        yield node, f"syntax error: this is not a value of type {type_}", "DATE '2022-03-31', TIMESTAMP '...', or CAST"
    elif not _DATE_OR_TIMESTAMP_TEXT.fullmatch(node.this.name.strip()):
        yield node, f"syntax error: {node.this.name[:50]!r} is not a {type_}", "DATE '2022-03-31'"


@_syntax_check(exp.Interval)
def _check_interval(node: Any) -> _Violations:
    if isinstance(node.parent, exp.DataType):  # CAST(... AS INTERVAL DAY)
        return
    value = node.this.this if isinstance(node.this, exp.Neg) else node.this
    if not isinstance(value, exp.Literal):
        yield node, "syntax error: an interval needs a number and a unit", "INTERVAL 5 DAYS"


_ORDERED_CLAUSES = (("from_",), ("joins",), ("laterals",), ("where",), ("group",), ("having",))
"""The clauses of a SELECT in their order. The clauses of ``_LAST_CLAUSES`` follow in any order."""

_LAST_CLAUSES = ("order", "sort", "cluster", "distribute", "limit", "offset")


@_syntax_check(exp.Select)
def _check_clause_order(node: Any) -> _Violations:
    """Clauses are in Spark's order. The parser accepts any order."""
    last_end = -1
    for keys in (*_ORDERED_CLAUSES, _LAST_CLAUSES):
        parts = [p for k in keys for p in _expressions_of(node.args.get(k))]
        starts = [place for p in parts for place in _start_offsets(p)]
        if starts and min(starts) < last_end:
            yield parts[0], "syntax error: the clauses of SELECT are in the wrong order", _CLAUSE_ORDER_TEXT
        last_end = max([last_end, *starts])


_CLAUSE_ORDER_TEXT = "SELECT ... FROM ... WHERE ... GROUP BY ... HAVING ... ORDER BY ... LIMIT ..."


def _expressions_of(argument: object) -> list[exp.Expr]:
    parts = argument if isinstance(argument, list) else [argument]
    return [p for p in parts if isinstance(p, exp.Expr)]


def _start_offsets(node: exp.Expr) -> Iterator[int]:
    return (part.meta["start"] for part in node.walk() if "start" in part.meta)


@_syntax_check(exp.With)
def _check_cte_names_unique(node: Any) -> _Violations:
    names: set[str] = set()
    for cte in node.expressions:
        if cte.alias.lower() in names:
            yield cte.args["alias"], f"{cte.alias} is defined twice in WITH", "different names"
        names.add(cte.alias.lower())


@_syntax_check(exp.Where, exp.Group)
def _check_no_aggregate(node: Any) -> _Violations:
    """WHERE and GROUP BY refer to single rows and contain no aggregates."""
    if isinstance(node.parent, exp.Filter):
        return
    clause = "WHERE" if isinstance(node, exp.Where) else "GROUP BY"
    for part in node.walk(prune=lambda n: isinstance(n, exp.Query | exp.Subquery)):
        if isinstance(part, exp.AggFunc) and not isinstance(part.parent, exp.Window):
            yield part, f"{clause} contains an aggregate", "a condition on single rows; HAVING filters groups"


@_syntax_check(exp.Literal)
def _check_number_size(node: Any) -> _Violations:
    text = str(node.name)
    digits = sum(c.isdigit() for c in text.lower().partition("e")[0].lstrip("0."))
    if not node.is_string and (digits > 38 or ("e" in text.lower() and not isfinite(_parse_float_or_zero(text)))):
        yield node, f"{text[:50]} is too large a number", "up to 38 digits, or a double"


def _parse_float_or_zero(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # a type suffix such as L
        return 0.0
