"""CPU time of a Spark session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nova_assets.engine.session.spark_session import is_connect_session
from nova_assets.masking import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("nova_assets.engine")


def session_cpu_seconds(spark: SparkSession) -> float | None:
    """CPU time of this process, of its Java process, and of the tasks of Spark's executors. None for Spark Connect,
    whose server does not tell, and for a session that has ended.
    """
    if is_connect_session(spark):
        return None
    try:
        return time.process_time() + _java_milliseconds(spark) / 1000
    except Exception as error:  # a measurement must not fail the work that it measures
        log.debug("the CPU time of Spark is not known: %s", error)
        return None


def _java_milliseconds(spark: Any) -> int:
    """CPU time of the Java process, and run time of tasks in other processes."""
    process_time = spark._jvm.java.lang.ProcessHandle.current().info().totalCpuDuration()
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    others = (executors.apply(n) for n in range(executors.size()))
    elsewhere = sum(int(executor.totalDuration()) for executor in others if executor.id() != "driver")
    return (int(process_time.get().toMillis()) if process_time.isPresent() else 0) + elsewhere
