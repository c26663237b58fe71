"""Apache Hudi on Spark: copy on write, and merge on read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.peers.session import COMMON, spark_version
from benchmarks.peers.systems.sparked import Sparked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION = "1.2.0"

_ROWS_PER_BUCKET = 625_000
_MONTHS = 13


class Hudi(Sparked):
    """What both types of table share."""

    type: ClassVar[str]

    def session_settings(self) -> dict[str, str]:
        return {
            # https://hudi.apache.org/docs/quick-start-guide
            "spark.jars.packages": f"org.apache.hudi:hudi-spark3.5-bundle_2.12:{VERSION}",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        }

    def _options(self) -> dict[str, str]:
        return {
            "hoodie.table.name": "facts",
            "hoodie.datasource.write.table.type": self.type,
            "hoodie.datasource.write.recordkey.field": "id",
            # The later commit wins: https://hudi.apache.org/docs/record_merger
            "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
            # A key's file follows from its hash, so nothing is looked up: https://hudi.apache.org/docs/indexing
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "SIMPLE",
            "hoodie.bucket.index.hash.field": "id",
            "hoodie.bucket.index.num.buckets": str(self._buckets()),
            "hoodie.parquet.compression.codec": "zstd",
            # https://hudi.apache.org/docs/tuning-guide
            "hoodie.upsert.shuffle.parallelism": COMMON["spark.sql.shuffle.partitions"],
            "hoodie.bulkinsert.shuffle.parallelism": COMMON["spark.sql.shuffle.partitions"],
            "hoodie.delete.shuffle.parallelism": COMMON["spark.sql.shuffle.partitions"],
            **self._partitions(),
        }

    def _buckets(self) -> int:
        of = _MONTHS if self.layout.clustered else 1
        return max(1, -(-self.rows // (_ROWS_PER_BUCKET * of)))

    def _partitions(self) -> dict[str, str]:
        """https://hudi.apache.org/docs/key_generation; by month, as days would make many small files."""
        if not self.layout.clustered:
            none = "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
            return {"hoodie.datasource.write.keygenerator.class": none}
        return {"hoodie.datasource.write.partitionpath.field": "month"}

    def settings(self) -> dict[str, str]:
        return {**self.session_settings(), **self._options(), "upkeep": self._upkeep()}

    def versions(self) -> dict[str, str]:
        return {"hudi-spark3.5-bundle": VERSION, "spark": spark_version()}

    def _upkeep(self) -> str:
        return "none: small files are filled, and old versions cleaned, by the writes (their default)"

    @property
    def _path(self) -> str:
        return f"{self.folder}/table"

    def _rows(self, *files: Path) -> DataFrame:
        from pyspark.sql import functions as F

        rows = self.spark.read.parquet(*map(str, files))
        return rows.withColumn("month", F.date_format("day", "yyyy-MM")) if self.layout.clustered else rows

    def _write(self, rows: DataFrame, operation: str, mode: str = "append") -> None:
        own = {**self._options(), "hoodie.datasource.write.operation": operation}
        rows.write.format("hudi").options(**own).mode(mode).save(self._path)

    def load(self, files: Sequence[Path]) -> None:
        self._write(self._rows(*files), "bulk_insert", "overwrite")

    def upsert(self, batch: Path) -> None:
        self._write(self._rows(batch), "upsert")

    def delete(self, keys: Path) -> None:
        self._write(self._rows(keys), "delete")

    def upkeep(self, *, force: bool = False) -> None:
        self.commits += 1

    def frame(self) -> DataFrame:
        return self.spark.read.format("hudi").load(self._path)

    def position(self) -> str:
        """The latest completion time: an instant of the timeline is called ``requested_completed.action``."""
        done = Path(self._path, ".hoodie", "timeline").glob("*_*.*commit")
        return max(p.name.partition(".")[0].partition("_")[2] for p in done)

    def changed(self, since: Any) -> DataFrame:
        # https://hudi.apache.org/docs/reading_tables_batch_reads#incremental-query
        query = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": str(int(since) + 1),
        }
        return self.spark.read.format("hudi").options(**query).load(self._path)

    def live(self) -> tuple[int, int]:
        """By file group the latest base file, and the log files that came after it."""
        groups: dict[str, tuple[str, int]] = {}
        logs: list[tuple[str, str, int]] = []
        for path in Path(self._path).rglob("*"):
            if ".hoodie" in path.parts or not path.is_file():
                continue
            size = path.stat().st_size
            if path.name.endswith(".parquet"):
                group, _, instant = path.stem.split("_")
                if instant > groups.get(group, ("", 0))[0]:
                    groups[group] = (instant, size)
            elif ".log." in path.name:
                group, _, rest = path.name.lstrip(".").partition("_")
                logs.append((group, rest.partition(".")[0], size))
        fresh = [size for group, instant, size in logs if instant > groups.get(group, ("", 0))[0]]
        return len(groups) + len(fresh), sum(s for _, s in groups.values()) + sum(fresh)


class CopyOnWrite(Hudi):
    name = "hudi-cow"
    type = "COPY_ON_WRITE"
    lines = "Hudi on Spark, copy on write, bucket index"


class MergeOnRead(Hudi):
    name = "hudi-mor"
    type = "MERGE_ON_READ"
    lines = "Hudi on Spark, merge on read, bucket index"

    def _options(self) -> dict[str, str]:
        # Compaction by the call below, so that it can be measured by itself.
        return {**super()._options(), "hoodie.compact.inline": "false"}

    def _upkeep(self) -> str:
        return "CALL run_compaction (schedule, then run) after every fifth commit"

    def upkeep(self, *, force: bool = False) -> None:
        # https://hudi.apache.org/docs/procedures#run_compaction
        if self.is_due(force):
            # What the table does not remember of its writer has to be said again.
            options = "hoodie.compact.inline.max.delta.commits=1,hoodie.parquet.compression.codec=zstd"
            for step in ("schedule", "run"):
                call = f"CALL run_compaction(op => '{step}', path => '{self._path}', options => '{options}')"
                self.spark.sql(call).collect()
