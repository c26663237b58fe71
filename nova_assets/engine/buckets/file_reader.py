"""Reader of files with a key layout: the rows of one merge unit, or of certain keys. Only row groups that may contain
these rows are read. Uses Arrow alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova_assets.engine.buckets.key_order import KeyArrays, RowIndices, bisect_keys, find_key_positions, one_chunk
from nova_assets.engine.buckets.row_layout import bucket_numbers
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.model.arrow_types import spark_type
from nova_assets.model.key_layout import HashBuckets, KeyLayout, KeyPlacement, LayoutKey
from nova_assets.model.value_conversion import convert_value
from nova_assets.plan.merge_units import KeySpan, MergeUnit, overlapping_buckets


def read_unit_rows(
    path: str,
    key_placement: KeyPlacement,
    merge_unit: MergeUnit,
    layout: KeyLayout,
    columns: Sequence[str],
    key_filter: pa.Table | None = None,
) -> pa.Table:
    """Rows of a merge unit in one file. Columns that the file lacks are omitted.

    Args:
        key_placement: key placement of the file.
        merge_unit: the unit to read.
        key_filter: keys of the unit, sorted and distinct, to restrict the read to their rows; None for all rows.
    """
    file = open_block_file(path)
    existing_columns = set(file.schema_arrow.names)
    columns = [c for c in columns if c in existing_columns]
    if key_filter is not None:
        return _read_rows_of_keys(file, layout, columns, key_filter)
    if isinstance(merge_unit, KeySpan):
        return _read_key_range(file, merge_unit, layout, columns)
    assert isinstance(key_placement, HashBuckets)
    buckets = overlapping_buckets(key_placement, merge_unit)
    skipped_rows = int(sum(key_placement.rows_per_bucket[: buckets.start]))
    rows = _read_row_range(file, skipped_rows, skipped_rows + int(sum(key_placement.rows_per_bucket[buckets])), columns)
    if key_placement.bucket_count < merge_unit.bucket_count:
        rows = rows.filter(pa.array(bucket_numbers(rows, layout.order, merge_unit.bucket_count) == merge_unit.number))
    return rows


def _read_row_range(file: pq.ParquetFile, start: int, end: int, columns: list[str]) -> pa.Table:
    """Rows from ``start`` to ``end``. Only the row groups that contain them are read."""
    groups: list[int] = []
    first_row = rows_before = 0
    for n in range(file.metadata.num_row_groups):
        group_rows = file.metadata.row_group(n).num_rows
        if rows_before < end and rows_before + group_rows > start:
            if not groups:
                first_row = rows_before
            groups.append(n)
        rows_before += group_rows
    return one_chunk(file.read_row_groups(groups, columns)).slice(start - first_row, end - start)


def _read_rows_of_keys(file: pq.ParquetFile, layout: KeyLayout, columns: list[str], key_filter: pa.Table) -> pa.Table:
    """Rows of certain keys. The key columns are read first, and the other columns only in row groups with a match."""
    order = list(layout.order)
    key_filter = key_filter.cast(pa.schema([file.schema_arrow.field(name) for name in order]))
    tables = [file.schema_arrow.empty_table().select(columns)]
    for row_group in _row_groups_with_keys(file, order[0], key_filter):
        keys = one_chunk(file.read_row_group(row_group, order).select(order))
        row_indices = _matching_row_indices(keys, key_filter, order)
        if len(row_indices):
            rows = keys if set(columns) <= set(order) else one_chunk(file.read_row_group(row_group, columns))
            tables.append(rows.select(columns).take(pa.array(row_indices)))
    return pa.concat_tables(tables)


def _row_groups_with_keys(file: pq.ParquetFile, column: str, key_filter: pa.Table) -> list[int]:
    """Row groups that may contain some of the keys, by the first column of the key order."""
    groups = list(range(file.metadata.num_row_groups if key_filter.num_rows else 0))
    try:
        values = key_filter.column(column).to_pylist()
    except (ValueError, OverflowError):  # dates outside Python's range
        return groups

    def may_contain_key(low: Any, high: Any) -> bool:
        first = bisect_left(values, low)
        return first < len(values) and bool(values[first] <= high)

    return [n for n in groups if (found := _row_group_bounds(file, n, column)) is None or may_contain_key(*found)]


def _row_group_bounds(file: pq.ParquetFile, row_group: int, column: str) -> tuple[Any, Any] | None:
    """Minimum and maximum of a column in a row group; None if they are unknown."""
    statistics = _column_statistics(file, row_group, column)
    try:
        if statistics is None or not statistics.has_min_max or statistics.max < statistics.min:
            return None  # Arrow omits bounds that are too long; older versions do so without a flag
        return statistics.min, statistics.max
    except (ValueError, OverflowError):  # dates outside Python's range
        return None


def _matching_row_indices(keys: pa.Table, key_filter: pa.Table, key_columns: list[str]) -> RowIndices:
    """Indices of the rows whose keys are in the filter."""
    row_keys, filter_keys = KeyArrays.from_table(keys, key_columns), KeyArrays.from_table(key_filter, key_columns)
    if row_keys.numbers is not None and filter_keys.numbers is not None and row_keys.are_sorted():
        starts, ends = (np.searchsorted(row_keys.numbers, filter_keys.numbers, side) for side in ("left", "right"))
        lengths = ends - starts
        offsets = np.cumsum(lengths) - lengths
        row_indices: RowIndices = np.repeat(starts - offsets, lengths) + np.arange(int(lengths.sum()))
        return row_indices
    first_values = key_filter.column(key_columns[0]).combine_chunks()
    row_indices = np.flatnonzero(pc.is_in(keys.column(key_columns[0]), value_set=first_values).to_numpy())
    if len(key_columns) == 1:
        return row_indices
    candidates = keys.take(pa.array(row_indices))
    return row_indices[find_key_positions(key_filter, candidates, key_columns).is_present]


def _read_key_range(file: pq.ParquetFile, key_range: KeySpan, layout: KeyLayout, columns: list[str]) -> pa.Table:
    """Rows of a key range, which are contiguous because the file is sorted."""
    return slice_key_range(
        one_chunk(file.read_row_groups(_row_groups_in_range(file, key_range, layout), columns)), key_range, layout
    )


def slice_key_range(sorted_rows: pa.Table, key_range: KeySpan, layout: KeyLayout) -> pa.Table:
    """Rows of a key range out of sorted rows."""
    start = 0 if key_range.least is None else _lower_bound(sorted_rows, key_range.least, layout)
    end = sorted_rows.num_rows if key_range.below is None else _lower_bound(sorted_rows, key_range.below, layout)
    return sorted_rows.slice(start, end - start)


def _row_groups_in_range(file: pq.ParquetFile, key_range: KeySpan, layout: KeyLayout) -> list[int]:
    """Row groups that may contain keys of a range, by the first column of the key order."""
    name = layout.order[0]
    key_type = spark_type(file.schema_arrow.field(name).type, name)
    least, below = (
        None if key is None else convert_value(key[0], key_type) for key in (key_range.least, key_range.below)
    )

    def is_outside_range(low: Any, high: Any) -> bool:
        return (least is not None and high < least) or (below is not None and low > below)

    groups = range(file.metadata.num_row_groups)
    return [n for n in groups if (found := _row_group_bounds(file, n, name)) is None or not is_outside_range(*found)]


def _column_statistics(file: pq.ParquetFile, row_group: int, column: str) -> Any:
    """Statistics of a top-level column. A struct field may have the same name, so columns are counted by position."""
    leaf_index = 0
    for field in file.schema_arrow:
        if field.name == column:
            return file.metadata.row_group(row_group).column(leaf_index).statistics
        leaf_index += _leaf_column_count(field.type)
    return None


def _leaf_column_count(type_: pa.DataType) -> int:
    """Number of Parquet leaf columns of a type."""
    if not pa.types.is_nested(type_):
        return 1
    return sum(_leaf_column_count(type_.field(n).type) for n in range(type_.num_fields))


def _lower_bound(sorted_rows: pa.Table, key: LayoutKey, layout: KeyLayout) -> int:
    """Index of the first row whose key is not less than the given key."""
    types = {name: sorted_rows.schema.field(name).type for name in layout.order}
    key_arrays = {
        name: pa.array([convert_value(v, spark_type(t, name))], t)
        for v, (name, t) in zip(key, types.items(), strict=True)
    }
    return int(
        bisect_keys(
            KeyArrays.from_table(sorted_rows, layout.order), KeyArrays.from_table(pa.table(key_arrays), layout.order)
        )[0]
    )
