"""What is known about changes before a statement is written: of datasets, of operators, and of relations whose rows are
in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from nova_assets.sql.incremental.operator_sql import WEIGHT
from nova_assets.sql.incremental.operators import (
    Filter,
    Join,
    LateralView,
    Operator,
    Projection,
    Scan,
    walk,
)

_FIRST_YEAR, _LAST_YEAR, _ONE_DAY = 1600, 9000, timedelta(days=1)
"""Spark passes bounds to the reader of Parquet files as ``java.sql.Date``, which is another day before the Gregorian
calendar, and for a day that the time zone left out. So such years have no bounds, and other bounds are a day wider.
"""


class ColumnBounds(NamedTuple):
    """Bounds of a column's values, and whether it has nulls. Dates are texts such as ``2024-01-31``."""

    low: Any
    high: Any
    has_nulls: bool
    is_date: bool = False


def column_bounds(rows: pa.Table) -> dict[str, ColumnBounds]:
    """Bounds of the columns whose order is the same here as in Spark, and that have a value."""
    found = {}
    for name in rows.column_names:
        values = rows.column(name)
        if not _has_order_of_spark(values.type):
            continue
        try:
            bounds = pc.min_max(values).as_py()
        except (ValueError, OverflowError):  # a date that Python does not have, or a text that is not UTF-8
            continue
        low, high = bounds["min"], bounds["max"]
        if low is None:
            continue
        if isinstance(low, date):
            if low.year < _FIRST_YEAR or high.year > _LAST_YEAR:
                continue
            low, high = (low - _ONE_DAY).isoformat(), (high + _ONE_DAY).isoformat()
        found[name] = ColumnBounds(low, high, values.null_count > 0, pa.types.is_date(values.type))
    return found


def columns_with_true(rows: pa.Table) -> frozenset[str]:
    """Names of the columns with at least one value that is true."""
    flags = [f.name for f in rows.schema if pa.types.is_boolean(f.type)]
    return frozenset(name for name in flags if pc.any(rows.column(name)).as_py())


def _has_order_of_spark(type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in (pa.types.is_integer, pa.types.is_date, pa.types.is_string))


@dataclass(frozen=True)
class ComputedRelation:
    """A relation whose rows are in this process.

    Args:
        frame: name of the frame in the SQL.
        bounds: column -> its bounds, for columns of which Spark can skip files by bounds.
        columns_with_true: columns with at least one value that is true.
    """

    frame: str
    bounds: Mapping[str, ColumnBounds]
    columns_with_true: frozenset[str] = frozenset()


ComputeRelation: TypeAlias = Callable[[str, Mapping[str, Any]], ComputedRelation | None]
"""Function that computes a statement with its parameters now; None if its rows are too many."""


def frame_name(role: str, number: int) -> str:
    """Name of a frame in the SQL."""
    return f"nova_frame_{role}_{number}"


@dataclass(frozen=True)
class DatasetChange:
    """Names of the frames of a dataset in the SQL.

    Args:
        all_frame: the rows after the change.
        old_frame: the rows before the change.
        removed_frame: rows that were there before the change; None if the dataset only grows.
        added_frame: rows that are there after the change. A row of both frames has not changed.
        is_changed: whether there is a change.
        netted_frame: the change, added up, with weights; None if Spark adds it up.
        has_single_rows: whether each row of the change stands for one row only, so that its weight is 1 or -1.
        bounds: lower-case column -> bounds of its values in all rows of the change, as far as they are known.
    """

    all_frame: str
    old_frame: str
    removed_frame: str | None
    added_frame: str
    is_changed: bool = True
    netted_frame: str | None = None
    has_single_rows: bool = False
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict)


# Without floating-point numbers: -0.0 equals 0.0 in Spark, and they are not the same.
_EXACT_KINDS = (
    *(pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_date, pa.types.is_timestamp, pa.types.is_decimal),
)


def is_exact(type_: pa.DataType) -> bool:
    """Whether values of a type are equal here if and only if they are the same in every respect in Spark."""
    return any(is_kind(type_) for is_kind in _EXACT_KINDS)


def net_change(before: pa.Table, after: pa.Table, columns: Collection[str]) -> pa.Table | None:
    """The change from some rows to others: each different row once, with its weight. Rows that are in both are left
    out. None if only Spark can tell which rows are equal.

    Args:
        columns: names of the columns that count, in lower case.
    """
    names = [name for name in after.column_names if name.lower() in columns]
    if sorted(name.lower() for name in names) != sorted(columns) or not set(names) <= set(before.column_names):
        return None
    before, after = before.select(names), after.select(names)
    if before.schema.types != after.schema.types or not all(map(is_exact, after.schema.types)):
        return None
    return add_up(pa.concat_tables([_with_weight(before, -1), _with_weight(after, 1)]))


def add_up(change: pa.Table) -> pa.Table:
    """A change with each different row once, without rows whose weights cancel out. All types are exact."""
    names = [name for name in change.column_names if name != WEIGHT]
    added_up = change.group_by(names).aggregate([(WEIGHT, "sum")])
    added_up = added_up.select([*names, f"{WEIGHT}_sum"]).rename_columns([*names, WEIGHT])
    return added_up.filter(pc.field(WEIGHT) != 0)


def has_single_rows(change: pa.Table) -> bool:
    """Whether all weights of a change are 1 or -1."""
    return bool(pc.all(pc.equal(pc.abs(change.column(WEIGHT)), 1), min_count=0).as_py())


def _with_weight(rows: pa.Table, weight: int) -> pa.Table:
    rows = pa.Table.from_arrays(rows.columns, rows.column_names)  # whose columns can be null
    return rows.append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))


class ChangedOperators:
    """The operators whose rows change.

    Args:
        root: the last operator of the query.
        changes: datasets that the query reads, by name.
    """

    def __init__(self, root: Operator, changes: Mapping[str, DatasetChange]) -> None:
        self.changes = changes
        self._changed = {
            id(operator)
            for operator in walk(root)
            if any(isinstance(o, Scan) and changes[o.dataset].is_changed for o in walk(operator))
        }

    def is_changed(self, operator: Operator) -> bool:
        """Whether a dataset that the operator reads has changed."""
        return id(operator) in self._changed

    def may_cancel_out(self, operator: Operator) -> bool:
        """Whether the operator's change may have added rows that are not there after the change, or removed rows that
        were not there before it. Such rows have equal rows of the other sign.

        The terms of a join have such rows if both sides change.
        """
        if isinstance(operator, Join):
            changed = [i for i in operator.inputs if self.is_changed(i)]
            return operator.kind != "full" and (len(changed) > 1 or any(map(self.may_cancel_out, changed)))
        return operator.passes_rows_on and any(map(self.may_cancel_out, operator.inputs))

    def has_single_rows(self, operator: Operator) -> bool:
        """Whether each row of an operator's change stands for one row only, so that its weight is 1 or -1.

        An operator that computes keys or groups again makes such rows.
        """
        if isinstance(operator, Scan):
            return self.changes[operator.dataset].has_single_rows
        joins_rows = isinstance(operator, Join) and operator.kind != "full"
        if not operator.passes_rows_on and not joins_rows:
            return True
        return all(self.has_single_rows(i) for i in operator.inputs if self.is_changed(i))

    def bounds_of_change(self, operator: Operator, column: str) -> ColumnBounds | None:
        """Bounds of a column's values in all rows of an operator's change; None if they are not known."""
        if isinstance(operator, Scan):
            return self.changes[operator.dataset].bounds.get(column.lower())
        if isinstance(operator, Projection):
            expression = dict(operator.outputs).get(column)
            if isinstance(expression, exp.Column):
                return self.bounds_of_change(operator.input, expression.name)
        if isinstance(operator, Filter | LateralView):
            return self.bounds_of_change(operator.input, column) if column in operator.input.columns else None
        if isinstance(operator, Join):
            changed = [side for side in (0, 1) if self.is_changed(operator.inputs[side])]
            if len(changed) == 1 and operator.is_linear_in(changed[0]):
                side = operator.inputs[changed[0]]
                return self.bounds_of_change(side, column) if column in side.columns else None
        return None
