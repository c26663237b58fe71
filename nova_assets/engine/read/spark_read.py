"""Reads (model/reads) as Spark frames: exactly the listed files, with their schema, and nothing is listed (R16)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from nova_assets.engine.read.renamed_columns import names_in, types_in
from nova_assets.engine.read.spark_diff import bag_difference, diff
from nova_assets.engine.read.spark_merge import SEQ, fold, live, merge, newest
from nova_assets.engine.rows.columns import col
from nova_assets.engine.rows.schema_fit import custom_base
from nova_assets.engine.rows.spark_types import to_spark, to_struct
from nova_assets.engine.rows.spark_versions import WIDENS, metadata
from nova_assets.engine.session.session import Session, is_connect
from nova_assets.engine.session.shared_settings import using
from nova_assets.engine.session.spark_config import READING
from nova_assets.engine.storage import external_files, file_io
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.errors import NotSupported
from nova_assets.model.block import Block, DataFile
from nova_assets.model.function_reference import FunctionRef
from nova_assets.model.merge import Custom, MergeModel
from nova_assets.model.reads import Chain, Diff, Empty, FromPort, Inserts, Read, Snapshot, Source, Together, model_of
from nova_assets.model.schema import DELETED, DataType, Field, Schema
from nova_assets.plan.block_layout import apart, changed_range

BROADCAST_ROWS = 2_000_000
BROADCAST_BYTES = 256 * 2**20
"""Deltas up to this size have their keys sent to every worker. Measured with a driver of 2 GB: four million keys of 32
characters fit, ten million do not."""

FORMATS = ("parquet", "orc", "avro")
"""What blocks may be written in; this engine writes Parquet. For Avro, Spark needs a package of its own."""

FEW_ROWS = 100_000
"""So few rows have few keys, however many bytes their other columns take."""

_LITERAL_FILES = 200
"""Above this many files their order is joined in, not written into the query."""

_CHECKSUMS = {"parquet.page.verify-checksum.enabled": "true"}
"""Pages are compared with their checksums, where they have some."""

_FILE = "__nova_file"
_GLOB = re.compile(r"[{}\[\]*?\\]")
_NO_COLUMNS = Schema(())

_Names: TypeAlias = tuple[str | None, ...]
_Types: TypeAlias = tuple[DataType | None, ...]


class Reader:
    """Builds frames from blocks."""

    def __init__(self, session: Session, warehouse: Warehouse) -> None:
        self.session = session
        self.warehouse = warehouse

    def read(self, read: Read) -> DataFrame:
        """The frame that a read describes.

        A channel that has no schema yet gives a frame without columns (and ``_deleted``, for a change of a keyed one).

        Raises:
            FileMissing, UnrepresentableChange, NotSupported.
        """
        with using(self.session.get(), READING):
            return self._read(read)

    def _read(self, read: Read) -> DataFrame:
        if isinstance(read, Snapshot):
            return self._snapshot(read)
        if isinstance(read, Inserts):
            return self._inserts(read.snapshot)
        if isinstance(read, Chain):
            return self._chain(read)
        if isinstance(read, Diff):
            return self._diff(read)
        if isinstance(read, Together):
            parts = [self._read(p) for p in read.parts]
            return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
        if isinstance(read, Empty):
            return self._nothing(read)
        raise NotSupported(f"{type(read).__name__} is no read of blocks")

    # the five reads

    def _snapshot(self, read: Snapshot) -> DataFrame:
        base, deltas = _blocks(read.bases), _blocks(read.deltas)
        model, schema = model_of(read), read.schema or _NO_COLUMNS
        if isinstance(model, Custom):
            return self._custom_snapshot(read, base, deltas, model)
        if not deltas or not model.keyed:
            return self.rows([*base, *deltas], schema)  # a bag is one read of everything
        if self._decides_by_key(base, deltas, model):
            return self._newest(read, base, deltas, schema)
        untouched, rest = (_blocks(s.bases) for s in apart(read))
        merged = self._merged(rest, deltas, schema, model)
        return self.rows(untouched, schema).union(merged) if untouched else merged

    def _decides_by_key(self, base: Sequence[Block], deltas: Sequence[Block], model: MergeModel) -> bool:
        """Whether the keys of the deltas tell what is left of each row, and are few."""
        plain = all(b.manifest.format == "parquet" for b in (*base, *deltas))
        few = sum(len(d.manifest.files) for d in deltas) <= _LITERAL_FILES
        return (bool(base) or len(deltas) > 1) and plain and few and not model.combines and _is_small(deltas)

    def _newest(self, read: Snapshot, base: Sequence[Block], deltas: Sequence[Block], schema: Schema) -> DataFrame:
        model, order = model_of(read), _order(deltas)
        rows = self.rows([*base, *deltas], schema.with_deleted(), order)
        changed = self.rows(deltas, Schema(tuple(schema.field(k) for k in model.key)), order)
        place = col(SEQ) if order else F.lit(0)
        # Of rows of the base, and of deletions, the place is not looked up.
        rows = rows.withColumn(SEQ, F.when(F.coalesce(col(DELETED), F.lit(True)), -1).otherwise(place))
        changed = changed if order else changed.withColumn(SEQ, place)
        return newest(rows, changed, model, schema.names, _among(read, schema))

    def _merged(self, base: Sequence[Block], deltas: Sequence[Block], schema: Schema, model: MergeModel) -> DataFrame:
        changes = self._changes(deltas, schema)
        if not base:
            return live(fold(changes, model) if len(deltas) > 1 else changes, schema.names)
        return merge(self.rows(base, schema), changes, model, several=len(deltas) > 1, small=_is_small(deltas))

    def _inserts(self, snapshot: Snapshot) -> DataFrame:
        model, rows = model_of(snapshot), self._snapshot(snapshot)
        if isinstance(model, Custom):  # its deltas may look otherwise than its bases: what leads here from B_0
            return _call(model.diff_ref, [self._empty(snapshot.schema or _NO_COLUMNS), rows])
        return rows.withColumn(DELETED, F.lit(False)) if model.keyed else rows

    def _chain(self, read: Chain) -> DataFrame:
        deltas, schema = _blocks(read.deltas), read.schema or _NO_COLUMNS
        model = model_of(read)
        if isinstance(model, Custom):
            return _call(model.chain_ref, self._custom_deltas(deltas))
        if not model.keyed:
            return self.rows(deltas, schema)
        changes = self._changes(deltas, schema)
        return fold(changes, model) if len(deltas) > 1 else changes

    def _diff(self, read: Diff) -> DataFrame:
        model = model_of(read.new)
        new = self._snapshot(read.new)
        if isinstance(model, Custom):
            return _call(model.diff_ref, [self._snapshot(read.old), new])
        old = self._snapshot(replace(read.old, schema=read.new.schema or read.old.schema))  # as it is called now
        if not model.keyed:
            bases = _blocks(read.new.bases)
            keeps = bool(bases) and all(b.manifest.keeps_all and b.hi == read.old.at + 1 for b in bases)
            return bag_difference(old, new, read.new.channel, keeps_all=keeps)
        if model_of(read.old).key != model.key:  # of another model (R18): a bag, or other keys
            old = old.dropDuplicates(list(model.key))
        return diff(old, new, model)

    def _nothing(self, read: Empty) -> DataFrame:
        schema = read.schema or _NO_COLUMNS
        if not read.change:
            return self._empty(schema)
        if isinstance(read.merge, Custom):
            return _call(read.merge.diff_ref, [self._empty(schema), self._empty(schema)]).limit(0)
        return self._empty(schema.with_deleted() if read.merge.keyed else schema)

    def _custom_snapshot(
        self, read: Snapshot, base: Sequence[Block], deltas: Sequence[Block], model: Custom
    ) -> DataFrame:
        schema = read.schema or _NO_COLUMNS
        # its own schema, or that of B_0
        start = self.rows(base, base[-1].manifest.schema) if base else self._empty(schema)
        if deltas:
            changes = _call(model.chain_ref, self._custom_deltas(deltas))
            start = _call(model.merge_ref, [start, changes])
        return start if read.schema is None else custom_base(start, read.schema, read.channel)

    def _custom_deltas(self, deltas: Sequence[Block]) -> list[DataFrame]:
        """The deltas of each commit as one frame: its functions take partitions together as they take them apart."""
        by_number: dict[int, list[Block]] = {}
        for d in deltas:
            by_number.setdefault(d.hi, []).append(d)
        return [self.rows(same, same[-1].manifest.schema) for _, same in sorted(by_number.items())]

    # files

    def _changes(self, deltas: Sequence[Block], schema: Schema) -> DataFrame:
        """The rows of keyed deltas: columns, ``_deleted``, and, of several, the delta's place in the order."""
        several, order = len(deltas) > 1, _order(deltas)
        rows = self.rows(deltas, schema.with_deleted(), order)
        if several and not order:
            rows = rows.withColumn(SEQ, F.lit(0))
        return rows.withColumn(DELETED, F.coalesce(col(DELETED), F.lit(False)))

    def rows(self, blocks: Sequence[Block], schema: Schema, order: Mapping[str, int] | None = None) -> DataFrame:
        """The rows of some blocks in the columns of a schema, in one read for all blocks that are alike.

        Columns that a block is too old to have are null, types are widened (Spark 4's Parquet reader does every one
        that ``model.schema.widens`` admits; with 3.5, blocks of other types are read apart, and cast), and a column is
        found under whatever name the block has it (R18).

        Args:
            order: file -> its place, to be added as ``SEQ``.
        """
        alike: dict[tuple[str, _Names, _Types], list[DataFile]] = {}
        others: dict[tuple[str, str], list[Block]] = {}
        for b in blocks:
            if b.manifest.outside is not None:
                others.setdefault((b.manifest.format, b.manifest.outside.location), []).append(b)
            elif b.manifest.files:
                names = names_in(b, schema)
                types = (None,) * len(names) if WIDENS else types_in(b, names)
                alike.setdefault((b.manifest.format, names, types), []).extend(b.manifest.files)
        frames = [self._read_files(f, files, schema, names, types, order) for (f, names, types), files in alike.items()]
        frames += [self._outside(some, schema) for some in others.values()]
        if not frames:
            return self._empty(schema)
        return reduce(DataFrame.unionByName, frames)

    def _outside(self, blocks: Sequence[Block], schema: Schema) -> DataFrame:
        """The rows of files that another system keeps. What their folders are called says the values of partition
        columns; columns that some files do not have are null."""
        of = blocks[0].manifest
        assert of.outside is not None
        paths = [p for b in blocks for p in external_files.paths_of(b.manifest, b.channel)]
        if not paths:
            return self._empty(schema)
        relaxed = schema.relaxed()
        reader = self.session.get().read.format(of.format).schema(to_struct(relaxed))
        reader = reader.options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
        rows = load(reader.option("basePath", file_io.for_spark(of.outside.location)), self.session.get(), paths)
        return rows.select(*map(col, relaxed.names))

    def _read_files(
        self,
        format_: str,
        files: Sequence[DataFile],
        schema: Schema,
        names: _Names,
        types: _Types,
        order: Mapping[str, int] | None,
    ) -> DataFrame:
        if format_ not in FORMATS:
            raise NotSupported(f"blocks of format {format_!r} cannot be read", expected=" or ".join(FORMATS))
        relaxed = schema.relaxed().fields
        own = [
            None if n is None else replace(f, name=n, type=t or f.type)
            for f, n, t in zip(relaxed, names, types, strict=True)
        ]
        there = Schema(tuple(f for f in own if f is not None))
        reader = self.session.get().read.format(format_).schema(to_struct(there))
        # No file is passed over in silence.
        reader = reader.options(ignoreMissingFiles="false", ignoreCorruptFiles="false", **_CHECKSUMS)
        try:
            rows = load(reader, self.session.get(), self.warehouse.paths(files))
        except AnalysisException as error:
            if format_ != "avro":
                raise
            raise NotSupported(
                "this Spark does not read Avro",
                found=str(error).splitlines()[0],
                expected="the package spark-avro",
                next="start Spark with spark.jars.packages=org.apache.spark:spark-avro_2.13:<its own version>",
            ) from error
        if order:
            rows = self._in_order(rows, order)
        if all(o == f for f, o in zip(relaxed, own, strict=True)):
            return rows
        found = [_as(f, o).alias(f.name) for f, o in zip(relaxed, own, strict=True)]
        return rows.select(*found, *([col(SEQ)] if order else []))

    def _in_order(self, rows: DataFrame, order: Mapping[str, int]) -> DataFrame:
        """Rows with the place of their file's delta.

        A file is known by its name and its block's folder, the last two parts of its path: unique in the warehouse, and
        free of characters that a URL would write otherwise.
        """
        places = {"/".join(path.split("/")[-2:]): n for path, n in order.items()}
        # Asked for by name, it costs nothing where it is not needed; but a user's column may have that name.
        taken = any(c.lower() == "_metadata" for c in rows.columns)
        path = metadata(rows).getField("file_path") if taken else F.col("_metadata.file_path")
        name = F.substring_index(path, "/", -2)
        if len(places) <= _LITERAL_FILES:
            pairs = [F.lit(part) for item in places.items() for part in item]
            return rows.withColumn(SEQ, F.create_map(*pairs)[name])
        table = self.session.get().createDataFrame(list(places.items()), f"{_FILE} string, {SEQ} int")
        return rows.withColumn(_FILE, name).join(F.broadcast(table), _FILE).drop(_FILE)

    def _empty(self, schema: Schema) -> DataFrame:
        """A frame without rows; planned as such, so that what is joined with it is not read either."""
        columns = [F.lit(None).cast(to_spark(f.type)).alias(f.name) for f in schema.fields if f.name != DELETED]
        marks = [F.lit(False).alias(DELETED)] if DELETED in schema else []
        return self.session.get().range(0).select(*columns, *marks)


def _as(field: Field, own: Field | None) -> Column:
    """A column as it is called now, of what a file has."""
    if own is None:
        return F.lit(None).cast(to_spark(field.type))
    return col(own.name) if own.type == field.type else col(own.name).cast(to_spark(field.type))


def load(reader: DataFrameReader, spark: SparkSession, paths: list[str]) -> DataFrame:
    """Files by their paths: a path is a path, whatever characters the warehouse's own name has."""
    paths = [file_io.for_spark(p) for p in paths]
    if is_connect(spark):  # which takes every path for a pattern
        return reader.load([_GLOB.sub(r"\\\g<0>", p) for p in paths])
    return reader.option("__globPaths__", "false").load(paths)


def _call(reference: str, frames: Sequence[DataFrame]) -> DataFrame:
    """Frames combined by a user's function of two, left to right."""
    return reduce(FunctionRef.parse(reference).load(), frames)


def _blocks(sources: Sequence[Source]) -> list[Block]:
    found = []
    for source in sources:
        assert not isinstance(source, FromPort), "a read is resolved before it is carried out"
        found.append(source)
    return found


def _order(deltas: Sequence[Block]) -> dict[str, int]:
    """File -> the place of its delta, where there are several."""
    return {f.path: n for n, d in enumerate(deltas) for f in d.manifest.files} if len(deltas) > 1 else {}


def _among(read: Snapshot, schema: Schema) -> Column | None:
    """Whether a row may have a key of the deltas, as far as one column tells: where keys come in ranges."""
    found = changed_range(read)
    if found is None:
        return None
    name, least, greatest = found
    kind = to_spark(schema.field(name).type)
    return col(name).between(F.lit(least).cast(kind), F.lit(greatest).cast(kind))


def _is_small(deltas: Sequence[Block]) -> bool:
    rows, size = sum(d.rows for d in deltas), sum(d.bytes for d in deltas)
    return rows <= FEW_ROWS or (rows <= BROADCAST_ROWS and size <= BROADCAST_BYTES)
