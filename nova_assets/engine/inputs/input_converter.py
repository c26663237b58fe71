"""Rows that come from outside: conversion to frames, partition columns that they lack, and rows of databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova_assets.engine.buckets.partitioning import add_derived_columns
from nova_assets.engine.inputs.insert_data import convert_insert_data, read_kept_files
from nova_assets.engine.inputs.large_parquet import LargeParquetFiles
from nova_assets.engine.session import shared_settings
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.quiet_stderr import hide_from_call_logs
from nova_assets.engine.session.shared_settings import BatchLimitScope
from nova_assets.errors import EngineUnavailable, SchemaMismatch
from nova_assets.formats.derived_partitions import parse_partition_value
from nova_assets.masking import get_logger
from nova_assets.model.arrow_types import arrow_type, to_arrow_schema
from nova_assets.model.block_options import BlockOptions
from nova_assets.model.channel import Channel
from nova_assets.model.database_table import DatabaseRead
from nova_assets.model.engine import Frames
from nova_assets.model.partitions import partition_values
from nova_assets.model.schema import DataType, Field, Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = get_logger("nova_assets.engine")

DRIVER_CLASS = "org.postgresql.Driver"

DRIVER_PACKAGE = "org.postgresql:postgresql:42.7.8"
"""The driver that Spark fetches from Maven Central if the session has none."""


def read_database_rows(spark: SparkSession, read: DatabaseRead) -> DataFrame:
    """Frame of the rows of a database, one task for each condition.

    Spark masks the address in its errors, and shows neither user nor password in plans.

    Raises:
        EngineUnavailable: Spark has no JDBC driver for PostgreSQL, and cannot fetch it.
        SchemaMismatch: the columns arrive with other types than declared.
    """
    from nova_assets.engine.rows.spark_types import from_struct

    try:
        rows = _read(spark, read)
    except Exception as error:
        if not _is_driver_missing(error):
            raise
        _add_driver(spark)
        rows = _read(spark, read)
    frame = rows.selectExpr(*[_decoded(f) for f in read.schema.fields])
    actual = [(f.name, str(f.type)) for f in from_struct(frame.schema).fields]
    expected = [(f.name, str(f.type)) for f in read.schema.fields]
    if actual != expected:
        raise SchemaMismatch(
            "the rows of a database arrive with other types than declared",
            found=", ".join(f"{n} {t}" for n, t in actual),
            expected=", ".join(f"{n} {t}" for n, t in expected),
        )
    return frame


def _read(spark: SparkSession, read: DatabaseRead) -> DataFrame:
    properties = {
        "driver": DRIVER_CLASS,
        "user": read.user,
        "fetchsize": str(read.fetch_size),
        "sessionInitStatement": read.session_statement,
        **({} if read.password is None else {"password": read.password}),
    }
    with hide_from_call_logs(read.password):
        return spark.read.jdbc(read.url, read.relation, predicates=list(read.conditions), properties=properties)


def _decoded(field: Field) -> str:
    """Expression that turns a column back into the declared type, independent of time zones."""
    name = f"`{field.name.replace('`', '``')}`"
    if field.type.name == "date":
        return f"date_from_unix_date({name}) AS {name}"
    if field.type.name == "timestamp":
        return f"timestamp_micros({name}) AS {name}"
    if field.type.name == "timestamp_ntz":
        return f"timestampadd(MICROSECOND, {name}, TIMESTAMP_NTZ '1970-01-01 00:00:00') AS {name}"
    return name


def _is_driver_missing(error: Exception) -> bool:
    text = str(error)
    return DRIVER_CLASS in text and ("ClassNotFound" in text or "class not found" in text.lower())


def _add_driver(spark: SparkSession) -> None:
    """Let Spark fetch the JDBC driver from Maven Central, and add it to the session, as ``spark.jars.packages`` does
    for a new session.

    Raises:
        EngineUnavailable: Spark cannot fetch the driver.
    """
    log.info("the JDBC driver %s is added to the Spark session", DRIVER_PACKAGE)
    try:
        spark.sql(f"ADD JAR 'ivy://{DRIVER_PACKAGE}?transitive=false'").collect()
    except Exception as error:
        raise EngineUnavailable(
            "Spark has no JDBC driver for PostgreSQL, and cannot fetch it",
            found=str(error).strip().splitlines()[0][:300],
            expected=f"{DRIVER_PACKAGE} from Maven Central, or among the jars of the session",
            next=f"give the session the driver: spark.jars.packages={DRIVER_PACKAGE}, or spark.jars=/path/driver.jar",
        ) from error


class InputConverter:
    """The protocol ``Inputs``.

    Args:
        frames: operations on frames.
        frame_scope: limits of the batches of frames that are handed out.
    """

    def __init__(self, session: LazySparkSession, frames: Frames, frame_scope: BatchLimitScope) -> None:
        self.session = session
        self.frames = frames
        self.frame_scope = frame_scope

    def convert(self, data: Any, schema: Schema | None, *, allow_widening: bool = False) -> Any:
        rows = convert_insert_data(data, schema, allow_widening=allow_widening)
        if isinstance(rows, pa.Table):
            return rows
        from nova_assets.engine.rows.spark_conversion import convert_frame

        if isinstance(rows, LargeParquetFiles):
            shared_settings.current_scope(self.frame_scope).limit_batches(self.session.get, rows.widest_row_width)
            if self.session.can_use_workers:
                return rows.to_frame(self.session.get())
            # Spark's own reader rejects files that store one column with different types.
            rows = self.session.get().read.option("mergeSchema", "true").parquet(*map(str, rows.paths))
        return convert_frame(rows, schema, allow_widening=allow_widening)

    def convert_kept_files(
        self, data: Any, schema: Schema | None, *, allow_widening: bool = False
    ) -> tuple[pa.Table, BlockOptions]:
        return read_kept_files(data, schema, allow_widening)

    def to_frame(self, data: Any, schema: Schema) -> Any:
        is_empty = isinstance(data, Sequence) and not data
        return self.frames.to_frame(to_arrow_schema(schema).empty_table() if is_empty else self.convert(data, schema))

    def read_database(self, read: DatabaseRead) -> Any:
        return read_database_rows(self.session.get(), read)

    def add_partition_columns(self, frame: Any, channel: Channel, scope: str, schema: Schema | None) -> Any:
        existing_columns = self.frames.column_names(frame)
        text_by_column = partition_values(scope)
        for dimension in channel.partitions:
            column = dimension.column
            if column not in text_by_column or (column in existing_columns and not _is_all_null(frame, column)):
                continue
            type_ = DataType("string") if schema is None or column not in schema else schema.field(column).type
            value = parse_partition_value(text_by_column[column], type_, dimension.tz)
            if isinstance(frame, pa.Table):
                constant = pa.repeat(pa.scalar(value, arrow_type(type_)), frame.num_rows)
                frame = frame.drop_columns([column]) if column in existing_columns else frame
                frame = frame.append_column(column, constant)
            else:
                from pyspark.sql import functions as F

                from nova_assets.engine.rows.spark_types import to_spark_type

                frame = frame.withColumn(column, F.lit(value).cast(to_spark_type(type_)))
        return add_derived_columns(frame, channel.partitions, schema)


def _is_all_null(frame: Any, column: str) -> bool:
    """Whether a column of a local table has only nulls, for example because no line of the source file names it."""
    return isinstance(frame, pa.Table) and frame.column(column).null_count == frame.num_rows
