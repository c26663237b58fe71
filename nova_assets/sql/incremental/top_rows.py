"""``LIMIT n`` of a whole query: its first rows, as a window over all of them.

Spark may return any of several rows that are equal in ORDER BY. A maintained result needs the same rows each time, so
the remaining columns of the result decide between such rows, in the author's text and in the operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from nova_assets.model.schema import DataType
from nova_assets.sql.incremental.expressions import column_of
from nova_assets.sql.incremental.make_operators import make_filter, make_projection
from nova_assets.sql.incremental.operator_sql import quote_column
from nova_assets.sql.incremental.operators import NotMaintainable, Operator, Windowed
from nova_assets.sql.incremental.repeatability import check_exact
from nova_assets.sql.incremental.unique_keys import exact_unique_key
from nova_assets.sql.parse.dialect import DIALECT

_RANK = "nova_rank"


def is_top_query(tree: exp.Query) -> bool:
    """Whether a query returns its first rows only."""
    return tree.args.get("limit") is not None


def order_by_columns(tree: exp.Query, columns: Iterable[str]) -> None:
    """Let columns of the result decide between rows that are equal in ORDER BY."""
    order = tree.args.get("order") or exp.Order(expressions=[])
    for name in columns:
        order.append("expressions", _ascending(name))
    tree.set("order", order if order.expressions else None)


def without_limit(tree: exp.Query) -> exp.Query:
    """The query without its ORDER BY and LIMIT."""
    plain = tree.copy()
    plain.set("limit", None)
    plain.set("order", None)
    return plain


def make_top_rows(rows: Operator, tree: exp.Query) -> Operator:
    """The first rows of a query.

    Args:
        rows: all rows of the query.
        tree: the query, with ORDER BY and LIMIT.
    """
    count = tree.args["limit"].expression
    if not isinstance(count, exp.Literal) or count.is_string:
        raise NotMaintainable("LIMIT with an expression", tree.args["limit"])
    outputs = tree.selects if isinstance(tree, exp.Select) else []
    name_by_sql = {e.unalias().sql("spark"): e.alias_or_name.lower() for e in reversed(outputs)}

    def over_outputs(node: exp.Expr) -> exp.Expr:
        name = name_by_sql.get(node.sql("spark"))
        if name is None and isinstance(node, exp.Column) and not node.table and node.name.lower() in rows.columns:
            name = node.name.lower()
        if name is not None:
            return column_of(name)
        if isinstance(node, exp.Column | exp.AggFunc | exp.Window | exp.Query):
            raise NotMaintainable("ORDER BY ... LIMIT by a value that is no column of the result", node)
        return node

    order = tree.args.get("order")
    keys = [] if order is None else [key.copy() for key in order.expressions]
    for key in keys:
        if isinstance(key.this.unnest(), exp.Literal):
            raise NotMaintainable("ORDER BY ... LIMIT by a constant", key)
        key.set("this", key.this.transform(over_outputs))
        check_exact([key.this], rows)
    if rows.rounded and exact_unique_key(rows) is None:
        raise NotMaintainable("LIMIT of rows that may differ in rounded numbers only", tree.args["limit"])
    ties = [_ascending(name) for name in rows.columns if name not in rows.rounded]
    if not keys and not ties:
        raise NotMaintainable("LIMIT of rounded numbers", tree.args["limit"])
    rank = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=[*keys, *ties]))
    copies = tuple((name, column_of(name)) for name in rows.columns)
    columns = {**rows.columns, _RANK: DataType("int")}
    # rows that are equal in ORDER BY and in all ties are equal, so it does not matter which of them comes first
    ranked = Windowed(columns, rows, (), (*copies, (_RANK, rank)), unique_keys=rows.unique_keys, rounded=rows.rounded)
    is_first = exp.LTE(this=column_of(_RANK), expression=count.copy())
    return make_projection(make_filter(ranked, is_first), copies)


def _ascending(name: str) -> exp.Expr:
    return exp.Ordered(this=column_of(name), nulls_first=True)


def break_ties(sql: str, tree: exp.Query, columns: Sequence[str]) -> str:
    """The SQL of a query with LIMIT, in which columns of the result decide between rows that are equal in ORDER BY.

    Args:
        tree: syntax tree of the query.
    """
    if not columns:
        return sql
    depth, place = 0, None
    for token in DIALECT.tokenize(sql):
        if token.token_type in (TokenType.L_PAREN, TokenType.R_PAREN):
            depth += 1 if token.token_type == TokenType.L_PAREN else -1
        elif token.token_type == TokenType.LIMIT and not depth:
            place = token.start
    assert place is not None
    begin = ", " if tree.args.get("order") is not None else "ORDER BY "
    return f"{sql[:place]}{begin}{', '.join(map(quote_column, columns))} {sql[place:]}"
