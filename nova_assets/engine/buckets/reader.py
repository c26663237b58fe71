"""Files that are laid out, read: the rows of one cell, or of some keys, and no more row groups than have them. Arrow
alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova_assets.engine.buckets.key_order import Keys, Places, bisected, one_chunk, search
from nova_assets.engine.buckets.row_layout import numbers
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.model.arrow_types import spark_type
from nova_assets.model.block_layout import Hashed, Key, Layout, Place
from nova_assets.model.conversion import convert
from nova_assets.plan.merge_units import Cell, Span, slice_of


def rows_of(
    path: str,
    place: Place,
    cell: Cell,
    layout: Layout,
    columns: Sequence[str],
    wanted: pa.Table | None = None,
) -> pa.Table:
    """The rows of a cell in one file; a file has none of columns that are not in it.

    Args:
        wanted: keys of the cell, sorted and each once: of their rows alone.
    """
    file = open_block_file(path)
    have = set(file.schema_arrow.names)
    columns = [c for c in columns if c in have]
    if wanted is not None:
        return _of_keys(file, layout, columns, wanted)
    if isinstance(cell, Span):
        return _within(file, cell, layout, columns)
    assert isinstance(place, Hashed)
    start, end = slice_of(place, cell)
    before = int(sum(place.rows[:start]))
    rows = _rows(file, before, before + int(sum(place.rows[start:end])), columns)
    if place.of < cell.of:
        rows = rows.filter(pa.array(numbers(rows, layout.order, cell.of) == cell.number))
    return rows


def _rows(file: pq.ParquetFile, start: int, end: int, columns: list[str]) -> pa.Table:
    """Some rows, of the row groups alone that have them."""
    groups: list[int] = []
    first = done = 0
    for n in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(n).num_rows
        if done < end and done + size > start:
            if not groups:
                first = done
            groups.append(n)
        done += size
    return one_chunk(file.read_row_groups(groups, columns)).slice(start - first, end - start)


def _of_keys(file: pq.ParquetFile, layout: Layout, columns: list[str], wanted: pa.Table) -> pa.Table:
    """The rows of some keys: first the key's own columns are read, and the others where a key was found."""
    order = list(layout.order)
    wanted = wanted.cast(pa.schema([file.schema_arrow.field(name) for name in order]))
    found = [file.schema_arrow.empty_table().select(columns)]
    for group in _with_keys(file, order[0], wanted):
        keys = one_chunk(file.read_row_group(group, order).select(order))
        places = _places(keys, wanted, order)
        if len(places):
            rows = keys if set(columns) <= set(order) else one_chunk(file.read_row_group(group, columns))
            found.append(rows.select(columns).take(pa.array(places)))
    return pa.concat_tables(found)


def _with_keys(file: pq.ParquetFile, name: str, wanted: pa.Table) -> list[int]:
    """The row groups that may have some of the keys, by the first column of their order."""
    groups = list(range(file.metadata.num_row_groups if wanted.num_rows else 0))
    try:
        values = wanted.column(name).to_pylist()
    except (ValueError, OverflowError):  # dates that Python does not have
        return groups

    def may_have(low: Any, high: Any) -> bool:
        first = bisect_left(values, low)
        return first < len(values) and bool(values[first] <= high)

    return [n for n in groups if (found := _bounds(file, n, name)) is None or may_have(*found)]


def _bounds(file: pq.ParquetFile, group: int, name: str) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column in a row group; None where they are not known."""
    statistics = _statistics(file, group, name)
    try:
        if statistics is None or not statistics.has_min_max or statistics.max < statistics.min:
            return None  # a bound that is too long is left out, by older versions of Arrow without a word
        return statistics.min, statistics.max
    except (ValueError, OverflowError):  # dates that Python does not have
        return None


def _places(keys: pa.Table, wanted: pa.Table, order: list[str]) -> Places:
    """Where rows of wanted keys are."""
    there, asked = Keys.of(keys, order), Keys.of(wanted, order)
    if there.numbers is not None and asked.numbers is not None and there.are_sorted():
        starts, ends = (np.searchsorted(there.numbers, asked.numbers, side) for side in ("left", "right"))
        lengths = ends - starts
        done = np.cumsum(lengths) - lengths
        inside: Places = np.repeat(starts - done, lengths) + np.arange(int(lengths.sum()))
        return inside
    if len(order) == 1:
        [name] = order
        among = wanted.column(name).combine_chunks()
        return np.flatnonzero(pc.is_in(keys.column(name), value_set=among).to_numpy())
    return np.flatnonzero(search(wanted, keys, order)[1])


def _within(file: pq.ParquetFile, span: Span, layout: Layout, columns: list[str]) -> pa.Table:
    """The rows from one key up to another: of sorted rows, some that are side by side."""
    return inside(one_chunk(file.read_row_groups(_reaching(file, span, layout), columns)), span, layout)


def inside(rows: pa.Table, span: Span, layout: Layout) -> pa.Table:
    """Of sorted rows those of a span."""
    start = 0 if span.least is None else _first_from(rows, span.least, layout)
    end = rows.num_rows if span.below is None else _first_from(rows, span.below, layout)
    return rows.slice(start, end - start)


def _reaching(file: pq.ParquetFile, span: Span, layout: Layout) -> list[int]:
    """The row groups that may have keys of a span, by the first column of its order."""
    name = layout.order[0]
    meant = spark_type(file.schema_arrow.field(name).type, name)
    least, below = (None if key is None else convert(key[0], meant) for key in (span.least, span.below))

    def outside(low: Any, high: Any) -> bool:
        return (least is not None and high < least) or (below is not None and low > below)

    groups = range(file.metadata.num_row_groups)
    return [n for n in groups if (found := _bounds(file, n, name)) is None or not outside(*found)]


def _statistics(file: pq.ParquetFile, group: int, name: str) -> Any:
    """Of a column of the rows; a field of a struct may be called alike."""
    place = 0
    for field in file.schema_arrow:
        if field.name == name:
            return file.metadata.row_group(group).column(place).statistics
        place += _leaves(field.type)
    return None


def _leaves(type_: pa.DataType) -> int:
    """How many columns a file has for one of a type."""
    if not pa.types.is_nested(type_):
        return 1
    return sum(_leaves(type_.field(n).type) for n in range(type_.num_fields))


def _first_from(rows: pa.Table, key: Key, layout: Layout) -> int:
    """The place of the first row whose key is no less."""
    types = {name: rows.schema.field(name).type for name in layout.order}
    wanted = {
        name: pa.array([convert(v, spark_type(t, name))], t) for v, (name, t) in zip(key, types.items(), strict=True)
    }
    return int(bisected(Keys.of(rows, layout.order), Keys.of(pa.table(wanted), layout.order))[0])
