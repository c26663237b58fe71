"""Files of published tables that are converted from a channel's rows: Parquet by Arrow, other formats by Spark.

A channel may keep its blocks in another format, and with its partition columns. Readers of the table get files in the
form that they have always read (Speedy Batch 6.1).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from nova_assets.engine.buckets.file_writer import gather_tables
from nova_assets.engine.inputs.remote_folder import fits_in_memory, read_remote_files
from nova_assets.engine.read.read_executor import ReadExecutor
from nova_assets.engine.session.table_formats import check_hive_support, format_error, spark_format_options, sql_text
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import MAX_PARALLEL_REQUESTS
from nova_assets.errors import WarehouseUnavailable
from nova_assets.formats.table_schema import fit_to_table_schema, parquet_table_schema, parquet_write_options
from nova_assets.model.channel import Channel
from nova_assets.model.published_version import FILE_SUFFIXES, ExistingTableFile, TableFile, TableFileLayout
from nova_assets.model.reads import Snapshot
from nova_assets.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class AddressedObjects:
    """The ``TableStore`` of all addresses that nova can reach: objects of published folders in S3 or HDFS."""

    def read(self, address: str) -> bytes | None:
        try:
            with file_io.open_input_stream(address) as stream:
                return bytes(stream.read_at(stream.size(), 0)) if stream.size() else b""
        except FileNotFoundError:
            return None

    open = staticmethod(file_io.open_input_stream)

    def write(self, address: str, data: bytes) -> None:
        files, path = file_io.filesystem_and_path(address)
        with files.open_output_stream(path) as stream:
            stream.write(data)

    def write_all(self, objects: Iterable[tuple[str, bytes]]) -> None:
        with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS, "nova-publish") as pool:
            list(pool.map(lambda item: self.write(*item), objects))

    def delete(self, addresses: Iterable[str]) -> None:
        def delete_one(address: str) -> None:
            with suppress(FileNotFoundError):
                file_io.delete_file(address)

        with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS, "nova-delete") as pool:
            list(pool.map(delete_one, addresses))

    def list(self, address: str) -> list[str]:
        files, path = file_io.filesystem_and_path(address)
        root = address.rstrip("/")
        found = files.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return sorted(f"{root}{f.path.removeprefix(path.rstrip('/'))}" for f in found if f.is_file)


class PublishedTableFiles:
    """The protocol ``TableFiles``: files of published tables, and of folders that other tools have filled."""

    def __init__(self, reader: ReadExecutor) -> None:
        self.reader = reader
        self.session = reader.session

    store = staticmethod(AddressedObjects)

    def read_folder(
        self, folder: str, files: Sequence[ExistingTableFile], target: Channel, layout: TableFileLayout
    ) -> Any:
        if "://" in folder and fits_in_memory(files):
            return read_remote_files(files, target)
        from nova_assets.engine.read.table_folder import read_table_folder

        return read_table_folder(self.session.get(), folder, files, target, layout)

    def write_files(
        self, read: Snapshot, folder: str, layout: TableFileLayout, *, rows: int, file_count: int, target_bytes: int
    ) -> list[TableFile]:
        assert read.schema is not None, "a channel without a schema is not published"
        with self.session.computation_scope():
            if layout.format != "parquet":
                return write_table_files_by_spark(self.reader.read(read), folder, layout, file_count, rows)
            batches = self.reader.read_batches(read)
            return write_parquet_table_files(batches, folder, layout, read.schema, target_bytes, rows)


_ROW_GROUP_BYTES = 64 * 1024 * 1024
_ROW_GROUP_ROWS = 1024 * 1024


def write_parquet_table_files(
    batches: pa.RecordBatchReader,
    folder: str,
    layout: TableFileLayout,
    schema: Schema,
    target_bytes: int,
    expected_rows: int,
) -> list[TableFile]:
    """Write rows as Parquet files of about the target size. Memory holds one row group.

    Args:
        batches: the rows, with all columns of the channel.
        folder: address of an empty folder.
        layout: layout of the files.
        schema: columns of the channel.
        target_bytes: size of a file in bytes.
        expected_rows: number of the rows.

    Raises:
        SchemaMismatch: the layout cannot represent a value.
        WarehouseUnavailable: other than the expected number of rows has been written.
    """
    file_schema = parquet_table_schema(schema, layout)
    filesystem, path = file_io.filesystem_and_path(folder)
    files: list[TableFile] = []
    rows = 0
    groups = gather_tables((b for b in batches if b.num_rows), _ROW_GROUP_BYTES, _ROW_GROUP_ROWS)
    group = next(groups, None)
    while group is not None:
        name = _new_file_name(len(files), layout)
        with filesystem.open_output_stream(file_io.join(path, name)) as stream:
            with pq.ParquetWriter(stream, file_schema, **parquet_write_options(layout)) as writer:
                while group is not None:
                    fitted = fit_to_table_schema(group, file_schema)
                    writer.write_table(fitted, row_group_size=max(1, fitted.num_rows))
                    rows += fitted.num_rows
                    group = next(groups, None)
                    if stream.tell() >= target_bytes:
                        break
            size = stream.tell()
        files.append(TableFile(name, size))
    _check_converted_rows(rows, expected_rows, folder)
    return files


def _new_file_name(number: int, layout: TableFileLayout) -> str:
    return f"part-{number:05d}-{uuid.uuid4().hex[:12]}{layout.suffix}"


def write_table_files_by_spark(
    frame: DataFrame, folder: str, layout: TableFileLayout, file_count: int, expected_rows: int
) -> list[TableFile]:
    """Write rows with Spark's own writer of a format.

    Args:
        frame: the rows, with all columns of the channel.
        folder: address of an empty folder.
        layout: layout of the files.
        file_count: number of files.
        expected_rows: number of the rows.

    Raises:
        NotSupported: the format cannot hold a column, or Spark lacks the format.
        WarehouseUnavailable: Spark has counted another number of rows.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from nova_assets.engine.rows.spark_columns import col

    columns = layout.file_columns(frame.columns)
    observation = Observation()
    rows = frame.select(*map(col, columns)).coalesce(max(1, file_count))
    rows = rows.observe(observation, F.count(F.lit(1)).alias("rows"))
    try:
        if layout.format == "rcfile":
            _write_rcfiles(rows, folder)
        else:
            writer = rows.write.mode("overwrite").format(layout.format).options(**spark_format_options(layout))
            writer.save(file_io.to_spark_address(folder))
    except Exception as error:
        if (refusal := format_error(error, layout)) is not None:
            raise refusal from error
        raise
    _check_converted_rows(int(observation.get["rows"]), expected_rows, folder)
    return _rename_files(folder, layout)


def _write_rcfiles(rows: DataFrame, folder: str) -> None:
    check_hive_support(rows.sparkSession)
    view = f"nova_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    try:
        location = sql_text(file_io.to_spark_address(folder))
        rows.sparkSession.sql(f"INSERT OVERWRITE DIRECTORY {location} STORED AS RCFILE SELECT * FROM {view}")
    finally:
        rows.sparkSession.catalog.dropTempView(view)


def _rename_files(folder: str, layout: TableFileLayout) -> list[TableFile]:
    """Data files that Spark has written, by names with the suffix of the layout. Other entries are removed."""
    filesystem, path = file_io.filesystem_and_path(folder)
    files: list[TableFile] = []
    for entry in sorted(filesystem.get_file_info(fs.FileSelector(path, recursive=False)), key=lambda e: e.base_name):
        if not entry.is_file:
            filesystem.delete_dir(entry.path)
        elif entry.base_name.startswith((".", "_")) or not entry.size:
            filesystem.delete_file(entry.path)
        elif layout.suffix in ("", FILE_SUFFIXES[layout.format]):
            files.append(TableFile(entry.base_name, entry.size))
        else:
            name = _new_file_name(len(files), layout)
            filesystem.move(entry.path, file_io.join(path, name))
            files.append(TableFile(name, entry.size))
    return files


def _check_converted_rows(written: int, expected: int, folder: str) -> None:
    if written != expected:
        raise WarehouseUnavailable(
            f"{folder} was not converted completely",
            found=f"{written} rows",
            expected=f"{expected} rows",
            next="publish again; readers still see the previous version",
        )
