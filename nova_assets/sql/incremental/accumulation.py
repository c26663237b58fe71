"""Aggregations whose stored rows are accumulators: a new value follows from the stored value and the change alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.incremental.operators import Aggregation, Operator
from nova_assets.sql.incremental.repeatability import is_rounded

_MAX_PRECISION = 38
"""Greatest number of digits of a decimal in Spark."""


@dataclass(frozen=True)
class Accumulator:
    """An output column that counts rows, counts values, or adds values up.

    Args:
        column: name of the output column.
        argument: the value that is counted or added up; None if rows are counted.
    """

    column: str
    kind: Literal["count", "sum"]
    argument: exp.Expr | None


@dataclass(frozen=True)
class Accumulation:
    """An aggregation of which every output column is a group key or an accumulator.

    Args:
        aggregation: the operator.
        key_columns: output columns with the group keys, in the order of ``aggregation.group_keys``.
        accumulators: the other output columns.
        row_count: output column that counts the rows of a group. A group without rows disappears.
    """

    aggregation: Aggregation
    key_columns: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    row_count: str


def accumulation_of(operator: Operator, types: Mapping[str, DataType] | None = None) -> Accumulation | None:
    """The operator as an accumulation; None if its new rows do not follow from the stored rows and the change.

    Args:
        types: types of the output columns; None if Spark has not been asked for them yet.
    """
    if not isinstance(operator, Aggregation) or not operator.group_keys or operator.having is not None:
        return None
    key_columns = _key_columns(operator)
    others = [(name, e) for name, e in operator.outputs if name not in key_columns]
    accumulators = [_accumulator(operator.input, name, e) for name, e in others]
    if types is not None and not all(_keeps_digits(types[name]) for name, e in others if isinstance(e, exp.Sum)):
        return None
    known = [a for a in accumulators if a is not None]
    row_counts = [a.column for a in known if a.kind == "count" and a.argument is None]
    if len(set(key_columns)) < len(operator.group_keys) or len(known) < len(others) or not row_counts:
        return None
    return Accumulation(operator, tuple(key_columns), tuple(known), row_counts[0])


def _key_columns(operator: Aggregation) -> Sequence[str]:
    name_by_sql = {e.sql("spark"): name for name, e in reversed(operator.outputs)}
    names = [name_by_sql.get(key.sql("spark")) for key in operator.group_keys]
    return [name for name in names if name is not None]


def _keeps_digits(type_: DataType) -> bool:
    """Whether values of the type of a sum can be added without a loss of digits.

    The sum of two decimals has one digit more. At the greatest precision, Spark takes this digit from the scale, and a
    sum that overflows becomes null in a session without ANSI mode.
    """
    return type_.name not in ("float", "double") and (type_.name != "decimal" or type_.args[0] < _MAX_PRECISION)


def _accumulator(operator: Operator, name: str, expression: exp.Expr) -> Accumulator | None:
    argument = expression.this if isinstance(expression, exp.Count | exp.Sum) else None
    if argument is None or isinstance(argument, exp.Distinct) or expression.expressions:
        return None
    if isinstance(expression, exp.Sum):
        return None if is_rounded(expression, operator) else Accumulator(name, "sum", argument)
    counts_rows = isinstance(argument, exp.Star | exp.Literal)
    return Accumulator(name, "count", None if counts_rows else argument)
