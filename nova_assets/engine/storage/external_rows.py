"""Rows of external Parquet files, read without Spark wherever the result equals Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.storage import file_io
from nova_assets.errors import BadRecord
from nova_assets.formats import schema_fit
from nova_assets.formats.derived_partitions import parse_partition_value
from nova_assets.formats.parquet_types import may_be_julian
from nova_assets.model.arrow_types import arrow_type, spark_type
from nova_assets.model.block import Block
from nova_assets.model.partitions import partition_values
from nova_assets.model.schema import Field, Schema

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
