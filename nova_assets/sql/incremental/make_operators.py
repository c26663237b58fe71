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
)
from nova_assets.sql.incremental.repeatability import (
    check_aggregates,
    check_exact,
    check_windows,
    is_generator,
    is_rounded,
)


def make_filter(operator: Operator, condition: exp.Expr) -> Filter:
    """The rows for which a condition over the operator's columns is true."""
    check_exact([condition], operator)
    return Filter(
        operator.columns,
        operator,
        condition,
        unique_keys=unique_keys.of_filter(operator, condition),
        row_numbers=operator.row_numbers,
        rounded=operator.rounded,
    )


def make_projection(operator: Operator, outputs: Outputs) -> Projection:
    """Columns that are computed from each row."""
    keys, row_numbers = unique_keys.of_projection(operator, outputs), unique_keys.row_numbers_after(operator, outputs)
    check_exact((e for _, e in outputs if is_generator(e)), operator)
    rounded = _rounded_outputs(operator, outputs)
    columns = _output_columns(operator, outputs)
    return Projection(columns, operator, outputs, unique_keys=keys, row_numbers=row_numbers, rounded=rounded)


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
    decisions = [*group_keys, *([having] if having is not None else [])]
    check_exact(decisions, operator)
    check_aggregates([*(e for _, e in outputs), *decisions])
    keys, rounded = unique_keys.of_aggregation(group_keys, outputs), _rounded_outputs(operator, outputs)
    columns = _output_columns(operator, outputs)
    return Aggregation(columns, operator, group_keys, outputs, having, unique_keys=keys, rounded=rounded)


def make_windowed(operator: Operator, outputs: Outputs) -> Windowed:
    """Outputs with window functions."""
    windows = [w for _, e in outputs for w in e.find_all(exp.Window)]
    _check_inputs_of_groups(outputs, operator)
    check_windows(windows, operator)
    return Windowed(
        _output_columns(operator, outputs),
        operator,
        _common_partition_keys(windows),
        outputs,
        unique_keys=unique_keys.of_projection(operator, outputs),
        row_numbers=unique_keys.row_number_columns(outputs),
        rounded=_rounded_outputs(operator, outputs),
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
