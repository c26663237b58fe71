"""Rewriting of blocks for compaction. The channel already holds the rows, so keys need no check. Files that no delta
changes are listed unchanged in the new block.

Three strategies produce the same rows: in memory for small reads, merge unit by merge unit for blocks with a key layout
(in this process or in Spark's Python workers), and as a frame with Spark's own joins. The last strategy is the
reference for the other two.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pyarrow as pa

from nova_assets.engine.buckets.file_writer import (
    TARGET_FILE_BYTES,
    UNSORTED_ROW_GROUP_BYTES,
    FileTarget,
    WrittenFile,
    check_row_count,
    gather_tables,
    write_unsorted_files,
)
from nova_assets.engine.buckets.merge_unit import MergeUnitTask
from nova_assets.engine.buckets.spark_jobs import rewrite_changed_units, rewrite_changed_units_by_spark
from nova_assets.engine.buckets.split_points import sample_split_points, split_key_range
from nova_assets.engine.read.in_memory import read_fitted_rows
from nova_assets.engine.read.merge_unit_reader import PartitionUnit, list_partition_units
from nova_assets.engine.read.read_executor import ReadExecutor
from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.engine.write.block_writer import BlockWriter
from nova_assets.model.block import Block, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.reads import DeltaChain, Snapshot, source_blocks
from nova_assets.model.schema import Schema
from nova_assets.model.sum_bounds import name_channel_in_overflow_errors
from nova_assets.plan.block_layout import CommonLayout, common_layout, layout_for_channel
from nova_assets.plan.compaction import file_count_for
from nova_assets.plan.merge_units import (
    EMPTY_SIZE,
    DataSize,
    HashBucket,
    KeySpan,
    MergeTask,
    may_have_rows_in,
    split_merge_task,
    target_bucket_bytes,
)
from nova_assets.plan.read_strategy import MEMORY_BYTES, choose_strategy

_MAX_TARGET_SIZES_PER_UNIT = 4
"""Factor on the target bucket size above which a merge unit is split before it is read."""

MAX_BYTES_WITHOUT_SPARK = 512 * 2**20
"""Size of the changed units up to which this process merges them rather than start Spark."""


class BlockRewriter:
    """Writes the rows of reads into new blocks: the protocol ``Rewriter``. Uses the strategy that is forced on the
    reader."""

    def __init__(self, reader: ReadExecutor, writer: BlockWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.session = reader.session
        self.warehouse = reader.warehouse
        self.merge_unit_reader = reader.merge_unit_reader

    def rewrite(
        self, read: Snapshot | DeltaChain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, ReadStrategy]:
        """Write a snapshot as a base, or a chain as one delta.

        Returns:
            The manifest, and the strategy that was used.

        Raises:
            FileMissing, WarehouseUnavailable.
        """
        with name_channel_in_overflow_errors(read), self.session.computation_scope():
            return self._rewrite(replace(read, schema=schema.of_files), staged, channel, schema)

    def _rewrite(
        self, read: Snapshot | DeltaChain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, ReadStrategy]:
        strategy = choose_strategy(read, "block", self.reader.forced_strategy)
        are_all_parquet = all(b.manifest.format == "parquet" for b in source_blocks(read) if isinstance(b, Block))
        if strategy == "arrow" and isinstance(read.merge, Append) and are_all_parquet:
            with suppress(OverflowError):  # fall back to Spark, which raises its usual error
                return self.writer.write_with_job(
                    partial(combine_small_files, read, self.warehouse, schema.of_files), staged, channel, schema
                ), "arrow"
        if strategy == "arrow" and (rows := self.reader.try_compute_in_memory(read)) is not None:
            return self.writer.write(rows, staged, channel, schema, keys_checked=True), "arrow"
        if (
            strategy != "spark"
            and (partition_units := _list_units_in_current_layout(read, channel, schema)) is not None
        ):
            changed_units = [
                u for u in partition_units if u.unit_files.deltas or _has_outdated_schema(u.unit_files, schema)
            ]
            without_spark = self.session.current is None and _are_small(changed_units)
            if without_spark or self.session.can_use_workers:
                return (
                    self._rewrite_by_units(partition_units, changed_units, staged, channel, schema, without_spark),
                    "buckets",
                )
        size = sum(s.bytes for s in source_blocks(read) if isinstance(s, Block))
        frame = self.reader.read(read).coalesce(file_count_for(size, TARGET_FILE_BYTES))
        return self.writer.write(frame, staged, channel, schema, keys_checked=True), "spark"

    def _rewrite_by_units(
        self,
        partition_units: Sequence[PartitionUnit],
        changed_units: Sequence[PartitionUnit],
        staged: StagedBlock,
        channel: Channel,
        schema: Schema,
        without_spark: bool,
    ) -> Manifest:
        total_size = sum((u.unit_files.size for u in partition_units), EMPTY_SIZE)
        self.merge_unit_reader.check_unit_files(u.unit_files for u in changed_units)
        units_with_tasks = [
            (unit, task)
            for unit in changed_units
            for task in self._build_unit_tasks(unit.unit_files, channel, schema, total_size)
        ]
        tasks = [task for _, task in units_with_tasks]
        files_by_task: list[list[WrittenFile] | None] = []

        def write_units(target: FileTarget) -> Iterable[WrittenFile]:
            if tasks:
                layout = CommonLayout(target.required_layout, channel.merge, schema.of_files)
                files_by_task.extend(
                    rewrite_changed_units(tasks, layout, target)
                    if without_spark
                    else rewrite_changed_units_by_spark(self.session.get(), tasks, layout, target)
                )
            return [w for files in files_by_task for w in files or ()]

        manifest = self.writer.write_with_job(write_units, staged, channel, schema, by_spark_tasks=True)
        unchanged_units = [u for u in partition_units if u not in changed_units]
        unchanged_units += [
            unit for (unit, _), files in zip(units_with_tasks, files_by_task, strict=True) if files is None
        ]
        base_files = [replace(f, partition=u.partition) for u in unchanged_units for _, f in u.unit_files.base]
        return replace(manifest, files=(*manifest.files, *base_files))

    def _build_unit_tasks(
        self, unit_files: MergeTask, channel: Channel, schema: Schema, total_size: DataSize
    ) -> list[MergeUnitTask]:
        """Tasks for one merge unit: several if the unit is too large for memory, because the base is small compared to
        its deltas."""
        target_bytes = target_bucket_bytes(total_size)
        unit_parts = split_merge_task(unit_files, _MAX_TARGET_SIZES_PER_UNIT * target_bytes)
        if isinstance(unit_files.unit, KeySpan) and unit_files.size.bytes > _MAX_TARGET_SIZES_PER_UNIT * target_bytes:
            unit_parts = self._split_unit(unit_files, channel, schema, -(-unit_files.size.bytes // target_bytes))
        tasks = [self._build_unit_task(part, schema, total_size) for part in unit_parts]
        return tasks if len(tasks) == 1 else [replace(task, always_write=True) for task in tasks]

    def _split_unit(
        self, unit_files: MergeTask, channel: Channel, schema: Schema, piece_count: int
    ) -> tuple[MergeTask, ...]:
        layout = layout_for_channel(channel, schema)
        assert layout is not None and isinstance(unit_files.unit, KeySpan)
        paths = self.warehouse.verified_addresses(
            [*(f for _, f in unit_files.base), *(f for _, _, f in unit_files.deltas)]
        )
        keys = sample_split_points(paths, layout.order, piece_count)

        def files_of_span(span: KeySpan) -> MergeTask:
            base = tuple(b for b in unit_files.base if may_have_rows_in(b[1].key_placement, span))
            return MergeTask(
                span, base, tuple(d for d in unit_files.deltas if may_have_rows_in(d[2].key_placement, span))
            )

        return tuple(files_of_span(s) for s in split_key_range(unit_files.unit, keys))

    def _build_unit_task(self, unit_files: MergeTask, schema: Schema, total_size: DataSize) -> MergeUnitTask:
        size, target_bytes = unit_files.size.bytes, target_bucket_bytes(total_size)
        task = replace(
            self.merge_unit_reader.build_unit_task(unit_files, schema.of_files),
            always_write=_has_outdated_schema(unit_files, schema),
        )
        if isinstance(unit_files.unit, HashBucket):
            return replace(task, result_bucket_count=1 << max(0, (size // target_bytes).bit_length() - 1))
        rows = sum(f.rows for _, f in unit_files.base) + sum(f.rows for _, _, f in unit_files.deltas)
        return replace(task, max_file_rows=max(1, rows if size < 2 * target_bytes else rows * target_bytes // size))


def _are_small(changed_units: Sequence[PartitionUnit]) -> bool:
    """Whether the units are merged before a Spark session would have started to do so."""
    return sum(u.unit_files.size.bytes for u in changed_units) <= MAX_BYTES_WITHOUT_SPARK


def _has_outdated_schema(unit_files: MergeTask, schema: Schema) -> bool:
    """Whether base files lack a column of the schema or name a column differently. A block has one schema for all its
    files."""
    return any(b.manifest.schema != schema for b, _ in unit_files.base)


def _list_units_in_current_layout(
    read: Snapshot | DeltaChain, channel: Channel, schema: Schema
) -> list[PartitionUnit] | None:
    """Merge units of all partitions; None if a block does not have the channel's current key layout."""
    shared_layout = common_layout(read)
    if (
        shared_layout is None
        or shared_layout.layout != layout_for_channel(channel, schema)
        or shared_layout.model.as_json() != channel.merge.as_json()
    ):
        return None
    return list_partition_units(read, shared_layout.layout)


_AT_ONCE = min(4, os.cpu_count() or 1)


def combine_small_files(
    read: Snapshot | DeltaChain, warehouse: Warehouse, schema: Schema, target: FileTarget
) -> list[WrittenFile]:
    """Rewrite the rows of each partition into few files.

    Args:
        read: rows to rewrite.
        schema: schema of the new block.
        target: where to write the files.

    Raises:
        FileMissing: a file is missing or was changed.
        WarehouseUnavailable: the row count of the new files differs from that of the blocks.
    """
    blocks_by_partition: dict[str, list[Block]] = {}
    for block in source_blocks(read):
        assert isinstance(block, Block)
        blocks_by_partition.setdefault(block.partition, []).append(block)
    rewrite_partition = partial(
        _combine_partition_files, warehouse, schema.with_all_nullable(), replace(target, dimensions=())
    )  # the partition of each file is known already
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            files_by_partition = list(
                pool.map(
                    rewrite_partition,
                    range(len(blocks_by_partition)),
                    blocks_by_partition,
                    blocks_by_partition.values(),
                )
            )
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [written for files in files_by_partition for written in files]


def _combine_partition_files(
    warehouse: Warehouse, schema: Schema, target: FileTarget, partition_index: int, partition: str, blocks: list[Block]
) -> list[WrittenFile]:
    row_groups = _read_row_groups(warehouse, blocks, schema)
    groups = (table.combine_chunks() for table in gather_tables(row_groups, UNSORTED_ROW_GROUP_BYTES))
    written = list(write_unsorted_files(groups, target, TARGET_FILE_BYTES, f"-{partition_index:05d}"))
    check_row_count(written, sum(b.rows for b in blocks), target.error_label)
    return [replace(w, partitions=(partition,)) for w in written]


def _read_row_groups(warehouse: Warehouse, blocks: list[Block], schema: Schema) -> Iterator[pa.Table]:
    """Rows of the given blocks, one row group of the source files at a time."""
    warehouse.verified_addresses([f for b in blocks for f in b.manifest.files], prefetch=True)  # concurrently
    for block in blocks:
        for path in map(warehouse.file_address, block.manifest.files):
            with open_block_file(path) as file:
                for n in range(file.num_row_groups):
                    if file.metadata.row_group(n).total_byte_size > MEMORY_BYTES:
                        raise OverflowError(f"row group {n} of {path} is larger than it looks")
                    rows = read_fitted_rows(block, file, partial(file.read_row_group, n), schema)
                    if rows.num_rows:
                        yield rows
