"""Checks of resolved queries: the columns that a query names exist, each in one source, and its SELECTs have no mistake
that Spark's analyser would refuse. Each mistake is told at its place, before anything runs.

The checks of SELECTs refuse only what Spark refuses. Where a rule does not understand a query, Spark decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.errors import SqlError
from nova_assets.model.schema import Schema
from nova_assets.sql.query.scans import Scan, scan_number
from nova_assets.sql.text import SqlText
from nova_assets.suggestions import did_you_mean, similar_names


def check_columns_exist(text: SqlText, scope: Scope, schemas: Mapping[str, Schema], scans: tuple[Scan, ...]) -> None:
    for column in (*scope.columns, *_columns_of_group_conditions(scope)):
        if not column.table:
            if _is_output_alias(column):
                continue
            raise _unresolved_column_error(text, scope, column, schemas)
        source = scope.sources.get(column.table)
        # The parser gives names of its own to some queries, such as PIVOT.
        if (
            source is None
            and f"{column.table}.{column.name}".lower() in text.sql.lower()
            and not _is_visible_source(scope, column.table)
        ):
            raise text.error(
                f"there is no table or alias {column.table!r}{did_you_mean(column.table, scope.sources)}",
                column,
                expected=f"a column of {' or '.join(scope.sources) or 'a table'}",
            )
        names = None if source is None else column_names_of_source(source, schemas, scans)
        if names is not None and column.name.lower() not in names:
            raise text.error(
                f"{column.table} has no column {column.name!r}",
                column,
                expected=_format_similar_names(column.name, names),
            )


def _unresolved_column_error(
    text: SqlText, scope: Scope, column: exp.Column, schemas: Mapping[str, Schema]
) -> SqlError:
    """Error for a name without a table: no source has the column, or several have it."""
    columns_by_source = {n: column_names_of_source(s, schemas, ()) or {} for n, s in scope.sources.items()}
    owners = [name for name, columns in columns_by_source.items() if column.name.lower() in columns]
    if len(owners) > 1:
        return text.error(
            f"column {column.name!r} is in {' and in '.join(owners)}",
            column,
            expected=" or ".join(f"{owner}.{column.name}" for owner in owners),
        )
    visible_columns = {n: spelling for columns in columns_by_source.values() for n, spelling in columns.items()}
    return text.error(
        f"there is no column {column.name!r}", column, expected=_format_similar_names(column.name, visible_columns)
    )


def _columns_of_group_conditions(scope: Scope) -> Iterator[exp.Column]:
    """Columns without a table in HAVING and QUALIFY, which are not among the columns of the scope."""
    for clause in filter(None, map(scope.expression.args.get, ("having", "qualify"))):
        for node in clause.walk(prune=lambda n: isinstance(n, exp.Query)):
            if isinstance(node, exp.Column) and not node.table:
                yield node


def _is_visible_source(scope: Scope | None, name: str) -> bool:
    """Whether a query or a query around it reads a source of this name. The parser keeps aliases of PIVOT apart."""
    while scope is not None:
        if name in scope.sources or any(pivot.alias == name for pivot in scope.expression.find_all(exp.Pivot)):
            return True
        scope = scope.parent
    return False


def _is_output_alias(column: exp.Column) -> bool:
    """Whether an unqualified name refers to an output column, in a clause where SQL allows such references."""
    query = column.find_ancestor(exp.Select, exp.SetOperation)
    clause = column.find_ancestor(exp.Order, exp.Having, exp.Group, exp.Qualify, exp.Sort)
    names = {name.lower() for name in query.named_selects} if query is not None else set()
    return clause is not None and column.name.lower() in names


def check_using_columns_exist(text: SqlText, tree: exp.Query, schemas: Mapping[str, Schema]) -> None:
    """Raise SqlError if a joined dataset has no column of its USING clause. Other tables, such as those of WITH, and
    columns with aliases are left to the parser.
    """
    for join in tree.find_all(exp.Join):
        if scan_number(join.this) is None or join.this.alias_column_names:
            continue
        names = {n.lower(): n for n in schemas[join.this.name].names}
        for column in join.args.get("using") or ():
            if column.name.lower() not in names:
                raise text.error(
                    f"{join.this.alias_or_name} has no column {column.name!r}, which USING names",
                    column,
                    expected=_format_similar_names(column.name, names),
                )


def column_names_of_source(
    source: Any, schemas: Mapping[str, Schema], scans: tuple[Scan, ...]
) -> dict[str, str] | None:
    """The columns of a source, by lower-case name. None if the columns are unknown."""
    if isinstance(source, exp.Table):
        number = scan_number(source)
        schema = schemas.get(scans[number].dataset if scans and number is not None else source.name)
        return None if schema is None else {n.lower(): n for n in schema.names}
    if isinstance(source, Scope) and isinstance(source.expression, exp.Query):
        return {n.lower(): n for n in source.outer_columns or source.expression.named_selects}
    return None


def _format_similar_names(name: str, known_names: Mapping[str, str]) -> str:
    near = similar_names(name, known_names) or list(known_names)[:8]
    return ", ".join(known_names[n] for n in near) or "a column of the sources of the query"


# SELECTs

_Violations: TypeAlias = Iterator[tuple[exp.Expr, str, str]]
"""For each violation: the rejected node, the problem, and what is expected."""

_WINDOW_FUNCTIONS = (
    exp.RowNumber,
    exp.Rank,
    exp.DenseRank,
    exp.PercentRank,
    exp.CumeDist,
    exp.Ntile,
    exp.Lag,
    exp.Lead,
    exp.NthValue,
)
"""Functions that need OVER (...)."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)

_WRAPPERS_OF_WINDOW_FUNCTIONS = (exp.IgnoreNulls, exp.RespectNulls, exp.Filter, exp.WithinGroup)

_PLAIN_GROUP_PARTS = {"expressions"}
"""Parts of a GROUP BY that lists columns. Others are ROLLUP, CUBE, GROUPING SETS and ALL."""


def check_select(text: SqlText, scope: Scope) -> None:
    """Check window functions, MIN and MAX, widths of subqueries, and grouped columns. Another scope than that of a
    SELECT passes.

    Raises:
        SqlError: Spark would refuse the SELECT. The error names the first mistake.
    """
    select = scope.expression
    if not isinstance(select, exp.Select):
        return
    for node, what, expected in chain(
        _windows_without_over(select),
        _windows_in_conditions(select),
        _aggregates_of_several_values(select),
        _wide_subqueries(select),
        _ungrouped_columns(scope, select),
    ):
        raise text.error(what, node, expected=expected)


def _nodes(*roots: exp.Expr) -> Iterator[exp.Expr]:
    """Nodes of expressions, without those of the queries in them."""
    for root in roots:
        yield from root.walk(prune=lambda n: isinstance(n, exp.Query))


def _windows_without_over(select: exp.Select) -> _Violations:
    for node in _nodes(*select.expressions):
        parent = node.parent
        while isinstance(parent, _WRAPPERS_OF_WINDOW_FUNCTIONS):
            parent = parent.parent
        if isinstance(node, _WINDOW_FUNCTIONS) and not isinstance(parent, exp.Window):
            name = node.sql_name()
            yield node, f"{name} is a window function without a window", f"{name}(...) OVER (ORDER BY ...)"


def _windows_in_conditions(select: exp.Select) -> _Violations:
    for clause in ("where", "having"):
        for node in _nodes(*filter(None, [select.args.get(clause)])):
            if isinstance(node, exp.Window):
                expected = "QUALIFY, or a condition around a subquery that has the column"
                yield node, f"{clause.upper()} contains a window function", expected


def _aggregates_of_several_values(select: exp.Select) -> _Violations:
    for node in _nodes(*select.expressions, *filter(None, [select.args.get("having")])):
        if isinstance(node, exp.Max | exp.Min) and node.expressions:
            function = "GREATEST" if isinstance(node, exp.Max) else "LEAST"
            yield node, f"{node.sql_name()} takes one value", f"{function}(...) for the values of one row"


def _wide_subqueries(select: exp.Select) -> _Violations:
    for node in _nodes(*select.expressions, *filter(None, [select.args.get("where"), select.args.get("having")])):
        query = node.args.get("query") if isinstance(node, exp.In) else node if _is_value(node) else None
        if isinstance(query, exp.Subquery):
            query = query.unnest()
        if not isinstance(query, exp.Query) or query.is_star:
            continue
        width, left = len(query.selects), node.this if isinstance(node, exp.In) else None
        if width > 1 and isinstance(left, exp.Column | exp.Literal | None):
            place = "after IN" if left is not None else "as a value"
            yield query, f"a subquery {place} has {width} columns", "a subquery of one column"


def _is_value(node: exp.Expr) -> bool:
    """Whether a subquery stands for a value."""
    return isinstance(node, exp.Subquery) and (
        (isinstance(node.parent, exp.Select) and node.arg_key == "expressions")
        or isinstance(node.parent, (exp.Alias, exp.Cast, *_COMPARISONS))
    )


def _ungrouped_columns(scope: Scope, select: exp.Select) -> _Violations:
    """Output columns of the scope's sources that are neither grouped nor aggregated."""
    group = select.args.get("group")
    if group is None and not any(map(_is_aggregate, _nodes(*select.expressions))):
        return
    if group is not None and any(value for part, value in group.args.items() if part not in _PLAIN_GROUP_PARTS):
        return
    keys = [] if group is None else group.expressions
    if not all(isinstance(key, exp.Column) for key in keys):
        return
    grouped = {(key.table.lower(), key.name.lower()) for key in keys}
    aliases = {key.name.lower() for key in keys if not key.table}
    for item in select.expressions:
        column = item.unalias()
        if (
            isinstance(column, exp.Column)
            and not isinstance(column.this, exp.Star)
            and column.table in scope.sources
            and (column.table.lower(), column.name.lower()) not in grouped
            and item.alias_or_name.lower() not in aliases
        ):
            expected = f"{column.name} in GROUP BY, or an aggregate such as MAX({column.name})"
            yield column, f"column {column.name!r} is neither grouped nor aggregated", expected


def _is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate of the rows of a group, not of a window."""
    parent = node.parent
    while isinstance(parent, _WRAPPERS_OF_WINDOW_FUNCTIONS):
        parent = parent.parent
    return isinstance(node, exp.AggFunc) and not isinstance(parent, exp.Window)
