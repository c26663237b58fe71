"""Blocks written: Parquet with Zstandard, fitted to the channel's schema, keys checked on what was really written
(R11)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova_assets.engine import arrow
from nova_assets.engine.files import Warehouse, settle
from nova_assets.engine.footers import read_footer, total_nulls
from nova_assets.engine.keys import refuse_null_keys, repeated, resolve
from nova_assets.engine.session import WRITING, Session, using
from nova_assets.errors import SchemaMismatch
from nova_assets.model.block import Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Custom, MergeModel
from nova_assets.model.schema import DELETED, Schema


class Writer:
    """Writes staged blocks."""

    def __init__(self, session: Session, warehouse: Warehouse) -> None:
        self.session = session
        self.warehouse = warehouse

    def write(self, frame: Any, staged: StagedBlock, channel: Channel | None, schema: Schema) -> Manifest:
        """Write a frame into its block's folder and describe it. What went wrong leaves no file behind.

        Raises:
            SchemaMismatch, BadKey, WarehouseUnavailable.
        """
        model = None if channel is None or isinstance(channel.merge, Custom) else channel.merge
        physical = self._physical(frame, staged, channel, model, schema)
        folder = self.warehouse.make(staged.folder)
        try:
            if isinstance(frame, pa.Table):
                self._write_arrow(frame, physical, folder, staged, channel, model)
            else:
                self._write_spark(frame, physical, folder, staged, channel, model)
            return self._manifest(folder, schema, staged, model)
        except BaseException:
            self.warehouse.delete(staged.folder)
            raise

    def _physical(
        self, frame: Any, staged: StagedBlock, channel: Channel | None, model: MergeModel | None, schema: Schema
    ) -> Schema:
        """The columns of the files: the schema's, and ``_deleted`` in the deltas of keyed channels."""
        names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
        if model is None or channel is None:
            return schema
        if model.keyed and staged.kind == "delta":
            return schema.with_deleted()
        if DELETED in names and not model.keyed:
            raise SchemaMismatch(
                f"channel {channel.name!r} is append-only, and the data has a column {DELETED!r}",
                expected="rows to add; an Append channel deletes nothing",
                next="drop the column, or declare the channel with merge=nova.Upsert(key=...)",
                channel=channel.name,
            )
        return schema

    # from Arrow: no Spark is started

    def _write_arrow(
        self,
        table: pa.Table,
        physical: Schema,
        folder: Path,
        staged: StagedBlock,
        channel: Channel | None,
        model: MergeModel | None,
    ) -> None:
        if channel is not None and model is not None and model.keyed:
            for key in model.key:
                if key in table.column_names:
                    refuse_null_keys(channel.name, key, table.column(key).null_count)
            if staged.kind == "base" and DELETED in table.column_names:
                _refuse_deletions(channel.name, int(pc.sum(table.column(DELETED)).as_py() or 0))
                table = table.drop_columns([DELETED])
        table = arrow.fit(table, physical)
        if channel is not None and model is not None and model.keyed:
            table = resolve(table, model, channel.name)
        if table.num_rows:
            pq.write_table(table, folder / f"part-00000-{staged.id}.zstd.parquet", compression="zstd")

    # from Spark: written once, as it is evaluated; then checked on the files

    def _write_spark(
        self,
        frame: Any,
        physical: Schema,
        folder: Path,
        staged: StagedBlock,
        channel: Channel | None,
        model: MergeModel | None,
    ) -> None:
        from nova_assets.engine.fit import fitted

        with using(self.session.get(), WRITING):
            rows = fitted(frame, physical, keep_deleted_of=None if channel is None else staged.kind)
            rows.write.mode("append").parquet(str(folder))
        files = settle(folder)
        if channel is None or model is None or not model.keyed:
            return
        footers = [read_footer(f, (), model.key) for f in files]
        for key in model.key:
            nulls = total_nulls(footers, key)
            refuse_null_keys(channel.name, key, _count_nulls(files, key) if nulls is None else nulls)
        if staged.kind == "base" and DELETED in _columns(files):
            _refuse_deletions(channel.name, _deletions(files))
        self._resolve_written(files, folder, staged, channel, model)

    def _resolve_written(
        self, files: Sequence[Path], folder: Path, staged: StagedBlock, channel: Channel, model: MergeModel
    ) -> None:
        """Duplicates are rare, so they are looked for in the key columns that were written, and only then resolved:
        from the files, since evaluating the frame again might give others."""
        if not files or not repeated(_read(files, list(model.key)), model.key).true_count:
            return
        table = resolve(_read(files, None), model, channel.name)
        for f in files:
            f.unlink()
        pq.write_table(table, folder / f"part-00000-{staged.id}.zstd.parquet", compression="zstd")

    def _manifest(self, folder: Path, schema: Schema, staged: StagedBlock, model: MergeModel | None) -> Manifest:
        ranged = () if model is None else tuple(dict.fromkeys((*model.key, *model.order_by)))
        footers = [read_footer(f, ranged) for f in settle(folder)]
        for footer in footers:
            if footer.rows == 0:
                footer.path.unlink()
        kept = [f for f in footers if f.rows]
        marked = model is not None and model.keyed and staged.kind == "delta"
        deletes = _deletions([f.path for f in kept]) if marked else 0
        logical = schema.without(DELETED) if model is not None else schema
        return Manifest(tuple(f.as_file(self.warehouse.root) for f in kept), logical, deletes)


def _read(files: Sequence[Path], columns: list[str] | None) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(f).read(columns) for f in files], promote_options="default")


def _columns(files: Sequence[Path]) -> set[str]:
    return set(pq.read_schema(files[0]).names) if files else set()


def _deletions(files: Sequence[Path]) -> int:
    return sum(int(pc.sum(pq.ParquetFile(f).read([DELETED]).column(0)).as_py() or 0) for f in files)


def _count_nulls(files: Sequence[Path], column: str) -> int:
    return sum(pq.ParquetFile(f).read([column]).column(0).null_count for f in files)


def _refuse_deletions(channel: str, count: int) -> None:
    if count:
        raise SchemaMismatch(
            f"a base for channel {channel!r} has {count} rows that are deletions",
            found=f"{DELETED} is true in {count} rows",
            expected="live rows alone: a base is everything that there is",
            next="leave them out, or give a delta",
            channel=channel,
            rows=count,
        )
