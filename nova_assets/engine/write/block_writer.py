"""Writing of blocks as Parquet files with Zstandard: rows are fitted to the channel's schema, written, then checked
(R11).

A frame is evaluated once, by the write itself. The checks read the written rows, since a second evaluation could return
other rows. Each writer reports its files, so no folder is listed to find the files of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.file_writer import FileTarget, WrittenFile
from nova_assets.engine.buckets.partitioning import partition_of_file
from nova_assets.engine.rows.canonical_keys import canonicalize_columns
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.spark_config import WRITE_SETTINGS
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import altered_file_error_from, open_block_file
from nova_assets.engine.storage.parquet_footers import FileSummary, total_null_count
from nova_assets.engine.storage.warehouse import BLOCKS, Warehouse
from nova_assets.engine.write import key_checks
from nova_assets.engine.write.block_file_writer import are_keys_proven_unique, write_frame, write_table
from nova_assets.engine.write.block_target import BlockTarget
from nova_assets.engine.write.format_converter import convert_files, keep_files
from nova_assets.engine.write.repeated_keys import RepeatedKeyResolver
from nova_assets.engine.write.row_digest import digest_of, digest_of_files, digest_of_frame
from nova_assets.errors import BadKey, SchemaMismatch, WarehouseUnavailable
from nova_assets.formats import schema_fit
from nova_assets.formats.python_values import to_python_rows
from nova_assets.model.block import DataFile, Manifest, StagedBlock
from nova_assets.model.block_options import NO_OPTIONS, BlockOptions
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append, Custom, MergeModel
from nova_assets.model.schema import DELETED, Schema
from nova_assets.nova_error import NovaError
from nova_assets.plan.block_layout import layout_for_channel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BlockWriter:
    """Writes staged blocks: the protocol ``Writer``."""

    def __init__(self, session: LazySparkSession, warehouse: Warehouse) -> None:
        self.session = session
        self.warehouse = warehouse
        self.resolver = RepeatedKeyResolver(session)

    def write(
        self,
        frame: Any,
        staged: StagedBlock,
        channel: Channel | None,
        schema: Schema,
        *,
        digest: bool = False,
        options: BlockOptions = NO_OPTIONS,
        keys_checked: bool = False,
    ) -> Manifest:
        """Write a frame into the folder of its block and return the manifest. A failed write leaves no files behind.

        Args:
            frame: Arrow table or Spark frame.
            staged: block to write.
            channel: channel of the block; None for rows of a private port.
            schema: schema of the channel or of the port's rows.
            digest: whether to compute the digest of the rows, too.
            options: merge model and file format of the block.
            keys_checked: whether the channel already holds the rows, so that their keys need no further check.

        Raises:
            SchemaMismatch, BadKey, WarehouseUnavailable.
            PartitionError: a row belongs to no partition, or to a partition outside the scope.
        """
        target = self._build_target(staged, channel, schema, options.merge)
        with self.session.computation_scope(), self._remove_staged_on_failure(staged):
            if options.kept_files:
                return self._keep_files(frame, target, options, digest)
            return self._write_and_check(frame, target, keys_checked, digest, options.format or "parquet")

    def frame_digest(self, frame: Any, schema: Schema | None) -> str:
        if isinstance(frame, pa.Table):
            return str(digest_of(frame, schema))
        return str(digest_of_frame(self.session, frame, schema))

    def write_with_job(
        self,
        write_files: Callable[[FileTarget], Iterable[WrittenFile]],
        staged: StagedBlock,
        channel: Channel,
        schema: Schema,
        *,
        by_spark_tasks: bool = False,
    ) -> Manifest:
        """Write rows that the channel already holds with a custom job, and return the manifest.

        Args:
            write_files: job that writes the files of the block and reports them.
            by_spark_tasks: whether tasks of Spark may write the files, from blocks with a key layout.

        Raises:
            SchemaMismatch, WarehouseUnavailable.
        """
        target = self._build_target(staged, channel, schema)
        with self._remove_staged_on_failure(staged):
            written = list(write_files(target.file_target))
            if by_spark_tasks:
                _remove_unlisted_files(written, target)
            else:
                check_nulls([w.footer for w in written], target)
            return self._build_manifest(written, target)

    def _build_target(
        self, staged: StagedBlock, channel: Channel | None, schema: Schema, merge: MergeModel | None = None
    ) -> BlockTarget:
        is_written_unchanged = channel is None or (isinstance(channel.merge, Custom) and staged.kind == "delta")
        return BlockTarget(
            staged.id,
            f"port {staged.port!r}" if channel is None else f"channel {channel.name!r}",
            staged.kind,
            schema,
            None if is_written_unchanged or channel is None else merge or channel.merge,
            self.warehouse.block_folder_address(staged.folder),
            channel if channel is not None and channel.partitions else None,
            staged.partition,
            None if channel is None else layout_for_channel(channel, schema),
            None if channel is None or merge is None else channel.merge,
        )

    @contextmanager
    def _remove_staged_on_failure(self, staged: StagedBlock) -> Iterator[None]:
        """Context that creates the folder of a staged block, and deletes the folder if the body fails, or if the block
        needs no files of its own.

        A folder that cannot be deleted, because Spark still writes into it, is cleaned up later.

        Raises:
            WarehouseUnavailable: the disk is full, or another error of the file system.
        """
        self.warehouse.prepare_empty_block_folder(staged.folder)
        try:
            yield
        except BaseException as error:
            with suppress(WarehouseUnavailable):
                self.warehouse.delete_block_folder(staged.folder)
            if isinstance(error, OSError):
                raise self.warehouse.unavailable_error("be written", error) from error
            if not isinstance(error, NovaError) and (altered := altered_file_error_from(error)) is not None:
                raise altered from error
            raise
        self.warehouse.delete_empty_block_folder(staged.folder)

    def _write_and_check(
        self, frame: Any, target: BlockTarget, keys_checked: bool, compute_digest: bool, file_format: str
    ) -> Manifest:
        _check_no_deleted_column(frame.column_names if isinstance(frame, pa.Table) else frame.columns, target)
        if isinstance(frame, pa.Table):
            written = write_table(self._fit_table(frame, target), target)
        else:
            written = self._write_frame(frame, target)
        digest = (
            self._digest_of_written(frame, written, target) if compute_digest else None
        )  # before repeated keys are resolved
        if target.model is not None:
            check_nulls([w.footer for w in written], target)
        # Keys that are compacted were checked when they were written. Here the check would take two thirds of the time.
        if target.is_keyed and not keys_checked and not are_keys_proven_unique(written, target):
            resolved = self.resolver.resolve([w.footer for w in written], target)
            written = written if resolved is None else resolved
        if file_format != "parquet":
            written = convert_files(written, target, file_format)
        if not isinstance(frame, pa.Table):
            _remove_unlisted_files(written, target)
        return replace(self._build_manifest(written, target, file_format), digest=digest)

    def _keep_files(
        self, table: pa.Table, target: BlockTarget, options: BlockOptions, compute_digest: bool
    ) -> Manifest:
        """Block whose files are copies of the inserted files, checked as if their rows were written."""
        file_format = options.format or "parquet"
        _check_no_deleted_column(table.column_names, target)
        rows = self._fit_table(table, target)
        parquet_files, kept = keep_files(rows, options.kept_files, target, file_format)
        if target.model is not None:
            check_nulls([w.footer for w in parquet_files], target)
        if target.is_keyed and self.resolver.resolve([w.footer for w in parquet_files], target) is not None:
            raise BadKey(
                f"{target.error_label}: the files have several rows of one key, which must be resolved",
                expected="at most one row of each key in all files",
                next="insert them without keep_files",
            )
        _remove_unlisted_files(kept, target)
        digest = str(digest_of(table, target.schema)) if compute_digest else None
        return replace(self._build_manifest(kept, target, file_format), digest=digest)

    def _digest_of_written(self, frame: Any, written_files: Sequence[WrittenFile], target: BlockTarget) -> str:
        """Digest of the rows. For a Spark frame, the written files are read: a second evaluation could return other
        rows."""
        if isinstance(frame, pa.Table):
            return str(digest_of(frame, target.schema))
        return str(digest_of_files(self.session, [w.path for w in written_files], target.file_schema))

    def _fit_table(self, table: pa.Table, target: BlockTarget) -> pa.Table:
        """Table in the columns and types of the files of a block."""
        if not target.has_deleted_column and target.may_have_deletions and DELETED in table.column_names:
            _check_no_deletions(int(pc.sum(table.column(DELETED)).as_py() or 0), target)
            table = table.drop_columns([DELETED])
        try:
            fitted = schema_fit.fit_to_schema(
                schema_fit.drop_undeclared_null_columns(table, target.file_schema), target.file_schema
            )
        except SchemaMismatch as error:
            raise SchemaMismatch(
                f"{target.error_label}: {error.what}",
                found=error.found,
                expected=error.expected,
                next=error.next,
                **error.fields,
            ) from error
        return canonicalize_columns(fitted, target.canonical_key_columns)

    def _write_frame(self, frame: DataFrame, target: BlockTarget) -> list[WrittenFile]:
        from nova_assets.engine.rows.spark_conversion import parse_conversion_error
        from nova_assets.engine.rows.spark_schema_fit import DELETION_IN_BASE, fit_frame

        with temporary_settings(self.session.get(), WRITE_SETTINGS):
            rows = fit_frame(
                frame,
                target.file_schema,
                target.error_label,
                reject_deletions=target.may_have_deletions and not target.has_deleted_column,
                canonical_key_columns=target.canonical_key_columns,
            )
            try:
                return write_frame(self.session, rows, target)
            except Exception as error:
                if DELETION_IN_BASE in str(error):
                    _check_no_deletions(1, target)
                conversion_error = parse_conversion_error(error, target.error_label)
                if conversion_error is not None:
                    raise conversion_error from error
                raise

    def _build_manifest(
        self, written_files: Sequence[WrittenFile], target: BlockTarget, file_format: str = "parquet"
    ) -> Manifest:
        """Manifest of the block, from the reports of the file writers alone."""
        file_io.fsync_paths([*(w.path for w in written_files), target.folder])
        files = tuple(_to_data_file(w, target) for w in written_files)
        is_placed = file_format == "parquet" and all(f.key_placement is not None for f in files)
        layout = target.layout if is_placed else None
        return Manifest(files, target.schema, sum(f.deletes for f in files), file_format, layout=layout)


def _remove_unlisted_files(written_files: Sequence[WrittenFile], target: BlockTarget) -> None:
    """Remove files that retried Spark tasks left behind. A file that the folder listing misses becomes an orphan, which
    repair moves away."""
    with suppress(OSError):
        file_io.remove_files_except(target.folder, {file_io.name_of(w.path) for w in written_files})


def _to_data_file(written_file: WrittenFile, target: BlockTarget) -> DataFile:
    """Entry of a file in the manifest.

    Raises:
        PartitionError: a row belongs to no partition, or to a partition outside the scope.
    """
    file = written_file.footer.to_data_file(f"{BLOCKS}/{file_io.name_of(target.folder)}")
    file = replace(file, key_placement=written_file.key_placement, deletes=written_file.deleted_rows)
    if target.channel is None:
        return file
    return replace(file, partition=partition_of_file(written_file, target.scope, target.error_label))


def _check_no_deleted_column(column_names: Sequence[str], target: BlockTarget) -> None:
    """Reject ``_deleted`` on channels without a key, where it has no meaning. Raises SchemaMismatch."""
    if target.model is not None and not target.may_have_deletions and DELETED in column_names:
        kind = "append-only" if isinstance(target.model, Append) else "without a key"
        raise SchemaMismatch(
            f"{target.error_label} is {kind}, and the data has a column {DELETED!r}",
            expected="only new rows: without a key, no row can be deleted",
            next="drop the column, or declare the channel with merge=nova.Upsert(key=...)",
        )


def _check_no_deletions(deletion_count: int, target: BlockTarget) -> None:
    if deletion_count:
        raise SchemaMismatch(
            f"{target.error_label}: a base has no deletions",
            found=f"rows whose {DELETED} is true",
            expected="only live rows, because a base holds all rows of a partition",
            next="remove these rows, or write a delta",
        )


def check_nulls(footers: Sequence[FileSummary], target: BlockTarget) -> None:
    """Reject nulls in required columns.

    Raises:
        BadKey: a key column has nulls.
        SchemaMismatch: another required column has nulls.
    """
    for column in target.required_columns:
        if total_null_count(footers, column) == 0:
            continue
        is_key_column = target.model is not None and column in target.model.key
        null_rows = _read_null_rows(footers, column, include_deletions=is_key_column, target=target)
        if null_rows.num_rows and is_key_column:
            raise key_checks.null_key_error(target.error_label, column, null_rows.num_rows, _first_row(null_rows))
        if null_rows.num_rows:
            raise SchemaMismatch(
                f"{target.error_label}: column {column!r} must not be null, but is null in {null_rows.num_rows} rows",
                found=str(_first_row(null_rows)),
                expected=str(target.schema.field(column)),
                next="fill the column, or remove these rows",
                column=column,
                rows=null_rows.num_rows,
            )


def _read_null_rows(
    footers: Sequence[FileSummary], column: str, *, include_deletions: bool, target: BlockTarget
) -> pa.Table:
    """Rows in which a column is null. Only the key of a deletion has a meaning, so deletions count for key columns
    only."""
    tables = []
    for footer in footers:
        if footer.null_counts[column] != 0:
            table = open_block_file(footer.path).read()
            is_null = table.column(column).is_null()
            if target.has_deleted_column and not include_deletions:
                is_null = pc.and_(is_null, pc.invert(table.column(DELETED)))
            tables.append(table.filter(is_null))
    return pa.concat_tables(tables) if tables else pa.table({})


def _first_row(rows: pa.Table) -> key_checks.Row:
    return to_python_rows(rows.slice(0, 1))[0]
