"""Reads (plan/reads), as Spark frames: exactly the listed files, with their schema, and nothing is listed (R16)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.columns import col
from nova_assets.engine.files import Warehouse
from nova_assets.engine.merge import SEQ, bag_difference, chain, diff, fold_functions, merge
from nova_assets.engine.session import READING, Session, using
from nova_assets.engine.types import to_struct
from nova_assets.errors import NotSupported
from nova_assets.model.block import Block
from nova_assets.model.merge import Custom, MergeModel
from nova_assets.model.reads import Chain, Diff, Empty, FromPort, Inserts, Read, Snapshot, Source
from nova_assets.model.schema import DELETED, Schema

BROADCAST_ROWS = 10_000_000
BROADCAST_BYTES = 256 * 2**20
"""Deltas up to this size have their keys sent to every worker."""

_LITERAL_FILES = 200  # above this many files their order is joined in, not written into the query


class Reader:
    """Builds frames from blocks."""

    def __init__(self, session: Session, warehouse: Warehouse) -> None:
        self.session = session
        self.warehouse = warehouse

    def read(self, read: Read) -> DataFrame:
        """The frame that a read describes. Raises FileMissing, UnrepresentableChange."""
        with using(self.session.get(), READING):
            return self._read(read)

    def _read(self, read: Read) -> DataFrame:
        if isinstance(read, Snapshot):
            return self._snapshot(read)
        if isinstance(read, Inserts):
            rows = self._snapshot(read.snapshot)
            return rows.withColumn(DELETED, F.lit(False)) if read.snapshot.merge.keyed else rows
        if isinstance(read, Chain):
            return self._chain(read)
        if isinstance(read, Diff):
            return self._diff(read)
        assert isinstance(read, Empty), read
        schema = read.schema or Schema(())
        return self._empty(schema.with_deleted() if read.change and read.merge.keyed else schema)

    def _snapshot(self, read: Snapshot) -> DataFrame:
        deltas = _blocks(read.deltas)
        base = _blocks([] if read.base is None else [read.base])
        schema = read.schema or Schema(())
        if isinstance(read.merge, Custom):
            first = self.files(base, schema)
            return fold_functions([first, *(self.files([d], d.manifest.schema) for d in deltas)], read.merge.merge_ref)
        if not deltas:
            return self.files(base, schema)
        if not read.merge.keyed:
            return self.files([*base, *deltas], schema)  # a bag: one read of everything
        rows, size = sum(d.rows for d in deltas), sum(d.bytes for d in deltas)
        small = rows <= BROADCAST_ROWS and size <= BROADCAST_BYTES
        return merge(self.files(base, schema), self._changes(deltas, schema), read.merge, len(deltas) > 1, small)

    def _chain(self, read: Chain) -> DataFrame:
        deltas = _blocks(read.deltas)
        if isinstance(read.merge, Custom):
            return fold_functions([self.files([d], d.manifest.schema) for d in deltas], read.merge.chain_ref)
        schema = read.schema or Schema(())
        if not read.merge.keyed:
            return self.files(deltas, schema)
        return _deletion_last(chain(self._changes(deltas, schema), read.merge, len(deltas) > 1))

    def _diff(self, read: Diff) -> DataFrame:
        model: MergeModel = read.new.merge
        old, new = self._snapshot(read.old), self._snapshot(read.new)
        if isinstance(model, Custom):
            return fold_functions([old, new], model.diff_ref)
        old = _with_columns(old, new)
        if model.keyed:
            return _deletion_last(diff(old, new, model))
        base = read.new.base
        keeps = isinstance(base, Block) and base.manifest.keeps_all and base.hi == read.old.at + 1
        return bag_difference(old, new, read.new.channel, keeps)

    def _changes(self, deltas: Sequence[Block], schema: Schema) -> DataFrame:
        """The rows of keyed deltas in one read, each with the place of its delta in the order."""
        rows = self.files(deltas, schema.with_deleted(), ordered=len(deltas) > 1)
        rows = rows if len(deltas) > 1 else rows.withColumn(SEQ, F.lit(0))
        return rows.withColumn(DELETED, F.coalesce(col(DELETED), F.lit(False)))

    def files(self, blocks: Sequence[Block], schema: Schema, ordered: bool = False) -> DataFrame:
        """The files of some blocks as one frame, in one read. With ``ordered``, each row's block by its place."""
        for b in blocks:
            if b.manifest.format != "parquet":
                raise NotSupported(
                    f"block {b.range} of channel {b.channel!r} is {b.manifest.format}, which is not read yet"
                )
        places = {f.path: n for n, b in enumerate(blocks) for f in b.manifest.files}
        if not places:
            empty = self._empty(schema)
            return empty.withColumn(SEQ, F.lit(0)) if ordered else empty
        paths = self.warehouse.paths(f for b in blocks for f in b.manifest.files)
        spark = self.session.get()
        frame = spark.read.schema(to_struct(schema.relaxed())).parquet(*paths)
        if not ordered:
            return frame
        # A file's last folder is its block's own, so the two together are unique.
        return self._with_places(frame, {"/".join(p.split("/")[-2:]): n for p, n in places.items()})

    def _with_places(self, frame: DataFrame, places: dict[str, int]) -> DataFrame:
        name = F.substring_index(F.col("_metadata.file_path"), "/", -2)
        if len(places) <= _LITERAL_FILES:
            pairs = [F.lit(v) for item in places.items() for v in item]
            return frame.withColumn(SEQ, F.create_map(*pairs)[name])
        spark = self.session.get()
        table = spark.createDataFrame(list(places.items()), f"__file string, {SEQ} int")
        named = frame.withColumn("__file", name)
        return named.join(F.broadcast(table), "__file").drop("__file")

    def _empty(self, schema: Schema) -> DataFrame:
        return self.session.get().createDataFrame([], to_struct(schema))


def _blocks(sources: Sequence[Source]) -> list[Block]:
    found = []
    for source in sources:
        assert not isinstance(source, FromPort), "a read is resolved before it is carried out"
        found.append(source)
    return found


def _deletion_last(rows: DataFrame) -> DataFrame:
    return rows.select(*(col(c) for c in rows.columns if c not in (DELETED, SEQ)), col(DELETED))


def _with_columns(old: DataFrame, new: DataFrame) -> DataFrame:
    """The older snapshot in the columns and types of the newer one."""
    have = {f.name for f in old.schema.fields}
    return old.select(
        *((col(f.name) if f.name in have else F.lit(None)).cast(f.dataType).alias(f.name) for f in new.schema.fields)
    )
