"""Spark engine: the ``Engine`` protocol over Parquet files. Spark starts only when a frame is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova_assets.engine.buckets import arrow_merge
from nova_assets.engine.inputs.database_rows import read_database_rows
from nova_assets.engine.inputs.insert_data import convert_insert_data, read_kept_files
from nova_assets.engine.inputs.large_parquet import LargeParquetFiles
from nova_assets.engine.inputs.partition_columns import add_partition_columns
from nova_assets.engine.read.matching_keys import check_key_columns, filter_rows_by_keys
from nova_assets.engine.read.read_executor import ReadExecutor
from nova_assets.engine.read.streaming_reader import StreamingReader
from nova_assets.engine.read.sum_checks import check_sums_fit
from nova_assets.engine.session import shared_settings
from nova_assets.engine.session.cluster import check_workers_share_warehouse
from nova_assets.engine.session.cpu_time import session_cpu_seconds
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.shuffles import shuffle_partitions
from nova_assets.engine.session.spark_config import READ_SETTINGS
from nova_assets.engine.storage import external_files
from nova_assets.engine.storage.remote_warehouse import open_warehouse
from nova_assets.engine.storage.table_files_store import AddressedObjects
from nova_assets.engine.storage.throttling import set_throttle_budget, throttling_scope
from nova_assets.engine.tasks import kept_frames
from nova_assets.engine.tasks.function_shipping import ship_function
from nova_assets.engine.write.block_rewriter import BlockRewriter
from nova_assets.engine.write.block_writer import BlockWriter
from nova_assets.engine.write.row_digest import digest_of, digest_of_frame
from nova_assets.errors import SchemaMismatch
from nova_assets.formats import schema_fit
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.block import Block, DataFile, Manifest, StagedBlock
from nova_assets.model.block_options import NO_OPTIONS, BlockOptions
from nova_assets.model.channel import Channel
from nova_assets.model.database_source import DatabaseRead
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.reads import DeltaChain, Read, Snapshot
from nova_assets.model.resources import NO_PARALLELISM, Parallelism
from nova_assets.model.schema import DELETED, DataType, Schema
from nova_assets.model.sum_bounds import name_channel_in_overflow_errors
from nova_assets.model.table_files import ExistingTableFile, TableFile, TableFileLayout
from nova_assets.model.warehouse_contents import UnfinishedUpload, WarehouseEntry
from nova_assets.settings import THROTTLE_BUDGET
from nova_assets.suggestions import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine:
    """Executes reads and writes with Spark. Inserts of Arrow data need no Spark.

    ``model/engine`` documents the methods of the ``Engine`` protocol.

    Args:
        warehouse: folder of all blocks.
        spark: Spark session, a function that returns a session on demand, or None for a local session of this process.
        forced_strategy: read strategy for reads and rewrites wherever it is applicable; None for the cheapest strategy.
        throttle_budget: seconds for which one request of this process may wait for a throttled object store.
    """

    format = "parquet"

    def __init__(
        self,
        warehouse: str | Path,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        forced_strategy: ReadStrategy | None = None,
        throttle_budget: float = THROTTLE_BUDGET,
    ) -> None:
        set_throttle_budget(throttle_budget)
        self.warehouse = open_warehouse(warehouse)
        self._session = LazySparkSession(spark, partial(check_workers_share_warehouse, self.address))
        self.limit_cores = self._session.limit_cores
        self.forced_strategy = forced_strategy
        self._writer = BlockWriter(self._session, self.warehouse)
        self.check_warehouse_writable = self.warehouse.check_writable
        self.move_to_orphans, self.file_size = self.warehouse.move_to_orphans, self.warehouse.file_size
        self._read_executor = ReadExecutor(self._session, self.warehouse, forced_strategy)

    @property
    def address(self) -> str:
        return self.warehouse.address

    @property
    def session(self) -> SparkSession:
        """Spark session, started on the first call. Raises EngineUnavailable."""
        return self._session.get()

    def close(self) -> None:
        """Release the session settings that are held for frames handed out to callers."""
        self._read_executor.frame_scope.release()

    @contextmanager
    def computation_scope(self) -> Iterator[None]:
        with throttling_scope(), self._session.convert_spark_end_errors(), shared_settings.batch_limit_scope():
            yield

    def cpu_seconds(self) -> float | None:
        return None if (spark := self._session.current) is None else session_cpu_seconds(spark)

    def read(self, read: Read) -> Any:
        return self._read_executor.read_frame(read)

    def fetch(self, read: Read) -> Any:
        table = self._read_executor.read_without_spark(read)
        return self.read(read) if table is None else table

    def read_batches(self, read: Read, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        return StreamingReader(self, self._read_executor).open_reader(read, columns)

    def filter_by_keys(
        self,
        snapshot: Any,
        keys: Any,
        key_columns: Sequence[str],
        *,
        in_process: bool = False,
        may_be_table: bool = False,
    ) -> Any:
        check_key_columns(self.column_names(keys), key_columns)
        if isinstance(snapshot, Snapshot):
            if key_columns and set(key_columns) == set(snapshot.merge.key):
                matching_rows = self._read_executor.look_up_keys(snapshot, keys, as_table=in_process)
                if matching_rows is not None:
                    is_wanted = in_process or may_be_table or not isinstance(matching_rows, pa.Table)
                    return matching_rows if is_wanted else self._to_frame(matching_rows)
            snapshot = self.fetch(snapshot) if in_process else self.read(snapshot)
        are_both_tables = isinstance(snapshot, pa.Table) and isinstance(keys, pa.Table) and bool(key_columns)
        if are_both_tables and (table := filter_rows_by_keys(snapshot, keys, key_columns)) is not None:
            return table
        from nova_assets.engine.read.spark_multiset import filter_equal_rows
        from nova_assets.engine.rows.spark_columns import col

        snapshot, keys = self._to_frame(snapshot), self._to_frame(keys)
        if not key_columns:
            return filter_equal_rows(snapshot, keys) if snapshot.columns else snapshot
        key_rows = keys.select(*map(col, key_columns))
        if not snapshot.columns:  # a channel without a schema is empty; its keys look like these
            return key_rows.limit(0)
        with temporary_settings(self.session, READ_SETTINGS):
            return snapshot.join(key_rows, list(key_columns), "left_semi").select(*map(col, snapshot.columns))

    def drop_deletions(self, change: Any) -> Any:
        if isinstance(change, pa.Table):
            return arrow_merge.drop_deletions(change)
        from nova_assets.engine.rows.spark_columns import col

        return change.where(~col(DELETED)).drop(DELETED)

    def add_partition_columns(self, frame: Any, channel: Channel, scope: str, schema: Schema | None) -> Any:
        return add_partition_columns(frame, self.column_names(frame), channel, scope, schema)

    def select(self, frame: Any, columns: Sequence[str]) -> Any:
        existing = list(self.column_names(frame))
        if missing := [c for c in columns if c not in existing]:
            raise SchemaMismatch(
                f"there are no columns {', '.join(map(repr, missing))}{did_you_mean(missing[0], existing)}",
                found=", ".join(columns),
                expected=f"some of {', '.join(existing)}",
            )
        kept = [*columns, *(c for c in existing if c == DELETED and c not in columns)]
        if isinstance(frame, pa.Table):
            return frame.select(kept)
        from nova_assets.engine.rows.spark_columns import col

        return frame.select(*map(col, kept))

    def to_arrow(self, frame: Any) -> pa.Table:
        return frame if isinstance(frame, pa.Table) else self._session.to_table(frame)

    def compute_query(
        self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any], max_rows: int
    ) -> Any | None:
        from nova_assets.engine.read.table_files import frames_with_files
        from nova_assets.engine.tasks.sql_query import analyze_query

        with frames_with_files(self.session, frames) as spark_frames:
            return self._session.to_table_of_few(analyze_query(self.session, sql, values, spark_frames), max_rows)

    def is_empty(self, frame: Any) -> bool:
        return frame.num_rows == 0 if isinstance(frame, pa.Table) else bool(frame.isEmpty())

    def is_frame(self, data: Any) -> bool:
        return isinstance(data, pa.Table) or (hasattr(data, "schema") and type(data).__module__.startswith("pyspark."))

    def column_names(self, frame: Any) -> Sequence[str]:
        names: Sequence[str] = frame.column_names if isinstance(frame, pa.Table) else frame.columns
        return names

    def count(self, frame: Any) -> int:
        return int(frame.num_rows if isinstance(frame, pa.Table) else frame.count())

    def schema_of(self, frame: Any) -> Schema:
        if isinstance(frame, pa.Table):
            return schema_fit.schema_of(frame)
        if not self.is_frame(frame):
            raise SchemaMismatch(
                "a task returned an object that is not a DataFrame",
                found=type(frame).__name__,
                expected="a Spark DataFrame",
            )
        from nova_assets.engine.rows.spark_types import from_struct

        return from_struct(frame.schema)

    def create_query_frame(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any]) -> Any:
        from nova_assets.engine.tasks.sql_query import analyze_query

        return analyze_query(self.session, sql, values, {n: self._to_frame(f) for n, f in frames.items()})

    @contextmanager
    def evaluate_once(self, frames: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        from nova_assets.engine.tasks.shared_frames import persist_shared_frames

        spark_frames = {port: f for port, f in frames.items() if not isinstance(f, pa.Table)}
        if len(spark_frames) < 2:
            yield frames
            return
        with persist_shared_frames(spark_frames) as persisted_frames:
            yield {**frames, **persisted_frames}

    persisted_rows = staticmethod(kept_frames.keep_frame)
    runs_python = staticmethod(kept_frames.runs_python)

    def optimized_plan(self, frame: Any) -> str | None:
        from nova_assets.engine.tasks.sql_query import optimized_plan

        return optimized_plan(self.session, self._to_frame(frame))

    def write(
        self,
        frame: Any,
        staged: StagedBlock,
        channel: Channel | None,
        schema: Schema,
        *,
        digest: bool = False,
        options: BlockOptions = NO_OPTIONS,
    ) -> Manifest:
        with self.computation_scope():
            return self._writer.write(frame, staged, channel, schema, compute_digest=digest, options=options)

    def frame_digest(self, frame: Any, schema: Schema | None) -> str:
        if isinstance(frame, pa.Table):
            return str(digest_of(frame, schema))
        return str(digest_of_frame(self._session, frame, schema))

    def rewrite(
        self, read: Snapshot | DeltaChain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, ReadStrategy]:
        rewriter = BlockRewriter(self._session, self.warehouse, self._writer, self.read, self.forced_strategy)
        with name_channel_in_overflow_errors(read), self.computation_scope():
            return rewriter.rewrite(read, staged, channel, schema)

    @contextmanager
    def task_computation_scope(
        self,
        job_name: str,
        function: Callable[..., Any],
        on_progress: Callable[[int, int], None],
        parallelism: Parallelism = NO_PARALLELISM,
    ) -> Iterator[None]:
        from nova_assets.engine.tasks.progress import watch_spark_jobs

        spark = self._session.get_limited(parallelism.max_cores)
        ship_function(function, spark)
        jobs = watch_spark_jobs(spark, job_name, on_progress)
        with self.computation_scope(), shuffle_partitions(spark, parallelism), jobs:
            yield

    def convert_input(self, data: Any, schema: Schema | None, *, allow_widening: bool = False) -> Any:
        rows = convert_insert_data(data, schema, allow_widening=allow_widening)
        if isinstance(rows, pa.Table):
            return rows
        from nova_assets.engine.rows.spark_conversion import convert_frame

        if isinstance(rows, LargeParquetFiles):
            shared_settings.current_scope(self._read_executor.frame_scope).limit_batches(
                self._session.get, rows.widest_row_width
            )
            if self._session.can_use_workers:
                return rows.to_frame(self.session)
            # Spark's own reader rejects files that store one column with different types.
            rows = self.session.read.option("mergeSchema", "true").parquet(*map(str, rows.paths))
        return convert_frame(rows, schema, allow_widening=allow_widening)

    def convert_kept_files(
        self, data: Any, schema: Schema | None, *, allow_widening: bool = False
    ) -> tuple[Any, BlockOptions]:
        return read_kept_files(data, schema, allow_widening)

    def to_frame(self, data: Any, schema: Schema | None) -> Any:
        if schema is None:
            return self._to_frame(data)
        is_empty = isinstance(data, Sequence) and not data
        return self._to_frame(to_arrow_schema(schema).empty_table() if is_empty else self.convert_input(data, schema))

    def read_table_folder(
        self, folder: str, files: Sequence[ExistingTableFile], channel: Channel, layout: TableFileLayout
    ) -> Any:
        from nova_assets.engine.inputs.remote_folder import fits_in_memory, read_remote_files
        from nova_assets.engine.read.table_folder import read_table_folder

        if "://" in folder and fits_in_memory(files):
            return read_remote_files(files, channel)
        return read_table_folder(self.session, folder, files, channel, layout)

    def write_table_files(
        self, read: Snapshot, folder: str, layout: TableFileLayout, *, rows: int, file_count: int, target_bytes: int
    ) -> list[TableFile]:
        from nova_assets.engine.write import table_files

        assert read.schema is not None, "a channel without a schema is not published"
        with self.computation_scope():
            if layout.format != "parquet":
                frame = self._to_frame(self.read(read))
                return table_files.write_table_files_by_spark(frame, folder, layout, file_count, rows)
            batches = self.read_batches(read)
            return table_files.write_parquet_table_files(batches, folder, layout, read.schema, target_bytes, rows)

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
            return self.to_arrow(self.fetch(read))
        rows = read if isinstance(read, Snapshot) else self.fetch(read)
        return self.to_arrow(self.filter_by_keys(rows, keys, key, in_process=True))

    def delete_staged_folder(self, folder: str) -> list[str]:
        files = self.warehouse.list_block_folder(folder)
        self.warehouse.delete_block_folder(folder)
        return files

    list_external_files = staticmethod(external_files.list_files)

    describe_external_files = staticmethod(external_files.describe_files)
    read_external_schema = staticmethod(external_files.read_file_schema)

    def read_database(self, read: DatabaseRead) -> Any:
        return read_database_rows(self.session, read)

    table_store = staticmethod(AddressedObjects)

    def delete_files(self, paths: Iterable[str]) -> None:
        self.warehouse.delete_files(paths)

    def list_warehouse(self) -> list[WarehouseEntry]:
        return self.warehouse.list_block_entries()

    def unfinished_uploads(self) -> list[UnfinishedUpload]:
        return self.warehouse.unfinished_uploads()

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.warehouse.abort_unfinished_upload(upload)

    def file_defect(self, file: DataFile, *, thorough: bool = False) -> str | None:
        return self.warehouse.find_file_defect(file, thorough=thorough)

    def verified_file_addresses(self, files: Sequence[DataFile]) -> list[str]:
        return self.warehouse.verified_addresses(files)

    def write_catalog_marker(self, catalog_id: str, identity: str) -> None:
        self.warehouse.write_catalog_marker(catalog_id, identity)

    def read_catalog_marker(self, catalog_id: str) -> str | None:
        return self.warehouse.read_catalog_marker(catalog_id)

    def catalogs_with_marker(self) -> frozenset[str]:
        return self.warehouse.catalogs_with_marker()

    def _to_frame(self, data: Any) -> Any:
        return self._session.to_frame(data) if isinstance(data, pa.Table) else data
