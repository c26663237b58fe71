"""Apache Iceberg on Spark: copy on write, and merge on read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.peers.data import DDL
from benchmarks.peers.session import spark_version
from benchmarks.peers.system import CannotDo
from benchmarks.peers.systems.sparked import Sparked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION = "1.11.0"


class Iceberg(Sparked):
    """What both modes share."""

    mode: ClassVar[str]

    def session_settings(self) -> dict[str, str]:
        return {
            # https://iceberg.apache.org/docs/latest/spark-configuration/
            "spark.jars.packages": f"org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:{VERSION}",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.peer.type": "hadoop",
            "spark.sql.catalog.peer.warehouse": str(self.folder.parent),
            # The table is replaced under the session between workloads.
            "spark.sql.catalog.peer.cache-enabled": "false",
        }

    def _properties(self) -> dict[str, str]:
        return {
            # https://iceberg.apache.org/docs/latest/configuration/#write-properties; the distribution mode is left at
            # its default, which Iceberg chooses by command: https://iceberg.apache.org/docs/latest/spark-writes/
            "format-version": "2",
            "write.merge.mode": self.mode,
            "write.delete.mode": self.mode,
            "write.update.mode": self.mode,
            "write.parquet.compression-codec": "zstd",
        }

    def settings(self) -> dict[str, str]:
        hidden = {"PARTITIONED BY": "months(day)"} if self.layout.clustered else {}
        own = {k: v for k, v in self.session_settings().items() if not k.endswith("warehouse")}
        return {**own, **self._properties(), **hidden, "upkeep": "; ".join(self._upkeep())}

    def versions(self) -> dict[str, str]:
        return {"iceberg-spark-runtime": VERSION, "spark": spark_version()}

    def _upkeep(self) -> list[str]:
        """https://iceberg.apache.org/docs/latest/maintenance/ and .../spark-procedures/"""
        return ["rewrite_data_files after every fifth commit"]

    @property
    def _table(self) -> str:
        return f"peer.{self.folder.name}.facts"

    def load(self, files: Sequence[Path]) -> None:
        properties = ", ".join(f"'{k}' = '{v}'" for k, v in self._properties().items())
        # https://iceberg.apache.org/docs/latest/partitioning/
        hidden = "PARTITIONED BY (months(day))" if self.layout.clustered else ""
        self.spark.sql(f"CREATE TABLE {self._table} ({DDL}) USING iceberg {hidden} TBLPROPERTIES ({properties})")
        self.spark.read.parquet(*map(str, files)).writeTo(self._table).append()

    def upsert(self, batch: Path) -> None:
        self.merge(self._table, batch)

    def delete(self, keys: Path) -> None:
        self.merge_away(self._table, keys)

    def upkeep(self, *, force: bool = False) -> None:
        if self.is_due(force):
            self._rewrite()

    def _rewrite(self) -> None:
        self.spark.sql(f"CALL peer.system.rewrite_data_files(table => '{self.folder.name}.facts')")

    def frame(self) -> DataFrame:
        return self.spark.table(self._table)

    def position(self) -> int:
        latest = f"SELECT snapshot_id FROM {self._table}.snapshots ORDER BY committed_at DESC LIMIT 1"
        return int(self.spark.sql(latest).collect()[0][0])

    def changed(self, since: Any) -> DataFrame:
        key = ", ".join(f"'{k}'" for k in self.layout.key)
        # https://iceberg.apache.org/docs/latest/spark-procedures/#create_changelog_view
        self.spark.sql(
            f"CALL peer.system.create_changelog_view(table => '{self.folder.name}.facts', changelog_view => 'changed', "
            f"options => map('start-snapshot-id', '{since}'), identifier_columns => array({key}))"
        )
        return self.spark.table("changed").where("_change_type IN ('INSERT', 'UPDATE_AFTER')")

    def live(self) -> tuple[int, int]:
        found = self.spark.sql(f"SELECT count(*), sum(file_size_in_bytes) FROM {self._table}.files").collect()[0]
        return int(found[0]), int(found[1])


class CopyOnWrite(Iceberg):
    name = "iceberg-cow"
    mode = "copy-on-write"
    lines = "Iceberg on Spark, format 2, copy on write"


class MergeOnRead(Iceberg):
    name = "iceberg-mor"
    mode = "merge-on-read"
    lines = "Iceberg on Spark, format 2, merge on read with position deletes"

    def _upkeep(self) -> list[str]:
        threshold = "rewrite_data_files (delete-file-threshold 1) after every fifth commit"
        return [threshold, "rewrite_position_delete_files after every fifth commit"]

    def _rewrite(self) -> None:
        # Without a threshold files with deletions stay as they are.
        options = "map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true')"
        self.spark.sql(
            f"CALL peer.system.rewrite_data_files(table => '{self.folder.name}.facts', options => {options})"
        )
        self.spark.sql(f"CALL peer.system.rewrite_position_delete_files(table => '{self.folder.name}.facts')")

    def position(self) -> int:
        # "Delete files are currently not supported in changelog scans", says Iceberg.
        raise CannotDo
