"""Formats of published tables in Spark: sessions that know them, their options, and errors about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from nova_assets.engine.session.spark_config import s3a_package_setting
from nova_assets.errors import NotSupported
from nova_assets.model.published_version import TableFileLayout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AVRO_VERSIONS = {"4.3.0": "4.2.0"}
"""Version of PySpark -> version of its module for Avro, if Maven Central has none of the same version."""

HIVE_CATALOG = "spark.sql.catalogImplementation"


def table_format_settings(formats: Collection[str], extra_settings: Mapping[str, str]) -> Mapping[str, str]:
    """Settings of a session that can read and write formats.

    RCFile needs Spark's support for Hive. Its metastore is in memory, since nova keeps no tables there. Avro needs a
    module of Spark, which Spark downloads.

    Args:
        formats: formats of published tables.
        extra_settings: the user's settings of the session.
    """
    settings: dict[str, str] = {}
    if "rcfile" in formats:
        settings |= {
            HIVE_CATALOG: "hive",
            "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:nova;create=true",
        }
    if "avro" in formats:
        import pyspark

        scala = "2.13" if int(pyspark.__version__.split(".")[0]) >= 4 else "2.12"
        packages = [
            f"org.apache.spark:spark-avro_{scala}:{_AVRO_VERSIONS.get(pyspark.__version__, pyspark.__version__)}"
        ]
        packages += s3a_package_setting(extra_settings).values()
        settings["spark.jars.packages"] = ",".join(packages)
    return settings


def check_hive_support(spark: SparkSession) -> None:
    """Raises NotSupported unless a session can use formats of Hive."""
    if spark.conf.get(HIVE_CATALOG, "in-memory") != "hive":
        raise NotSupported(
            "Spark cannot write RCFile in this session, because the session has no support for Hive",
            found=f"{HIVE_CATALOG} = {spark.conf.get(HIVE_CATALOG, 'in-memory')}",
            expected=f"{HIVE_CATALOG} = hive",
            next='a session that nova starts has it: spark="local"; or build yours with enableHiveSupport()',
        )


def spark_format_options(layout: TableFileLayout) -> dict[str, str]:
    """Options of Spark's reader and writer for a layout."""
    if layout.format == "csv":  # as RFC 4180: a quote is doubled, and an empty text is quoted, a null is not
        return {"header": str(layout.header).lower(), "escape": '"', "emptyValue": '""', "nullValue": ""}
    if layout.format == "json":
        return {"ignoreNullFields": "false"}
    return {"orc": {"compression": "zstd"}, "avro": {"compression": "deflate"}}.get(layout.format, {})


def sql_text(text: str) -> str:
    """Literal of a text in Spark's SQL: these statements take no parameters."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def format_error(error: Exception, layout: TableFileLayout) -> NotSupported | None:
    """Error of nova for an error of Spark that a format causes; None for other errors."""
    text = str(error)
    if layout.format == "avro" and ("AVRO_DATA_SOURCE_NOT_ENABLED" in text or "DATA_SOURCE_NOT_FOUND" in text):
        return NotSupported(
            "this Spark session lacks the module for Avro",
            found=text.split("\n")[0][:300],
            expected="org.apache.spark:spark-avro, in the version of Spark",
            next='a session that nova starts has it: spark="local"; or set spark.jars.packages in spark_config',
        )
    refused: tuple[str, ...] = ("UNSUPPORTED_", "SerDeException", "IllegalArgumentException: Error:")
    cause: Any = next((line.strip() for line in text.split("\n") if any(r in line for r in refused)), None)
    if cause is None:
        return None
    return NotSupported(
        f"a column cannot be stored in the format {layout.format}",
        found=cause[:300],
        expected=f"columns that {layout.format} can hold",
        next="publish the channel in another format, or without that column",
    )
