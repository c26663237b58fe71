"""Makes single operators: derives their types, unique keys and rounded columns, and checks that decisions are exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.incremental import unique_keys
from nova_assets.sql.incremental.expressions import column_of, type_of
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
    walk,
)
from nova_assets.sql.incremental.repeatability import (
    check_exact,
    find_unordered_aggregate,
    find_unordered_window,
    is_generator,
    is_rounded,
)


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
    return {name: type_of(e, operator) for name, e in outputs}


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
        if a.name in left.columns and b.name in right.columns and _same_type(left, a.name, right, b.name):
            yield a, b


def _same_type(left: Operator, a: str, right: Operator, b: str) -> bool:
    first: DataType | None = left.columns[a]
    return first is not None and first == right.columns[b]
