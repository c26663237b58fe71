"""Blocks written: Parquet with Zstandard, fitted to the channel's schema, then checked by what was written (R11).

A frame is evaluated once, by writing it: what is checked afterwards is what was written, not what another evaluation
might give. Whoever writes a file reports it, so no folder is listed to learn what is in a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets import bucket_files
from nova_assets.engine.buckets.bucket_files import Written
from nova_assets.engine.buckets.partitioning import partition_of_file
from nova_assets.engine.rows.canonical_keys import canonical_table
from nova_assets.engine.session.session import Session
from nova_assets.engine.session.shared_settings import using
from nova_assets.engine.session.spark_config import WRITING
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import altered_by
from nova_assets.engine.storage.warehouse import BLOCKS, Warehouse
from nova_assets.engine.write.files_of_rows import Output, are_alone
from nova_assets.engine.write.null_checks import check_nulls
from nova_assets.engine.write.repeated_keys import Resolver
from nova_assets.engine.write.row_digest import digest_of, digest_of_files
from nova_assets.engine.write.target import Target
from nova_assets.errors import NovaError, SchemaMismatch, WarehouseUnavailable
from nova_assets.formats import schema_fit
from nova_assets.model.block import DataFile, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append, Custom
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.block_layout import layout_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Writer:
    """Writes staged blocks."""

    def __init__(self, session: Session, warehouse: Warehouse) -> None:
        self.session = session
        self.warehouse = warehouse
        self.output = Output(session)
        self.resolver = Resolver(session, self.output)

    def write(
        self,
        frame: Any,
        staged: StagedBlock,
        channel: Channel | None,
        schema: Schema,
        *,
        known: bool = False,
        digest: bool = False,
    ) -> Manifest:
        """Write a frame into its block's folder and describe it. What went wrong leaves no file behind.

        Args:
            known: the rows are what the channel holds already, and their keys have been looked through.
            digest: make the digest of the rows, too.

        Raises:
            SchemaMismatch, BadKey, WarehouseUnavailable.
        """
        target = self._target(staged, channel, schema)
        with self._alone(staged):
            return self._write(frame, target, known, digest)

    def write_by(
        self,
        job: Callable[[bucket_files.Target], Iterable[Written]],
        staged: StagedBlock,
        channel: Channel,
        schema: Schema,
        *,
        tasks: bool = False,
    ) -> Manifest:
        """Describe what a job writes into a block's folder: rows that the channel holds already.

        Args:
            tasks: the files are written by tasks of Spark, out of blocks that are laid out.

        Raises:
            SchemaMismatch, WarehouseUnavailable.
        """
        target = self._target(staged, channel, schema)
        with self._alone(staged):
            written = list(job(target.written))
            if tasks:
                _remove_others(written, target)
            else:
                check_nulls([w.footer for w in written], target)
            return self._manifest(written, target)

    def _target(self, staged: StagedBlock, channel: Channel | None, schema: Schema) -> Target:
        as_it_comes = channel is None or (isinstance(channel.merge, Custom) and staged.kind == "delta")
        return Target(
            staged.id,
            f"port {staged.port!r}" if channel is None else f"channel {channel.name!r}",
            staged.kind,
            schema,
            None if as_it_comes or channel is None else channel.merge,
            self.warehouse.folder(staged.folder),
            channel if channel is not None and channel.partitions else None,
            staged.partition,
            None if channel is None else layout_of(channel, schema),
        )

    @contextmanager
    def _alone(self, staged: StagedBlock) -> Iterator[None]:
        """A block in which the staged block's folder is filled; it is removed if that fails, and what cannot be
        removed, for Spark is at work in it still, is swept later.

        Raises:
            WarehouseUnavailable: the disk is full, or the like.
        """
        self.warehouse.make(staged.folder)
        try:
            yield
        except BaseException as error:
            with suppress(WarehouseUnavailable):
                self.warehouse.delete(staged.folder)
            if isinstance(error, OSError):
                raise self.warehouse.unavailable("be written", error) from error
            if not isinstance(error, NovaError) and (altered := altered_by(error)) is not None:
                raise altered from error
            raise

    def _write(self, frame: Any, target: Target, known: bool, digest: bool) -> Manifest:
        _refuse_marks(frame.column_names if isinstance(frame, pa.Table) else frame.columns, target)
        written = self._from_arrow(frame, target) if isinstance(frame, pa.Table) else self._from_spark(frame, target)
        rows = self._digest(frame, written, target) if digest else None  # before keys that occur too often are reduced
        if target.model is not None:
            check_nulls([w.footer for w in written], target)
        if target.keyed and not known and not are_alone(written, target):
            resolved = self.resolver.resolve([w.footer for w in written], target)
            written = written if resolved is None else resolved
        if not isinstance(frame, pa.Table):
            _remove_others(written, target)
        return replace(self._manifest(written, target), digest=rows)

    def _digest(self, frame: Any, written: Sequence[Written], target: Target) -> str:
        """Of a frame by what was written of it: another evaluation might give other rows."""
        if isinstance(frame, pa.Table):
            return str(digest_of(frame, target.schema))
        return str(digest_of_files(self.session, [w.path for w in written], target.physical))

    def _from_arrow(self, table: pa.Table, target: Target) -> list[Written]:
        if not target.marked and target.keyed and DELETED in table.column_names:
            _refuse_deletions(int(pc.sum(table.column(DELETED)).as_py() or 0), target)
            table = table.drop_columns([DELETED])
        try:
            fitted = schema_fit.fit(schema_fit.drop_unknown(table, target.physical), target.physical)
        except SchemaMismatch as error:
            raise SchemaMismatch(
                f"{target.where}: {error.what}",
                found=error.found,
                expected=error.expected,
                next=error.next,
                **error.fields,
            ) from error
        return self.output.table(canonical_table(fitted, target.canonical), target)

    def _from_spark(self, frame: DataFrame, target: Target) -> list[Written]:
        from nova_assets.engine.rows.conversion import refusal_of
        from nova_assets.engine.rows.schema_fit import DELETION_IN_BASE, fitted

        with using(self.session.get(), WRITING):
            rows = fitted(
                frame,
                target.physical,
                target.where,
                refuse_deletions=target.keyed and not target.marked,
                canonical=target.canonical,
            )
            try:
                return self.output.frame(rows, target)
            except Exception as error:
                if DELETION_IN_BASE in str(error):
                    _refuse_deletions(1, target)
                refusal = refusal_of(error, target.where)
                if refusal is not None:
                    raise refusal from error
                raise

    def _manifest(self, written: Sequence[Written], target: Target) -> Manifest:
        """The block's description, by the reports of the files' writers alone."""
        file_io.sync([*(w.path for w in written), target.folder])
        described = tuple(_described(w, target) for w in written)
        layout = target.layout if all(f.place is not None for f in described) else None
        return Manifest(described, target.schema, sum(f.deletes for f in described), layout=layout)


def _remove_others(written: Sequence[Written], target: Target) -> None:
    """Remove files of tasks that Spark began anew. What a listing leaves out is an orphan, which repair moves away."""
    with suppress(OSError):
        file_io.keep_only(target.folder, {file_io.name_of(w.path) for w in written})


def _described(written: Written, target: Target) -> DataFile:
    """A file as the block lists it.

    Raises:
        PartitionError: some row is in no partition, or in one outside the scope.
    """
    file = written.footer.as_file(f"{BLOCKS}/{file_io.name_of(target.folder)}")
    file = replace(file, place=written.place, deletes=written.deletes)
    if target.channel is None:
        return file
    return replace(file, partition=partition_of_file(written, target.scope, target.where))


def _refuse_marks(names: Sequence[str], target: Target) -> None:
    """``_deleted`` means something on keyed channels alone."""
    if target.model is not None and not target.keyed and DELETED in names:
        kind = "append-only" if isinstance(target.model, Append) else "without a key"
        raise SchemaMismatch(
            f"{target.where} is {kind}, and the data has a column {DELETED!r}",
            expected="rows to add: without a key nothing can be deleted",
            next="drop the column, or declare the channel with merge=nova.Upsert(key=...)",
        )


def _refuse_deletions(count: int, target: Target) -> None:
    if count:
        raise SchemaMismatch(
            f"{target.where}: a base has no deletions",
            found=f"rows whose {DELETED} is true",
            expected="live rows alone: a base is everything that there is",
            next="leave them out, or give a delta",
        )
