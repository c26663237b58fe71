"""Turns subqueries in conditions and outputs into joins.

EXISTS and IN become semi-joins and anti-joins. A scalar subquery becomes a join with an aggregation, whose value is a
column of the joined rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Protocol

from sqlglot import exp

from nova_assets.sql.incremental.existence import replace_by_counts, unwrap
from nova_assets.sql.incremental.expressions import (
    find_outside_subqueries,
    flat_name,
    flatten_columns,
    has_aggregate,
    replace_columns,
)
from nova_assets.sql.incremental.make_operators import (
    filter_joined_rows,
    make_aggregation,
    make_filter,
    make_join,
    make_projection,
)
from nova_assets.sql.incremental.operators import NotMaintainable, Operator, column_of
from nova_assets.sql.incremental.repeatability import function_names, is_generator
from nova_assets.sql.incremental.value_types import value_type
from nova_assets.sql.parse import spark_functions
from nova_assets.sql.query.resolved_query import conjuncts

SUBQUERY_SOURCE = "nova_subquery"
"""Source of the columns with the values of subqueries."""

GROUP_SOURCE = "nova_group"
"""Source of the columns with the aggregates and group keys of a SELECT whose outputs or HAVING contain subqueries."""

NamedExpressions = Sequence[tuple[str, exp.Expr]]
Ctes = Mapping[str, Operator]


class QueryBuilder(Protocol):
    """Builds the operators of the queries inside of subqueries."""

    def build_query(self, node: exp.Expr, ctes: Ctes) -> Operator: ...

    def build_rows(self, select: exp.Select, ctes: Ctes) -> tuple[Operator, list[exp.Expr]]: ...

    def build_outputs(self, select: exp.Select, operator: Operator, ctes: Ctes) -> Operator: ...

    def with_ctes(self, node: exp.Query, ctes: Ctes) -> Ctes: ...


def split_conditions(where: exp.Where | None, operator: Operator) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The conditions of WHERE over the rows of FROM, and those that refer to columns of the surrounding query.

    A condition with a subquery is always one of the former.

    Args:
        operator: the rows of FROM.
    """
    inner: list[exp.Expr] = []
    outer: list[exp.Expr] = []
    for condition in conjuncts(where.this if where is not None else None):
        is_outer = not condition.find(exp.Query) and any(
            column.table and flat_name(column) not in operator.columns for column in condition.find_all(exp.Column)
        )
        (outer if is_outer else inner).append(condition)
    return inner, outer


class SubqueryBuilder:
    """Joins the rows of a SELECT with its subqueries."""

    def __init__(self, builder: QueryBuilder) -> None:
        self.builder = builder
        self._numbers = count(1)

    def _next_name(self) -> str:
        return f"{SUBQUERY_SOURCE}.{next(self._numbers)}"

    # conditions

    def filter_rows(self, operator: Operator, conditions: Iterable[exp.Expr], ctes: Ctes) -> Operator:
        """The rows that fulfil all conditions."""
        conditions = list(conditions)
        plain = [c for c in conditions if not c.find(exp.Query)]
        operator = filter_joined_rows(operator, [flatten_columns(c, operator) for c in plain])
        for condition in conditions:
            if condition.find(exp.Query):
                operator = self._filter_by_subquery(operator, condition.unnest(), ctes)
        return operator

    def _filter_by_subquery(self, operator: Operator, condition: exp.Expr, ctes: Ctes) -> Operator:
        is_negated, test = False, condition
        while isinstance(test, exp.Not):
            is_negated, test = not is_negated, test.this.unnest()
        if isinstance(test, exp.Exists):
            return self._filter_by_exists(operator, test, ctes, is_negated=is_negated)
        if isinstance(test, exp.In) and test.args.get("query") is not None:
            return self._filter_by_in(operator, test, ctes, is_negated=is_negated)
        [(_, flat)], operator = self.join_scalars([("", condition)], operator, ctes, are_conditions=True)
        return make_filter(operator, flatten_columns(flat, operator))

    def _filter_by_exists(self, operator: Operator, test: exp.Exists, ctes: Ctes, *, is_negated: bool) -> Operator:
        select = unwrap(test.this)
        rows, outer_conditions, ctes = self._rows_of(select, ctes)
        if outer_conditions:
            rows, conditions, _ = _correlate(select, rows, outer_conditions, operator, self._next_name(), ())
            return make_join(operator, rows, "left anti" if is_negated else "left semi", exp.and_(*conditions))
        if isinstance(select, exp.Select) and not _is_plain(select):
            rows = self.builder.build_outputs(select, rows, ctes)
        has_rows = f"{self._next_name()}_has_rows"
        operator = make_join(operator, make_aggregation(rows, (), ((has_rows, _has_rows()),)), "inner", None)
        condition: exp.Expr = column_of(has_rows)
        return make_filter(operator, exp.Not(this=condition) if is_negated else condition)

    def _filter_by_in(self, operator: Operator, test: exp.In, ctes: Ctes, *, is_negated: bool) -> Operator:
        this = test.this.unnest()
        left = [flatten_columns(e, operator) for e in (this.expressions if isinstance(this, exp.Tuple) else [this])]
        select = unwrap(test.args["query"])
        rows, outer_conditions, ctes = self._rows_of(select, ctes)
        name, conditions = self._next_name(), list[exp.Expr]()
        if outer_conditions or (isinstance(select, exp.Select) and _is_plain(select)):
            values = [e.unalias() for e in select.expressions]
            rows, conditions, names = _correlate(select, rows, outer_conditions, operator, name, values)
        else:
            if isinstance(select, exp.Select):
                rows = self.builder.build_outputs(select, rows, ctes)
            renamed = tuple((f"{name}_{n}", column_of(column)) for n, column in enumerate(rows.columns))
            rows, names = make_projection(rows, renamed), [column for column, _ in renamed]
        if len(left) != len(names):
            raise NotMaintainable("IN with another number of columns than its subquery", test)
        for value, column in zip(left, names, strict=True):
            type_ = value_type(value, operator.columns)
            if type_ is None or type_ != rows.columns[column]:
                raise NotMaintainable("IN with a subquery, between types that are not known to be equal", test)
        left = [value if isinstance(value, exp.Column) else exp.Paren(this=value) for value in left]
        equalities = [exp.EQ(this=v, expression=column_of(c)) for v, c in zip(left, names, strict=True)]
        if not is_negated:
            return make_join(operator, rows, "left semi", exp.and_(*equalities, *conditions))
        if not outer_conditions and len(left) == 1:
            return self._filter_by_not_in(operator, rows, equalities[0])
        return make_join(operator, rows, "left anti", exp.and_(*map(_true_or_null, equalities), *conditions))

    def _filter_by_not_in(self, operator: Operator, rows: Operator, equality: exp.EQ) -> Operator:
        """The rows whose value no row of the subquery equals, and for which no such comparison is null.

        This is a join by equal keys, and two facts about all rows of the subquery.
        """
        name = self._next_name()
        has_rows, has_nulls = f"{name}_has_rows", f"{name}_has_nulls"
        counts_more = exp.GT(this=_count(exp.Star()), expression=_count(equality.expression.copy()))
        facts = make_aggregation(rows, (), ((has_rows, _has_rows()), (has_nulls, counts_more)))
        operator = make_join(operator, facts, "inner", None)
        is_comparable = exp.and_(
            exp.Not(this=exp.Is(this=equality.this.copy(), expression=exp.Null())), exp.Not(this=column_of(has_nulls))
        )
        operator = make_filter(operator, exp.or_(exp.Not(this=column_of(has_rows)), is_comparable))
        return make_join(operator, rows, "left anti", equality)

    def _rows_of(self, query: exp.Expr, ctes: Ctes) -> tuple[Operator, list[exp.Expr], Ctes]:
        """The rows of FROM and WHERE of a SELECT, its conditions with outer columns, and its CTEs; or the rows of a set
        operation.
        """
        if not isinstance(query, exp.Select):
            return self.builder.build_query(query, ctes), [], ctes
        ctes = self.builder.with_ctes(query, ctes)
        if qualify := query.args.get("qualify"):
            raise NotMaintainable("QUALIFY in a subquery", qualify)
        return *self.builder.build_rows(query, ctes), ctes

    # scalar subqueries

    def join_scalars(
        self, named: NamedExpressions, operator: Operator, ctes: Ctes, *, are_conditions: bool = False
    ) -> tuple[NamedExpressions, Operator]:
        """The expressions with a column in place of each subquery, and the rows with these columns."""
        replaced = []
        for name, expression in named:
            holder = exp.Paren(this=expression.copy())
            replace_by_counts(holder, is_condition=are_conditions)
            for node in list(find_outside_subqueries(holder, exp.Query)):
                if not isinstance(node, exp.Subquery):
                    raise NotMaintainable("a subquery in this place", node)
                if node.find_ancestor(exp.Lambda):
                    raise NotMaintainable("a subquery in a lambda function", node)
                value = self._next_name()
                operator = self._join_scalar(node, value, operator, ctes)
                node.replace(exp.column(value.partition(".")[2], table=SUBQUERY_SOURCE))
            replaced.append((name, holder.this))
        return replaced, operator

    def _join_scalar(self, node: exp.Subquery, name: str, operator: Operator, ctes: Ctes) -> Operator:
        """The operator's rows with the value of a subquery as the column ``name``."""
        select = unwrap(node)
        if not isinstance(select, exp.Select) or not _has_one_row(select):
            raise NotMaintainable("a subquery that is not known to have one row", node)
        rows, outer_conditions, ctes = self._rows_of(select, ctes)
        if outer_conditions:
            return _join_correlated_scalar(select, rows, outer_conditions, name, operator)
        value = self.builder.build_outputs(select, rows, ctes)
        (column,) = value.columns
        return make_join(operator, make_projection(value, ((name, column_of(column)),)), "inner", None)

    # groups

    def build_groups(
        self,
        operator: Operator,
        group_keys: Sequence[exp.Expr],
        named: NamedExpressions,
        having: exp.Expr | None,
        ctes: Ctes,
    ) -> Operator:
        """The outputs of a SELECT with groups, if its outputs or HAVING contain subqueries.

        The groups are computed with all aggregates first. Subqueries are joined with the groups.
        """
        groups = _Groups(operator, group_keys)
        conditions = [groups.replace(c) for c in conjuncts(having)]
        named = [(name, groups.replace(e)) for name, e in named]
        if any(is_generator(e) for _, e in named):
            raise NotMaintainable("a generator beside aggregates or window functions", named[0][1])
        operator = self.filter_rows(groups.make_operator(named[0][1]), conditions, ctes)
        named, operator = self.join_scalars(named, operator, ctes)
        return make_projection(operator, tuple((name, flatten_columns(e, operator)) for name, e in named))


class _Groups:
    """Groups whose keys and aggregates become columns, to which other expressions refer."""

    def __init__(self, operator: Operator, group_keys: Sequence[exp.Expr]) -> None:
        self._operator = operator
        self._group_keys = group_keys
        self._names: dict[str, str] = {}
        self._outputs: list[tuple[str, exp.Expr]] = []
        for key in group_keys:
            self._name_of(key)

    def _name_of(self, part: exp.Expr) -> str:
        """Column of a key or an aggregate. A key that is a column keeps its name."""
        text = part.sql("spark")
        if text not in self._names:
            name = flat_name(part) if isinstance(part, exp.Column) else f"{GROUP_SOURCE}.{len(self._names)}"
            self._names[text] = name
            self._outputs.append((name, flatten_columns(part, self._operator)))
        return self._names[text]

    def _is_part(self, node: exp.Expr) -> bool:
        if isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
            return node.find(exp.AggFunc) is not None
        return isinstance(node, exp.AggFunc) or node.sql("spark") in self._names

    def replace(self, expression: exp.Expr) -> exp.Expr:
        """The expression over the groups, with columns in place of keys and aggregates. Subqueries stay as they are."""
        holder = exp.Paren(this=expression.copy())
        nodes = holder.this.walk(prune=lambda n: isinstance(n, exp.Query) or self._is_part(n))
        for node in [n for n in nodes if not isinstance(n, exp.Query) and self._is_part(n)]:
            source, _, column = self._name_of(node).partition(".")
            if not isinstance(node, exp.Column):
                node.replace(exp.column(column, table=source))
        replaced: exp.Expr = holder.this
        return replaced

    def make_operator(self, node: exp.Expr) -> Operator:
        """The groups.

        Args:
            node: the part of the query that an error names.
        """
        if not self._group_keys and not any(has_aggregate(e) for _, e in self._outputs):
            raise NotMaintainable("HAVING without an aggregate", node)
        keys = tuple(flatten_columns(key, self._operator) for key in self._group_keys)
        return make_aggregation(self._operator, keys, tuple(self._outputs))


def _join_correlated_scalar(
    select: exp.Select, rows: Operator, outer_conditions: Sequence[exp.Expr], name: str, operator: Operator
) -> Operator:
    """A left join with the groups of the subquery's rows. A row without a group has the value over no rows."""
    names = {column: f"{name}_{column}" for column in rows.columns}
    conditions = [_flatten_over_both(c, rows, operator, names) for c in outer_conditions]
    used = {c.name for condition in conditions for c in condition.find_all(exp.Column)}
    keys = [column for column, renamed in names.items() if renamed in used]
    value = flatten_columns(select.expressions[0].unalias(), rows)
    is_count = isinstance(value, exp.Count)
    if not is_count and not _is_null_over_no_rows(value):
        raise NotMaintainable("a correlated subquery whose value over no rows is not known", select)
    value_name = f"{name}_count" if is_count else name
    outputs = (*((names[key], column_of(key)) for key in keys), (value_name, value))
    groups = make_aggregation(rows, tuple(map(column_of, keys)), outputs)
    joined = make_join(operator, groups, "left", exp.and_(*conditions))
    if len(joined.equal_keys) < len(conditions):
        raise NotMaintainable("a correlated subquery with more than equal columns of known, equal types", select)
    if not is_count:
        return joined
    counted = exp.Coalesce(this=column_of(value_name), expressions=[exp.Literal.number(0)])
    return make_projection(joined, (*((c, column_of(c)) for c in operator.columns), (name, counted)))


def _correlate(
    select: exp.Expr,
    rows: Operator,
    outer_conditions: Sequence[exp.Expr],
    operator: Operator,
    name: str,
    values: Sequence[exp.Expr],
) -> tuple[Operator, list[exp.Expr], list[str]]:
    """The rows of a correlated subquery, the conditions under which they are partners of the surrounding rows, and the
    columns with the values.
    """
    if not isinstance(select, exp.Select) or not _is_plain(select):
        raise NotMaintainable("a correlated subquery with groups, window functions or generators", select)
    names = {c: c if c not in operator.columns else f"{name}_{c}" for c in rows.columns}
    conditions = [_flatten_over_both(c, rows, operator, names) for c in outer_conditions]
    used = {c.name for condition in conditions for c in condition.find_all(exp.Column)}
    outputs = [(f"{name}_{n}", flatten_columns(value, rows)) for n, value in enumerate(values)]
    columns = [(renamed, column_of(column)) for column, renamed in names.items() if renamed in used]
    if not columns and not outputs:
        raise NotMaintainable("a correlated subquery without a condition on its own columns", select)
    return make_projection(rows, (*outputs, *columns)), conditions, [column for column, _ in outputs]


def _flatten_over_both(condition: exp.Expr, rows: Operator, operator: Operator, names: Mapping[str, str]) -> exp.Expr:
    """A condition of a subquery over the columns of the subquery and of the surrounding query. A source of the subquery
    hides a source of the surrounding query with the same name.

    Args:
        rows: rows of the subquery.
        operator: rows of the surrounding query.
        names: column of the subquery -> its name in the result.
    """
    if aggregate := condition.find(exp.AggFunc):
        raise NotMaintainable("an aggregate in a condition of a subquery", aggregate)
    sources, fields = {c.partition(".")[0] for c in rows.columns}, {c.partition(".")[2] for c in rows.columns}
    for column in condition.find_all(exp.Column):
        if flat_name(column) not in rows.columns and column.table.lower() in fields:
            raise NotMaintainable(f"{column.sql('spark')}, which can be a field of a column of the subquery", column)
    visible = {c: type_ for c, type_ in operator.columns.items() if c.partition(".")[0] not in sources}
    flat = flatten_columns(condition, Operator({**visible, **rows.columns}))
    return replace_columns(flat, lambda column: column_of(names[column.name]) if column.name in names else column)


def _is_plain(select: exp.Select) -> bool:
    """Whether each row of FROM and WHERE gives one row of the result, apart from DISTINCT."""
    if select.args.get("group") is not None or select.args.get("having") is not None:
        return False
    return not any(is_generator(e) or e.find(exp.AggFunc, exp.Window, exp.Query) for e in select.expressions)


def _has_one_row(select: exp.Select) -> bool:
    """Whether a SELECT has one column and exactly one row: aggregates without groups."""
    if any(select.args.get(clause) is not None for clause in ("group", "having", "distinct")):
        return False
    if len(select.expressions) != 1 or is_generator(select.expressions[0]):
        return False
    value = select.expressions[0].unalias().copy()
    aggregates = [a for a in find_outside_subqueries(value, exp.AggFunc) if isinstance(a, exp.Func)]
    return has_aggregate(value) and any(function_names(a) & spark_functions.AGGREGATES for a in aggregates)


def _is_null_over_no_rows(value: exp.Expr) -> bool:
    """Whether the value is surely null if there are no rows: arithmetic with at least one aggregate."""
    value = value.unnest()
    if isinstance(value, exp.Min | exp.Max | exp.Sum | exp.Avg):
        return True
    if isinstance(value, exp.Neg | exp.Cast):
        return _is_null_over_no_rows(value.this)
    if not isinstance(value, exp.Add | exp.Sub | exp.Mul | exp.Div):
        return False
    sides = (value.this, value.expression)
    are_known = all(not side.find(exp.AggFunc, exp.Column) or _is_null_over_no_rows(side) for side in sides)
    return are_known and any(map(_is_null_over_no_rows, sides))


def _count(argument: exp.Expr) -> exp.Count:
    return exp.Count(this=argument, big_int=True)


def _has_rows() -> exp.Expr:
    return exp.GT(this=_count(exp.Star()), expression=exp.Literal.number(0))


def _true_or_null(equality: exp.Expr) -> exp.Expr:
    """A condition that is true unless the equality is false."""
    return exp.or_(equality, exp.Is(this=exp.Paren(this=equality.copy()), expression=exp.Null()))
