"""Blocks written: Parquet with Zstandard, fitted to the channel's schema, then checked on the files themselves (R11).

A frame is evaluated once, by writing it: what is looked at afterwards is what was written, not what another evaluation
might give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nova_assets.engine import arrow, keys
from nova_assets.engine.files import Warehouse, flatten, parquet_files, sync
from nova_assets.engine.footers import Footer, read_footer, total_nulls
from nova_assets.engine.partition import partition_of_file, split
from nova_assets.engine.session import WRITING, Session, using
from nova_assets.errors import SchemaMismatch
from nova_assets.model.block import DataFile, Kind, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append, Custom, MergeModel
from nova_assets.model.partitions import WHOLE, Dimension, partition_values
from nova_assets.model.schema import DELETED, Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ARROW_ROWS = 5_000_000
"""Keys of blocks up to so many rows are looked through with Arrow; of larger ones, with Spark."""

ARROW_BYTES = 256 * 2**20
"""Blocks up to this size are rewritten in memory, where that is necessary."""

_PARTITION = "__nova_partition"

PYTHON_ROWS = 200_000
"""Up to so many rows are resolved one by one."""

_ROW_GROUP = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Target:
    """A block to be written.

    Args:
        schema: the channel's, or that of a private port's rows.
        model: None where rows are written as they come (private ports, deltas of Custom channels).
        folder: made, and this block's alone.
        channel, scope: with the dimensions by which rows are kept apart, and the partitions that they may be in; None
            where there are none.
    """

    id: str
    where: str
    kind: Kind
    schema: Schema
    model: MergeModel | None
    folder: Path
    channel: Channel | None = None
    scope: str = WHOLE

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return () if self.channel is None else self.channel.partitions

    @property
    def spread(self) -> tuple[str, ...]:
        """The partition columns, where rows may be of several partitions."""
        fixed = partition_values(self.scope)
        columns = tuple(d.column for d in self.dimensions)
        return columns if any(c not in fixed for c in columns) else ()

    @property
    def keyed(self) -> bool:
        return self.model is not None and self.model.keyed

    @property
    def marked(self) -> bool:
        """Whether the files have ``_deleted``: those of keyed deltas."""
        return self.keyed and self.kind == "delta"

    @property
    def physical(self) -> Schema:
        return self.schema.with_deleted() if self.marked else self.schema


class Writer:
    """Writes staged blocks."""

    def __init__(self, session: Session, warehouse: Warehouse) -> None:
        self.session = session
        self.warehouse = warehouse

    def write(
        self, frame: Any, staged: StagedBlock, channel: Channel | None, schema: Schema, *, known: bool = False
    ) -> Manifest:
        """Write a frame into its block's folder and describe it. What went wrong leaves no file behind.

        Args:
            known: the rows are what the channel holds already, and their keys have been looked through.

        Raises:
            SchemaMismatch, BadKey, WarehouseUnavailable.
        """
        as_it_comes = channel is None or (isinstance(channel.merge, Custom) and staged.kind == "delta")
        target = Target(
            staged.id,
            f"port {staged.port!r}" if channel is None else f"channel {channel.name!r}",
            staged.kind,
            schema,
            None if as_it_comes or channel is None else channel.merge,
            self.warehouse.folder(staged.folder),
            channel if channel is not None and channel.partitions else None,
            staged.partition,
        )
        self.warehouse.make(staged.folder)
        try:
            return self._write(frame, target, known)
        except BaseException:
            self.warehouse.delete(staged.folder)
            raise

    def _write(self, frame: Any, target: Target, known: bool) -> Manifest:
        _refuse_marks(frame.column_names if isinstance(frame, pa.Table) else frame.columns, target)
        if isinstance(frame, pa.Table):
            self._from_arrow(frame, target)
        else:
            self._from_spark(frame, target)
        footers = self._footers(target)
        if target.model is not None:
            self._check_nulls(footers, target)
        if target.keyed and not known and self._resolve(footers, target):
            footers = self._footers(target)
        return self._manifest(footers, target)

    # writing

    def _from_arrow(self, table: pa.Table, target: Target) -> None:
        if not target.marked and target.keyed and DELETED in table.column_names:
            _refuse_deletions(int(pc.sum(table.column(DELETED)).as_py() or 0), target)
            table = table.drop_columns([DELETED])
        try:
            _write_table(arrow.fit(table, target.physical), target)
        except SchemaMismatch as error:
            raise SchemaMismatch(
                f"{target.where}: {error.what}",
                found=error.found,
                expected=error.expected,
                next=error.next,
                **error.fields,
            ) from error

    def _from_spark(self, frame: DataFrame, target: Target) -> None:
        from nova_assets.engine.fit import DELETION_IN_BASE, fitted

        with using(self.session.get(), WRITING):
            rows = fitted(frame, target.physical, target.where, refuse_deletions=target.keyed and not target.marked)
            try:
                _save(rows, target)
            except Exception as error:
                if DELETION_IN_BASE in str(error):
                    _refuse_deletions(1, target)
                raise

    # checking what was written

    def _footers(self, target: Target) -> list[Footer]:
        """The footers of all files that have rows; others are removed."""
        model = target.model
        ranged = () if model is None else tuple(dict.fromkeys((*model.key, *model.order_by)))
        kept = []
        for path in parquet_files(target.folder):
            footer = read_footer(path, ranged, _never_null(target))
            if footer.rows:
                kept.append(footer)
            else:
                path.unlink()
        return kept

    def _check_nulls(self, footers: Sequence[Footer], target: Target) -> None:
        for column in _never_null(target):
            if total_nulls(footers, column) == 0:
                continue
            of_key = target.model is not None and column in target.model.key
            wrong = _null_rows(footers, column, even_deletions=of_key, target=target)
            if wrong.num_rows and of_key:
                raise keys.null_key(target.where, column, wrong.num_rows, _example(wrong))
            if wrong.num_rows:
                raise SchemaMismatch(
                    f"{target.where}: column {column!r} may not be null, and is in {wrong.num_rows} rows",
                    found=str(_example(wrong)),
                    expected=str(target.schema.field(column)),
                    next="fill the column, or leave these rows out",
                    column=column,
                    rows=wrong.num_rows,
                )

    def _resolve(self, footers: Sequence[Footer], target: Target) -> bool:
        """Reduce keys that occur too often to what a block may hold. Gives whether there were any.

        Raises:
            BadKey: nothing decides between several live rows of a key.
        """
        assert target.model is not None
        model, rows, size = target.model, sum(f.rows for f in footers), sum(f.bytes for f in footers)
        if not rows:
            return False
        columns = [*model.key, *([DELETED] if target.marked else [])]
        if rows <= ARROW_ROWS:
            found = keys.repeats(_read([f.path for f in footers], columns), model)
        else:
            found = self._repeats_by_spark(footers, target)
        if not found:
            return False
        if found.live_keys and not model.order_by:
            raise keys.undecided(target.where, model, found.live_keys, found.live_rows, found.examples)
        in_memory = found.rows is not None and found.count <= PYTHON_ROWS and size <= ARROW_BYTES
        if in_memory and keys.resolves_in_python(model):
            self._resolve_in_memory(footers, found, target)
        else:
            self._resolve_by_spark(footers, target)
        for f in footers:
            f.path.unlink()
        return True

    def _resolve_in_memory(self, footers: Sequence[Footer], found: keys.Repeats, target: Target) -> None:
        assert target.model is not None and found.rows is not None
        table = _read([f.path for f in footers], None)
        kept = keys.resolved(table.take(found.rows).to_pylist(), target.model, target.where)
        clean = table.filter(pc.invert(_mask(table.num_rows, found.rows)))
        try:
            decided = pa.Table.from_pylist(kept, schema=table.schema)
        except (pa.ArrowException, OverflowError) as error:
            raise SchemaMismatch(
                f"{target.where}: a combined value is too great for its column", found=str(error)
            ) from error
        _write_table(pa.concat_tables([clean, decided]), target, part=1)

    # the same with Spark

    def _written(self, footers: Sequence[Footer], target: Target) -> DataFrame:
        from pyspark.sql import functions as F

        from nova_assets.engine.read import load
        from nova_assets.engine.types import to_struct

        spark = self.session.get()
        reader = spark.read.format("parquet").schema(to_struct(target.physical.relaxed()))
        rows = load(reader, spark, [str(f.path) for f in footers])
        return rows if target.marked else rows.withColumn(DELETED, F.lit(False))

    def _repeats_by_spark(self, footers: Sequence[Footer], target: Target) -> keys.Repeats:
        from pyspark.sql import functions as F

        from nova_assets.engine.columns import col

        assert target.model is not None
        model = target.model
        with using(self.session.get(), WRITING):
            mark = col(DELETED).cast("int")
            counted = self._written(footers, target).groupBy(*map(col, model.key))
            each = counted.agg(F.sum(1 - mark).alias("live"), F.sum(mark).alias("gone"))
            wrong = (F.col("live") > 1) | (F.col("gone") > 1)
            if model.kind == "upsert" and not model.order_by:
                wrong = wrong | ((F.col("live") > 0) & (F.col("gone") > 0))
            several = each.filter("live > 1")
            twice = F.col("live") > 1
            total = each.agg(
                F.sum(F.when(wrong, F.col("live") + F.col("gone"))),
                F.count_if(twice),
                F.sum(F.when(twice, F.col("live"))),
            ).first()
            assert total is not None
            examples = several.select(*map(col, model.key)).limit(keys.EXAMPLES).collect() if total[1] else []
        shown = tuple(r.asDict(recursive=True) for r in examples)
        return keys.Repeats(None, total[0] or 0, total[1], total[2] or 0, shown)

    def _resolve_by_spark(self, footers: Sequence[Footer], target: Target) -> None:
        from pyspark.sql import functions as F

        from nova_assets.engine.columns import col
        from nova_assets.engine.merge import ROWS, resolve, undecided

        assert target.model is not None
        with using(self.session.get(), WRITING):
            rows = self._written(footers, target)
            if target.model.order_by:
                open_ = undecided(rows, target.model)
                found = open_.agg(F.count(F.lit(1)), F.sum(ROWS)).first()
                if found is not None and found[0]:
                    shown = open_.select(*map(col, target.model.key)).limit(keys.EXAMPLES).collect()
                    examples = [r.asDict(recursive=True) for r in shown]
                    raise keys.undecided(target.where, target.model, found[0], found[1], examples)
            _save(resolve(rows, target.model).select(*map(col, target.physical.names)), target)

    def _manifest(self, footers: Sequence[Footer], target: Target) -> Manifest:
        sync([*(f.path for f in footers), target.folder])
        files = tuple(self._file(f, target) for f in footers)
        return Manifest(files, target.schema, sum(f.deletes for f in files))

    def _file(self, footer: Footer, target: Target) -> DataFile:
        file = footer.as_file(self.warehouse.root)
        deletes = int(pc.sum(_read([footer.path], [DELETED]).column(0)).as_py() or 0) if target.marked else 0
        if target.channel is None:
            return replace(file, deletes=deletes)
        partition = partition_of_file(footer.path, target.channel, target.scope, target.where)
        return replace(file, deletes=deletes, partition=partition)


def _save(rows: DataFrame, target: Target) -> None:
    """Spark's files; on a partitioned channel, each with the rows of one partition.

    Spark would leave the partition columns out of its files and put their values into folders' names, so it is given
    one that stands for them.
    """
    if not target.spread:
        rows.write.mode("append").parquet(str(target.folder))
        return
    from pyspark.sql import functions as F

    from nova_assets.engine.columns import struct

    mark = F.sha2(F.to_json(struct(target.spread)), 256)
    marked = rows.withColumn(_PARTITION, mark).hint("rebalance", _PARTITION)  # few files, and none for several
    marked.write.mode("append").partitionBy(_PARTITION).parquet(str(target.folder))
    flatten(target.folder, _PARTITION)


def _write_table(table: pa.Table, target: Target, part: int = 0) -> None:
    """One file (for each partition), in row groups that several cores can share."""
    if not table.num_rows:
        return
    size = max(1, min(2**20, _ROW_GROUP * table.num_rows // max(1, table.nbytes)))
    for n, rows in enumerate(split(table, target.spread) if target.spread else [table]):
        pq.write_table(
            rows,
            target.folder / f"part-{part:05d}-{f'{n:05d}-' if target.spread else ''}{target.id}.zstd.parquet",
            compression="zstd",
            row_group_size=size,
            store_schema=False,
        )


def _read(files: Sequence[Path], columns: list[str] | None) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(f).read(columns) for f in files], promote_options="default")


def _never_null(target: Target) -> tuple[str, ...]:
    if target.model is None:
        return ()
    required = [f.name for f in target.schema.fields if not f.nullable]
    return tuple(dict.fromkeys((*target.model.key, *required)))


def _null_rows(footers: Sequence[Footer], column: str, *, even_deletions: bool, target: Target) -> pa.Table:
    """The rows in which a column is null. Of a deletion, only the key means anything."""
    found = []
    for footer in footers:
        if footer.nulls[column] != 0:
            table = pq.ParquetFile(footer.path).read()
            wrong = table.column(column).is_null()
            if target.marked and not even_deletions:
                wrong = pc.and_(wrong, pc.invert(table.column(DELETED)))
            found.append(table.filter(wrong))
    return pa.concat_tables(found) if found else pa.table({})


def _example(rows: pa.Table) -> keys.Row:
    row: keys.Row = rows.slice(0, 1).to_pylist()[0]
    return row


def _mask(length: int, places: pa.Array) -> pa.Array:
    marked = bytearray(length)
    for place in places.to_pylist():
        marked[place] = 1
    return pa.array(marked, pa.uint8()).cast(pa.bool_())


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
