"""Reads of blocks with a key layout, one merge unit at a time: in this process, or in Spark's Python workers without a
shuffle.

Only the necessary parts of a unit are opened: row groups that may contain the requested keys, and for a diff only the
files that the two snapshots do not share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.file_reader import slice_key_range
from nova_assets.engine.buckets.key_order import first_of_key_mask, one_chunk, sort_by_key
from nova_assets.engine.buckets.merge_unit import MergeSourceFile, MergeUnitRead, MergeUnitTask, read_merge_unit
from nova_assets.engine.buckets.row_layout import bucket_numbers
from nova_assets.engine.buckets.spark_jobs import read_units_by_spark
from nova_assets.engine.rows.stored_columns import columns_by_stored_name
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.model.arrow_types import arrow_type, to_arrow_schema
from nova_assets.model.block import Block, DataFile
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.reads import DeltaChain, Snapshot, SnapshotDiff, source_blocks
from nova_assets.model.schema import Schema
from nova_assets.model.value_conversion import convert_value
from nova_assets.plan.block_layout import CommonLayout, common_layout
from nova_assets.plan.merge_units import (
    HashBucket,
    MergeTask,
    SnapshotBlocks,
    bucket_count_for,
    differing_merge_tasks,
    merge_tasks,
    split_merge_task,
    sum_sizes,
)
from nova_assets.plan.partial_reads import share_of_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_THREADS = 4

MAX_UNIT_BYTES = 512 * 2**20
"""Approximate maximum size of the files that are merged at once. Memory must hold this size several times."""


@dataclass(frozen=True, slots=True)
class MergeUnitReadPlan:
    """A read, divided into merge units.

    Args:
        unit_reads: the reads of the single units.
        layout: with the schema of the channel's rows.
        has_deleted_column: whether the rows are changes, with ``_deleted``.
        bytes_to_open: size of the files, or parts of files, that are opened; approximate if only some columns are read.
    """

    unit_reads: tuple[MergeUnitRead, ...]
    layout: CommonLayout
    has_deleted_column: bool
    bytes_to_open: int

    @property
    def row_schema(self) -> Schema:
        return self.layout.schema.with_deleted() if self.has_deleted_column else self.layout.schema


@dataclass(frozen=True, slots=True)
class PartitionUnit:
    """A merge unit of one partition, with its files."""

    partition: str
    unit_files: MergeTask


def list_partition_units(read: Snapshot | DeltaChain, layout: KeyLayout) -> list[PartitionUnit] | None:
    """Merge units with files, over all partitions; None if the files of a block cannot be divided into units."""
    bases = _only_blocks(read.bases) if isinstance(read, Snapshot) else ()
    deltas = _only_blocks(read.deltas)
    partition_units: list[PartitionUnit] = []
    for partition in sorted({b.partition for b in (*bases, *deltas)}):
        partition_bases, partition_deltas = (
            [b for b in blocks if b.partition == partition] for blocks in (bases, deltas)
        )
        min_units = bucket_count_for(sum_sizes(partition_deltas))
        units = merge_tasks(partition_bases, partition_deltas, layout, min_units=min_units)
        if units is None:
            return None
        partition_units += [PartitionUnit(partition, unit) for unit in units if unit.base or unit.deltas]
    return partition_units


class MergeUnitReader:
    """Divides reads into merge units, and merges the rows of each unit."""

    def __init__(self, session: LazySparkSession, warehouse: Warehouse) -> None:
        self.session = session
        self.warehouse = warehouse

    def read_table(self, plan: MergeUnitReadPlan) -> pa.Table:
        """Rows of a plan, computed in this process."""
        with ThreadPoolExecutor(_THREADS) as pool:
            tables = list(pool.map(lambda u: read_merge_unit(u, plan.layout), plan.unit_reads))
        schema = to_arrow_schema(plan.row_schema.with_all_nullable())
        return pa.concat_tables(t.cast(schema) for t in tables) if tables else schema.empty_table()

    def read_frame(self, plan: MergeUnitReadPlan) -> DataFrame:
        """Rows of a plan as a frame. A Spark task computes each unit when the frame is evaluated."""
        from nova_assets.engine.rows.spark_types import to_struct

        spark_schema = to_struct(plan.row_schema.with_all_nullable())
        return read_units_by_spark(self.session.get(), plan.unit_reads, plan.layout, plan.row_schema, spark_schema)

    def plan_unit_reads(
        self, read: Snapshot | DeltaChain | SnapshotDiff, key_filter: pa.Table | None = None
    ) -> MergeUnitReadPlan | None:
        """Plan for a read by merge units.

        None if a block has another key layout, if only Spark can execute the merge model, or if a unit is too large for
        memory.

        Args:
            key_filter: table with the key columns, to restrict the read to the rows of these keys; None for all rows.
        """
        shared_layout = common_layout(read)
        if shared_layout is None:
            return None
        if isinstance(read, SnapshotDiff):
            return self._plan_diff(read, shared_layout)
        return self._plan_merge(read, shared_layout, key_filter)

    def _plan_merge(
        self, read: Snapshot | DeltaChain, shared_layout: CommonLayout, key_filter: pa.Table | None
    ) -> MergeUnitReadPlan | None:
        layout, schema = shared_layout.layout, shared_layout.schema
        partition_units = list_partition_units(read, layout)
        if partition_units is None:
            return None
        units = [u.unit_files for u in partition_units]
        if key_filter is None:
            units = [part for unit in units for part in split_merge_task(unit, MAX_UNIT_BYTES)]
            if any(unit.size.bytes > 2 * MAX_UNIT_BYTES for unit in units):
                return None
        lookup = _KeyFilter(key_filter, layout, schema)
        units_with_keys = [
            (unit, keys) for unit in units if (keys := lookup.keys_in_unit(unit)) is None or keys.num_rows
        ]
        self.check_unit_files(unit for unit, _ in units_with_keys)
        changes_only = isinstance(read, DeltaChain)
        unit_reads = tuple(
            MergeUnitRead(replace(self.build_unit_task(unit, schema), key_filter=keys), changes_only)
            for unit, keys in units_with_keys
        )
        stored = next(b.manifest.schema for b in reversed(source_blocks(read)) if isinstance(b, Block))
        bytes_to_open = int(sum(unit.size.bytes for unit, _ in units_with_keys) * share_of_row(schema, stored))
        return MergeUnitReadPlan(unit_reads, shared_layout, changes_only, bytes_to_open)

    def _plan_diff(self, read: SnapshotDiff, shared_layout: CommonLayout) -> MergeUnitReadPlan | None:
        layout, schema = shared_layout.layout, shared_layout.schema
        old_and_new = [(_only_blocks(s.bases), _only_blocks(s.deltas)) for s in (read.old, read.new)]
        unit_reads: list[MergeUnitRead] = []
        bytes_to_open = 0
        for partition in sorted({b.partition for snapshot in old_and_new for blocks in snapshot for b in blocks}):
            old, new = (
                SnapshotBlocks(*(tuple(b for b in blocks if b.partition == partition) for blocks in snapshot))
                for snapshot in old_and_new
            )
            unit_pairs = differing_merge_tasks(old, new, layout)
            if unit_pairs is None:
                return None
            if any(a.size.bytes + b.size.bytes > 2 * MAX_UNIT_BYTES for a, b in unit_pairs):
                return None
            self.check_unit_files(w for pair in unit_pairs for w in pair)
            unit_reads += [
                MergeUnitRead(self.build_unit_task(b, schema), True, self.build_unit_task(a, schema))
                for a, b in unit_pairs
            ]
            bytes_to_open += sum(a.size.bytes + b.size.bytes for a, b in unit_pairs)
        return MergeUnitReadPlan(tuple(unit_reads), shared_layout, True, bytes_to_open)

    def check_unit_files(self, units: Iterable[MergeTask]) -> None:
        """Check that the files of some units exist unchanged, each file once. Remote files are checked concurrently.

        Raises:
            FileMissing, FileAltered.
        """
        files = {f.path: f for w in units for f in (*(f for _, f in w.base), *(f for _, _, f in w.deltas))}
        self.warehouse.verified_addresses(files.values())

    def build_unit_task(self, unit_files: MergeTask, schema: Schema) -> MergeUnitTask:
        """Task for a unit, with the files to open. ``check_unit_files`` checks these files."""
        deltas: dict[int, list[MergeSourceFile]] = {}
        for n, block, file in unit_files.deltas:
            deltas.setdefault(n, []).append(self._source_file(block, file, schema.with_deleted()))
        base = tuple(self._source_file(b, f, schema) for b, f in unit_files.base)
        return MergeUnitTask(unit_files.unit, base, tuple(tuple(d) for _, d in sorted(deltas.items())))

    def _source_file(self, block: Block, file: DataFile, schema: Schema) -> MergeSourceFile:
        assert file.key_placement is not None
        return MergeSourceFile(
            self.warehouse.file_address(file), file.key_placement, columns_by_stored_name(block, schema)
        )


class _KeyFilter:
    """Keys of a lookup.

    Args:
        keys: table with the key columns; None for no restriction.
    """

    def __init__(self, keys: pa.Table | None, layout: KeyLayout, schema: Schema) -> None:
        self.layout = layout
        self.types = {name: schema.field(name).type for name in layout.order}
        self.keys: pa.Table | None = None
        self._by_bucket: dict[int, list[pa.Table]] = {}
        if keys is not None:
            key_schema = pa.schema([(name, arrow_type(self.types[name])) for name in layout.order])
            other_types = [f.name for f in key_schema if not _is_lossless_cast(keys.schema.field(f.name).type, f.type)]
            if other_types:
                raise pa.ArrowInvalid(f"keys of other types: {', '.join(other_types)}")
            key_rows = one_chunk(keys.select(layout.order).cast(key_schema).drop_null())
            sorted_keys = one_chunk(sort_by_key(key_rows, layout.order))
            self.keys = sorted_keys.filter(pa.array(first_of_key_mask(sorted_keys, layout.order)))

    def keys_in_unit(self, unit_files: MergeTask) -> pa.Table | None:
        """Keys that may be in a unit; None if the lookup is not restricted."""
        if self.keys is None:
            return None
        unit = unit_files.unit
        if isinstance(unit, HashBucket):
            keys = self._keys_in_bucket(unit)
        else:
            keys = slice_key_range(self.keys, unit, self.layout)
        if not keys.num_rows:
            return keys
        files = [*(f for _, f in unit_files.base), *(f for _, _, f in unit_files.deltas)]
        return keys.filter(self._mask_in_any_file_range(keys, files))

    def _keys_in_bucket(self, bucket: HashBucket) -> pa.Table:
        assert self.keys is not None
        if bucket.bucket_count not in self._by_bucket:
            bucket_by_key = bucket_numbers(self.keys, self.layout.order, bucket.bucket_count)
            key_indices = bucket_by_key.argsort(kind="stable")
            ends = bucket_by_key[key_indices].searchsorted(range(bucket.bucket_count), side="right").tolist()
            starts = [0, *ends[:-1]]
            keys = self.keys.take(pa.array(key_indices))
            self._by_bucket[bucket.bucket_count] = [keys.slice(a, b - a) for a, b in zip(starts, ends, strict=True)]
        return self._by_bucket[bucket.bucket_count][bucket.number]

    def _mask_in_any_file_range(self, keys: pa.Table, files: Iterable[DataFile]) -> pa.Array:
        mask = pa.repeat(pa.scalar(False), keys.num_rows)
        for file in files:
            mask = pc.or_(mask, self._mask_in_file_range(keys, file))
        return mask

    def _mask_in_file_range(self, keys: pa.Table, file: DataFile) -> pa.Array:
        """Mask of the keys that lie within the known bounds of a file."""
        mask = pa.repeat(pa.scalar(True), keys.num_rows)
        for name, type_ in self.types.items():
            if name in file.ranges:
                low, high = (pa.scalar(convert_value(v, type_), arrow_type(type_)) for v in file.ranges[name])
                column = one_chunk(keys.select([name])).column(0).chunk(0)
                mask = pc.and_(mask, pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))
        return mask


def _is_lossless_cast(source_type: pa.DataType, target_type: pa.DataType) -> bool:
    """Whether a checked cast between the types, which fails for a value that does not fit, preserves every value."""
    type_tests = (pa.types.is_integer, pa.types.is_timestamp, _is_string_type, _is_binary_type)
    are_of_one_kind = any(is_of_kind(source_type) and is_of_kind(target_type) for is_of_kind in type_tests)
    differ_in_zone = (
        pa.types.is_timestamp(source_type)
        and pa.types.is_timestamp(target_type)
        and (source_type.tz is None) != (target_type.tz is None)
    )
    return source_type == target_type or (are_of_one_kind and not differ_in_zone)


def _is_string_type(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_binary_type(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _only_blocks(sources: Sequence[object]) -> tuple[Block, ...]:
    return tuple(s for s in sources if isinstance(s, Block))
