"""The change of a dataset, added up in this process."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.sql.incremental.operator_sql import WEIGHT

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
