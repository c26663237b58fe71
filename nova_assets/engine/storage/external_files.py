"""External files, which other systems write: their listings, descriptions of their content, and rows of Parquet files
that are read without Spark wherever the result equals Spark's. This module never writes or deletes files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs, orc

from nova_assets.engine.storage import file_io
from nova_assets.errors import BadRecord, FileMissing, NotSupported, SchemaMismatch, SourceUnavailable
from nova_assets.formats import schema_fit
from nova_assets.formats.derived_partitions import parse_partition_value
from nova_assets.formats.parquet_types import may_be_julian
from nova_assets.model.arrow_types import arrow_type, spark_type
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.external_table import ExternalFilesContent, ExternalFormat
from nova_assets.model.file_source import ExternalFileInfo
from nova_assets.model.partitions import partition_values
from nova_assets.model.schema import DataType, Field, Schema

MAX_PARALLEL_READS = 16
"""Maximum number of footers that are read concurrently."""

_TABLE_FORMAT_BY_FOLDER: Mapping[str, str] = {
    "_delta_log": "Delta Lake",
    ".hoodie": "Hudi",
    "_spark_metadata": "Spark's streaming",
}
"""Folders that identify tables of other formats. Some of their files may hold rows that the table has deleted."""


_RowsAndSchema = tuple[int, pa.Schema]
"""Row count and schema of a file."""


def list_files(location: str) -> list[ExternalFileInfo]:
    """All files below a location.

    Raises:
        SourceUnavailable: the location cannot be listed.
        NotSupported: the location is a table of a format whose metadata decides which files are valid.
    """
    try:
        files, path = file_io.filesystem_and_path(location)
        prefix = location.removesuffix(path)  # the scheme, which the store leaves out
        entries = files.get_file_info(fs.FileSelector(path, recursive=True))
    except (OSError, ValueError, RuntimeError) as error:  # includes Arrow's errors
        raise SourceUnavailable(
            f"{location} cannot be listed",
            found=str(error),
            expected="a folder that exists and can be read",
            next="correct the location or its permissions; the channel keeps its earlier state",
        ) from error
    _check_no_table_format(location, [f.path.removeprefix(path) for f in entries])
    return [ExternalFileInfo(f"{prefix}{f.path}", int(f.size or 0), int(f.mtime_ns or 0)) for f in entries if f.is_file]


def _check_no_table_format(location: str, paths: Sequence[str]) -> None:
    parts = {part for path in paths for part in path.split("/")}
    table_formats = [kind for name, kind in _TABLE_FORMAT_BY_FOLDER.items() if name in parts]
    table_formats += ["Iceberg"] if any("/metadata/" in p and p.endswith(".metadata.json") for p in paths) else []
    if table_formats:
        raise NotSupported(
            f"{location} is a table of {table_formats[0]}",
            found="files that may contain deleted rows, which only the table's metadata marks",
            expected="folders of plain Parquet or ORC files",
            next="read the table in a user function: nova.sql_function(returns='table(...)')",
        )


def describe_files(channel: Channel, partition: str, files: Sequence[ExternalFileInfo]) -> ExternalFilesContent:
    """Row counts of files, from their footers, and the columns that occur in them.

    Raises:
        FileMissing: a file was removed since the listing.
        BadRecord: a file is damaged or has another format.
        SchemaMismatch: a column of a file has another type than the channel's column.
    """
    assert channel.external is not None and channel.schema is not None
    read = partial(_read_rows_and_schema, format=channel.external.format, channel_name=channel.name)
    with ThreadPoolExecutor(MAX_PARALLEL_READS, "nova-footers") as pool:
        rows_and_schemas = list(pool.map(read, [f.path for f in files]))
    columns: set[str] = set()
    data_files = []
    for file, (rows, schema) in zip(files, rows_and_schemas, strict=True):
        columns |= {name.lower() for name in schema.names}
        _check_column_types(channel, file, schema)
        data_files.append(DataFile(file.path, rows, file.bytes, partition=partition))
    return ExternalFilesContent(tuple(data_files), frozenset(columns))


def read_file_schema(path: str, format: ExternalFormat) -> Schema:
    """Columns of one file. Raises FileMissing, BadRecord."""
    _, schema = _read_rows_and_schema(path, format, "")
    return Schema(tuple(Field(f.name, spark_type(f.type, f.name)) for f in schema))


def verified_paths(manifest: Manifest, channel_name: str) -> list[str]:
    """Paths of the files of an external block, after a check of their existence and sizes.

    Raises:
        FileMissing: a file was removed or changed, or is outside the block's folder.
    """
    external_folder = manifest.external_folder
    assert external_folder is not None
    for file in manifest.files:
        if not external_folder.contains(file.path):
            raise FileMissing(f"{file.path!r} is not in {external_folder.location}", path=file.path)
    for file, size in zip(manifest.files, file_io.sizes_of([f.path for f in manifest.files]), strict=True):
        if size != file.bytes:
            raise _file_changed_error(file, channel_name, "no such file" if size is None else f"{size} bytes")
    return [f.path for f in manifest.files]


def _file_changed_error(file: DataFile, channel_name: str, actual: str) -> FileMissing:
    return FileMissing(
        f"{file.path} was changed or removed by the system that writes it",
        found=actual,
        expected=f"{file.bytes} bytes, as at the last refresh of {channel_name!r}",
        next=f"nova refresh {channel_name}, then repeat the read",
        path=file.path,
    )


def _read_rows_and_schema(path: str, format: ExternalFormat, channel_name: str) -> _RowsAndSchema:
    try:
        return _read_orc_footer(path) if format == "orc" else _read_parquet_footer(path)
    except FileNotFoundError as error:
        raise FileMissing(
            f"{path} was removed after it was listed", next=f"nova refresh {channel_name}", path=path
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise BadRecord(
            f"{path} cannot be read",
            found=str(error).split("\n", 1)[0],
            expected="a complete file; write unfinished files elsewhere, or declare success_file=",
            path=path,
        ) from error


def _read_parquet_footer(address: str) -> _RowsAndSchema:
    footer: pq.FileMetaData = file_io.read_parquet_metadata(address)
    return footer.num_rows, footer.schema.to_arrow_schema()


def _read_orc_footer(address: str) -> _RowsAndSchema:
    files, path = file_io.filesystem_and_path(address)
    with files.open_input_file(path) as opened:
        orc_file = orc.ORCFile(opened)
        return orc_file.nrows, orc_file.schema


def _check_column_types(channel: Channel, file: ExternalFileInfo, file_schema: pa.Schema) -> None:
    assert channel.schema is not None
    file_types = {name.lower(): file_schema.field(n).type for n, name in enumerate(file_schema.names)}
    for field in _non_partition_fields(channel):
        file_type = file_types.get(field.name.lower())
        if file_type is None:
            continue
        spark_file_type = spark_type(file_type, field.name)
        if not _is_readable_as(spark_file_type, field.type):
            raise SchemaMismatch(
                f"column {field.name!r} of external channel {channel.name!r} has another type in {file.path}",
                found=str(spark_file_type),
                expected=str(field.type),
                next=f"declare the column as {spark_file_type} if all files have this type",
                channel=channel.name,
            )


def _is_readable_as(file_type: DataType, declared_type: DataType) -> bool:
    """Whether Spark reads the file type as the declared type. Older files have timestamps without a zone that mean
    UTC."""
    return str(file_type) == str(declared_type) or (
        file_type.name == "timestamp_ntz" and declared_type.name == "timestamp"
    )


def _non_partition_fields(channel: Channel) -> Iterator[Field]:
    assert channel.schema is not None
    partition = {c.lower() for c in channel.partition_columns}
    return (f for f in channel.schema.fields if f.name.lower() not in partition)


# rows

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class ExternalParquetFile:
    """One external Parquet file.

    Args:
        column_by_stored_name: channel column of each column of the file. The names may differ in case.
        partition_scalars: partition columns with the values that the folder names give, which override the file's
            columns.
        schema: schema of the returned rows.
    """

    path: str
    footer: pq.FileMetaData
    column_by_stored_name: Mapping[str, str]
    partition_scalars: Mapping[str, pa.Scalar]
    schema: Schema

    def read_row_groups(self) -> Iterator[pa.Table]:
        """Rows of the file, one row group at a time. Raises BadRecord for a damaged page."""
        return (self._read_row_group(n) for n in range(self.footer.num_row_groups))

    def _read_row_group(self, row_group: int) -> pa.Table:
        try:
            with file_io.open_parquet_file(self.path, self.footer) as file:
                rows = file.read_row_group(row_group, list(self.column_by_stored_name))
        except OSError as error:
            if "checksum" not in str(error):
                raise
            raise BadRecord(
                f"{self.path} is damaged",
                found=str(error).split("\n", 1)[0],
                expected="pages that match their checksums",
                next="let the system that writes the file write it again, then refresh the channel",
                path=self.path,
            ) from error
        rows = rows.rename_columns([self.column_by_stored_name[c] for c in rows.column_names])
        for column, value in self.partition_scalars.items():
            rows = rows.append_column(column, pa.repeat(value, rows.num_rows))
        return schema_fit.fit_to_schema(rows, self.schema)


def open_external_file(block: Block, path: str, schema: Schema) -> ExternalParquetFile | None:
    """Open a file of an external block; None if only Spark can interpret the file.

    Args:
        schema: the columns to read.
    """
    nullable_schema = schema.with_all_nullable()
    partition_scalars = _parse_partition_scalars(block, nullable_schema)
    footer = file_io.read_parquet_metadata(path)
    file_schema = footer.schema.to_arrow_schema()
    stored_name_by_lower = {name.lower(): name for name in file_schema.names}
    if partition_scalars is None or len(stored_name_by_lower) < len(file_schema.names) or may_be_julian(footer):
        return None
    field_by_stored_name = {
        stored_name_by_lower[f.name.lower()]: f
        for f in nullable_schema.fields
        if f.name not in partition_scalars and f.name.lower() in stored_name_by_lower
    }
    if not all(_has_declared_type(file_schema.field(name).type, field) for name, field in field_by_stored_name.items()):
        return None
    return ExternalParquetFile(
        path, footer, {name: f.name for name, f in field_by_stored_name.items()}, partition_scalars, nullable_schema
    )


def _parse_partition_scalars(block: Block, schema: Schema) -> dict[str, pa.Scalar] | None:
    """Values of partition columns in a partition's name; None if a column has a type that only Spark can interpret.

    The values in a name equal those that Spark reads from the folder names (``plan/external_changes``).
    """
    scalars: dict[str, pa.Scalar] = {}
    for column, text in partition_values(block.partition).items():
        if column not in schema:
            continue
        type_ = schema.field(column).type
        if type_.name not in ("string", "boolean", "date", *_INTEGERS):
            return None
        scalars[column] = pa.scalar(parse_partition_value(text, type_), arrow_type(type_))
    return scalars


def _has_declared_type(file_type: pa.DataType, field: Field) -> bool:
    """Whether a column of the file has the declared type.

    Spark has rules of its own for timestamps without a zone, and for timestamps with a precision finer than
    microseconds, such as those in old files. They count as different.
    """
    return str(spark_type(file_type, field.name)) == str(field.type) and "timestamp[ns" not in str(file_type)
