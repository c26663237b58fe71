"""Settings of the Spark sessions that this package creates, and the kind of a session."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

READ_SETTINGS: Mapping[str, str] = {
    # Above this many paths, Spark starts a job that checks each path. The catalog has the files already (DESIGN §6).
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # An overflowing sum must fail, not wrap around.
    "spark.sql.ansi.enabled": "true",
}
"""Settings for opening files and combining blocks."""


WRITE_SETTINGS: Mapping[str, str] = {
    **READ_SETTINGS,
    "spark.sql.parquet.compression.codec": "zstd",
    # The default, INT96, has no statistics, and other readers interpret it as nanoseconds.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings for writing blocks."""


_GC_RETRY_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:GCLockerRetryAllocationCount=100",
)
"""Java options against spurious out-of-memory failures.

While one task decompresses a page, Java cannot free memory. By default, another task that waits for memory gives up
after two attempts. Newer versions of Java neither know nor need the last option.
"""


_LOG4J_FILE = Path(__file__).with_name("log4j2.properties")


def spark_config(spark_location: str = "local") -> dict[str, str]:
    """Spark settings of a session for this package, used here and for dagster-pyspark's resource.

    The master is ``local[*]`` unless the setting ``spark`` or the environment variable ``MASTER`` names another.
    """
    is_master = spark_location.startswith("spark://")
    master = spark_location if is_master else os.environ.get("MASTER") or "local[*]"
    config = {
        **WRITE_SETTINGS,
        "spark.master": master,
        "spark.app.name": "nova_assets",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",
        # Column names are case-insensitive, as in SQL (model/schema).
        "spark.sql.caseSensitive": "false",
        # Inputs up to this size are broadcast to every core; otherwise both sides of the join are shuffled.
        "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024 * 1024),
        "spark.sql.adaptive.enabled": "true",
        # A small result should become one file, not one per core.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": " ".join(
            (f"-Dlog4j2.configurationFile={_LOG4J_FILE.as_uri()}", *_GC_RETRY_OPTIONS)
        ),
    }
    if master.startswith("local"):
        config |= {
            "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 1))),
            # Works in containers and laptops whose host name does not resolve.
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Python workers must find the modules of user functions.
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(own_import_paths()),
        }
    else:
        config["spark.executor.extraJavaOptions"] = " ".join(_GC_RETRY_OPTIONS)
    return config


def is_connect_session(spark: Any) -> bool:
    """Whether a session is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def own_import_paths() -> list[str]:
    """Import paths of this process, except those of the Python installation itself."""
    homes = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    paths = [Path(p or os.curdir).resolve() for p in sys.path]
    return [str(p) for p in dict.fromkeys(paths) if not any(p.is_relative_to(h) for h in homes)]


def s3a_package_setting(extra_settings: Mapping[str, str]) -> dict[str, str]:
    """Setting that adds Hadoop's S3 module, which Spark needs for S3 but does not include.

    Its version is that of Spark's own Hadoop. The setting is empty if the module is installed, if S3 is not configured,
    or if the user sets other jars.
    """
    if not any(name.startswith("spark.hadoop.fs.s3a.") for name in extra_settings) or any(
        j in extra_settings for j in _JAR_SETTINGS
    ):
        return {}
    if any(name.startswith("hadoop-aws-") for name in _hadoop_jar_names()):
        return {}
    return {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"}


def hadoop_version() -> str:
    """Version of the Hadoop that PySpark includes."""
    return next(
        n.removeprefix(_HADOOP_JAR_PREFIX).removesuffix(".jar")
        for n in _hadoop_jar_names()
        if n.startswith(_HADOOP_JAR_PREFIX)
    )


def _hadoop_jar_names() -> list[str]:
    import pyspark

    return [p.name for p in (Path(pyspark.__file__).parent / "jars").glob("hadoop-*.jar")]


_JAR_SETTINGS = ("spark.jars", "spark.jars.packages")


_HADOOP_JAR_PREFIX = "hadoop-client-api-"
