"""Writer of block files, with a key layout or in input order. Each file comes with a report of its content. Uses Arrow
alone.

Row groups end at bucket boundaries, except for tiny buckets, so that the rows of a bucket can be read without those of
its neighbours.
"""

from __future__ import annotations

import itertools
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.key_order import first_of_key_mask, one_chunk
from nova_assets.engine.buckets.row_layout import IntArray, sort_into_buckets
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.parquet_footers import FileSummary, to_json_value
from nova_assets.engine.storage.parquet_writer import ParquetFileWriter
from nova_assets.errors import NotSupported, PartitionError, WarehouseUnavailable
from nova_assets.formats.python_values import to_python_rows
from nova_assets.model.key_layout import HashBuckets, KeyLayout, KeyPlacement, KeyRange
from nova_assets.model.partition_rule import partition_of_row
from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import DELETED
from nova_assets.plan.merge_units import HashBucket

MAX_ROW_GROUP_ROWS = 1 << 17
"""Maximum number of rows in a row group, so that a lookup of a few keys does not decode the whole bucket."""

MAX_ROW_GROUP_BYTES = 16 * 2**20
"""Maximum size of a row group, by the size of its rows in memory."""

_SAMPLE_ROWS, _MIN_SAMPLE_ROWS = 4000, 100

MIN_ROW_GROUP_ROWS = 1 << 14
"""Number of rows below which buckets share a row group."""

MIN_ROW_GROUP_BYTES = 2 * 2**20
"""Size in memory from which a bucket has a row group of its own, even with fewer rows."""

TARGET_FILE_BYTES = 128 * 2**20
"""Target size of a file."""

UNSORTED_ROW_GROUP_BYTES = 64 * 2**20
"""Size in memory of a row group in input order, so that several cores can share a file."""

_UNSORTED_GROUP_ROWS = 2**20


@dataclass(frozen=True, slots=True)
class FileTarget:
    """Target for writing rows into files.

    Args:
        folder: folder of the block.
        block_id: id of the block; part of the file names.
        schema: schema of the rows, with ``_deleted`` if they are changes.
        layout: key layout; None if rows stay in input order.
        allows_delete_and_live: whether a key may have both a deletion and a live row.
        split_columns: partition columns; each file has rows of one partition only.
        dimensions: dimensions of the channel, by which files report the partitions of their rows.
        error_label: name of the block in errors.
        range_columns, null_count_columns: columns whose bounds, or null counts, are reported.
    """

    folder: str
    block_id: str
    schema: pa.Schema
    layout: KeyLayout | None
    allows_delete_and_live: bool
    split_columns: tuple[str, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    error_label: str = ""
    range_columns: tuple[str, ...] = ()
    null_count_columns: tuple[str, ...] = ()

    @property
    def required_layout(self) -> KeyLayout:
        """Key layout, which must exist."""
        assert self.layout is not None
        return self.layout

    def new_file_path(self, prefix: str, suffix: str = "") -> str:
        """Address of a new file with a unique name.

        The name begins with a random part. An object store distributes requests by the first characters in which keys
        differ, so the files of a block are spread over its partitions.
        """
        return file_io.join(self.folder, f"{uuid.uuid4().hex[:12]}-{prefix}{suffix}-{self.block_id}.zstd.parquet")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """Report of a written file.

    Args:
        key_placement: key placement; None if rows are in input order, or if a bounding key is too long for the catalog.
        has_repeated_keys: whether a key has more rows in the file than a block may hold.
        partitions: partitions of its rows.
        partition_error_args: error arguments if a row belongs to no partition; None otherwise.
    """

    footer: FileSummary
    key_placement: KeyPlacement | None
    deleted_rows: int
    has_repeated_keys: bool
    partitions: tuple[str, ...] = ()
    partition_error_args: Mapping[str, Any] | None = None

    @property
    def path(self) -> str:
        return self.footer.path

    @property
    def rows(self) -> int:
        return self.footer.rows

    @property
    def bytes(self) -> int:
        return self.footer.bytes


def write_sorted_file(
    table: pa.Table, path: str, target: FileTarget, *, bucket_count: int = 1, common_bucket: HashBucket | None = None
) -> WrittenFile:
    """Write rows as one file with a key layout.

    Args:
        table: non-empty rows, without nulls in the key.
        bucket_count: number of buckets into which the rows are sorted.
        common_bucket: the common bucket of all rows, if there is one; the rows are then sorted by key only.
    """
    layout = target.required_layout
    table, counts = sort_into_buckets(one_chunk(table), layout, bucket_count)
    file = _SummarizingFileWriter(
        path,
        table.schema,
        target,
        dictionary_columns=_columns_with_repeated_values(table),
        write_page_index=True,
        **file_io.page_write_options(table),
    )
    with file.discard_on_error():
        min_group_rows = max(1, min(MIN_ROW_GROUP_ROWS, _rows_for_bytes(MIN_ROW_GROUP_BYTES, table)))
        for start, end in _row_group_bounds(
            counts, min_group_rows, max(1, min(MAX_ROW_GROUP_ROWS, _rows_for_bytes(MAX_ROW_GROUP_BYTES, table)))
        ):
            file.append(table.slice(start, end - start), end - start)
    written = file.finish()
    return replace(
        written,
        key_placement=_key_placement(table, layout, counts, common_bucket),
        has_repeated_keys=_has_repeated_keys(table, layout, target.allows_delete_and_live),
    )


def write_unsorted_files(
    tables: Iterable[pa.Table], target: FileTarget, target_file_bytes: int, name_suffix: str = ""
) -> Iterator[WrittenFile]:
    """Write rows in input order, in files of about the target size. No file is written without rows.

    Args:
        tables: tables that each fit into memory.
        name_suffix: part of the file names.
    """
    file: _SummarizingFileWriter | None = None
    for table in tables:
        if not table.num_rows:
            continue
        if file is None:
            file = _SummarizingFileWriter(
                target.new_file_path("part", name_suffix), table.schema, target, **file_io.page_write_options(table)
            )
        with file.discard_on_error():
            file.append(table, unsorted_row_group_size(table))
        if file.bytes >= target_file_bytes:
            yield file.finish()
            file = None
    if file is not None:
        yield file.finish()


def gather_tables(
    pieces: Iterable[pa.Table | pa.RecordBatch], target_bytes: int, max_rows: int = sys.maxsize
) -> Iterator[pa.Table]:
    """Rows in tables of about the given size in memory, or number of rows. Each piece has rows of one schema."""
    pending: list[pa.Table] = []
    size = rows = 0
    for piece in pieces:
        pending.append(piece if isinstance(piece, pa.Table) else pa.Table.from_batches([piece]))
        size, rows = size + piece.nbytes, rows + piece.num_rows
        if size >= target_bytes or rows >= max_rows:
            yield pa.concat_tables(pending)
            pending, size, rows = [], 0, 0
    if pending:
        yield pa.concat_tables(pending)


def check_row_count(written_files: Iterable[WrittenFile], expected_rows: int, error_label: str) -> None:
    """Compare the row count of files with the number of rows that were passed to their writers.

    Raises:
        WarehouseUnavailable: the numbers differ.
    """
    count = sum(w.rows for w in written_files)
    if count != expected_rows:
        raise WarehouseUnavailable(
            f"{error_label}: the written files have another number of rows than the data",
            found=f"{count} rows in files",
            expected=f"{expected_rows} rows",
            next="repeat the write: none of its files was kept",
        )


def unsorted_row_group_size(table: pa.Table) -> int:
    """Number of rows per row group for rows in input order."""
    return max(
        1, min(_UNSORTED_GROUP_ROWS, UNSORTED_ROW_GROUP_BYTES * int(table.num_rows) // max(1, int(table.nbytes)))
    )


class _SummarizingFileWriter:
    """Writer of a file that collects the data for its report."""

    def __init__(self, path: str, schema: pa.Schema, target: FileTarget, **options: Any) -> None:
        self.target = target
        self.deleted_rows = 0
        self._partition_values: list[pa.Table] = []
        self._partition_columns = [d.column for d in target.dimensions]
        self._writer = ParquetFileWriter(path, schema, **options)

    @property
    def bytes(self) -> int:
        return self._writer.bytes

    def append(self, table: pa.Table, row_group_size: int) -> None:
        self._writer.write(table, row_group_size)
        if DELETED in table.column_names:
            self.deleted_rows += int(pc.sum(table[DELETED]).as_py() or 0)
        if self._partition_columns:
            self._partition_values.append(
                table.select(self._partition_columns).group_by(self._partition_columns).aggregate([])
            )

    @contextmanager
    def discard_on_error(self) -> Iterator[None]:
        """Context for writing rows. If the body fails, the file is discarded."""
        try:
            yield
        except BaseException:
            self._writer.discard()
            raise

    def finish(self) -> WrittenFile:
        with self.discard_on_error():
            footer = self._writer.close(self.target.range_columns, self.target.null_count_columns)
        return WrittenFile(footer, None, self.deleted_rows, False, *self._partitions_or_error())

    def _partitions_or_error(self) -> tuple[tuple[str, ...], Mapping[str, Any] | None]:
        """Partitions of all rows, or error arguments if a row belongs to none. The driver raises the error, since Spark
        would replace an error of a task by its own."""
        rows = (row for table in self._partition_values for row in to_python_rows(table))
        try:
            found = dict.fromkeys(
                partition_of_row(self.target.dimensions, row, self.target.error_label) for row in rows
            )
        except (PartitionError, NotSupported) as error:
            parts = {"what": error.what, "found": error.found, "expected": error.expected, "next": error.next}
            return (), {**parts, "column": error.fields.get("column")}
        return (tuple(found) if self._partition_columns else ()), None


def _columns_with_repeated_values(table: pa.Table) -> list[str]:
    """Columns whose values repeat in a sample, so that the Parquet writer builds dictionaries for them. An abandoned
    dictionary costs as much as the rest of writing the column."""
    step = max(1, table.num_rows // _SAMPLE_ROWS)
    sample = table.take(pa.array(np.arange(0, table.num_rows, step)))
    return [name for name in table.column_names if _is_worth_dictionary(sample[name])]


def _is_worth_dictionary(sample: pa.ChunkedArray) -> bool:
    nested = pa.types.is_nested(sample.type)
    return nested or len(sample) < _MIN_SAMPLE_ROWS or pc.count_distinct(sample).as_py() <= len(sample) // 2


def _rows_for_bytes(byte_budget: int, table: pa.Table) -> int:
    """Average number of rows of a table that need the given number of bytes in memory."""
    return byte_budget * int(table.num_rows) // max(1, int(table.nbytes))


def _row_group_bounds(bucket_rows: IntArray, min_rows: int, max_rows: int) -> Iterator[tuple[int, int]]:
    """Start and end of each row group. Small buckets share a row group, and buckets with more than ``max_rows`` rows
    have several."""
    start = end = 0
    for n, count in enumerate(bucket_rows.tolist()):
        end += count
        if end - start >= min_rows or (n == len(bucket_rows) - 1 and end > start):
            pieces = -(-(end - start) // max_rows)
            bounds = [start + (end - start) * k // pieces for k in range(pieces + 1)]
            yield from itertools.pairwise(bounds)
            start = end


def _key_placement(
    table: pa.Table, layout: KeyLayout, bucket_rows: IntArray, bucket: HashBucket | None
) -> KeyPlacement | None:
    if layout.clustered:
        ends = table.select(list(layout.order)).take([0, table.num_rows - 1])
        try:
            least, greatest = (tuple(to_json_value(v) for v in row.values()) for row in ends.to_pylist())
        except (ValueError, OverflowError):  # a date outside Python's range
            return None
        return None if None in (*least, *greatest) else KeyRange(least, greatest)
    if bucket is not None:
        return HashBuckets(bucket.bucket_count, bucket.number, (table.num_rows,))
    return HashBuckets(len(bucket_rows), 0, tuple(bucket_rows.tolist()))


def _has_repeated_keys(table: pa.Table, layout: KeyLayout, allows_delete_and_live: bool) -> bool:
    """Whether a key has more rows than a block may hold (R11). Rows of a key are adjacent."""
    again = np.flatnonzero(~first_of_key_mask(table, layout.order))
    if not len(again) or not allows_delete_and_live or DELETED not in table.column_names:
        return bool(len(again))
    deleted = table[DELETED].to_numpy()
    return bool((deleted[again] == deleted[again - 1]).any())
