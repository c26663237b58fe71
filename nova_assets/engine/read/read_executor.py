"""Execution of reads by the cheapest strategy (``plan/read_strategy``): in memory, by merge units, or by Spark's joins.

All strategies return the same rows. The last strategy is the reference for the other two, and their fallback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova_assets.engine.buckets.arrow_merge import with_deleted_column
from nova_assets.engine.buckets.key_order import floats_as_integers, to_single_array
from nova_assets.engine.read.in_memory import compute_in_memory
from nova_assets.engine.read.merge_unit_reader import MergeUnitReader, MergeUnitReadPlan
from nova_assets.engine.read.streaming_reader import StreamingReader
from nova_assets.engine.read.sum_checks import check_sums_fit
from nova_assets.engine.session import shared_settings
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.spark_config import READ_SETTINGS
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.errors import SchemaMismatch
from nova_assets.masking import get_logger
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.block import Block, Manifest
from nova_assets.model.engine import Frames
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.reads import (
    ChangeUnion,
    DeltaChain,
    Read,
    Snapshot,
    SnapshotAsInserts,
    SnapshotDiff,
    is_certainly_empty,
    source_blocks,
)
from nova_assets.model.schema import DELETED, DataType
from nova_assets.plan.batch_size import row_width_of_read
from nova_assets.plan.block_layout import common_layout
from nova_assets.plan.partial_reads import columns_of_read
from nova_assets.plan.read_strategy import choose_strategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = get_logger("nova_assets.engine")

MIN_LOOKUP_SNAPSHOT_BYTES = 32 * 2**20
"""Snapshots with fewer bytes are joined with the keys of a lookup: to collect the keys first would cost more."""

MAX_LOOKUP_KEYS = 1_000_000
"""Maximum number of keys in a lookup. With more keys, all rows are scanned."""

MAX_LOCAL_LOOKUP_BYTES = 64 * 2**20
"""Maximum size of the opened files for a lookup in this process."""


class ReadExecutor:
    """Executes reads: the protocol ``Reader``.

    Args:
        frames: operations on the frames that are returned.
        forced_strategy: strategy to use wherever it is applicable; None for the cheapest strategy.
    """

    def __init__(
        self,
        session: LazySparkSession,
        warehouse: Warehouse,
        frames: Frames,
        forced_strategy: ReadStrategy | None = None,
    ) -> None:
        self.session = session
        self.warehouse = warehouse
        self.frames = frames
        self.forced_strategy = forced_strategy
        self.merge_unit_reader = MergeUnitReader(session, warehouse)
        self.frame_scope = shared_settings.BatchLimitScope()

    def read(self, read: Read) -> DataFrame:
        """Rows of a read as a Spark frame."""
        from nova_assets.engine.read.spark_reader import SparkReader, mark_frame_as_inserts

        if isinstance(read, ChangeUnion):
            parts = [self.read(p) for p in read.parts]
            if any(DELETED in p.columns for p in parts):
                parts = [p if DELETED in p.columns else mark_frame_as_inserts(p) for p in parts]
            return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
        shared_settings.current_scope(self.frame_scope).limit_batches(self.session.get, row_width_of_read(read))
        if isinstance(read, Snapshot | DeltaChain | SnapshotDiff):
            can_read_units = (
                choose_strategy(read, "frame", self.forced_strategy) == "buckets" and self.session.can_use_workers
            )
            if can_read_units and (plan := self.merge_unit_reader.plan_unit_reads(read)) is not None:
                return self.merge_unit_reader.read_frame(plan)
        return SparkReader(self.session, self.warehouse).read(read)

    def fetch(self, read: Read) -> Any:
        table = self.read_without_spark(read)
        return self.read(read) if table is None else table

    def read_batches(self, read: Read, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        return self._streaming_reader(reads_ahead=False).open_reader(read, columns)

    def read_table(self, read: Read, columns: Sequence[str] | None = None) -> pa.Table:
        rows = self.read_without_spark(read)
        if rows is None:
            rows = self._streaming_reader(reads_ahead=True).read_table(read, columns)
        elif columns is not None:
            rows = self.frames.select(rows, columns)
        # A frame that Spark made of a table with several chunks of different lengths was seen to lack rows.
        return rows.combine_chunks()

    def _streaming_reader(self, *, reads_ahead: bool) -> StreamingReader:
        return StreamingReader(self, self.frames, self.warehouse, self.merge_unit_reader, reads_ahead=reads_ahead)

    def read_without_spark(self, read: Read) -> pa.Table | None:
        """Rows of a read as a table; None if the read needs Spark."""
        if is_certainly_empty(read) and (columns := columns_of_read(read)) is not None:
            return to_arrow_schema(columns.with_all_nullable()).empty_table()
        if isinstance(read, SnapshotAsInserts):
            rows = self.read_without_spark(read.snapshot)
            return rows if rows is None or not read.snapshot.merge.has_deletions else with_deleted_column(rows, False)
        if isinstance(read, ChangeUnion):
            parts = [self.read_without_spark(p) for p in read.parts]
            tables = [p for p in parts if p is not None]
            if any(DELETED in t.column_names for t in tables):  # blocks of an earlier Append model only add rows
                tables = [t if DELETED in t.column_names else with_deleted_column(t, False) for t in tables]
            return pa.concat_tables(tables, promote_options="default") if len(tables) == len(parts) else None
        if (
            not isinstance(read, Snapshot | DeltaChain | SnapshotDiff)
            or choose_strategy(read, "here", self.forced_strategy) != "arrow"
        ):
            return None
        return self.try_compute_in_memory(read)

    def filter_by_keys(
        self,
        snapshot: Any,
        keys: Any,
        key_columns: Sequence[str],
        *,
        in_process: bool = False,
        may_be_table: bool = False,
    ) -> Any:
        check_key_columns(self.frames.column_names(keys), key_columns)
        if isinstance(snapshot, Snapshot):
            if key_columns and set(key_columns) == set(snapshot.merge.key):
                matching_rows = self.look_up_keys(snapshot, keys, as_table=in_process)
                if matching_rows is not None:
                    return matching_rows if in_process or may_be_table else self.frames.to_frame(matching_rows)
            snapshot = self.fetch(snapshot) if in_process else self.read(snapshot)
        are_both_tables = isinstance(snapshot, pa.Table) and isinstance(keys, pa.Table) and bool(key_columns)
        if are_both_tables and (table := filter_rows_by_keys(snapshot, keys, key_columns)) is not None:
            return table
        from nova_assets.engine.read.spark_multiset import filter_equal_rows
        from nova_assets.engine.rows.spark_columns import col

        snapshot, keys = self.frames.to_frame(snapshot), self.frames.to_frame(keys)
        if not key_columns:
            return filter_equal_rows(snapshot, keys) if snapshot.columns else snapshot
        key_rows = keys.select(*map(col, key_columns))
        if not snapshot.columns:  # a channel without a schema is empty; its keys look like these
            return key_rows.limit(0)
        with temporary_settings(self.session.get(), READ_SETTINGS):
            return snapshot.join(key_rows, list(key_columns), "left_semi").select(*map(col, snapshot.columns))

    def count_dropped_rows(self, old: Snapshot, new: Manifest) -> int:
        from nova_assets.engine.read.spark_diff import count_removed_rows

        block = Block("", old.channel, "", "base", old.at + 1, old.at + 1, new, old.merge)
        new_rows = self.read(Snapshot(old.channel, old.at + 1, (block,), (), new.schema, old.merge))
        return count_removed_rows(self.read(replace(old, schema=new.schema)), new_rows)

    def check_no_sum_overflow(
        self, error_label: str, staged: Block, earlier_blocks: Sequence[Block], type_by_column: Mapping[str, DataType]
    ) -> None:
        read_rows = partial(self._read_rows_of_keys, staged.merge.key)
        check_sums_fit(error_label, staged, earlier_blocks, type_by_column, read_rows)

    def _read_rows_of_keys(self, key: Sequence[str], read: Read, keys: pa.Table | None) -> pa.Table:
        if keys is None:
            return self.frames.to_arrow(self.fetch(read))
        rows = read if isinstance(read, Snapshot) else self.fetch(read)
        return self.frames.to_arrow(self.filter_by_keys(rows, keys, key, in_process=True))

    def look_up_keys(self, read: Read, keys: Any, *, as_table: bool) -> Any | None:
        """Rows of a snapshot with certain keys. Only the buckets and row groups that may contain these keys are opened.

        None if all rows must be scanned.

        Args:
            keys: table or frame with the key columns.
            as_table: whether to return a table. Otherwise the result is a frame if the rows are many.
        """
        if (
            not isinstance(read, Snapshot)
            or self.forced_strategy == "spark"
            or (shared_layout := common_layout(read)) is None
        ):
            return None
        key_columns = list(shared_layout.layout.order)
        if set(key_columns) != set(read.merge.key):  # written under another merge model (R18)
            return None
        if not isinstance(keys, pa.Table):
            snapshot_bytes = sum(b.bytes for b in source_blocks(read) if isinstance(b, Block))
            keys = (
                self._collect_distinct_keys(keys, key_columns) if snapshot_bytes >= MIN_LOOKUP_SNAPSHOT_BYTES else None
            )
        if keys is None or keys.num_rows > MAX_LOOKUP_KEYS:
            return None
        try:
            plan = self.merge_unit_reader.plan_unit_reads(read, keys)
        except pa.ArrowException:  # keys of another type, which only Spark can compare
            return None
        try:
            return None if plan is None else self._read_planned_units(plan, as_table=as_table)
        except OverflowError:  # of a combined value; the fallback to Spark raises the usual error
            return None

    def _read_planned_units(self, plan: MergeUnitReadPlan, *, as_table: bool) -> Any:
        if not as_table and plan.bytes_to_open > MAX_LOCAL_LOOKUP_BYTES and self.session.can_use_workers:
            return self.merge_unit_reader.read_frame(plan)
        return self.merge_unit_reader.read_table(plan)

    def _collect_distinct_keys(self, keys: DataFrame, key_columns: list[str]) -> pa.Table | None:
        from nova_assets.engine.rows.spark_columns import col

        distinct_keys = keys.select(*map(col, key_columns)).distinct().limit(MAX_LOOKUP_KEYS + 1)
        return self.session.to_table(distinct_keys)

    def try_compute_in_memory(self, read: Snapshot | DeltaChain | SnapshotDiff) -> pa.Table | None:
        """Rows of a read for which memory was chosen; None if Spark must compute them."""
        try:
            rows = compute_in_memory(read, self.warehouse)
        except OverflowError as error:  # of a combined value; the fallback to Spark raises the usual error
            log.info("computed by Spark: %s", error)
            return None
        return None if rows is None else rows.cast(pa.schema([f.with_nullable(True) for f in rows.schema]))


# rows with certain keys, if both rows and keys are tables in this process

_ROW = "__nova_row"


def check_key_columns(columns: Sequence[str], key_columns: Sequence[str]) -> None:
    """Check that keys have the columns by which rows are found.

    Raises:
        SchemaMismatch: with the missing columns.
    """
    missing = [c for c in key_columns if c not in columns]
    if missing:
        raise SchemaMismatch(
            f"the keys lack the columns {', '.join(map(repr, missing))}",
            found=", ".join(columns),
            expected=", ".join(key_columns),
            next="name the columns with matching(..., on=...)",
        )


def filter_rows_by_keys(rows: pa.Table, keys: pa.Table, key_columns: Sequence[str]) -> pa.Table | None:
    """Rows whose key occurs in ``keys``, in their order; None if only Spark can decide which values are equal.

    As in SQL, a null equals nothing.

    Args:
        key_columns: columns to compare, present in both tables.
    """
    if not rows.num_rows:
        return rows
    type_by_column = {column: rows.schema.field(column).type for column in key_columns}
    if not all(
        _has_bytewise_equality(type_by_column[c])
        and _are_comparable_types(keys.schema.field(c).type, type_by_column[c])
        for c in key_columns
    ):
        return None
    try:
        wanted_keys = {c: keys.column(c).cast(type_) for c, type_ in type_by_column.items()}
    except pa.ArrowInvalid:  # a number outside the range of the column
        return None
    wanted, comparable = (
        pa.table({c: floats_as_integers(to_single_array(column)) for c, column in columns.items()})
        for columns in (wanted_keys, {c: rows.column(c) for c in key_columns})
    )
    numbered = comparable.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    row_numbers = numbered.join(wanted, list(key_columns), join_type="left semi").column(_ROW)
    return rows.take(row_numbers.combine_chunks().sort())


def _has_bytewise_equality(type_: pa.DataType) -> bool:
    """Whether two values of a type are equal if and only if their bytes are. Those of floats are brought into this
    form."""
    t = pa.types
    kinds = (t.is_integer, t.is_string, t.is_date, t.is_boolean, t.is_timestamp, t.is_floating, t.is_decimal)
    return any(kind(type_) for kind in kinds)


def _are_comparable_types(key_type: pa.DataType, row_type: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string)
    both_texts = all(any(is_text(t) for is_text in texts) for t in (key_type, row_type))
    return key_type == row_type or both_texts or (pa.types.is_integer(key_type) and pa.types.is_integer(row_type))
