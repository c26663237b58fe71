"""Spark with Hive support beside nova, on one metastore: each reads the tables of the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_assets_tests.effort import by_hand
from nova_assets_tests.metastore import servers
from nova_assets_tests.metastore.servers import SparkWithHive
from nova_assets_tests.metastore.tables import THEN, locations, one_table, parameters, prices, published_shop
from nova_assets_tests.publish.shop import FIRST, Row

pytestmark = [by_hand, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def hive_spark(metastore: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkWithHive]:
    with servers.spark_with_hive(metastore, tmp_path_factory.mktemp("hive") / "spark") as spark:
        yield spark


def test_spark_reads_what_was_published(metastore: str, hive_spark: SparkWithHive, name: str, tmp_path: Path) -> None:
    shop = published_shop(tmp_path, metastore, name)
    shop.insert(*FIRST)
    assert shop.publish() == [("hive", 1, 1)]
    everything = f"SELECT dt, action, id, n FROM shop.{name} ORDER BY dt, action, id"

    def in_spark() -> list[Row]:
        return [(str(d), str(a), int(str(i)), int(str(n))) for d, a, i, n in hive_spark.sql(everything)]

    assert in_spark() == FIRST
    shop.insert(*THEN)
    assert in_spark() == FIRST, "a commit alone shows nothing"
    shop.publish()
    hive_spark.sql(f"REFRESH TABLE shop.{name}")
    assert in_spark() == sorted(FIRST + THEN) == shop.in_folder()
    assert hive_spark.sql(f"SELECT n FROM shop.{name} WHERE dt = DATE '2024-01-02' AND action = 'a/b'") == [("40",)]
    assert [r[0] for r in hive_spark.sql(f"SHOW PARTITIONS shop.{name}")] == [
        *("dt=2024-01-01/action=login", "dt=2024-01-01/action=view", "dt=2024-01-02/action=a%2Fb"),
        *("dt=2024-01-02/action=login", "dt=2024-01-03/action=login"),
    ]
    assert [(r[0], r[1]) for r in hive_spark.sql(f"DESCRIBE shop.{name}")[:4]] == [
        *(("id", "bigint"), ("n", "bigint"), ("dt", "date"), ("action", "string"))
    ]
    hive_spark.sql(f"DROP TABLE shop.{name}")
    assert len(shop.in_folder()) == 5, "a table that others drop loses no file"
    assert shop.publish() == [("hive", 3, 2)], "and it is registered again"
    assert parameters(metastore, name)["nova.edition"] == "3" and len(locations(metastore, name)) == 5


@pytest.mark.parametrize("stored_as", ["PARQUET", "ORC"])
def test_tables_that_spark_writes_are_followed(
    metastore: str, hive_spark: SparkWithHive, name: str, stored_as: str
) -> None:
    def sell(day: str, shop: str, *some: int) -> None:
        rows = ", ".join(f"('pen', {p}, '{day}', '{shop}')" for p in some)
        hive_spark.sql(f"INSERT INTO shop.{name} VALUES {rows}")

    hive_spark.sql(
        f"CREATE TABLE shop.{name} (product string, price bigint) PARTITIONED BY (day string, shop string) "
        f"STORED AS {stored_as}"
    )
    sell("2022-03-30", "Paris", 1, 2)
    sell("2022-03-30", "Rome/East", 3)
    with one_table(metastore, name, format=stored_as.lower()) as store:
        assert len(store.refresh("tickets").changed) == 2
        assert prices(store) == [(1, "2022-03-30", "Paris"), (2, "2022-03-30", "Paris"), (3, "2022-03-30", "Rome/East")]
        sell("2022-03-31", "Paris", 4)
        sell("2022-03-30", "Paris", 5)  # Spark tells the metastore nothing of it
        again = store.refresh("tickets")
        assert (len(again.changed), again.same) == (2, 1) and [p for p, _, _ in prices(store)] == [1, 2, 3, 4, 5]
        hive_spark.sql(f"ALTER TABLE shop.{name} DROP PARTITION (day = '2022-03-30', shop = 'Paris')")
        hive_spark.sql(
            f"ALTER TABLE shop.{name} PARTITION (day = '2022-03-31', shop = 'Paris') "
            "RENAME TO PARTITION (day = '2022-04-01', shop = 'Paris')"
        )
        gone = store.refresh("tickets").gone
        assert sorted(gone) == ["day=2022-03-30/shop=Paris", "day=2022-03-31/shop=Paris"]
        assert prices(store) == [(3, "2022-03-30", "Rome/East"), (4, "2022-04-01", "Paris")]
