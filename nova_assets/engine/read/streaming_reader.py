"""Streaming reads for tables larger than memory: by row groups, by merge units, or by portions of partitions.

Between two requests for rows, a stream has no open file, so it can be abandoned at any time. Spark takes part only in
reads that no other strategy can compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.buckets.arrow_merge import with_deleted_column
from nova_assets.engine.buckets.merge_unit import read_merge_unit
from nova_assets.engine.read.in_memory import formatted_files_of_block, read_blocks, read_fitted_rows
from nova_assets.engine.read.merge_unit_reader import MergeUnitReader, MergeUnitReadPlan
from nova_assets.engine.read.touched_rows import TouchedRows
from nova_assets.engine.storage import external_files
from nova_assets.engine.storage.integrity import open_block_file, read_block_file_footer
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.errors import FileMissing
from nova_assets.formats import record_batches
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.block import Block, DataFile
from nova_assets.model.engine import Frame, Frames, Reader
from nova_assets.model.reads import (
    ChangeUnion,
    DeltaChain,
    EmptyRead,
    PrivatePortRead,
    Read,
    Snapshot,
    SnapshotAsInserts,
    SnapshotDiff,
    is_certainly_empty,
    merge_model_of,
    source_blocks,
)
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.block_layout import split_by_delta_overlap
from nova_assets.plan.partial_reads import (
    MAX_PORTION_BYTES,
    columns_of_read,
    is_plain_file_scan,
    narrow_columns,
    split_into_portions,
)
from nova_assets.plan.read_strategy import can_merge_touched_rows

Tables = Iterator[pa.Table]


class StreamingReader:
    """Executes reads piece by piece.

    Args:
        reader: executes the reads, or parts of reads, that cannot be split.
        reads_ahead: whether several files or units are read at once, because memory is to hold all rows anyway.
    """

    def __init__(
        self,
        reader: Reader,
        frames: Frames,
        warehouse: Warehouse,
        merge_unit_reader: MergeUnitReader,
        *,
        reads_ahead: bool = False,
    ) -> None:
        self.reader = reader
        self.frames = frames
        self.warehouse = warehouse
        self.merge_unit_reader = merge_unit_reader
        self.reads_ahead = reads_ahead

    def open_reader(self, read: Read, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """Record batches of a read, in the given columns; None for all columns.

        Raises:
            FileMissing: a file is missing or was changed. The reader raises it, too, if a file disappears while it is
                used.
            SchemaMismatch: a column does not exist.
        """
        found = self._open_tables(read, columns)
        return self._open_reader_of_frame(read, columns) if found is None else record_batches.stream_tables(*found)

    def read_table(self, read: Read, columns: Sequence[str] | None) -> pa.Table:
        """All rows of a read, in the given columns; None for all columns. Raises as ``open_reader``."""
        found = self._open_tables(read, columns)
        if found is None:
            return self.frames.to_arrow(self._fetch_columns(read, columns))
        schema, tables = found
        return pa.concat_tables([schema.empty_table(), *(t.select(schema.names).cast(schema) for t in tables)])

    def _open_tables(self, read: Read, columns: Sequence[str] | None) -> tuple[pa.Schema, Tables] | None:
        """Schema of the requested columns, and the rows with these columns and possibly others; None if only a frame
        tells the columns of the read.
        """
        read_columns = columns_of_read(read)
        if read_columns is None:
            return None
        schema = to_arrow_schema(read_columns.with_all_nullable())
        schema = schema if columns is None else self.frames.select(schema.empty_table(), columns).schema
        named = [n for n in read_columns.names if n in schema.names]
        if set(named) <= {DELETED}:  # rows without columns would be lost, and the mark is no column of a snapshot
            named = [*read_columns.names[:1], *named]
        wanted = read_columns.select_columns(dict.fromkeys(named))
        return schema, _convert_missing_file_errors(self._read_tables(read, wanted))

    def _open_reader_of_frame(self, read: Read, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """Reader for a read whose columns are known only from its frame."""
        frame = self._fetch_columns(read, columns)
        schema = frame.schema if isinstance(frame, pa.Table) else to_arrow_schema(self.frames.schema_of(frame))
        return record_batches.stream_tables(schema, map(self.frames.to_arrow, iter([frame])))

    def _fetch_columns(self, read: Read, columns: Sequence[str] | None) -> Frame:
        frame = self.reader.fetch(read)
        return frame if columns is None else self.frames.select(frame, columns)

    def _read_tables(self, read: Read, columns: Schema) -> Tables:
        """Rows of a read, with the requested columns and possibly others.

        Files are checked now, before the first row is returned. Spark checks the files that it reads itself.
        """
        if isinstance(read, EmptyRead | PrivatePortRead):
            return iter(())
        if isinstance(read, SnapshotAsInserts):
            rows = self._read_tables(read.snapshot, columns.without_columns(DELETED))
            return (with_deleted_column(t, False) for t in rows) if DELETED in columns else rows
        if isinstance(read, ChangeUnion):
            return chain.from_iterable([self._read_tables(p, columns) for p in read.parts])
        if self.reader.forced_strategy == "spark":
            return self._fetch_each([read], columns)
        if is_plain_file_scan(read):
            assert not isinstance(read, SnapshotDiff)
            return self._read_unmerged(read, columns)
        return self._read_merged(narrow_columns(read, columns.names), columns)

    def _read_merged(self, read: Snapshot | DeltaChain | SnapshotDiff, columns: Schema) -> Tables:
        """Rows of a merge, one merge unit at a time. Base files that no delta changes are read directly."""
        unchanged_base, rest = split_by_delta_overlap(read) if isinstance(read, Snapshot) else (None, read)
        unchanged_rows = iter(()) if unchanged_base is None else self._read_unmerged(unchanged_base, columns)
        if is_certainly_empty(rest):
            return unchanged_rows
        if isinstance(rest, Snapshot) and can_merge_touched_rows(rest):
            return chain(unchanged_rows, self._read_touched(rest))
        plan = self.merge_unit_reader.plan_unit_reads(rest)
        if plan is None:
            return chain(unchanged_rows, self._fetch_each(split_into_portions(rest), columns))
        units = iter([self.merge_unit_reader.read_table(plan)]) if self.reads_ahead else _read_merge_units(plan)
        return chain(unchanged_rows, units)

    def _read_touched(self, read: Snapshot) -> Tables:
        """Rows of a snapshot, row group by row group, and at last those that its deltas may change."""
        assert read.schema is not None
        deltas = [d for d in read.deltas if isinstance(d, Block)]
        self.warehouse.verified_addresses([f for d in deltas for f in d.manifest.files], prefetch=True)
        base_rows = self._read_unmerged(replace(read, deltas=()), read.schema)

        def merged() -> Tables:
            touched = TouchedRows(read, partial(read_blocks, warehouse=self.warehouse))
            yield from touched.take_from(base_rows)
            yield touched.merge()

        return merged()

    def _read_unmerged(self, read: Snapshot | DeltaChain, columns: Schema) -> Tables:
        """Rows of blocks that need no merge, file by file."""
        own_blocks, other_format_blocks = list[Block](), list[Block]()
        external_blocks, external_orc_blocks = list[Block](), list[Block]()
        for block in source_blocks(read):
            assert isinstance(block, Block), "a read is resolved before it is carried out"
            is_external, is_parquet = block.manifest.external_folder is not None, block.manifest.format == "parquet"
            if is_external:
                (external_blocks if is_parquet else external_orc_blocks).append(block)
            else:
                (own_blocks if is_parquet else other_format_blocks).append(block)
        own_files = [(b, f) for b in own_blocks for f in b.manifest.files]
        paths = self.warehouse.verified_addresses([f for _, f in own_files], prefetch=True)
        external_files_with_paths = [(b, f, p) for b in external_blocks for f, p in _external_file_paths(b)]
        read_files = _read_files_ahead if self.reads_ahead else _read_row_groups
        return chain(
            read_files([(b, p) for (b, _), p in zip(own_files, paths, strict=True)], columns.with_all_nullable()),
            self._read_external_files(external_files_with_paths, read, columns),
            self._read_formatted_files(other_format_blocks, columns),
            self._fetch_each(split_into_portions(_snapshot_of_blocks(external_orc_blocks, read, columns)), columns)
            if external_orc_blocks
            else (),
        )

    def _read_formatted_files(self, blocks: Sequence[Block], columns: Schema) -> Tables:
        """Rows of files in other formats than Parquet, one file at a time."""
        self.warehouse.verified_addresses([f for b in blocks for f in b.manifest.files])
        files = [f for b in blocks for f in formatted_files_of_block(b, self.warehouse, columns)]
        return (f.read(columns) for f in files)

    def _read_external_files(
        self, files: Sequence[tuple[Block, DataFile, str]], read: Snapshot | DeltaChain, columns: Schema
    ) -> Tables:
        """Rows of external files. Files that only Spark can interpret are passed to Spark, many at a time."""
        blocks_for_spark: list[Block] = []
        for block, file, path in files:
            external_file = external_files.open_external_file(block, path, columns)
            if external_file is not None:
                yield from external_file.read_row_groups()
                continue
            blocks_for_spark.append(replace(block, manifest=replace(block.manifest, files=(file,))))
            if sum(b.bytes for b in blocks_for_spark) >= MAX_PORTION_BYTES:
                yield from self._fetch_each([_snapshot_of_blocks(blocks_for_spark, read, columns)], columns)
                blocks_for_spark = []
        if blocks_for_spark:
            yield from self._fetch_each([_snapshot_of_blocks(blocks_for_spark, read, columns)], columns)

    def _fetch_each(self, reads: Sequence[Read], columns: Schema) -> Tables:
        """Rows of reads by the engine's own choice of strategy, one after the other. Spark sends no other columns."""
        for read in reads:
            frame = self.reader.fetch(read)
            names = [n for n in self.frames.column_names(frame) if n in columns]
            # Rows without columns would be lost.
            yield self.frames.to_arrow(self.frames.select(frame, names) if names else frame)


def _convert_missing_file_errors(tables: Tables) -> Tables:
    try:
        yield from tables
    except FileNotFoundError as error:
        raise FileMissing(
            "a file was deleted during the read",
            found=str(error),
            expected="all files to exist until the read ends",
            next="read inside store.pin(...), which keeps the files",
        ) from error


def _read_merge_units(plan: MergeUnitReadPlan) -> Tables:
    return (read_merge_unit(p, plan.layout) for p in plan.unit_reads)


def _read_row_groups(files: Sequence[tuple[Block, str]], schema: Schema) -> Tables:
    """Rows of some files, one row group at a time."""
    for block, path in files:
        footer = read_block_file_footer(path)
        for n in range(footer.num_row_groups):
            yield _read_row_group(block, path, footer, n, schema)


_FILES_AHEAD = 4


def _read_files_ahead(files: Sequence[tuple[Block, str]], schema: Schema) -> Tables:
    """Rows of some files, a few files at once."""

    def read(block_and_path: tuple[Block, str]) -> pa.Table:
        block, path = block_and_path
        with open_block_file(path) as file:
            return read_fitted_rows(block, file, file.read, schema)

    with ThreadPoolExecutor(_FILES_AHEAD) as pool:
        for n in range(0, len(files), _FILES_AHEAD):
            yield from pool.map(read, files[n : n + _FILES_AHEAD])


def _read_row_group(block: Block, path: str, footer: pq.FileMetaData, row_group: int, schema: Schema) -> pa.Table:
    with open_block_file(path, footer) as file:
        return read_fitted_rows(block, file, partial(file.read_row_group, row_group), schema)


def _external_file_paths(block: Block) -> Iterator[tuple[DataFile, str]]:
    return zip(block.manifest.files, external_files.verified_paths(block.manifest, block.channel), strict=True)


def _snapshot_of_blocks(blocks: Sequence[Block], read: Snapshot | DeltaChain, columns: Schema) -> Snapshot:
    """Snapshot of some blocks of a read that needs no merge."""
    at = read.at if isinstance(read, Snapshot) else read.hi
    return Snapshot(read.channel, at, tuple(blocks), (), columns, merge_model_of(read))
