"""Delta Lake on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.data import DDL
from benchmarks.peers.session import spark_version
from benchmarks.peers.systems.sparked import Sparked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION = "3.3.2"


class Delta(Sparked):
    name = "delta"
    lines = "Delta Lake on Spark: MERGE with deletion vectors, change data feed, OPTIMIZE every fifth commit"

    def session_settings(self) -> dict[str, str]:
        return {
            # https://docs.delta.io/latest/quick-start.html
            "spark.jars.packages": f"io.delta:delta-spark_2.12:{VERSION}",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # A table's log is read in so many tasks. The default, 50, is for clusters: with two cores each write, and
            # the read after it, would take seconds longer.
            "spark.databricks.delta.snapshotPartitions": "2",
            # Files of a size that suits the table, so that those of other days can be passed over; the defaults, 512 MB
            # and 1 GB, suit larger ones: https://docs.delta.io/latest/optimizations-oss.html
            "spark.databricks.delta.optimizeWrite.binSize": "32m",
            "spark.databricks.delta.optimize.maxFileSize": str(32 * 2**20),
        }

    def _properties(self) -> dict[str, str]:
        return {
            # MERGE marks rows instead of rewriting files: https://docs.delta.io/latest/delta-deletion-vectors.html
            "delta.enableDeletionVectors": "true",
            # Changes can be asked for: https://docs.delta.io/latest/delta-change-data-feed.html
            "delta.enableChangeDataFeed": "true",
            # For tables that are merged into: https://docs.delta.io/latest/optimizations-oss.html. Not auto compaction:
            # the table is optimized on schedule, and where it is clustered it was written anew after each MERGE.
            "delta.autoOptimize.optimizeWrite": "true",
        }

    def settings(self) -> dict[str, str]:
        # https://docs.delta.io/latest/delta-clustering.html
        clustered = {"CLUSTER BY": "day"} if self.layout.clustered else {}
        upkeep = {"upkeep": "OPTIMIZE after every fifth commit"}
        return {**self.session_settings(), **self._properties(), **clustered, **upkeep}

    def versions(self) -> dict[str, str]:
        return {"delta-spark": VERSION, "spark": spark_version()}

    @property
    def _table(self) -> str:
        return f"delta.`{self.folder}/table`"

    def load(self, files: Sequence[Path]) -> None:
        properties = ", ".join(f"'{k}' = '{v}'" for k, v in self._properties().items())
        cluster = "CLUSTER BY (day)" if self.layout.clustered else ""
        self.spark.sql(f"CREATE TABLE {self._table} ({DDL}) USING delta {cluster} TBLPROPERTIES ({properties})")
        rows = self.spark.read.parquet(*map(str, files))
        rows.write.format("delta").mode("append").save(f"{self.folder}/table")

    def upsert(self, batch: Path) -> None:
        self.merge(self._table, batch)

    def delete(self, keys: Path) -> None:
        self.merge_away(self._table, keys)

    def upkeep(self, *, force: bool = False) -> None:
        if self.is_due(force):
            self.spark.sql(f"OPTIMIZE {self._table}")

    def frame(self) -> DataFrame:
        return self.spark.read.format("delta").load(f"{self.folder}/table")

    def position(self) -> int:
        return int(self.spark.sql(f"DESCRIBE HISTORY {self._table} LIMIT 1").collect()[0]["version"])

    def changed(self, since: Any) -> DataFrame:
        feed = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since + 1)
        return feed.load(f"{self.folder}/table").where("_change_type IN ('insert', 'update_postimage')")

    def live(self) -> tuple[int, int]:
        found = self.spark.sql(f"DESCRIBE DETAIL {self._table}").collect()[0]
        return int(found["numFiles"]), int(found["sizeInBytes"])

    def renew(self) -> None:
        super().renew()
        jvm: Any = self.spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
