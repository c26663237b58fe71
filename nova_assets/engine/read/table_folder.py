"""Reading of folders that other tools have filled, before a channel takes them over."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nova_assets.engine.read.block_reader import PAGE_CHECKSUMS
from nova_assets.engine.rows.spark_columns import col
from nova_assets.engine.rows.spark_types import to_spark_type, to_struct
from nova_assets.engine.session.literal_paths import load_paths
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.table_formats import check_hive_support, format_error, spark_format_options, sql_text
from nova_assets.engine.storage import file_io
from nova_assets.model.channel import Channel
from nova_assets.model.published_version import ExistingTableFile, TableFileLayout
from nova_assets.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table_folder(
    spark: SparkSession,
    folder: str,
    files: Sequence[ExistingTableFile],
    channel: Channel,
    layout: TableFileLayout,
) -> DataFrame:
    """Rows of a folder, with the partition columns of its folder names in the types of the channel.

    Args:
        folder: path or address of the folder.
        files: its data files.

    Raises:
        NotSupported: Spark cannot read the format.
    """
    with temporary_settings(spark, {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}):
        if layout.format == "parquet":
            reader = spark.read.format("parquet").options(mergeSchema="true", **PAGE_CHECKSUMS)
            reader = reader.option("basePath", file_io.to_spark_address(folder))
            frame = load_paths(reader, spark, [f.address for f in files])
        else:
            assert channel.schema is not None, "the caller checks it"
            frame = _read_other_format(spark, folder, layout, channel.schema)
    for dimension in channel.partitions:
        if dimension.column in frame.columns and channel.schema is not None:
            declared_type = to_spark_type(channel.schema.field(dimension.column).type)
            frame = frame.withColumn(dimension.column, col(dimension.column).cast(declared_type))
    return frame


def _read_other_format(spark: SparkSession, folder: str, layout: TableFileLayout, schema: Schema) -> DataFrame:
    try:
        if layout.format == "rcfile":
            return _read_rcfiles(spark, folder, layout, schema)
        reader = spark.read.format(layout.format).options(**spark_format_options(layout))
        if layout.format in ("csv", "json"):
            fields = [*layout.file_columns(schema.names), *layout.path_columns]
            reader = reader.schema(to_struct(Schema(tuple(schema.field(c) for c in fields)).with_all_nullable()))
            reader = reader.option("mode", "FAILFAST")
        return reader.load(file_io.to_spark_address(folder))
    except Exception as error:
        if (refusal := format_error(error, layout)) is not None:
            raise refusal from error
        raise


def _read_rcfiles(spark: SparkSession, folder: str, layout: TableFileLayout, schema: Schema) -> DataFrame:
    """Rows of RCFiles. Columns have no names in these files, so the declared order is the order of the columns."""
    check_hive_support(spark)
    table = f"nova_{uuid.uuid4().hex}"
    files = ", ".join(f"`{c}` {schema.field(c).type}" for c in layout.file_columns(schema.names))
    paths = ", ".join(f"`{c}` string" for c in layout.path_columns)
    partitioned = f"PARTITIONED BY ({paths})" if paths else ""
    location = sql_text(file_io.to_spark_address(folder))
    spark.sql(f"CREATE EXTERNAL TABLE {table} ({files}) {partitioned} STORED AS RCFILE LOCATION {location}")
    if paths:
        spark.sql(f"MSCK REPAIR TABLE {table}")
    return spark.table(table)
