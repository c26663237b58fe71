"""The Spark session of the peers: the same settings for all of them, and each one's own beside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.peers.data import COLUMNS
from benchmarks.peers.system import Answer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMON: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    # Asked for by Hudi, https://hudi.apache.org/docs/quick-start-guide; the others do not mind.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start(own: Mapping[str, str]) -> SparkSession:
    """The session of this process. Settings that a system shares with the others (lists) are not overwritten."""
    from pyspark.sql import SparkSession

    from nova_assets.engine.session.spark_config import own_import_paths
    from nova_assets.engine.session.spark_session import prepare_environment

    prepare_environment()
    builder: Any = SparkSession.builder.appName("peers")
    paths = {"spark.executorEnv.PYTHONPATH": os.pathsep.join(own_import_paths())}
    for name, value in {**COMMON, **paths, **own}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def digest(frame: DataFrame) -> Answer:
    """Count and checksum of the data columns: every column of every row is read."""
    from pyspark.sql import functions as F

    hashed = F.pmod(F.xxhash64(*(F.col(c) for c in COLUMNS)), F.lit(1_000_000_007))
    row = frame.agg(F.count(F.lit(1)), F.coalesce(F.sum(hashed), F.lit(0))).collect()[0]
    return [str(v) for v in row]


def plan(frame: DataFrame) -> None:
    """Have Spark plan it, and run nothing."""
    planned: Any = frame
    planned._jdf.queryExecution().executedPlan()


def spark_version() -> str:
    from importlib.metadata import version

    return version("pyspark")
