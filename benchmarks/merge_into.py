"""The star join of ``benchmarks.incremental``: maintained by ``MERGE`` on Delta Lake and Iceberg, computed by DuckDB.

The join takes the changed orders. The totals take the sums of the rows after the change, less those before it. Both
come from the change feed of the table of orders. Each ``MERGE`` names the least day that changed, so that older files
are passed over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.peers.session import start
from benchmarks.peers.system import Layout
from benchmarks.peers.systems.delta import Delta
from benchmarks.peers.systems.iceberg import CopyOnWrite

EXTENSIONS = ("spark.jars.packages", "spark.sql.extensions")
"""Settings of which each system has one, and a session all."""

ORDER_COLUMNS = "id BIGINT, day DATE, user BIGINT, shop BIGINT, amount DECIMAL(12,2)"
JOIN_COLUMNS = "id BIGINT, day DATE, country STRING, city STRING, amount DECIMAL(12,2)"
GROUP_COLUMNS = "day DATE, city STRING, orders BIGINT, total DECIMAL(22,2)"


class MergedResults(ABC):
    """Tables of orders, of their join and of their totals in one format, in a session that has views of users and of
    shops.

    Args:
        spark: session that knows the format.
        folder: warehouse of the tables.
    """

    weight_of_kind: Mapping[str, str]
    """Kind of a row in the change feed -> how often it counts in a sum."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder

    @abstractmethod
    def table(self, name: str) -> str:
        """Name of a table in SQL."""

    @abstractmethod
    def create(self, name: str, columns: str) -> None:
        """Create a table."""

    @abstractmethod
    def position(self) -> int:
        """Version of the table of orders."""

    @abstractmethod
    def open_feed(self, since: int) -> None:
        """Create the view ``feed`` of the rows of orders that changed after a version, with ``_change_type``."""

    def fill(self, orders: Any, queries: Mapping[str, str]) -> None:
        """Create the tables and compute the results once."""
        for name, columns in (("orders", ORDER_COLUMNS), ("join", JOIN_COLUMNS), ("group", GROUP_COLUMNS)):
            self.create(name, columns)
        orders.createOrReplaceTempView("loaded")
        self.spark.sql(f"INSERT INTO {self.table('orders')} SELECT * FROM loaded ORDER BY day")
        for name, sql in queries.items():
            of_table = sql.replace("FROM orders o", f"FROM {self.table('orders')} o")
            self.spark.sql(f"INSERT INTO {self.table(name)} SELECT * FROM ({of_table}) ORDER BY day")

    def change(self, orders: Any) -> None:
        """Put changed orders in the table of orders."""
        since = self.position()
        orders.createOrReplaceTempView("batch")
        least = self._least_day("batch")
        self.spark.sql(
            f"MERGE INTO {self.table('orders')} t USING batch s ON t.id = s.id AND t.day >= {least} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        self.since = since

    def refresh(self, name: str) -> None:
        """Bring a result up to date."""
        self.open_feed(self.since)
        least = self._least_day("feed")
        refresh: Mapping[str, Callable[[str], str]] = {"join": self._merge_of_join, "group": self._merge_of_totals}
        self.spark.sql(refresh[name](least))

    def _least_day(self, view: str) -> str:
        return f"DATE '{self.spark.sql(f'SELECT MIN(day) FROM {view}').collect()[0][0]}'"

    def _merge_of_join(self, least: str) -> str:
        after = ", ".join(f"'{kind}'" for kind, weight in self.weight_of_kind.items() if weight == "1")
        return (
            f"MERGE INTO {self.table('join')} t USING ("
            "SELECT o.id, o.day, u.country, s.city, o.amount, o.amount > 1 AS is_kept FROM feed o "
            "JOIN users u ON o.user = u.uid JOIN shops s ON o.shop = s.sid "
            f"WHERE o._change_type IN ({after})) s ON t.id = s.id AND t.day >= {least} "
            "WHEN MATCHED AND NOT s.is_kept THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET day = s.day, country = s.country, city = s.city, amount = s.amount "
            "WHEN NOT MATCHED AND s.is_kept THEN "
            "INSERT (id, day, country, city, amount) VALUES (s.id, s.day, s.country, s.city, s.amount)"
        )

    def _merge_of_totals(self, least: str) -> str:
        cases = " ".join(f"WHEN '{kind}' THEN {weight}" for kind, weight in self.weight_of_kind.items())
        return (
            f"MERGE INTO {self.table('group')} t USING ("
            "SELECT day, city, SUM(weight) AS orders, SUM(weight * amount) AS total FROM ("
            f"SELECT o.day, s.city, o.amount, CASE o._change_type {cases} END AS weight FROM feed o "
            "JOIN users u ON o.user = u.uid JOIN shops s ON o.shop = s.sid WHERE u.country <> 'c7') "
            "GROUP BY day, city HAVING SUM(weight) <> 0 OR SUM(weight * amount) <> 0"
            f") s ON t.day = s.day AND t.city = s.city AND t.day >= {least} "
            "WHEN MATCHED AND t.orders + s.orders = 0 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET orders = t.orders + s.orders, "
            "total = CAST(t.total + s.total AS DECIMAL(22,2)) "
            "WHEN NOT MATCHED THEN INSERT (day, city, orders, total) "
            "VALUES (s.day, s.city, s.orders, CAST(s.total AS DECIMAL(22,2)))"
        )


class DeltaResults(MergedResults):
    """Delta Lake with deletion vectors and its change data feed."""

    weight_of_kind: Mapping[str, str] = {
        "insert": "1",
        "update_postimage": "1",
        "update_preimage": "-1",
        "delete": "-1",
    }

    def table(self, name: str) -> str:
        return f"delta.`{self.folder}/delta/{name}`"

    def create(self, name: str, columns: str) -> None:
        properties = ", ".join(
            f"'delta.{k}' = 'true'"
            for k in ("enableDeletionVectors", "enableChangeDataFeed", "autoOptimize.optimizeWrite")
        )
        self.spark.sql(f"CREATE TABLE {self.table(name)} ({columns}) USING delta TBLPROPERTIES ({properties})")

    def position(self) -> int:
        return int(self.spark.sql(f"DESCRIBE HISTORY {self.table('orders')} LIMIT 1").collect()[0]["version"])

    def open_feed(self, since: int) -> None:
        feed = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since + 1)
        feed.load(f"{self.folder}/delta/orders").createOrReplaceTempView("feed")


class IcebergResults(MergedResults):
    """Iceberg with copy on write: its feed of changes does not read files of deletions."""

    weight_of_kind: Mapping[str, str] = {"INSERT": "1", "UPDATE_AFTER": "1", "UPDATE_BEFORE": "-1", "DELETE": "-1"}

    def table(self, name: str) -> str:
        return f"peer.star.{name}_table"

    def create(self, name: str, columns: str) -> None:
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS peer.star")
        modes = ", ".join(f"'write.{w}.mode' = 'copy-on-write'" for w in ("merge", "update", "delete"))
        partitions = "PARTITIONED BY (months(day))"
        properties = f"TBLPROPERTIES ('format-version' = '2', {modes})"
        self.spark.sql(f"CREATE TABLE {self.table(name)} ({columns}) USING iceberg {partitions} {properties}")

    def position(self) -> int:
        latest = f"SELECT snapshot_id FROM {self.table('orders')}.snapshots ORDER BY committed_at DESC LIMIT 1"
        return int(self.spark.sql(latest).collect()[0][0])

    def open_feed(self, since: int) -> None:
        self.spark.sql(
            "CALL peer.system.create_changelog_view(table => 'star.orders_table', changelog_view => 'feed', "
            f"options => map('start-snapshot-id', '{since}'), identifier_columns => array('id'))"
        )


SYSTEMS: Mapping[str, type[MergedResults]] = {"delta": DeltaResults, "iceberg": IcebergResults}


def session_of_systems(folder: Path) -> Any:
    """Session that knows Delta Lake and Iceberg, and in which nova runs too."""
    settings = [cls(folder / "tables", Layout("clustered"), 0).session_settings() for cls in (Delta, CopyOnWrite)]
    joined = {name: ",".join(s[name] for s in settings) for name in EXTENSIONS}
    return start({**settings[0], **settings[1], **joined})


class DuckDBResults:
    """The same tables in DuckDB, in memory. Each result is computed again.

    Args:
        tables: name -> rows, in Arrow.
    """

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self.connection = duckdb.connect()
        for name, rows in tables.items():
            self.connection.register("given", rows)
            self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            self.connection.unregister("given")

    def change(self, orders: Any) -> None:
        """Put changed orders in the table of orders."""
        self.connection.register("batch", orders)
        self.connection.execute("UPDATE orders SET amount = batch.amount FROM batch WHERE orders.id = batch.id")
        self.connection.unregister("batch")

    def refresh(self, sql: str) -> None:
        """Compute a query again."""
        self.connection.execute(f"CREATE OR REPLACE TABLE result AS {sql}")
