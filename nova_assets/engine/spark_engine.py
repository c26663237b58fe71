"""Spark engine: the ``Engine`` protocol over Parquet files. Spark starts only when a frame is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_assets.engine.inputs.input_converter import InputConverter
from nova_assets.engine.read.read_executor import ReadExecutor
from nova_assets.engine.session.cluster import check_workers_share_warehouse
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.shared_settings import shuffle_partitions
from nova_assets.engine.session.shipped_code import ship_function
from nova_assets.engine.session.spark_session import session_cpu_seconds
from nova_assets.engine.storage import external_files as external_files_module
from nova_assets.engine.storage.remote_warehouse import open_warehouse
from nova_assets.engine.storage.throttling import set_throttle_budget
from nova_assets.engine.tasks.frames import SparkFrames
from nova_assets.engine.tasks.sql_query import SparkQueries
from nova_assets.engine.write.block_rewriter import BlockRewriter
from nova_assets.engine.write.block_writer import BlockWriter
from nova_assets.engine.write.table_files import PublishedTableFiles
from nova_assets.model.engine import ExternalFiles
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.resources import NO_PARALLELISM, Parallelism
from nova_assets.settings import THROTTLE_BUDGET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine:
    """Executes reads and writes with Spark. Inserts of Arrow data need no Spark.

    ``model/engine`` documents the parts of an engine.

    Args:
        warehouse: folder of all blocks.
        spark: Spark session, a function that returns a session on demand, or None for a local session of this process.
        forced_strategy: read strategy for reads and rewrites wherever it is applicable; None for the cheapest strategy.
        throttle_budget: seconds for which one request of this process may wait for a throttled object store.
    """

    format = "parquet"
    external_files: ExternalFiles = external_files_module

    def __init__(
        self,
        warehouse: str | Path,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        forced_strategy: ReadStrategy | None = None,
        throttle_budget: float = THROTTLE_BUDGET,
    ) -> None:
        set_throttle_budget(throttle_budget)
        self.warehouse = open_warehouse(warehouse)
        self._session = LazySparkSession(spark, partial(check_workers_share_warehouse, self.warehouse.address))
        self.limit_cores = self._session.limit_cores
        self.computation_scope = self._session.computation_scope
        self.frames = SparkFrames(self._session)
        self.reader = ReadExecutor(self._session, self.warehouse, self.frames, forced_strategy)
        self.writer = BlockWriter(self._session, self.warehouse)
        self.rewriter = BlockRewriter(self.reader, self.writer)
        self.inputs = InputConverter(self._session, self.frames, self.reader.frame_scope)
        self.queries = SparkQueries(self._session, self.frames)
        self.table_files = PublishedTableFiles(self.reader)

    @property
    def session(self) -> SparkSession:
        """Spark session, started on the first call. Raises EngineUnavailable."""
        return self._session.get()

    def close(self) -> None:
        """Release the session settings that are held for frames handed out to callers."""
        self.reader.frame_scope.release()

    def cpu_seconds(self) -> float | None:
        return None if (spark := self._session.current) is None else session_cpu_seconds(spark)

    @contextmanager
    def task_computation_scope(
        self,
        job_name: str,
        function: Callable[..., Any],
        on_progress: Callable[[int, int], None],
        parallelism: Parallelism = NO_PARALLELISM,
    ) -> Iterator[None]:
        from nova_assets.engine.tasks.progress import watch_spark_jobs

        spark = self._session.get_limited(parallelism.max_cores)
        ship_function(function, spark)
        jobs = watch_spark_jobs(spark, job_name, on_progress)
        with self.computation_scope(), shuffle_partitions(spark, parallelism), jobs:
            yield
