"""Clauses of a query: those for which nova has rules, and those that stand for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from nova_assets.model.schema import DataType
from nova_assets.sql.incremental.make_operators import make_filter, make_projection
from nova_assets.sql.incremental.operator_sql import quote_column
from nova_assets.sql.incremental.operators import NotMaintainable, Operator, Windowed, column_of
from nova_assets.sql.incremental.repeatability import check_exact, is_generator
from nova_assets.sql.incremental.unique_keys import exact_unique_key
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.query.resolved_query import is_merged_column, is_using_or_natural

_SELECT_CLAUSES = frozenset(
    "kind expressions from_ joins laterals where group having qualify distinct order with_ operation_modifiers".split()
)


def check_select_clauses(select: exp.Select) -> None:
    """Check that nova has rules for the clauses of a SELECT. Raises NotMaintainable."""
    if extra := used_clauses(select) - _SELECT_CLAUSES:
        name = sorted(extra)[0]
        node = select.args[name]
        raise NotMaintainable(f"{name.upper()} in a SELECT", node if isinstance(node, exp.Expr) else select)
    for name in ("kind", "operation_modifiers"):
        if select.args.get(name):
            raise NotMaintainable(f"{name} of a SELECT", select)
    check_order(select)
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise NotMaintainable("DISTINCT ON", distinct)


def check_order(query: exp.Query) -> None:
    """Check that ORDER BY only orders the rows. Then it is ignored, because the rows of a result have no order."""
    order = query.args.get("order")
    if order is None:
        return
    if order.find(exp.Query, exp.Window) or is_generator(order):
        raise NotMaintainable("ORDER BY with a subquery, a window function or a generator", order)
    if order.find(exp.AggFunc) and query.args.get("group") is None:
        raise NotMaintainable("ORDER BY with an aggregate, without GROUP BY", order)


def used_clauses(node: exp.Expr) -> set[str]:
    """Names of the arguments that a node of the syntax tree has."""
    return {name for name, value in node.args.items() if value not in (None, False, [], "")}


_OUTPUT = "nova_qualify_"


def split_qualify(
    clause: exp.Expr, output_by_name: Mapping[str, exp.Expr]
) -> tuple[list[tuple[str, exp.Expr]], exp.Expr]:
    """The outputs that the condition of a clause needs, with their names; and the condition over these outputs.

    Args:
        output_by_name: output column of the SELECT -> its expression. The condition can refer to output columns.

    Raises:
        NotMaintainable: the condition has a subquery.
    """
    if subquery := clause.find(exp.Query):
        raise NotMaintainable("a subquery in QUALIFY", subquery)
    added: dict[str, tuple[str, exp.Expr]] = {}

    def insert(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Window | exp.AggFunc | exp.Filter | exp.Column):
            return node
        is_output = isinstance(node, exp.Column) and not node.table and node.name.lower() in output_by_name
        needed = output_by_name[node.name.lower()] if is_output else node
        name, _ = added.setdefault(needed.sql("spark"), (f"{_OUTPUT}{len(added)}", needed.copy()))
        return column_of(name)

    condition = clause.this.transform(insert)
    return list(added.values()), condition


_MergedColumns = Mapping[str, exp.Expr]
"""Name of a column that USING merges -> the expression that it stands for."""


def name_merged_columns(tree: exp.Query) -> exp.Query:
    """The query with an expression over the joined sources in place of each column that USING merges, as in Spark.

    The merged column is that of the left side. After a RIGHT JOIN, it is that of the right side. After a FULL JOIN, it
    is that of the left side, and where it is null, that of the right side.

    Raises:
        NotMaintainable: a merged column does not belong to a join of its SELECT.
    """
    tree = tree.copy()
    merged_of = {id(select): _merge_columns(select) for select in tree.find_all(exp.Select)}
    for node in list(tree.find_all(exp.Coalesce)):
        if is_merged_column(node):
            select = node.find_ancestor(exp.Select)
            column = None if select is None else merged_of[id(select)].get(node.this.name.lower())
            if column is None:
                raise NotMaintainable("a column that USING merges, in this place", node)
            node.replace(column.copy())
    return tree


def _merge_columns(select: exp.Select) -> _MergedColumns:
    """The merged columns of a SELECT. Conditions of its joins then refer to the columns that earlier joins merge."""
    merged: dict[str, exp.Expr] = {}
    for join in filter(is_using_or_natural, select.args.get("joins") or ()):
        on = join.args.get("on")
        for equality in on.flatten() if isinstance(on, exp.And) else [on]:
            if not isinstance(equality, exp.EQ) or not isinstance(equality.expression, exp.Column):
                raise NotMaintainable("this form of USING or NATURAL", join)
            right = equality.expression
            left = merged.get(right.name.lower(), equality.this).copy()
            equality.set("this", left)
            merged[right.name.lower()] = _merged_column(join.side.upper(), left, right)
    return merged


def _merged_column(side: str, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    if side == "RIGHT":
        return right
    return exp.Coalesce(this=left.copy(), expressions=[right.copy()]) if side == "FULL" else left


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
    """The first rows of a query, as a window over all of them.

    Spark may return any of several rows that are equal in ORDER BY. A maintained result needs the same rows each time,
    so the remaining columns of the result decide between such rows, here and in the author's text (``break_ties``).

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
