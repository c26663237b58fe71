"""An existing folder of Parquet files as a Spark frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nova_assets.engine.rows.spark_columns import col
from nova_assets.engine.rows.spark_types import to_spark_type
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.model.channel import Channel


def read_parquet_folder(spark: Any, folder: Path, channel: Channel) -> Any:
    """Rows of a folder, with the partition columns of its subfolders in the types that the channel declares."""
    with temporary_settings(spark, {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}):
        frame = spark.read.option("mergeSchema", "true").parquet(str(folder))
    for dimension in channel.partitions:
        if dimension.column in frame.columns and channel.schema is not None:
            declared_type = to_spark_type(channel.schema.field(dimension.column).type)
            frame = frame.withColumn(dimension.column, col(dimension.column).cast(declared_type))
    return frame
