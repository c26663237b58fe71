"""Key checks of a written block (R11): keys are never null, and each key has at most one deletion and one live row.

Repeated keys are rare. The check therefore reads only the key columns, and resolves rows only if a key is repeated.
This module uses Arrow and Python alone. For blocks that are too large, or models with user functions, ``repeated_keys``
uses Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.errors import BadKey
from nova_assets.formats.python_values import to_python_rows
from nova_assets.model.merge import COMBINERS, Keyed, MergeModel
from nova_assets.model.partition_values import canonical_value, spark_sort_key
from nova_assets.model.schema import DELETED

Row = dict[str, Any]

MAX_EXAMPLES = 3

_ROW_INDEXES, _DELETIONS, _ROW_COUNT = "__nova_place", "__nova_gone", "__nova_all"

_ALL_DIGITS = Context(prec=80)
"""Python's default context rounds to 28 digits, while a decimal of a channel has up to 38."""


def _sum_values(values: Sequence[Any]) -> Any:
    return reduce(lambda a, b: _ALL_DIGITS.add(a, b) if isinstance(a, Decimal) else a + b, values)


_COMBINE: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "sum": _sum_values,
    "min": lambda values: min(values, key=spark_sort_key),
    "max": lambda values: max(values, key=spark_sort_key),
    "bool_and": all,
    "bool_or": any,
}


@dataclass(frozen=True, slots=True)
class RepeatedKeys:
    """Keys with more rows than a block may hold.

    Args:
        row_indices: indices of all rows of these keys; None if only Spark has looked at the rows.
        row_count: number of these rows.
        keys_with_several_live_rows: number of keys with several live rows.
        live_rows: number of live rows of these keys.
        examples: some keys with several live rows.
    """

    row_indices: pa.Array | None
    row_count: int
    keys_with_several_live_rows: int
    live_rows: int
    examples: tuple[Row, ...]

    def __bool__(self) -> bool:
        return self.row_count > 0


def find_repeated_keys(table: pa.Table, model: MergeModel) -> RepeatedKeys:
    """Find keys with more rows than a block may hold.

    Args:
        table: the key columns, and ``_deleted`` in a delta.
        model: merge model with the key.
    """
    key = list(model.key)
    groupable = _nested_keys_as_text(table, key)
    if groupable.group_by(key).aggregate([]).num_rows == table.num_rows:  # common case, a third of the cost
        return RepeatedKeys(None, 0, 0, 0, ())
    groups = _group_by_key(groupable, key)
    deletion_counts, row_counts = groups.column(_DELETIONS), groups.column(_ROW_COUNT)
    live_counts = pc.subtract(row_counts, deletion_counts)
    is_repeated = pc.or_(pc.greater(live_counts, 1), pc.greater(deletion_counts, 1))
    if model.kind == "upsert" and not model.order_by:  # the live row replaces the old row as a whole
        is_repeated = pc.or_(is_repeated, pc.and_(pc.greater(live_counts, 0), pc.greater(deletion_counts, 0)))
    repeated_groups = groups.filter(is_repeated)
    row_indices = pc.list_flatten(repeated_groups.column(_ROW_INDEXES).combine_chunks())
    rows_of_ambiguous_keys = groups.filter(pc.greater(live_counts, 1)).column(_ROW_INDEXES)
    live_rows = pc.sum(live_counts.filter(pc.greater(live_counts, 1))).as_py() or 0
    first_rows = [rows_of_ambiguous_keys[i].as_py()[0] for i in range(min(MAX_EXAMPLES, len(rows_of_ambiguous_keys)))]
    examples = to_python_rows(table.select(key).take(pa.array(first_rows, pa.int64())))
    return RepeatedKeys(row_indices, len(row_indices), len(rows_of_ambiguous_keys), live_rows, tuple(examples))


def resolve_repeated_keys(rows: Sequence[Row], model: MergeModel, error_label: str) -> list[Row]:
    """Reduce the rows of repeated keys to the rows that a block may hold.

    A key keeps one deletion. Of several live rows, the greatest row by ``order_by`` remains. Columns that a ``Keyed``
    model combines are combined over all live rows, as if the rows had arrived one by one.

    Args:
        rows: all rows of the repeated keys.
        error_label: name of the block in errors.

    Raises:
        BadKey: several rows of a key are greatest, and differ in a column that is not combined.
    """
    by_key: dict[str, list[Row]] = {}
    for row in rows:
        by_key.setdefault(repr(canonical_value([row[c] for c in model.key])), []).append(row)
    kept: list[Row] = []
    undecided_keys: list[Row] = []
    undecided_rows = 0
    for rows_of_key in by_key.values():
        deletions = [r for r in rows_of_key if r.get(DELETED)]
        live_rows = [r for r in rows_of_key if not r.get(DELETED)]
        greatest_rows = _greatest_by_order(live_rows, model)
        if len(_distinct_uncombined_values(greatest_rows, model)) > 1:
            undecided_keys.append({c: greatest_rows[0][c] for c in model.key})
            undecided_rows += len(greatest_rows)
        if deletions and not (live_rows and model.kind == "upsert" and not model.order_by):
            kept.append(deletions[0])
        if greatest_rows:
            kept.append({**greatest_rows[-1], **_combined_column_values(live_rows, model)})
    if undecided_keys:
        raise undecided_keys_error(
            error_label, model, len(undecided_keys), undecided_rows, undecided_keys[:MAX_EXAMPLES]
        )
    return kept


def can_resolve_in_python(model: MergeModel) -> bool:
    """Whether ``resolve_repeated_keys`` supports the model. User functions combine Spark columns and need Spark."""
    return not isinstance(model, Keyed) or all(f in COMBINERS for _, f in model.combine)


def null_key_error(error_label: str, column: str, row_count: int, example: Row | None) -> BadKey:
    return BadKey(
        f"{error_label}: key column {column!r} is null in {row_count} rows",
        found=_format_examples([example]) if example else f"{row_count} nulls",
        expected="a value in every row, because the key identifies the row",
        next="fill the key, or remove these rows",
        column=column,
        rows=row_count,
    )


def undecided_keys_error(
    error_label: str, model: MergeModel, key_count: int, row_count: int, examples: Iterable[Row]
) -> BadKey:
    example_rows = list(examples)
    if model.order_by:
        reason = f"{', '.join(model.order_by)} is equal in all of them"
        remedy = "remove all but one of them, or add a column to order_by"
    else:
        reason = "the merge model has no order_by"
        remedy = "remove all but one of them, or declare the channel with order_by="
    keys_text = "one key" if key_count == 1 else f"{key_count} keys"
    return BadKey(
        f"{error_label} has {row_count} live rows of {keys_text} in one block, and {reason}",
        found=_format_examples(example_rows),
        expected="one live row per key in a block",
        next=remedy,
        keys=key_count,
        rows=row_count,
        examples=example_rows,
    )


def _format_examples(rows: Iterable[Row | None]) -> str:
    texts = []
    for row in rows:
        text = ", ".join(f"{c} = {v!r}" for c, v in (row or {}).items())
        texts.append(text if len(text) <= 160 else text[:157] + "...")
    return "; ".join(texts) + ", for example"


def _group_by_key(table: pa.Table, key_columns: list[str]) -> pa.Table:
    """Each key with the indices of its rows, its number of rows, and its number of deletions."""
    is_deletion = (
        table.column(DELETED) if DELETED in table.column_names else pa.repeat(pa.scalar(False), table.num_rows)
    )
    table = table.select(key_columns).append_column(_DELETIONS, pc.cast(is_deletion, pa.int64()))
    table = table.append_column(_ROW_INDEXES, pa.array(range(table.num_rows), pa.int64()))
    groups = table.group_by(key_columns).aggregate([(_DELETIONS, "sum"), (_ROW_INDEXES, "list"), ([], "count_all")])
    renamed = {f"{_DELETIONS}_sum": _DELETIONS, f"{_ROW_INDEXES}_list": _ROW_INDEXES, "count_all": _ROW_COUNT}
    return groups.rename_columns([renamed.get(n, n) for n in groups.column_names])


def _nested_keys_as_text(table: pa.Table, key_columns: list[str]) -> pa.Table:
    """Table whose nested key columns are text, since Arrow cannot group by nested columns."""
    for name in key_columns:
        index = table.schema.get_field_index(name)
        if pa.types.is_nested(table.schema.field(index).type):
            texts = [repr(canonical_value(row[name])) for row in to_python_rows(table.select([index]))]
            table = table.set_column(index, name, pa.array(texts, pa.string()))
    return table


def _greatest_by_order(rows: Sequence[Row], model: MergeModel) -> list[Row]:
    if not model.order_by:
        return list(rows)
    ranked = [(tuple(spark_sort_key(r[c]) for c in model.order_by), r) for r in rows]
    greatest_rank = max((rank for rank, _ in ranked), default=())
    return [r for rank, r in ranked if rank == greatest_rank]


def _distinct_uncombined_values(rows: Sequence[Row], model: MergeModel) -> set[str]:
    """Distinct rows, as canonical text, without the columns that are combined."""
    combined = dict(model.combine) if isinstance(model, Keyed) else {}
    return {repr(canonical_value({c: v for c, v in r.items() if c not in combined})) for r in rows}


def _combined_column_values(live_rows: Sequence[Row], model: MergeModel) -> Row:
    combined = {}
    for column, function in model.combine if isinstance(model, Keyed) else ():
        values = [r[column] for r in live_rows if r[column] is not None]
        combined[column] = _COMBINE[function](values) if values else None
    return combined
