"""Makes single operators: derives their types, unique keys and rounded columns, and checks that decisions are exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from nova_assets.sql.incremental import unique_keys
from nova_assets.sql.incremental.operators import (
    Aggregation,
    Columns,
    Distinct,
    Filter,
    Join,
    JoinKind,
    NotMaintainable,
    Operator,
    Outputs,
    Projection,
    Windowed,
    column_of,
    walk,
)
from nova_assets.sql.incremental.repeatability import (
    check_exact,
    find_unordered_aggregate,
    find_unordered_window,
    is_generator,
    is_rounded,
)
from nova_assets.sql.incremental.value_types import value_type
from nova_assets.sql.query.resolved_query import conjuncts


def make_filter(operator: Operator, condition: exp.Expr) -> Filter:
    """The rows for which a condition over the operator's columns is true."""
    unstable = operator.unstable or _unstable_decision([condition], operator, operator.group_columns)
    return Filter(
        operator.columns,
        operator,
        condition,
        unique_keys=unique_keys.of_filter(operator, condition),
        row_numbers=operator.row_numbers,
        rounded=operator.rounded,
        group_columns=operator.group_columns,
        unstable=unstable,
    )


def make_projection(operator: Operator, outputs: Outputs) -> Projection:
    """Columns that are computed from each row."""
    keys, row_numbers = unique_keys.of_projection(operator, outputs), unique_keys.row_numbers_after(operator, outputs)
    check_exact((e for _, e in outputs if is_generator(e)), operator)
    rounded = _rounded_outputs(operator, outputs)
    return Projection(
        _output_columns(operator, outputs),
        operator,
        outputs,
        unique_keys=keys,
        row_numbers=row_numbers,
        rounded=rounded,
        group_columns=_copies_of(map(column_of, operator.group_columns), outputs),
        unstable=operator.unstable,
    )


def make_distinct(operator: Operator) -> Distinct:
    """Each different row once."""
    check_exact(map(column_of, operator.columns), operator)
    every_column = frozenset({frozenset(operator.columns)})
    return Distinct(operator.columns, operator, unique_keys=every_column | operator.unique_keys)


def make_aggregation(
    operator: Operator, group_keys: tuple[exp.Expr, ...], outputs: Outputs, having: exp.Expr | None = None
) -> Aggregation:
    """One row for each group, or one row if there are no group keys."""
    _check_inputs_of_groups(outputs, operator)
    check_exact(group_keys, operator)
    conditions, group_columns = [having] if having is not None else [], _copies_of(group_keys, outputs)
    unordered = find_unordered_aggregate([*(e for _, e in outputs), *conditions])
    return Aggregation(
        _output_columns(operator, outputs),
        operator,
        group_keys,
        outputs,
        having,
        unique_keys=unique_keys.of_aggregation(group_keys, group_columns),
        rounded=_rounded_outputs(operator, outputs),
        group_columns=group_columns,
        unstable=unordered or _unstable_decision(conditions, operator, group_columns),
    )


def make_windowed(operator: Operator, outputs: Outputs) -> Windowed:
    """Outputs with window functions."""
    windows = [w for _, e in outputs for w in e.find_all(exp.Window)]
    _check_inputs_of_groups(outputs, operator)
    group_keys = _common_partition_keys(windows)
    return Windowed(
        _output_columns(operator, outputs),
        operator,
        group_keys,
        outputs,
        unique_keys=unique_keys.of_projection(operator, outputs),
        row_numbers=unique_keys.row_number_columns(outputs),
        rounded=_rounded_outputs(operator, outputs),
        group_columns=_copies_of(group_keys, outputs),
        unstable=find_unordered_window(windows, operator),
    )


def make_join(left: Operator, right: Operator, kind: JoinKind, condition: exp.Expr | None) -> Join:
    """A join.

    Args:
        condition: condition over the columns of both sides; None for a cross join.
    """
    both: Columns = {**left.columns, **right.columns}
    columns = left.columns if kind in ("left semi", "left anti") else both
    equal_keys = tuple(_equal_pairs(condition, left, right))
    keys, rounded = unique_keys.of_join(kind, left, right, equal_keys), left.rounded | right.rounded
    if condition is not None:
        check_exact([condition], Operator(both, rounded=rounded))
    return Join(columns, left, right, kind, condition, equal_keys, unique_keys=keys, rounded=rounded & columns.keys())


def check_stable(root: Operator) -> None:
    """Check that rows whose values depend on the order of other rows are computed and replaced by groups. Raises
    NotMaintainable.

    Args:
        root: the last operator of the query.
    """
    for operator in walk(root):
        for below in operator.inputs:
            if below.unstable is not None and not isinstance(operator, Projection | Filter):
                raise NotMaintainable("a further step over values that depend on the order of rows", below.unstable)
    if root.unstable is not None and not root.group_columns:
        raise NotMaintainable(
            "a value that depends on the order of rows, without the columns of its group", root.unstable
        )


def _unstable_decision(
    conditions: Iterable[exp.Expr], operator: Operator, group_columns: Sequence[str]
) -> exp.Expr | None:
    """The first condition that depends on rounded numbers; None if there is none. Raises NotMaintainable if no group
    of rows shares the decision.
    """
    condition = next((c for c in conditions if is_rounded(c, operator)), None)
    if condition is not None and not group_columns:
        check_exact([condition], operator)
    return condition


def _copies_of(keys: Iterable[exp.Expr], outputs: Outputs) -> tuple[str, ...]:
    """Output columns that are copies of all keys, in their order; empty if one is missing."""
    name_by_sql = {e.sql("spark"): name for name, e in reversed(outputs)}
    names = [name_by_sql.get(key.sql("spark")) for key in keys]
    return tuple(name for name in names if name is not None) if None not in names else ()


def _output_columns(operator: Operator, outputs: Outputs) -> Columns:
    return {name: value_type(e, operator.columns) for name, e in outputs}


def _rounded_outputs(operator: Operator, outputs: Outputs) -> frozenset[str]:
    return frozenset(name for name, e in outputs if is_rounded(e, operator))


def _check_inputs_of_groups(outputs: Outputs, operator: Operator) -> None:
    """Check the arguments of aggregates and window functions."""
    for _, expression in outputs:
        if is_generator(expression):
            raise NotMaintainable("a generator beside aggregates or window functions", expression)
        if any(c.name in operator.rounded for c in expression.find_all(exp.Column)):
            raise NotMaintainable("an aggregate or window function of a rounded number", expression)


def _common_partition_keys(windows: Sequence[exp.Window]) -> tuple[exp.Expr, ...]:
    """Expressions by which all windows are partitioned."""
    first = {e.sql("spark"): e for e in windows[0].args.get("partition_by") or ()}
    for window in windows:
        names = {e.sql("spark") for e in window.args.get("partition_by") or ()}
        first = {name: e for name, e in first.items() if name in names}
    return tuple(first.values())


def _equal_pairs(condition: exp.Expr | None, left: Operator, right: Operator) -> Iterable[tuple[exp.Expr, exp.Expr]]:
    """Pairs of columns of equal, known type that the condition requires to be equal."""
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        part = part.unnest() if part is not None else None
        if not isinstance(part, exp.EQ):
            continue
        a, b = part.this, part.expression
        if not isinstance(a, exp.Column) or not isinstance(b, exp.Column):
            continue
        if a.name in right.columns and b.name in left.columns:
            a, b = b, a
        type_ = left.columns.get(a.name)
        if type_ is not None and type_ == right.columns.get(b.name):
            yield a, b


def filter_joined_rows(operator: Operator, conditions: Sequence[exp.Expr]) -> Operator:
    """The rows that fulfil all conditions. Each condition is applied as soon as its columns are there. So
    ``FROM a, b WHERE a.x = b.x`` is a join with equal keys, and only rows that fulfil the other conditions are joined.

    If the rows come from inner joins, the joined sides are put in an order in which each is joined by an equality with
    the sides before, where there is one.

    Args:
        conditions: conditions over the operator's columns, without AND at the top.
    """
    sides, waiting = list(_sides(operator)), [*_join_conditions(operator), *conditions]
    waiting += [c for c in _required_by_or(waiting) if c not in waiting]
    joined = sides.pop(0)
    joined, waiting = _apply(joined, waiting)
    while sides:
        side = next((s for s in sides if any(_connects(c, joined, s) for c in waiting)), sides[0])
        sides.remove(side)
        side, waiting = _apply(side, waiting)
        both = joined.columns.keys() | side.columns.keys()
        on = [c for c in waiting if _column_names(c) <= both]
        waiting = [c for c in waiting if c not in on]
        joined = make_join(joined, side, "inner", exp.and_(*on) if on else None)
    return make_filter(joined, exp.and_(*waiting)) if waiting else joined


def _required_by_or(conditions: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """Conditions that are in each branch of an OR, such as ``a.x = b.x`` in ``a.x = b.x AND c OR a.x = b.x AND d``."""
    for condition in conditions:
        if isinstance(condition, exp.Or):
            first, *others = [list(conjuncts(branch)) for branch in condition.flatten()]
            texts = [{c.sql("spark") for c in branch} for branch in others]
            yield from (c for c in first if all(c.sql("spark") in branch for branch in texts))


def _sides(operator: Operator) -> Iterator[Operator]:
    """The operators that inner joins combine, from left to right."""
    if isinstance(operator, Join) and operator.kind == "inner":
        yield from _sides(operator.left)
        yield from _sides(operator.right)
    else:
        yield operator


def _join_conditions(operator: Operator) -> Iterator[exp.Expr]:
    if isinstance(operator, Join) and operator.kind == "inner":
        yield from _join_conditions(operator.left)
        yield from _join_conditions(operator.right)
        yield from conjuncts(operator.condition)


def _apply(operator: Operator, conditions: list[exp.Expr]) -> tuple[Operator, list[exp.Expr]]:
    """The operator with those conditions that refer to its columns alone, and the other conditions."""
    own = [c for c in conditions if (names := _column_names(c)) and names <= operator.columns.keys()]
    return (make_filter(operator, exp.and_(*own)) if own else operator), [c for c in conditions if c not in own]


def _connects(condition: exp.Expr, joined: Operator, side: Operator) -> bool:
    """Whether a condition is an equality between a column of the joined sides and a column of another side."""
    condition = condition.unnest()
    if not isinstance(condition, exp.EQ):
        return False
    a, b = condition.this, condition.expression
    if not (isinstance(a, exp.Column) and isinstance(b, exp.Column)):
        return False
    return any(x.name in joined.columns and y.name in side.columns for x, y in ((a, b), (b, a)))


def _column_names(condition: exp.Expr) -> set[str]:
    return {column.name for column in condition.find_all(exp.Column)}
