"""Reads (``model/reads``) as Spark frames: exactly the listed files, with their schema, without any listing (R16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.read.block_reader import MAX_FILES_IN_QUERY_TEXT, BlockReader
from nova_assets.engine.read.spark_diff import added_rows_or_raise, diff_multisets, diff_snapshots
from nova_assets.engine.read.spark_merge import (
    DELTA_INDEX,
    compose_changes,
    drop_deletions,
    filter_superseded_rows,
    merge_deltas,
)
from nova_assets.engine.read.spark_multiset import (
    added_rows,
    compose_row_changes,
    merge_row_changes,
    to_delta_rows,
)
from nova_assets.engine.rows.spark_columns import col
from nova_assets.engine.rows.spark_schema_fit import cast_custom_merge_result
from nova_assets.engine.rows.spark_types import to_spark_type
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.spark_config import READ_SETTINGS
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.errors import NotSupported
from nova_assets.model.block import Block
from nova_assets.model.function_reference import FunctionRef
from nova_assets.model.merge import Custom, MergeModel, Multiset
from nova_assets.model.reads import (
    BlockSource,
    DeltaChain,
    EmptyRead,
    Read,
    Snapshot,
    SnapshotAsInserts,
    SnapshotDiff,
    StagedBlockPlaceholder,
    merge_model_of,
    merge_runs,
)
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.block_layout import changed_key_range, split_by_changed_partition, split_by_delta_overlap
from nova_assets.plan.partial_reads import columns_of_old_snapshot

BROADCAST_ROWS = 2_000_000
BROADCAST_BYTES = 256 * 2**20
"""Maximum size of deltas whose keys are broadcast to every worker. Measured with a driver of 2 GB: four million keys of
32 characters fit, ten million do not."""

ALWAYS_BROADCAST_ROWS = 100_000
"""Number of rows up to which keys are broadcast, independent of the size of the other columns."""

_NO_COLUMNS = Schema(())


class SparkReader:
    """Builds frames from blocks."""

    def __init__(self, session: LazySparkSession, warehouse: Warehouse) -> None:
        self.session = session
        self.blocks = BlockReader(session, warehouse)

    def read(self, read: Read) -> DataFrame:
        """Frame of a read.

        A channel without a schema yields a frame without columns (or with ``_deleted`` alone, for a change of a keyed
        channel).

        Raises:
            FileMissing, UnrepresentableChange, NotSupported.
        """
        with temporary_settings(self.session.get(), READ_SETTINGS):
            return self._build_frame(read)

    def _build_frame(self, read: Read) -> DataFrame:
        if isinstance(read, Snapshot):
            return self._snapshot_frame(read)
        if isinstance(read, SnapshotAsInserts):
            return self._inserts_frame(read.snapshot)
        if isinstance(read, DeltaChain):
            return self._chain_frame(read)
        if isinstance(read, SnapshotDiff):
            return self._diff_frame(read)
        if isinstance(read, EmptyRead):
            return self._empty_read_frame(read)
        raise NotSupported(f"reads of type {type(read).__name__} cannot be executed")

    # kinds of reads

    def _snapshot_frame(self, read: Snapshot) -> DataFrame:
        base, deltas = _resolved_blocks(read.bases), _resolved_blocks(read.deltas)
        model, schema = merge_model_of(read), read.schema or _NO_COLUMNS
        if isinstance(model, Custom):
            return self._snapshot_by_user_functions(read, base, deltas, model)
        runs = merge_runs(deltas, model)
        if len(runs) > 1 or any(m is not model for m, _ in runs):
            return self._merge_runs_to_frame(base, runs, schema)
        if not deltas or not model.has_deletions:
            return self.blocks.read([*base, *deltas], schema)  # without a key, all blocks are one read
        if isinstance(model, Multiset):
            return self._multiset_frame(read, deltas, schema)
        if self._can_use_anti_join(base, deltas, model):
            return self._snapshot_by_anti_join(read, base, deltas, schema)
        untouched, rest = (_resolved_blocks(s.bases) for s in split_by_delta_overlap(read))
        merged = self._merge_to_frame(rest, deltas, schema, model)
        return self.blocks.read(untouched, schema).union(merged) if untouched else merged

    def _multiset_frame(self, read: Snapshot, deltas: Sequence[Block], schema: Schema) -> DataFrame:
        untouched, base = (_resolved_blocks(s.bases) for s in split_by_changed_partition(read))
        changes = compose_row_changes(self._delta_rows(deltas, schema), is_multi_delta=len(deltas) > 1)
        rows = (
            merge_row_changes(self.blocks.read(base, schema), changes, broadcast_rows=_can_broadcast_rows(deltas))
            if base
            else added_rows(changes, schema.names)
        )
        return self.blocks.read(untouched, schema).union(rows) if untouched else rows

    def _can_use_anti_join(self, base: Sequence[Block], deltas: Sequence[Block], model: MergeModel) -> bool:
        """Whether the keys of the deltas alone decide which rows remain, and are few enough to broadcast."""
        are_all_parquet = all(b.manifest.format == "parquet" for b in (*base, *deltas))
        are_few_files = sum(len(d.manifest.files) for d in deltas) <= MAX_FILES_IN_QUERY_TEXT
        return (
            (bool(base) or len(deltas) > 1)
            and are_all_parquet
            and are_few_files
            and not model.needs_earlier_row
            and _can_broadcast_keys(deltas)
        )

    def _snapshot_by_anti_join(
        self, read: Snapshot, base: Sequence[Block], deltas: Sequence[Block], schema: Schema
    ) -> DataFrame:
        model, delta_index_by_path = merge_model_of(read), _index_deltas_by_path(deltas)
        rows = self.blocks.read([*base, *deltas], schema.with_deleted(), delta_index_by_path)
        changed = self.blocks.read(deltas, Schema(tuple(schema.field(k) for k in model.key)), delta_index_by_path)
        delta_index = col(DELTA_INDEX) if delta_index_by_path else F.lit(0)
        # Rows of the base and deletions need no index.
        rows = rows.withColumn(DELTA_INDEX, F.when(F.coalesce(col(DELETED), F.lit(True)), -1).otherwise(delta_index))
        changed = changed if delta_index_by_path else changed.withColumn(DELTA_INDEX, delta_index)
        return filter_superseded_rows(rows, changed, model, schema.names, _is_in_changed_key_range(read, schema))

    def _merge_to_frame(
        self, base: Sequence[Block], deltas: Sequence[Block], schema: Schema, model: MergeModel
    ) -> DataFrame:
        if base:
            return self._merge_runs_to_frame(base, [(model, deltas)], schema)
        changes = self._delta_rows(deltas, schema)
        return drop_deletions(compose_changes(changes, model) if len(deltas) > 1 else changes, schema.names)

    def _merge_runs_to_frame(
        self, base: Sequence[Block], runs: Sequence[tuple[MergeModel, Sequence[Block]]], schema: Schema
    ) -> DataFrame:
        """Rows of a base and deltas under several merge models of one key, run by run (Nova 3.1)."""
        rows = self.blocks.read(base, schema)
        for model, deltas in runs:
            rows = merge_deltas(
                rows,
                self._delta_rows(deltas, schema),
                model,
                is_multi_delta=len(deltas) > 1,
                broadcast_keys=_can_broadcast_keys(deltas),
            )
        return rows

    def _inserts_frame(self, snapshot: Snapshot) -> DataFrame:
        model, rows = merge_model_of(snapshot), self._snapshot_frame(snapshot)
        if isinstance(model, Custom):  # its deltas may have other columns than its bases: diff from B_0
            return _reduce_with_function(
                model.diff_ref, [self.blocks.empty_frame(snapshot.schema or _NO_COLUMNS), rows]
            )
        return mark_frame_as_inserts(rows) if model.has_deletions else rows

    def _chain_frame(self, read: DeltaChain) -> DataFrame:
        deltas, schema = _resolved_blocks(read.deltas), read.schema or _NO_COLUMNS
        model = merge_model_of(read)
        if isinstance(model, Custom):
            return _reduce_with_function(model.chain_ref, self._custom_delta_frames(deltas))
        if not model.has_deletions:
            return self.blocks.read(deltas, schema)
        changes = self._delta_rows(deltas, schema)
        if isinstance(model, Multiset) and len(deltas) > 1:
            return to_delta_rows(compose_row_changes(changes, is_multi_delta=True), schema.names)
        return compose_changes(changes, model) if len(deltas) > 1 else changes

    def _diff_frame(self, read: SnapshotDiff) -> DataFrame:
        model = merge_model_of(read.new)
        new = self._snapshot_frame(read.new)
        if isinstance(model, Custom):
            return _reduce_with_function(model.diff_ref, [self._snapshot_frame(read.old), new])
        old = self._old_frame(read)
        if not model.has_deletions:
            bases = _resolved_blocks(read.new.bases)
            keeps_all_rows = bool(bases) and all(b.manifest.drops_no_rows and b.hi == read.old.at + 1 for b in bases)
            return added_rows_or_raise(old, new, read.new.channel, assume_none_removed=keeps_all_rows)
        if isinstance(model, Multiset):
            return diff_multisets(old, new)
        has_other_key = merge_model_of(read.old).key != model.key  # written under another merge model (R18)
        return diff_snapshots(old, new, model, may_repeat_old_keys=has_other_key)

    def _old_frame(self, read: SnapshotDiff) -> DataFrame:
        """The old snapshot in the columns of the new one."""
        columns, names = columns_of_old_snapshot(read), (read.new.schema or read.old.schema or _NO_COLUMNS).names
        rows = self._snapshot_frame(replace(read.old, schema=columns))
        if columns.names == names:
            return rows
        return rows.select(*(col(old).alias(new) for old, new in zip(columns.names, names, strict=False)))

    def _empty_read_frame(self, read: EmptyRead) -> DataFrame:
        schema = read.schema or _NO_COLUMNS
        if not read.is_change:
            return self.blocks.empty_frame(schema)
        if isinstance(read.merge, Custom):
            return _reduce_with_function(
                read.merge.diff_ref, [self.blocks.empty_frame(schema), self.blocks.empty_frame(schema)]
            ).limit(0)
        return self.blocks.empty_frame(schema.with_deleted() if read.merge.has_deletions else schema)

    def _snapshot_by_user_functions(
        self, read: Snapshot, base: Sequence[Block], deltas: Sequence[Block], model: Custom
    ) -> DataFrame:
        schema = read.schema or _NO_COLUMNS
        # schema of the latest base block, or of B_0
        base_frame = self.blocks.read(base, base[-1].manifest.schema) if base else self.blocks.empty_frame(schema)
        for run_model, run in merge_runs(deltas, model):
            assert isinstance(run_model, Custom)
            changes = _reduce_with_function(run_model.chain_ref, self._custom_delta_frames(run))
            base_frame = _reduce_with_function(run_model.merge_ref, [base_frame, changes])
        return base_frame if read.schema is None else cast_custom_merge_result(base_frame, read.schema, read.channel)

    def _custom_delta_frames(self, deltas: Sequence[Block]) -> list[DataFrame]:
        """One frame per commit with its deltas. User functions must see all partitions of a commit together."""
        by_number: dict[int, list[Block]] = {}
        for d in deltas:
            by_number.setdefault(d.hi, []).append(d)
        return [
            self.blocks.read(blocks_of_number, blocks_of_number[-1].manifest.schema)
            for _, blocks_of_number in sorted(by_number.items())
        ]

    def _delta_rows(self, deltas: Sequence[Block], schema: Schema) -> DataFrame:
        """Rows of deltas that may have deletions: their columns, ``_deleted``, and, with several deltas, the index of
        the delta as ``DELTA_INDEX``."""
        are_several, delta_index_by_path = len(deltas) > 1, _index_deltas_by_path(deltas)
        rows = self.blocks.read(deltas, schema.with_deleted(), delta_index_by_path)
        if are_several and not delta_index_by_path:
            rows = rows.withColumn(DELTA_INDEX, F.lit(0))
        return rows.withColumn(DELETED, F.coalesce(col(DELETED), F.lit(False)))


def mark_frame_as_inserts(rows: DataFrame) -> DataFrame:
    """Rows as a change that inserts all of them."""
    return rows.withColumn(DELETED, F.lit(False))


def _reduce_with_function(function_ref: str, frames: Sequence[DataFrame]) -> DataFrame:
    """Frames combined from left to right by a user's function of two frames."""
    return reduce(FunctionRef.parse(function_ref).load(), frames)


def _resolved_blocks(sources: Sequence[BlockSource]) -> list[Block]:
    blocks = []
    for source in sources:
        assert not isinstance(source, StagedBlockPlaceholder), "a read is resolved before it is carried out"
        blocks.append(source)
    return blocks


def _index_deltas_by_path(deltas: Sequence[Block]) -> dict[str, int]:
    """Index of the delta of each file; empty unless there are several deltas."""
    return {f.path: n for n, d in enumerate(deltas) for f in d.manifest.files} if len(deltas) > 1 else {}


def _is_in_changed_key_range(read: Snapshot, schema: Schema) -> Column | None:
    """Whether a row may have a key of the deltas, by the bounds of one column; None unless keys are clustered by
    range."""
    key_range = changed_key_range(read)
    if key_range is None:
        return None
    key_type = to_spark_type(schema.field(key_range.column).type)
    least, greatest = (F.lit(value).cast(key_type) for value in (key_range.least, key_range.greatest))
    return col(key_range.column).between(least, greatest)


def _can_broadcast_rows(deltas: Sequence[Block]) -> bool:
    return sum(d.rows for d in deltas) <= BROADCAST_ROWS and sum(d.bytes for d in deltas) <= BROADCAST_BYTES


def _can_broadcast_keys(deltas: Sequence[Block]) -> bool:
    rows, size = sum(d.rows for d in deltas), sum(d.bytes for d in deltas)
    return rows <= ALWAYS_BROADCAST_ROWS or (rows <= BROADCAST_ROWS and size <= BROADCAST_BYTES)
