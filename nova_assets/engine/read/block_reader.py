"""Files of blocks as Spark frames: exactly the listed files, in the columns of a schema (R16)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.buckets.spark_jobs import frame_of_tasks, to_spark_batches
from nova_assets.engine.read.in_memory import formatted_files_of_block
from nova_assets.engine.read.spark_merge import DELTA_INDEX
from nova_assets.engine.rows.spark_columns import col
from nova_assets.engine.rows.spark_schema_fit import widen_column
from nova_assets.engine.rows.spark_types import to_spark_type, to_struct
from nova_assets.engine.rows.spark_versions import READER_WIDENS_TYPES, file_metadata_column
from nova_assets.engine.rows.stored_columns import stored_column_names, stored_column_types
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.literal_paths import load_paths
from nova_assets.engine.session.worker_errors import as_task_errors
from nova_assets.engine.storage import external_files, file_io, formatted_files
from nova_assets.engine.storage.formatted_files import FormattedFile
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.errors import NotSupported
from nova_assets.model.block import Block, DataFile
from nova_assets.model.partitions import partition_values
from nova_assets.model.schema import DELETED, DataType, Field, Schema
from nova_assets.model.schema_evolution import has_other_fields

FORMATS = ("parquet", *formatted_files.FORMATS)
"""File formats that blocks may have. Spark reads Parquet, and this package reads the other formats."""

MAX_FILES_IN_QUERY_TEXT = 200
"""Number of files above which their order is joined as a table, not written into the query."""

PAGE_CHECKSUMS = {"parquet.page.verify-checksum.enabled": "true"}
"""Reader option that verifies the checksums of pages that have one."""

_STRICT = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", **PAGE_CHECKSUMS}
"""Reader options by which no missing or corrupt file is skipped silently."""

_FILE = "__nova_file"

_Names: TypeAlias = tuple[str | None, ...]
_Types: TypeAlias = tuple[DataType | None, ...]


class BlockReader:
    """Builds frames from the files of blocks."""

    def __init__(self, session: LazySparkSession, warehouse: Warehouse) -> None:
        self.session = session
        self.warehouse = warehouse

    def read(
        self, blocks: Sequence[Block], schema: Schema, delta_index_by_path: Mapping[str, int] | None = None
    ) -> DataFrame:
        """Rows of some blocks in the columns of a schema. Blocks with equal stored schemas share one read.

        Columns that a block lacks are null. Types are widened: Spark 4's Parquet reader supports every widening of
        plain types that ``model.type_widening.can_widen`` allows. Blocks whose structs have other fields, and with
        Spark 3.5 all blocks with other types, are read separately and converted. A column is found under its stored
        name in each block (R18).

        Args:
            delta_index_by_path: index of the delta of each file, to be added as ``DELTA_INDEX``; None to add no index.
        """
        files_by_stored_schema: dict[tuple[str, _Names, _Types], list[DataFile]] = {}
        blocks_by_external_location: dict[tuple[str, str, str], list[Block]] = {}
        formatted: list[FormattedFile] = []
        for b in blocks:
            external_folder = b.manifest.external_folder
            if external_folder is not None:
                partition = "" if external_folder.has_values_in_path else b.partition
                location = (b.manifest.format, external_folder.location, partition)
                blocks_by_external_location.setdefault(location, []).append(b)
            elif b.manifest.files and b.manifest.format != "parquet":
                formatted += self._formatted_files(b, schema, delta_index_by_path)
            elif b.manifest.files:
                names = stored_column_names(b, schema)
                types = _types_to_read(b, names, schema)
                files_by_stored_schema.setdefault((b.manifest.format, names, types), []).extend(b.manifest.files)
        frames = [
            self._read_files(f, files, schema, names, types, delta_index_by_path)
            for (f, names, types), files in files_by_stored_schema.items()
        ]
        frames += [self._read_external_blocks(some, schema) for some in blocks_by_external_location.values()]
        if formatted:
            frames.append(self._read_formatted_files(formatted, schema, with_delta_index=bool(delta_index_by_path)))
        if not frames:
            return self.empty_frame(schema)
        return reduce(DataFrame.unionByName, frames)

    def _formatted_files(
        self, block: Block, schema: Schema, delta_index_by_path: Mapping[str, int] | None
    ) -> list[FormattedFile]:
        if block.manifest.format not in FORMATS:
            raise NotSupported(
                f"blocks of format {block.manifest.format!r} cannot be read", expected=" or ".join(FORMATS)
            )
        self.warehouse.verified_addresses(block.manifest.files)
        return formatted_files_of_block(block, self.warehouse, schema, delta_index_by_path or {})

    def _read_formatted_files(
        self, files: Sequence[FormattedFile], schema: Schema, *, with_delta_index: bool
    ) -> DataFrame:
        """Rows of files that this package reads: in Spark's workers, or in this process if workers cannot run it."""
        relaxed = schema.with_all_nullable()
        columns = Schema((*relaxed.fields, Field(DELTA_INDEX, DataType("int")))) if with_delta_index else relaxed

        def read(n: int) -> pa.Table:
            return _read_with_delta_index(files[n], relaxed, with_delta_index=with_delta_index)

        def read_in_worker(n: int) -> Iterator[pa.RecordBatch]:
            with as_task_errors():
                yield from to_spark_batches(read(n))

        if self.session.can_use_workers:
            return frame_of_tasks(self.session.get(), read_in_worker, len(files), to_struct(columns))
        return self.session.to_frame(pa.concat_tables([read(n) for n in range(len(files))]))

    def _read_external_blocks(self, blocks: Sequence[Block], schema: Schema) -> DataFrame:
        """Rows of external files. Folder names give the values of partition columns. Columns that a file lacks are
        null."""
        manifest = blocks[0].manifest
        assert manifest.external_folder is not None
        paths = [p for b in blocks for p in external_files.verified_paths(b.manifest, b.channel)]
        if not paths:
            return self.empty_frame(schema)
        relaxed = schema.with_all_nullable()
        reader = self.session.get().read.format(manifest.format).schema(to_struct(relaxed)).options(**_STRICT)
        rows = load_paths(
            reader.option("basePath", file_io.to_spark_address(manifest.external_folder.location)),
            self.session.get(),
            paths,
        )
        if manifest.external_folder.has_values_in_path:
            return rows.select(*map(col, relaxed.names))
        [partition] = {b.partition for b in blocks}  # the folder belongs to one partition
        value_by_column = partition_values(partition)
        return rows.select(
            *(
                F.lit(value_by_column[f.name]).cast(to_spark_type(f.type)).alias(f.name)
                if f.name in value_by_column
                else col(f.name)
                for f in relaxed.fields
            )
        )

    def _read_files(
        self,
        file_format: str,
        files: Sequence[DataFile],
        schema: Schema,
        stored_names: _Names,
        stored_types: _Types,
        delta_index_by_path: Mapping[str, int] | None,
    ) -> DataFrame:
        relaxed = schema.with_all_nullable().fields
        stored_fields = [
            None if n is None else replace(f, name=n, type=t or f.type)
            for f, n, t in zip(relaxed, stored_names, stored_types, strict=True)
        ]
        stored_schema = Schema(tuple(f for f in stored_fields if f is not None))
        reader = self.session.get().read.format(file_format).schema(to_struct(stored_schema)).options(**_STRICT)
        rows = load_paths(reader, self.session.get(), self.warehouse.verified_addresses(files))
        if delta_index_by_path:
            rows = self._add_delta_index(rows, delta_index_by_path)
        if all(o == f for f, o in zip(relaxed, stored_fields, strict=True)):
            return rows
        columns = [_stored_column_as_field(f, o).alias(f.name) for f, o in zip(relaxed, stored_fields, strict=True)]
        return rows.select(*columns, *([col(DELTA_INDEX)] if delta_index_by_path else []))

    def _add_delta_index(self, rows: DataFrame, delta_index_by_path: Mapping[str, int]) -> DataFrame:
        """Rows with the index of their file's delta as ``DELTA_INDEX``.

        A file is identified by its name and the folder of its block, the last two parts of its path. They are unique in
        the warehouse, and contain no characters that a URL would escape.
        """
        delta_index_by_name = {"/".join(path.split("/")[-2:]): n for path, n in delta_index_by_path.items()}
        # Access by name costs nothing if the column is unused, but a user's column may have the same name.
        has_user_metadata_column = any(c.lower() == "_metadata" for c in rows.columns)
        path = (
            file_metadata_column(rows).getField("file_path")
            if has_user_metadata_column
            else F.col("_metadata.file_path")
        )
        name = F.substring_index(path, "/", -2)
        if len(delta_index_by_name) <= MAX_FILES_IN_QUERY_TEXT:
            pairs = [F.lit(part) for item in delta_index_by_name.items() for part in item]
            return rows.withColumn(DELTA_INDEX, F.create_map(*pairs)[name])
        table = self.session.get().createDataFrame(
            list(delta_index_by_name.items()), f"{_FILE} string, {DELTA_INDEX} int"
        )
        return rows.withColumn(_FILE, name).join(F.broadcast(table), _FILE).drop(_FILE)

    def empty_frame(self, schema: Schema) -> DataFrame:
        """Frame without rows. Spark's planner knows that it is empty, so the other side of a join is not read
        either."""
        columns = [F.lit(None).cast(to_spark_type(f.type)).alias(f.name) for f in schema.fields if f.name != DELETED]
        marks = [F.lit(False).alias(DELETED)] if DELETED in schema else []
        return self.session.get().range(0).select(*columns, *marks)


def _types_to_read(block: Block, names: _Names, schema: Schema) -> _Types:
    """Types in which the columns of a block are read; None for the types of the schema, which the reader widens."""
    types = stored_column_types(block, names)
    if not READER_WIDENS_TYPES:
        return types
    return tuple(
        t if t is not None and has_other_fields(t, f.type) else None for t, f in zip(types, schema.fields, strict=True)
    )


def _stored_column_as_field(field: Field, stored_field: Field | None) -> Column:
    """Stored column of a file as a column of the current schema."""
    if stored_field is None:
        return F.lit(None).cast(to_spark_type(field.type))
    column = col(stored_field.name)
    return column if stored_field.type == field.type else widen_column(column, stored_field.type, field.type)


def _read_with_delta_index(file: FormattedFile, schema: Schema, *, with_delta_index: bool) -> pa.Table:
    """Rows of a file, with the index of its delta if requested."""
    rows = file.read(schema)
    index = pa.scalar(file.delta_index, pa.int32())
    return rows.append_column(DELTA_INDEX, pa.repeat(index, rows.num_rows)) if with_delta_index else rows
