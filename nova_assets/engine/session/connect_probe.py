"""Check that a Spark Connect server computes as Spark does, once per server and version (``plan/engine_probe``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nova_assets.engine.session.connect_server import is_own_server
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.spark_config import READ_SETTINGS
from nova_assets.errors import EngineUnavailable
from nova_assets.plan.engine_probe import (
    OVERFLOW_QUERIES,
    VALUES_QUERY,
    FailedProbe,
    failed_overflow,
    failed_persisted_frame,
    failed_values,
)
from nova_assets.user_code_errors import is_spark_connection_lost, summarize_user_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_passed_servers: set[tuple[str, str]] = set()
"""Address and version of each server that has passed all probes in this process."""


def check_computes_as_spark(spark: Any) -> None:
    """Probe the server of a Spark Connect session, unless it has passed before, or this package has started it.

    Raises:
        EngineUnavailable: the server computes something in another way than Spark.
    """
    if is_own_server(spark):
        return
    address = str(getattr(spark.client._builder, "endpoint", spark.client.host))
    try:
        version = str(spark.version)
    except Exception as error:
        raise _foreign_server_error(address, FailedProbe("its version", _headline(error), "4.0.0")) from error
    if (address, version) in _passed_servers:
        return
    failed = find_failed_probe(spark)
    if failed is not None:
        raise _foreign_server_error(address, failed, f" (it calls itself Spark {version})")
    _passed_servers.add((address, version))


def _foreign_server_error(address: str, failed: FailedProbe, remark: str = "") -> EngineUnavailable:
    return EngineUnavailable(
        f"the server sc://{address} does not compute as Spark does: {failed.probe}",
        found=f"{failed.found}{remark}",
        expected=failed.expected,
        next='connect to a server of Apache Spark, or set spark = "local"',
        probe=failed.probe,
    )


def find_failed_probe(spark: SparkSession) -> FailedProbe | None:
    """First probe that a session does not pass, under the settings of this package's reads and computations."""
    with temporary_settings(spark, READ_SETTINGS):
        failed = None
        for probe, query in OVERFLOW_QUERIES.items():
            failed = failed or _probe_overflow(spark, probe, query)
        return failed or _probe_values(spark) or _probe_persisted_frame(spark)


def _probe_values(spark: SparkSession) -> FailedProbe | None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    try:
        [row] = spark.sql(VALUES_QUERY).observe(observation, F.count(F.lit(1)).alias("rows")).collect()
        observed = observation.get
    except Exception as error:
        return FailedProbe("a query of values", _headline(error), "one observed row")
    return failed_values(tuple(row), observed.get("rows"))


def _probe_overflow(spark: SparkSession, probe: str, query: str) -> FailedProbe | None:
    try:
        value, error_text = spark.sql(query).collect()[0][0], None
    except Exception as error:
        value, error_text = None, _headline(error)
    return failed_overflow(probe, value, error_text)


def _probe_persisted_frame(spark: SparkSession) -> FailedProbe | None:
    import pyarrow as pa
    from pyspark import StorageLevel

    def random_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import uuid  # the function is shipped without its module

        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pylist([{"v": uuid.uuid4().hex}])

    kept = spark.range(0, 1, 1, 1).mapInArrow(random_rows, "v string").persist(StorageLevel.MEMORY_AND_DISK)
    try:
        first, second = ([tuple(row) for row in kept.collect()] for _ in range(2))
    except Exception as error:
        _headline(error)
        return None  # the server runs no Python functions, or not with this version: no frame has rows of one
    finally:
        kept.unpersist()
    return failed_persisted_frame(first, second)


def _headline(error: Exception) -> str:
    """Text of an error of a query. Raises the error again if the server does not answer."""
    if is_spark_connection_lost(error):
        raise error
    return summarize_user_error(error).message
