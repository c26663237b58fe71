"""Rows of a database, read in parallel by Spark's own JDBC source (``model/database_source``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_assets.engine.session.quiet_stderr import hide_from_call_logs
from nova_assets.errors import EngineUnavailable, SchemaMismatch
from nova_assets.masking import get_logger
from nova_assets.model.database_source import DatabaseRead
from nova_assets.model.schema import Field

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
    """Add the driver to the session, as ``spark.jars.packages`` does for a new session."""
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
