"""Rewriting of blocks for compaction. The channel already holds the rows, so keys need no check. Files that no delta
changes are listed unchanged in the new block.

Three strategies produce the same rows: in memory for small reads, merge unit by merge unit in Spark's Python workers
for blocks with a key layout, and as a frame with Spark's own joins. The last strategy is the reference for the other
two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from nova_assets.engine.buckets.file_writer import TARGET_FILE_BYTES, WrittenFile
from nova_assets.engine.buckets.merge_unit import MergeUnitTask
from nova_assets.engine.buckets.split_points import sample_split_points, split_key_range
from nova_assets.engine.read.in_memory import compute_in_memory
from nova_assets.engine.read.merge_unit_reader import MergeUnitReader
from nova_assets.engine.session.spark_session import LazySparkSession
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.engine.write.block_writer import BlockWriter
from nova_assets.engine.write.small_files import combine_small_files
from nova_assets.model.block import Block, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.reads import DeltaChain, Read, Snapshot, source_blocks
from nova_assets.model.schema import Schema
from nova_assets.plan.block_layout import common_layout, layout_for_channel
from nova_assets.plan.compaction import file_count_for
from nova_assets.plan.merge_units import HashBucket, KeySpan, MergeTask, may_have_rows_in, merge_tasks, split_merge_task
from nova_assets.plan.partition_size import EMPTY_SIZE, DataSize, bucket_count_for, sum_sizes, target_bucket_bytes
from nova_assets.plan.read_strategy import choose_strategy

_MAX_TARGET_SIZES_PER_UNIT = 4
"""Factor on the target bucket size above which a merge unit is split before it is read."""


@dataclass(frozen=True, slots=True)
class _PartitionUnit:
    """A merge unit of one partition."""

    partition: str
    unit_files: MergeTask


class BlockRewriter:
    """Writes the rows of reads into new blocks.

    Args:
        read_frame: returns the Spark frame of a read.
        forced_strategy: strategy to use wherever it is applicable; None for the cheapest strategy.
    """

    def __init__(
        self,
        session: LazySparkSession,
        warehouse: Warehouse,
        writer: BlockWriter,
        read_frame: Callable[[Read], Any],
        forced_strategy: ReadStrategy | None = None,
    ) -> None:
        self.session = session
        self.warehouse = warehouse
        self.merge_unit_reader = MergeUnitReader(session, warehouse)
        self.writer = writer
        self.read_frame = read_frame
        self.forced_strategy = forced_strategy

    def rewrite(
        self, read: Snapshot | DeltaChain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, ReadStrategy]:
        """Write a snapshot as a base, or a chain as one delta.

        Returns:
            The manifest, and the strategy that was used.

        Raises:
            FileMissing, WarehouseUnavailable.
        """
        way = choose_strategy(read, "block", self.forced_strategy)
        if way == "arrow" and isinstance(read.merge, Append):
            with suppress(OverflowError):  # fall back to Spark, which raises its usual error
                return self.writer.write_with_job(
                    partial(combine_small_files, read, self.warehouse, schema), staged, channel, schema
                ), "arrow"
        if way == "arrow" and (rows := self._try_compute_in_memory(read)) is not None:
            return self.writer.write(rows, staged, channel, schema, keys_checked=True), "arrow"
        if way != "spark" and self.session.can_use_workers:
            parts = _partition_units(read, channel, schema)
            if parts is not None:
                return self._rewrite_by_units(parts, staged, channel, schema), "buckets"
        size = sum(s.bytes for s in source_blocks(read) if isinstance(s, Block))
        frame = self.read_frame(read).coalesce(file_count_for(size, TARGET_FILE_BYTES))
        return self.writer.write(frame, staged, channel, schema, keys_checked=True), "spark"

    def _try_compute_in_memory(self, read: Snapshot | DeltaChain) -> pa.Table | None:
        try:
            return compute_in_memory(read, self.warehouse)
        except OverflowError:  # fall back to Spark, see above
            return None

    def _rewrite_by_units(
        self, partition_units: Sequence[_PartitionUnit], staged: StagedBlock, channel: Channel, schema: Schema
    ) -> Manifest:
        from nova_assets.engine.buckets.spark_jobs import merge_units_by_spark

        touched = [p for p in partition_units if p.unit_files.deltas or _has_outdated_schema(p.unit_files, schema)]
        total = sum((p.unit_files.size for p in partition_units), EMPTY_SIZE)
        self.merge_unit_reader.check_unit_files(p.unit_files for p in touched)
        pieces = [
            (p, works) for p in touched if (works := self._build_unit_tasks(p.unit_files, channel, schema, total))
        ]
        works = [w for _, some in pieces for w in some]
        outcome: list[list[WrittenFile] | None] = []

        def write_units(target: Any) -> Iterable[WrittenFile]:
            outcome.extend(
                merge_units_by_spark(self.session.get(), works, schema, channel.merge, target) if works else []
            )
            return [w for files in outcome for w in files or ()]

        manifest = self.writer.write_with_job(write_units, staged, channel, schema, by_spark_tasks=True)
        kept = [p for p in partition_units if p not in touched]
        whose = [p for p, some in pieces for _ in some]
        kept += [p for p, files in zip(whose, outcome, strict=True) if files is None]
        files = [replace(f, partition=p.partition) for p in kept for _, f in p.unit_files.base]
        return replace(manifest, files=(*manifest.files, *files))

    def _build_unit_tasks(
        self, unit_files: MergeTask, channel: Channel, schema: Schema, total_size: DataSize
    ) -> list[MergeUnitTask]:
        """Tasks for one merge unit: several if the unit is too large for memory, because the base is small compared to
        its deltas."""
        target_bytes = target_bucket_bytes(total_size)
        some = split_merge_task(unit_files, _MAX_TARGET_SIZES_PER_UNIT * target_bytes)
        if isinstance(unit_files.unit, KeySpan) and unit_files.size.bytes > _MAX_TARGET_SIZES_PER_UNIT * target_bytes:
            some = self._split_unit(unit_files, channel, schema, -(-unit_files.size.bytes // target_bytes))
        found = [self._build_unit_task(w, schema, total_size) for w in some]
        return found if len(some) == 1 else [replace(w, always_write=True) for w in found]

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
        if isinstance(unit_files.unit, HashBucket):
            into = 1 << max(0, (size // target_bytes).bit_length() - 1)
        else:
            rows = sum(f.rows for _, f in unit_files.base) + sum(f.rows for _, _, f in unit_files.deltas)
            into = rows if size < 2 * target_bytes else max(1, rows * target_bytes // size)
        return replace(
            self.merge_unit_reader.build_unit_task(unit_files, schema),
            buckets_or_max_rows=max(1, into),
            always_write=_has_outdated_schema(unit_files, schema),
        )


def _has_outdated_schema(unit_files: MergeTask, schema: Schema) -> bool:
    """Whether base files lack a column of the schema or name a column differently. A block has one schema for all its
    files."""
    return any(b.manifest.schema != schema for b, _ in unit_files.base)


def _partition_units(read: Snapshot | DeltaChain, channel: Channel, schema: Schema) -> list[_PartitionUnit] | None:
    """Merge units of all partitions; None if a block does not have the channel's current key layout."""
    shared_layout = common_layout(read)
    if (
        shared_layout is None
        or shared_layout.layout != layout_for_channel(channel, schema)
        or shared_layout.model.as_json() != channel.merge.as_json()
    ):
        return None
    blocks = [s for s in source_blocks(read) if isinstance(s, Block)]
    found: list[_PartitionUnit] = []
    for partition in sorted({b.partition for b in blocks}):
        base_sources = read.bases if isinstance(read, Snapshot) else ()
        bases = [b for b in base_sources if isinstance(b, Block) and b.partition == partition]
        deltas = [b for b in read.deltas if isinstance(b, Block) and b.partition == partition]
        least = bucket_count_for(sum_sizes(deltas))
        works = merge_tasks(bases, deltas, shared_layout.layout, min_units=least)
        if works is None:
            return None
        found += [_PartitionUnit(partition, w) for w in works if w.base or w.deltas]
    return found
