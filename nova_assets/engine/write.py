"""Blocks written: Parquet with Zstandard, fitted to the channel's schema, then checked on the files themselves (R11).

A frame is evaluated once, by writing it: what is looked at afterwards is what was written, not what another evaluation
might give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine import disk
from nova_assets.engine.buckets import worker
from nova_assets.engine.buckets.files import Written
from nova_assets.engine.files import BLOCKS, Warehouse
from nova_assets.engine.footers import Footer, read_footer, table_of
from nova_assets.engine.nulls import check_nulls, never_null
from nova_assets.engine.output import Output, Places, are_alone, by_name
from nova_assets.engine.partition import partition_of_file
from nova_assets.engine.resolver import Resolver
from nova_assets.engine.session import WRITING, Session, using
from nova_assets.engine.target import Target
from nova_assets.errors import SchemaMismatch, WarehouseUnavailable
from nova_assets.formats import arrow
from nova_assets.model.block import DataFile, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append, Custom
from nova_assets.model.schema import DELETED, Schema
from nova_assets.plan.layout import layout_of

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
        self, frame: Any, staged: StagedBlock, channel: Channel | None, schema: Schema, *, known: bool = False
    ) -> Manifest:
        """Write a frame into its block's folder and describe it. What went wrong leaves no file behind.

        Args:
            known: the rows are what the channel holds already, and their keys have been looked through.

        Raises:
            SchemaMismatch, BadKey, WarehouseUnavailable.
        """
        target = self._target(staged, channel, schema)
        with self._alone(staged):
            return self._write(frame, target, known)

    def write_by(
        self, job: Callable[[worker.Target], Iterable[Written]], staged: StagedBlock, channel: Channel, schema: Schema
    ) -> Manifest:
        """Describe what a job writes into a block's folder, of which nothing has to be checked any more."""
        target = self._target(staged, channel, schema)
        with self._alone(staged):
            places = by_name(job(target.laid))
            return self._manifest(self._footers(target, places), places, target)

    def write_files(
        self, job: Callable[[Target], Mapping[str, str]], staged: StagedBlock, channel: Channel, schema: Schema
    ) -> Manifest:
        """Describe what a job writes into a block's folder: files of rows that the channel holds already.

        Args:
            job: gives name of a file -> the partition that its rows are in.

        Raises:
            SchemaMismatch, WarehouseUnavailable.
        """
        target = self._target(staged, channel, schema)
        with self._alone(staged):
            partitions = job(target)
            footers = self._footers(target, None)
            check_nulls(footers, target)
            disk.sync([*(f.path for f in footers), target.folder])
            files = [(f.as_file(staged.folder), partitions[disk.name_of(f.path)]) for f in footers]
            return Manifest(tuple(replace(f, partition=p) for f, p in files), target.schema)

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
            raise

    def _write(self, frame: Any, target: Target, known: bool) -> Manifest:
        _refuse_marks(frame.column_names if isinstance(frame, pa.Table) else frame.columns, target)
        places = self._from_arrow(frame, target) if isinstance(frame, pa.Table) else self._from_spark(frame, target)
        footers = self._footers(target, places)
        if target.model is not None:
            check_nulls(footers, target)
        if target.keyed and not known and not are_alone(places, target):
            resolved = self.resolver.resolve(footers, target)
            if resolved is not None:
                [places] = resolved
                footers = self._footers(target, places)
        return self._manifest(footers, places, target)

    def _from_arrow(self, table: pa.Table, target: Target) -> Places:
        if not target.marked and target.keyed and DELETED in table.column_names:
            _refuse_deletions(int(pc.sum(table.column(DELETED)).as_py() or 0), target)
            table = table.drop_columns([DELETED])
        try:
            fitted = arrow.fit(table, target.physical)
        except SchemaMismatch as error:
            raise SchemaMismatch(
                f"{target.where}: {error.what}",
                found=error.found,
                expected=error.expected,
                next=error.next,
                **error.fields,
            ) from error
        return self.output.table(fitted, target)

    def _from_spark(self, frame: DataFrame, target: Target) -> Places:
        from nova_assets.engine.fit import DELETION_IN_BASE, fitted

        with using(self.session.get(), WRITING):
            rows = fitted(frame, target.physical, target.where, refuse_deletions=target.keyed and not target.marked)
            try:
                return self.output.frame(rows, target)
            except Exception as error:
                if DELETION_IN_BASE in str(error):
                    _refuse_deletions(1, target)
                raise

    def _footers(self, target: Target, places: Places) -> list[Footer]:
        """The footers of all files that have rows; others are removed, and so is what a task wrote that was begun
        again."""
        model = target.model
        ranged = () if model is None else tuple(dict.fromkeys((*model.key, *model.order_by)))
        kept = []
        for path in disk.written_in(target.folder):
            known = places is None or disk.name_of(path) in places  # half a file of a task that died has no footer
            footer = read_footer(path, ranged, never_null(target)) if known else None
            if footer is not None and footer.rows:
                kept.append(footer)
            else:
                disk.remove(path)
        return kept

    def _manifest(self, footers: Sequence[Footer], places: Places, target: Target) -> Manifest:
        disk.sync([*(f.path for f in footers), target.folder])
        files = tuple(self._file(f, places, target) for f in footers)
        layout = target.layout if all(f.place is not None for f in files) else None
        return Manifest(files, target.schema, sum(f.deletes for f in files), layout=layout)

    def _file(self, footer: Footer, places: Places, target: Target) -> DataFile:
        file = footer.as_file(f"{BLOCKS}/{disk.name_of(target.folder)}")
        if places is not None:
            written = places[disk.name_of(footer.path)]
            file = replace(file, place=written.place, deletes=written.deletes)
        elif target.marked:
            file = replace(file, deletes=int(pc.sum(table_of([footer.path], [DELETED]).column(0)).as_py() or 0))
        if target.channel is None:
            return file
        return replace(file, partition=partition_of_file(footer.path, target.channel, target.scope, target.where))


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
