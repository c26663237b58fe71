"""Reading of Parquet folders in S3 or HDFS that other tools have filled, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from nova_assets.engine.inputs.insert_data import LARGE_PARQUET_BYTES
from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import MAX_PARALLEL_REQUESTS
from nova_assets.formats.derived_partitions import parse_partition_value
from nova_assets.formats.parquet_input import ParquetInput
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import Dimension
from nova_assets.model.published_version import ExistingTableFile
from nova_assets.model.schema import DataType


def fits_in_memory(files: Sequence[ExistingTableFile]) -> bool:
    """Whether this process may read all files at once, as for files that are inserted."""
    return sum(f.bytes for f in files) <= LARGE_PARQUET_BYTES


def read_remote_files(files: Sequence[ExistingTableFile], channel: Channel) -> pa.Table:
    """Rows of Parquet files, with the partition columns of their folder names in the types of the channel.

    A column that a file lacks is null.

    Args:
        files: the files.
        channel: channel that gets the rows.

    Raises:
        SchemaMismatch: a column has a type that Arrow cannot read exactly.
        ValueError: a folder name holds no value of the type of its column.
    """

    def read_file(file: ExistingTableFile) -> pa.Table:
        with (
            closing(file_io.open_input_stream(file.address)) as stream,
            closing(ParquetInput(stream, channel.schema, file.address)) as opened,
        ):
            rows = opened.read().replace_schema_metadata(None)
        for dimension in channel.partitions:
            column = dimension.column
            if column in file.folder_values and column not in rows.column_names:
                type_ = _column_type(channel, dimension)
                value = _parse_folder_value(file.folder_values[column], type_)
                rows = rows.append_column(column, pa.repeat(pa.scalar(value, arrow_type(type_)), rows.num_rows))
        return rows

    with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS, "nova-read") as pool:
        return pa.concat_tables(list(pool.map(read_file, files)), promote_options="default")


def _column_type(channel: Channel, dimension: Dimension) -> DataType:
    if channel.schema is None or dimension.column not in channel.schema:
        return DataType("string")
    return channel.schema.field(dimension.column).type


def _parse_folder_value(text: str | None, type_: DataType) -> Any:
    """Value of a folder name. Times in such names are in UTC, whatever the zone of the channel's partitions is."""
    value = parse_partition_value(text, type_)
    if isinstance(value, datetime) and type_.name == "timestamp":
        return datetime.fromisoformat(str(text)).replace(tzinfo=UTC)
    return value
