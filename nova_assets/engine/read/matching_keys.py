"""Rows that have certain keys, where both are tables in this process."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_ROW = "__nova_row"


def matched(rows: pa.Table, keys: pa.Table, on: Sequence[str]) -> pa.Table | None:
    """The rows whose ``on`` columns occur in ``keys``, in their order; None where Spark alone knows what equals what.

    As in SQL, a null equals nothing.
    """
    if not rows.num_rows:
        return rows
    types = {column: rows.schema.field(column).type for column in on}
    if not all(_is_plain(types[c]) and _is_like(keys.schema.field(c).type, types[c]) for c in on):
        return None
    try:
        wanted = pa.table({c: keys.column(c).cast(type_) for c, type_ in types.items()})
    except pa.ArrowInvalid:  # a number that no row can have
        return None
    numbered = pa.table({**{c: rows.column(c) for c in on}, _ROW: pa.array(range(rows.num_rows), pa.int64())})
    found = numbered.join(wanted, list(on), join_type="left semi").column(_ROW)
    return rows.take(found.combine_chunks().sort())


def _is_plain(type_: pa.DataType) -> bool:
    """Whether two values are equal where their bytes are."""
    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_boolean, pa.types.is_timestamp)
    return any(kind(type_) for kind in kinds)


def _is_like(given: pa.DataType, wanted: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string)
    both_texts = all(any(is_text(t) for is_text in texts) for t in (given, wanted))
    return given == wanted or both_texts or (pa.types.is_integer(given) and pa.types.is_integer(wanted))
