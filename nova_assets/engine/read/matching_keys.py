"""Rows with certain keys, if both rows and keys are tables in this process."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from nova_assets.engine.buckets.key_order import floats_as_integers, to_single_array
from nova_assets.errors import SchemaMismatch

_ROW = "__nova_row"


def check_key_columns(columns: Sequence[str], key_columns: Sequence[str]) -> None:
    """Check that keys have the columns by which rows are found.

    Raises:
        SchemaMismatch: with the missing columns.
    """
    missing = [c for c in key_columns if c not in columns]
    if missing:
        raise SchemaMismatch(
            f"the keys lack the columns {', '.join(map(repr, missing))}",
            found=", ".join(columns),
            expected=", ".join(key_columns),
            next="name the columns with matching(..., on=...)",
        )


def filter_rows_by_keys(rows: pa.Table, keys: pa.Table, key_columns: Sequence[str]) -> pa.Table | None:
    """Rows whose key occurs in ``keys``, in their order; None if only Spark can decide which values are equal.

    As in SQL, a null equals nothing.

    Args:
        key_columns: columns to compare, present in both tables.
    """
    if not rows.num_rows:
        return rows
    type_by_column = {column: rows.schema.field(column).type for column in key_columns}
    if not all(
        _has_bytewise_equality(type_by_column[c])
        and _are_comparable_types(keys.schema.field(c).type, type_by_column[c])
        for c in key_columns
    ):
        return None
    try:
        wanted_keys = {c: keys.column(c).cast(type_) for c, type_ in type_by_column.items()}
    except pa.ArrowInvalid:  # a number outside the range of the column
        return None
    wanted, comparable = (
        pa.table({c: floats_as_integers(to_single_array(column)) for c, column in columns.items()})
        for columns in (wanted_keys, {c: rows.column(c) for c in key_columns})
    )
    numbered = comparable.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    row_numbers = numbered.join(wanted, list(key_columns), join_type="left semi").column(_ROW)
    return rows.take(row_numbers.combine_chunks().sort())


def _has_bytewise_equality(type_: pa.DataType) -> bool:
    """Whether two values of a type are equal if and only if their bytes are. Those of floats are brought into this
    form."""
    t = pa.types
    kinds = (t.is_integer, t.is_string, t.is_date, t.is_boolean, t.is_timestamp, t.is_floating, t.is_decimal)
    return any(kind(type_) for kind in kinds)


def _are_comparable_types(key_type: pa.DataType, row_type: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string)
    both_texts = all(any(is_text(t) for is_text in texts) for t in (key_type, row_type))
    return key_type == row_type or both_texts or (pa.types.is_integer(key_type) and pa.types.is_integer(row_type))
