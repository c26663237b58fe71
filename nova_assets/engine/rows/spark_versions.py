"""Replacements for functions that Spark 3.5 lacks. On Spark 4, they call Spark's own functions."""

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
"""Whether the Parquet reader widens the types of a file to the requested types."""


def collect_to_arrow(frame: DataFrame) -> pa.Table:
    """All rows of a frame as a local table."""
    if SPARK_4:
        return frame.toArrow()
    classic: Any = frame
    batches = classic._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(from_struct(frame.schema)).empty_table()


def frame_from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Spark frame of a table, with explicit types. Otherwise Spark would turn ``timestamp_ntz`` into ``timestamp``."""
    struct = to_struct(from_arrow_schema(table.schema))
    # In one chunk, as in ``ReadExecutor.read_table``.
    batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    if SPARK_4:  # it fails for columns without chunks, if a struct in them has timestamps
        return spark.createDataFrame(pa.Table.from_batches(batches), struct)
    # Spark 3.5 accepts only pandas, which would turn nullable integers into floats. The following steps are those
    # of Spark 3.5 once it has converted pandas to an Arrow stream.
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    classic: Any = spark
    python = classic._jvm.PythonSQLUtils
    rows = classic.sparkContext._serialize_to_jvm(
        batches, ArrowStreamSerializer(), python.readArrowStreamFromFile, classic._jvm.ArrowIteratorServer
    )
    return DataFrame(python.toDataFrame(rows, struct.json(), classic._jsparkSession), spark)


def try_cast(value: Column, type_: DataType) -> Column:
    """Value cast to another type; null if the cast is impossible. On Spark 3.5, an impossible cast fails."""
    return value.try_cast(type_) if SPARK_4 else value.cast(type_)


def file_metadata_column(frame: DataFrame) -> Column:
    """Metadata column with the file of each row, even if a user's column has the same name."""
    if SPARK_4:
        return frame.metadataColumn("_metadata")
    classic: Any = frame
    found: Any = Column
    column: Column = found(classic._jdf.metadataColumn("_metadata"))
    return column


def rebalance_by_column(frame: DataFrame, column: str) -> DataFrame:
    """Frame whose rows with equal values of a column are together, in partitions of a good size."""
    if SPARK_4:
        return frame.hint("rebalance", column)
    # The hint of Spark 3.5's Python frames does not accept columns.
    return frame.sparkSession.sql(f"SELECT /*+ REBALANCE(`{column}`) */ * FROM {{frame}}", frame=frame)


def jvm_dataset_class(spark: SparkSession) -> Any:
    """JVM class of the frames of a classic session."""
    jvm: Any = spark._jvm
    sql = jvm.org.apache.spark.sql
    return sql.classic.Dataset if SPARK_4 else sql.Dataset
