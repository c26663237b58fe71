"""Parquet footers with exact row counts, bytes, key ranges and null counts (R16), and the rows of Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import open_block_file, read_block_file_footer
from nova_assets.model.block import DataFile

_MAX_BOUND_LENGTH = 512
"""Maximum length of a text bound in characters. A longer bound is omitted, since the catalog should not hold
documents."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """Description of one file by its footer.

    Args:
        ranges: minimum and maximum of each requested column that has both.
        null_counts: null count of each requested column; None if the file does not record it.
        digest: digest of all bytes of the file; empty if the writer computed none.
        footer_digest: digest of the footer alone.
        uncompressed_bytes: uncompressed size of the rows in bytes.
    """

    path: str
    rows: int
    bytes: int
    ranges: dict[str, tuple[Any, Any]]
    null_counts: dict[str, int | None]
    digest: str = ""
    footer_digest: str = ""
    uncompressed_bytes: int = 0

    def to_data_file(self, block_folder: str) -> DataFile:
        """Entry of the file in a manifest.

        Args:
            block_folder: folder of the block, relative to the warehouse's root.
        """
        path = file_io.join(block_folder, file_io.name_of(self.path))
        return DataFile(
            path,
            self.rows,
            self.bytes,
            self.ranges,
            digest=self.digest,
            footer_digest=self.footer_digest,
            uncompressed_bytes=self.uncompressed_bytes,
        )


def summarize_file(path: str, range_columns: Sequence[str] = (), null_count_columns: Sequence[str] = ()) -> FileSummary:
    """Read the footer of the Parquet file at an address (``summarize_footer``)."""
    size = file_io.size_of(path)
    return summarize_footer(read_block_file_footer(path), path, size, range_columns, null_count_columns)


def summarize_footer(
    metadata: pq.FileMetaData, path: str, size: int, range_columns: Sequence[str], null_count_columns: Sequence[str]
) -> FileSummary:
    """Description of a file by its footer.

    Args:
        path: address of the file.
        size: bytes of the file.
        range_columns: columns whose minimum and maximum are returned. Columns without statistics are omitted.
        null_count_columns: columns whose nulls are counted.
    """
    ranges = {c: r for c in range_columns if (r := _value_range(_row_group_statistics(metadata, c))) is not None}
    null_counts = {c: _total_null_count(_row_group_statistics(metadata, c)) for c in null_count_columns}
    uncompressed = uncompressed_bytes(metadata)
    return FileSummary(path, metadata.num_rows, size, ranges, null_counts, uncompressed_bytes=uncompressed)


def uncompressed_bytes(metadata: pq.FileMetaData) -> int:
    """Uncompressed size of the rows of a file, in bytes."""
    return sum(int(metadata.row_group(n).total_byte_size) for n in range(metadata.num_row_groups))


def read_block_files(paths: Sequence[str], columns: list[str] | None = None) -> pa.Table:
    """Rows of some files of one block."""
    return pa.concat_tables([open_block_file(f).read(columns) for f in paths], promote_options="default")


def total_null_count(footers: Iterable[FileSummary], column: str) -> int | None:
    """Number of nulls of a column in all files; None if a file does not record it."""
    counts = [f.null_counts[column] for f in footers]
    return None if None in counts else sum(c for c in counts if c is not None)


def _row_group_statistics(metadata: pq.FileMetaData, column: str) -> list[Any] | None:
    """Statistics of a top-level column per row group; None if the column is nested or missing, or has no statistics."""
    schema = metadata.schema
    leaves = (i for i in range(metadata.num_columns) if schema.column(i).path == column)
    # A field "b" of a struct "a" has the same path as a column "a.b", but more levels.
    index = next((i for i in leaves if schema.column(i).max_definition_level <= 1), None)
    if index is None or schema.column(index).max_repetition_level:
        return None
    statistics = [metadata.row_group(g).column(index).statistics for g in range(metadata.num_row_groups)]
    return None if any(s is None for s in statistics) else statistics


def _total_null_count(statistics: list[Any] | None) -> int | None:
    if statistics is None or not all(s.has_null_count for s in statistics):
        return None
    return sum(int(s.null_count) for s in statistics)


def _value_range(statistics: list[Any] | None) -> tuple[Any, Any] | None:
    if not statistics:
        return None
    try:
        bounds = list(_row_group_bounds(statistics))
    except (ValueError, OverflowError):  # dates outside Python's range
        return None
    if not bounds:
        return None
    try:
        low, high = to_json_value(min(b[0] for b in bounds)), to_json_value(max(b[1] for b in bounds))
    except TypeError:
        return None
    return None if low is None or high is None else (low, high)


def _row_group_bounds(statistics: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Minimum and maximum of each row group; empty if a row group with values has no bounds."""
    bounds = []
    for chunk in statistics:
        if chunk.has_min_max:
            bounds.append((chunk.min, chunk.max))
        elif not (chunk.has_null_count and chunk.num_values == 0):
            return
    yield from bounds


def to_json_value(value: Any) -> Any:
    """Value in JSON form.

    None for values that JSON cannot hold, for text that is too long, and for floats, whose bounds ignore NaN.
    """
    if isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value if len(value) <= _MAX_BOUND_LENGTH else None
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else None
