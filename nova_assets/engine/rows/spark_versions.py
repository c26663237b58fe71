"""What Spark 3.5 lacks beside Spark 4, in one place. On Spark 4 these are Spark's own functions and nothing more."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType

from nova_assets.engine.rows.spark_types import from_struct, to_struct
from nova_assets.model.arrow_types import from_arrow_schema, to_arrow_schema

SPARK_4 = not pyspark.__version__.startswith("3.")

READER_WIDENS_TYPES = SPARK_4
"""Whether the reader of Parquet files widens what they hold to the types that it is asked for."""


def collect_to_arrow(frame: DataFrame) -> pa.Table:
    """All rows of a frame, here."""
    if SPARK_4:
        return frame.toArrow()
    classic: Any = frame
    batches = classic._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(from_struct(frame.schema)).empty_table()


def frame_from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table as a frame. Says the types: by itself, Spark makes ``timestamp`` of ``timestamp_ntz``."""
    struct = to_struct(from_arrow_schema(table.schema))
    if SPARK_4:
        return spark.createDataFrame(table, struct)
    # Spark 3.5 takes pandas alone, which would make floats of whole numbers that may be null. This is how it goes on
    # when it has made an Arrow stream of those.
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    classic: Any = spark
    python = classic._jvm.PythonSQLUtils
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    rows = classic.sparkContext._serialize_to_jvm(
        batches, ArrowStreamSerializer(), python.readArrowStreamFromFile, classic._jvm.ArrowIteratorServer
    )
    return DataFrame(python.toDataFrame(rows, struct.json(), classic._jsparkSession), spark)


def try_cast(value: Column, type_: DataType) -> Column:
    """A value in another type; null where it has no such value. Spark 3.5 fails there."""
    return value.try_cast(type_) if SPARK_4 else value.cast(type_)


def file_metadata_column(frame: DataFrame) -> Column:
    """What a row's file is, also where a user's column has that name."""
    if SPARK_4:
        return frame.metadataColumn("_metadata")
    classic: Any = frame
    found: Any = Column
    column: Column = found(classic._jdf.metadataColumn("_metadata"))
    return column


def rebalance_by_column(frame: DataFrame, column: str) -> DataFrame:
    """A frame whose rows of one value of a column lie together, in files of a good size."""
    if SPARK_4:
        return frame.hint("rebalance", column)
    # Its frames' hint takes columns from Scala alone.
    return frame.sparkSession.sql(f"SELECT /*+ REBALANCE(`{column}`) */ * FROM {{frame}}", frame=frame)


def jvm_dataset_class(spark: SparkSession) -> Any:
    """The JVM's class of the frames of a classic session."""
    jvm: Any = spark._jvm
    sql = jvm.org.apache.spark.sql
    return sql.classic.Dataset if SPARK_4 else sql.Dataset
