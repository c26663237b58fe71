"""The groups of a SELECT: ``GROUP BY`` with its sets of keys, window functions over groups, and ``PIVOT``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations, product
from typing import TypeAlias

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.incremental.expressions import flatten_columns, has_aggregate
from nova_assets.sql.incremental.make_operators import make_aggregation, make_windowed
from nova_assets.sql.incremental.operators import NotMaintainable, Operator, Outputs, UnionAll, Windowed, column_of
from nova_assets.sql.incremental.repeatability import function_names
from nova_assets.sql.incremental.value_types import value_type
from nova_assets.sql.parse import spark_functions

KeySet: TypeAlias = tuple[exp.Expr, ...]

_MAX_SETS = 64

ALL_ROWS = exp.cast(exp.Literal.number(0), "INT")
"""Group key of the set without keys. Without rows, this set has no group, unlike a query without ``GROUP BY``."""


def plain_group_keys(group: exp.Group | None, outputs: Sequence[exp.Expr]) -> KeySet:
    """The keys of a GROUP BY with a single set of keys.

    Args:
        outputs: the outputs of the SELECT. ``GROUP BY ALL`` groups by those without an aggregate.

    Raises:
        NotMaintainable: the clause is written in a form without a rule.
    """
    if group is None:
        return ()
    clauses = {name for name, value in group.args.items() if value}
    if clauses == {"all"} and any(e.find(exp.Window) for e in outputs):
        raise NotMaintainable("GROUP BY ALL beside window functions", group)
    if clauses == {"all"}:
        keys = tuple(e.unnest() for e in outputs if not has_aggregate(e))
    elif clauses - {"expressions"}:
        raise NotMaintainable("this form of GROUP BY", group)
    else:
        keys = tuple(key.unnest() for key in group.expressions)
    check_group_keys(keys)
    return keys


def check_group_keys(keys: Iterable[exp.Expr]) -> None:
    """Check that each key is an expression over columns. Raises NotMaintainable."""
    for key in keys:
        if key.find(exp.Query):
            raise NotMaintainable("a subquery in GROUP BY", key)
        if key.find(exp.Cube, exp.Rollup, exp.GroupingSets, exp.AggFunc):
            raise NotMaintainable("this GROUP BY", key)
        if key.find(exp.Column) is None:  # a number is the position of an output column
            raise NotMaintainable("GROUP BY without a column", key)


def key_sets(group: exp.Group) -> list[KeySet] | None:
    """The sets of group keys; None if there is a single set.

    Raises:
        NotMaintainable: the clause is written in a form without a rule.
    """
    kinds = (exp.Rollup, exp.Cube, exp.GroupingSets)
    trailing = [node for name in ("rollup", "cube", "grouping_sets") for node in group.args.get(name) or ()]
    if not trailing and not any(isinstance(e, kinds) for e in group.expressions):
        return None
    parts = [list(_sets_of(e)) for e in group.expressions]
    if trailing:  # GROUP BY a, b WITH ROLLUP
        if len(trailing) > 1 or trailing[0].expressions or any(isinstance(e, kinds) for e in group.expressions):
            raise NotMaintainable("this form of GROUP BY", group)
        parts = [list(_sets_of(type(trailing[0])(expressions=group.expressions)))]
    sets = [tuple(key for part in chosen for key in part) for chosen in product(*parts)]
    if len(sets) > _MAX_SETS:
        raise NotMaintainable(f"GROUP BY with more than {_MAX_SETS} sets of keys", group)
    return sets


def written_keys(group: exp.Group) -> KeySet:
    """All keys of a GROUP BY, in the order in which the clause names them first."""
    keys = [key for e in group.expressions for key in _keys_below(e)]
    return tuple({key.sql("spark"): key for key in keys}.values())


def _keys_below(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple):
        for part in node.expressions:
            yield from _keys_below(part)
    else:
        yield node.unnest()


def _sets_of(node: exp.Expr) -> Iterator[KeySet]:
    """The sets of keys of one part of GROUP BY."""
    if isinstance(node, exp.GroupingSets):
        for part in node.expressions:
            yield from _sets_of(part)
        return
    if not isinstance(node, exp.Rollup | exp.Cube):
        yield _keys_of(node)
        return
    parts = [_keys_of(e) for e in node.expressions]
    if isinstance(node, exp.Rollup):
        chosen: Iterator[Sequence[KeySet]] = (parts[:n] for n in range(len(parts), -1, -1))
    else:
        chosen = (c for n in range(len(parts), -1, -1) for c in combinations(parts, n))
    for some in chosen:
        yield tuple(key for part in some for key in part)


def _keys_of(node: exp.Expr) -> KeySet:
    return tuple(e.unnest() for e in node.expressions) if isinstance(node, exp.Tuple) else (node.unnest(),)


def make_grouping_sets(
    operator: Operator,
    sets: Sequence[KeySet],
    written_keys: KeySet,
    outputs: Outputs,
    having: exp.Expr | None,
) -> Operator:
    """The groups of each set of keys, one set below the other.

    Args:
        written_keys: all keys, in the order in which the clause names them.
        sets: sets of expressions over the operator's columns.
        outputs: expressions over the operator's columns.
    """
    key_by_sql = {key.sql("spark"): key for key in (*written_keys, *(key for keys in sets for key in keys))}

    def groups_of(keys: KeySet) -> Operator:
        left_out = key_by_sql.keys() - {key.sql("spark") for key in keys}
        replaced = _replacement(operator, key_by_sql.keys(), left_out)
        in_set = tuple((name, replaced(e)) for name, e in outputs)
        condition = None if having is None else replaced(having)
        different = tuple({key.sql("spark"): key for key in keys}.values())
        return make_aggregation(operator, different or (ALL_ROWS.copy(),), in_set, condition)

    return reduce(_union, map(groups_of, sets))


def _union(left: Operator, right: Operator) -> UnionAll:
    columns = {name: type_ if right.columns[name] == type_ else None for name, type_ in left.columns.items()}
    return UnionAll(columns, left, right, rounded=left.rounded | right.rounded)


def _replacement(
    operator: Operator, keys: Collection[str], left_out: Collection[str]
) -> Callable[[exp.Expr], exp.Expr]:
    """Function that writes null in place of the keys that a set leaves out, except in the arguments of aggregates."""

    def insert(node: exp.Expr) -> exp.Expr:
        sql = node.sql("spark")
        if sql in left_out:
            type_ = value_type(node, operator.columns)
            if type_ is None:
                raise NotMaintainable("a group key of unknown type in ROLLUP, CUBE or GROUPING SETS", node)
            return exp.cast(exp.null(), str(type_), dialect="spark")
        if isinstance(node, exp.Grouping):
            return _grouping(node, keys, left_out)
        if isinstance(node, exp.AnonymousAggFunc) and node.name.lower() == "grouping_id":
            return _grouping_id(node, list(keys), left_out)
        is_kept = sql in keys or isinstance(node, exp.AggFunc | exp.Filter)  # a key keeps keys that are parts of it
        return node.copy() if is_kept else node  # a copy is not visited

    return lambda expression: expression.transform(insert)


def _grouping_id(node: exp.AnonymousAggFunc, keys: Sequence[str], left_out: Collection[str]) -> exp.Expr:
    """``GROUPING_ID(...)``: the values of GROUPING of all keys, as the digits of a binary number.

    Args:
        keys: all keys, in the order of GROUP BY.
    """
    arguments = [e.sql("spark") for e in node.expressions]
    if arguments and arguments != list(keys):  # as Spark requires
        raise NotMaintainable("GROUPING_ID of other columns than those of GROUP BY, in their order", node)
    digits = "".join("1" if key in left_out else "0" for key in keys)
    return exp.cast(exp.Literal.number(int(digits, 2)), "BIGINT", dialect="spark")


def _grouping(node: exp.Grouping, keys: Collection[str], left_out: Collection[str]) -> exp.Expr:
    """``GROUPING(key)``: 1 if the set leaves the key out."""
    sql = node.expressions[0].sql("spark") if len(node.expressions) == 1 else ""
    if sql not in keys:
        raise NotMaintainable("GROUPING of an expression that is no group key", node)
    return exp.cast(exp.Literal.number(1 if sql in left_out else 0), "TINYINT", dialect="spark")


_GROUP_KEY, _AGGREGATE = "nova_group_", "nova_aggregate_"


def make_grouped_windows(
    operator: Operator, group_keys: Sequence[exp.Expr], outputs: Outputs, having: exp.Expr | None
) -> Windowed:
    """Outputs with window functions over groups, such as ``RANK() OVER (ORDER BY SUM(x))``.

    Args:
        outputs: expressions over the operator's columns.
    """
    groups = {f"{_GROUP_KEY}{n}": key for n, key in enumerate(group_keys)}
    name_by_sql = {key.sql("spark"): name for name, key in groups.items()}
    windowed = tuple((name, _over_groups(e, name_by_sql, groups)) for name, e in outputs)
    return make_windowed(make_aggregation(operator, tuple(group_keys), tuple(groups.items()), having), windowed)


def _over_groups(expression: exp.Expr, name_by_sql: dict[str, str], groups: dict[str, exp.Expr]) -> exp.Expr:
    """An expression over the columns of groups. Aggregates are added to ``groups``."""
    tree = expression.copy()
    window_functions = {id(w.this) for w in tree.find_all(exp.Window)}

    def insert(node: exp.Expr) -> exp.Expr:
        sql = node.sql("spark")
        is_aggregate = isinstance(node, exp.AggFunc | exp.Filter) and id(node) not in window_functions
        if is_aggregate and sql not in name_by_sql:
            name_by_sql[sql] = f"{_AGGREGATE}{len(groups)}"
            groups[name_by_sql[sql]] = node.copy()
        if sql in name_by_sql:
            return column_of(name_by_sql[sql])
        if isinstance(node, exp.Column):
            raise NotMaintainable(f"the name {sql} beside aggregates", node)
        return node

    return tree.transform(insert, copy=False)


_TYPES = frozenset({"string", "boolean", "tinyint", "smallint", "int", "bigint", "date"})
"""Types of which equal values are the same in every respect."""

_TYPES_OF_CELLS = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})
"""Types of aggregates that Spark computes per group and value first (PivotFirst)."""


def make_pivot(operator: Operator, pivots: Sequence[exp.Pivot]) -> Operator:
    """The rows of a source after ``PIVOT``. The groups are those of all columns that the clause does not name. A column
    is null for a group without rows of its value, also if it counts. Spark computes this differently if an aggregate is
    neither a number nor a boolean.

    Args:
        operator: the source, whose columns are called ``source.column``.

    Raises:
        NotMaintainable: the clause has a form without a rule.
    """
    pivot = pivots[0]
    if len(pivots) > 1 or pivot.args.get("unpivot") or len(pivot.args["fields"]) != 1 or not pivot.alias:
        raise NotMaintainable("UNPIVOT, or more than one PIVOT", pivot)
    field = pivot.args["fields"][0]
    if not isinstance(field, exp.In) or field.args.get("query") is not None:
        raise NotMaintainable("this form of PIVOT", field)
    columns = [flatten_columns(c, operator) for c in _parts(field.this)]
    aggregates = [flatten_columns(e.unalias(), operator) for e in pivot.expressions]
    for aggregate, node in zip(aggregates, pivot.expressions, strict=True):
        if not isinstance(aggregate, exp.AggFunc) or not function_names(aggregate) & spark_functions.AGGREGATES:
            raise NotMaintainable("PIVOT with an expression over aggregates", node)
        type_ = value_type(aggregate, operator.columns)
        if type_ is None or type_.name not in _TYPES_OF_CELLS:
            raise NotMaintainable("PIVOT with an aggregate that is not known to be a number", node)
    used = {c.name for e in (*columns, *aggregates) for c in e.find_all(exp.Column)}
    source, prefix = next(iter(operator.columns)).partition(".")[0], f"{pivot.alias.lower()}."
    keys = [name for name in operator.columns if name not in used]
    outputs = [(prefix + name.removeprefix(f"{source}."), column_of(name)) for name in keys]
    names = [prefix + c.name.lower() for c in pivot.args.get("columns") or ()]
    cells = list(_cells(field, columns, aggregates, operator))
    if len(names) != len(cells) or len({*names, *(n for n, _ in outputs)}) < len(names) + len(outputs):
        raise NotMaintainable("PIVOT without different names of its columns", pivot)
    group_keys = tuple(column_of(name) for name in keys)
    return make_aggregation(operator, group_keys, (*outputs, *zip(names, cells, strict=True)))


def _cells(
    field: exp.In, columns: Sequence[exp.Expr], aggregates: Sequence[exp.Expr], operator: Operator
) -> Iterator[exp.Expr]:
    """The aggregates over the rows of each value, in the order of the clause."""
    written = [(n.this if isinstance(n, exp.PivotAlias | exp.Alias) else n).sql("spark") for n in field.expressions]
    if len(set(written)) < len(written):
        raise NotMaintainable("PIVOT with a value that is listed twice", field)
    for node in field.expressions:
        values = _parts(node.this if isinstance(node, exp.PivotAlias | exp.Alias) else node)
        if len(values) != len(columns):
            raise NotMaintainable("PIVOT with another number of values than of columns", node)
        has_value = exp.and_(*(_equals(c, v, operator) for c, v in zip(columns, values, strict=True)))
        for aggregate in aggregates:
            rows = _filtered(exp.Count(this=exp.Star(), big_int=True), has_value)
            condition = exp.GT(this=rows, expression=exp.Literal.number(0))
            yield exp.Case(ifs=[exp.If(this=condition, true=_filtered(aggregate, has_value))])


def _equals(column: exp.Expr, value: exp.Expr, operator: Operator) -> exp.Expr:
    type_: DataType | None = operator.columns[column.name] if isinstance(column, exp.Column) else None
    if type_ is None or type_.name not in _TYPES or value.find(exp.Column, exp.Query):
        raise NotMaintainable("PIVOT by an expression, or by a column of this type", value)
    return exp.NullSafeEQ(this=column.copy(), expression=exp.cast(value.copy(), str(type_), dialect="spark"))


def _filtered(aggregate: exp.Expr, condition: exp.Expr) -> exp.Expr:
    return exp.Filter(this=aggregate.copy(), expression=exp.Where(this=condition.copy()))


def _parts(node: exp.Expr) -> list[exp.Expr]:
    node = node.unnest()
    return [e.unnest() for e in node.expressions] if isinstance(node, exp.Tuple) else [node]
