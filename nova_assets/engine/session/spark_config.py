"""Settings of the Spark sessions that this package makes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

READ_SETTINGS: Mapping[str, str] = {
    # Above this many paths Spark starts a job that looks at each; the catalog has told us already (DESIGN §6).
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # A sum that overflows has to fail, not to wrap round.
    "spark.sql.ansi.enabled": "true",
}
"""Settings under which files are opened and blocks are combined."""


WRITE_SETTINGS: Mapping[str, str] = {
    **READ_SETTINGS,
    "spark.sql.parquet.compression.codec": "zstd",
    # The default, INT96, has no statistics, and other readers take it for nanoseconds.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings under which blocks are written."""


_GC_RETRY_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:GCLockerRetryAllocationCount=100",
)
"""Java's options: while one task unpacks a page, Java frees no memory, and by default another task that waits for some
gives up after two attempts. Newer versions of Java do not know the last option, nor need it."""


_LOG4J_FILE = Path(__file__).with_name("log4j2.properties")


def spark_config() -> dict[str, str]:
    """How a session for this package is built, as Spark's settings: here, and for dagster-pyspark's resource.

    The master is ``local[*]`` unless the environment variable ``MASTER`` names another.
    """
    master = os.environ.get("MASTER") or "local[*]"
    config = {
        **WRITE_SETTINGS,
        "spark.master": master,
        "spark.app.name": "nova_assets",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",
        # Names of columns differ in more than case (model/schema), as SQL has it.
        "spark.sql.caseSensitive": "false",
        # Inputs known to be this small are sent to every core instead of being shuffled, with what they are joined to.
        "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024 * 1024),
        "spark.sql.adaptive.enabled": "true",
        # A small result becomes one file, not one per core.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        config |= {
            "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 1))),
            "spark.driver.memory": "2g",
            # Works in containers and on laptops whose own name does not resolve.
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": " ".join(
                (f"-Dlog4j2.configurationFile={_LOG4J_FILE.as_uri()}", *_GC_RETRY_OPTIONS)
            ),
            # Python workers find the modules of a user's functions where this process does.
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(own_import_paths()),
        }
    return config


def own_import_paths() -> list[str]:
    """Where this process imports from, besides its Python's own folders."""
    homes = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    paths = [Path(p or os.curdir).resolve() for p in sys.path]
    return [str(p) for p in dict.fromkeys(paths) if not any(p.is_relative_to(h) for h in homes)]


def _s3a_package_setting(extra_settings: Mapping[str, str]) -> dict[str, str]:
    """What Spark needs for S3 and does not bring: the module of its own version of Hadoop, unless it is there, or
    something else is asked for."""
    if not any(name.startswith("spark.hadoop.fs.s3a.") for name in extra_settings) or any(
        j in extra_settings for j in _JAR_SETTINGS
    ):
        return {}
    if any(name.startswith("hadoop-aws-") for name in _hadoop_jar_names()):
        return {}
    return {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"}


def hadoop_version() -> str:
    """Of the Hadoop that PySpark brings."""
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
