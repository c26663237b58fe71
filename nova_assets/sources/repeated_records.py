"""Several records of one key among files that are read together.

The rows of a batch become one block, which holds at most one live row of each key, and whose deletions apply first
(R11). Files that are received one by one become a block each. The result must not depend on how long the files have
waited. So among equals by ``order_by``, the later file wins, and in a file the later record. Where one block cannot
express what the files say one after the other, the batch ends before the later file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.model.merge import COMBINERS, Keyed, MergeModel
from nova_assets.model.partition_values import canonical_value
from nova_assets.model.schema import DELETED

_ROW = "__nova_row"


def undecided_key_reason(table: pa.Table, model: MergeModel) -> str | None:
    """Why the live rows of a file cannot be one delta; None if they can.

    Args:
        table: rows of one file.
    """
    undecided = _undecided_ties(table, model)
    if not undecided:
        return None
    key = ", ".join(f"{c} = {table.column(c)[undecided[0][0]].as_py()!r}" for c in model.key)
    return (
        f"the file has {len(undecided[0])} live rows of key {key} with equal {', '.join(model.order_by)}, and "
        f"{', '.join(_columns_combined_by_users(model))} is combined in the order of the rows"
    )


def settle_ties(table: pa.Table, model: MergeModel) -> pa.Table:
    """The rows of a batch, where live rows of one key with equal ``order_by`` have the values of the last of them.

    Columns that are combined keep their values, because each row counts in them.

    Args:
        table: rows in the order of files and records.
    """
    tied = _tied_live_rows(table, model)
    if not tied:
        return table
    source_rows = np.arange(table.num_rows)
    for rows in tied:
        source_rows[rows] = rows[-1]
    combined = {c for c, _ in model.combine} if isinstance(model, Keyed) else set[str]()
    indices = pa.array(source_rows)
    columns = [table.column(c) if c in combined else table.column(c).take(indices) for c in table.column_names]
    return pa.table(columns, schema=table.schema)


def first_conflicting_file(tables: Sequence[pa.Table], model: MergeModel) -> int | None:
    """Number of the first file that one block cannot hold together with the files before it; None if one block can
    hold all of them.

    Args:
        tables: rows of each file, in the order of arrival.
    """
    if not model.key or len(tables) < 2:
        return None
    table = pa.concat_tables(tables, promote_options="default")
    file_of_row = np.repeat(np.arange(len(tables)), [t.num_rows for t in tables])
    conflicting = [f for rows in _undecided_ties(table, model) for f in file_of_row[rows] if f > file_of_row[rows[0]]]
    deleted = _is_deleted(table)
    if deleted.any():
        for rows in _repeated_rows(table, model.key, np.arange(table.num_rows)):
            live_files = file_of_row[[r for r in rows if not deleted[r]]]
            conflicting += [file_of_row[r] for r in rows if deleted[r] and (live_files < file_of_row[r]).any()]
    return int(min(conflicting)) if conflicting else None


def _undecided_ties(table: pa.Table, model: MergeModel) -> list[list[int]]:
    """Tied live rows that differ in a column which a function of the user combines. It may depend on their order."""
    columns = [c for c in _columns_combined_by_users(model) if c in table.column_names]
    if not columns:
        return []
    tied = _tied_live_rows(table, model)
    values = table.select(columns)
    return [rows for rows in tied if len({repr(canonical_value(v)) for v in values.take(rows).to_pylist()}) > 1]


def _columns_combined_by_users(model: MergeModel) -> list[str]:
    return [c for c, f in model.combine if f not in COMBINERS] if isinstance(model, Keyed) else []


def _tied_live_rows(table: pa.Table, model: MergeModel) -> list[list[int]]:
    """Indices of live rows that have one key and equal ``order_by``, in ascending order.

    A channel with a key and a source has an ``order_by``.
    """
    if not model.order_by:
        return []
    return _repeated_rows(table, (*model.key, *model.order_by), np.flatnonzero(~_is_deleted(table)))


def _repeated_rows(table: pa.Table, columns: Sequence[str], row_indices: np.ndarray) -> list[list[int]]:
    """Indices of rows that are equal in some columns, for each such group of several rows."""
    names = [f"{_ROW}_{n}" for n in range(len(columns))]
    indices = pa.array(row_indices, pa.int64())
    values = [_comparable(table, c).take(indices) for c in columns]
    rows = pa.table([*values, indices], names=[*names, _ROW])
    if rows.group_by(names).aggregate([]).num_rows == rows.num_rows:  # the common case
        return []
    groups = rows.group_by(names).aggregate([(_ROW, "list"), (_ROW, "count")])
    repeated = groups.filter(pc.greater(groups.column(f"{_ROW}_count"), 1)).column(f"{_ROW}_list")
    return sorted(sorted(group) for group in repeated.to_pylist())


def _comparable(table: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
    """A column whose equal values are identical, so that Arrow can group by it."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.string())
    column = table.column(name)
    if pa.types.is_floating(column.type):
        return pc.if_else(
            pc.is_nan(column), pa.scalar(math.nan, column.type), pc.add(column, pa.scalar(0.0, column.type))
        )
    if pa.types.is_nested(column.type):
        return pa.array([repr(canonical_value(v)) for v in column.to_pylist()])
    return column


def _is_deleted(table: pa.Table) -> np.ndarray:
    if DELETED not in table.column_names:
        return np.zeros(table.num_rows, dtype=bool)
    deleted: np.ndarray = pc.fill_null(table.column(DELETED), False).to_numpy(zero_copy_only=False)
    return deleted
