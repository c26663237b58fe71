"""What the systems on Spark have in common."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers import session
from benchmarks.peers.data import COLUMNS, first_day
from benchmarks.peers.system import Answer, System
from nova_assets.engine.rows.spark_versions import collect_to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Sparked(System):
    """A system whose table is a frame of Spark."""

    def session_settings(self) -> dict[str, str]:
        """What its session has beside the common settings."""
        return {}

    @cached_property
    def spark(self) -> SparkSession:
        return session.start(self.session_settings())

    @abstractmethod
    def frame(self) -> DataFrame:
        """The newest version of the table."""

    def changed(self, since: Any) -> DataFrame:
        """What was inserted or changed after a position."""
        raise NotImplementedError

    def read(self) -> Answer:
        return session.digest(self.frame())

    def plan(self) -> None:
        session.plan(self.frame())

    def changes(self, since: Any) -> Answer:
        return session.digest(self.changed(since))

    def collected(self, since: Any) -> int:
        return len(collect_to_arrow(self.changed(since).select(*COLUMNS)))

    def view(self, path: Path, name: str = "batch") -> str:
        """A Parquet file under a name that SQL can use."""
        self.spark.read.parquet(str(path)).createOrReplaceTempView(name)
        return name

    def matches(self, batch: Path) -> str:
        """How a MERGE finds the rows of a batch. Where keys are clustered, a literal bound on their day lets it pass
        over files: https://docs.delta.io/latest/best-practices.html#reduce-the-search-space-for-merge."""
        on = " AND ".join(f"t.{k} = s.{k}" for k in self.layout.key)
        return f"{on} AND t.day >= DATE '{first_day(batch)}'" if self.layout.clustered else on

    def merge(self, table: str, batch: Path) -> None:
        self.spark.sql(
            f"MERGE INTO {table} t USING {self.view(batch)} s ON {self.matches(batch)} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def merge_away(self, table: str, keys: Path) -> None:
        on = " AND ".join(f"t.{k} = s.{k}" for k in self.layout.key)
        self.spark.sql(f"MERGE INTO {table} t USING {self.view(keys)} s ON {on} WHEN MATCHED THEN DELETE")
