"""A real Hive metastore: as the outlet of published channels, and as the source of tables of another system."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.errors import DefinitionError, NotSupported, SchemaMismatch, SourceUnavailable
from nova_assets.model.notification import NotifierSubscription
from nova_assets.store.store import Store
from nova_assets.testing import World
from nova_assets_tests import hive_metastore
from nova_assets_tests.conftest import missing
from nova_assets_tests.forked import run_python
from nova_assets_tests.hive_metastore import SparkWithHive
from nova_assets_tests.publish.shop import FIRST, Row, Shop

pytestmark = [pytest.mark.slow, pytest.mark.spark]

THEN: list[Row] = [("2024-01-02", "a/b", 4, 40), ("2024-01-03", "login", 5, 50)]


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a metastore with a notification log."""
    try:
        with hive_metastore.server(tmp_path_factory.mktemp("metastore")) as address:
            yield address
    except hive_metastore.NoMetastore as reason:
        missing(f"no Hive metastore: {reason}", "Ivy must reach Maven Central, once")


@pytest.fixture(scope="module")
def hive_spark(metastore: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkWithHive]:
    with hive_metastore.spark_with_hive(metastore, tmp_path_factory.mktemp("hive") / "spark") as spark:
        yield spark


@pytest.fixture
def name() -> str:
    """The name of a table that is this test's alone."""
    return f"t_{uuid.uuid4().hex[:12]}"


def published_shop(root: Path, metastore: str, name: str, **options: Any) -> Shop:
    table = nova.hive("exports/actions", metastore=metastore, table=f"shop.{name}", **options)
    return Shop(root, seal=nova.seal("dt"), publish=table)


def locations(metastore: str, name: str) -> dict[str, str]:
    """Partition -> its folder, as the metastore has it."""
    with hive_metastore.client(metastore) as client:
        return {"/".join(p.values): p.sd.location for p in client.get_partitions("shop", name, -1)}


def parameters(metastore: str, name: str) -> dict[str, str]:
    with hive_metastore.client(metastore) as client:
        found: dict[str, str] = client.get_table("shop", name).parameters
        return found


def tables(metastore: str) -> list[str]:
    with hive_metastore.client(metastore) as client:
        return list(client.get_all_tables("shop"))


def events(metastore: str, name: str) -> list[str]:
    """The kinds of all events of a table, in the order of the metastore's log."""
    from hive_metastore.ttypes import NotificationEventRequest

    with hive_metastore.client(metastore) as client:
        recorded = client.get_next_notification(NotificationEventRequest(lastEvent=0, maxEvents=100_000)).events
        return [e.eventType for e in recorded if e.tableName == name]


# The outlet.


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


@pytest.mark.parametrize(("partitions_per_call", "expected"), [(1, 3), (500, 1)])
def test_partitions_are_submitted_one_by_one_or_in_batches(
    metastore: str, name: str, tmp_path: Path, partitions_per_call: int, expected: int
) -> None:
    shop = published_shop(tmp_path, metastore, name, partitions_per_call=partitions_per_call)
    shop.insert(*FIRST)
    shop.publish()
    kinds = events(metastore, name)
    assert kinds == ["CREATE_TABLE", *["ADD_PARTITION"] * expected, "ALTER_TABLE"], "the edition's number is last"
    with hive_metastore.client(metastore) as client:
        client.add_partition(_partition_of(client, name, ["2020-01-01", "stray"], str(tmp_path)))
    shop.insert(*THEN)
    shop.publish()
    assert {p: Path(f).parts[-3] for p, f in locations(metastore, name).items()} == dict.fromkeys(
        ["2024-01-01/login", "2024-01-01/view", "2024-01-02/login", "2024-01-02/a/b", "2024-01-03/login"], "00000002"
    ), "all partitions, of one edition, and no other partition"


CRASHES = ["metastore.created", "metastore.batch:2", "metastore.submitted", "edition.shown"]
WORKER = """
import sys
from pathlib import Path
from nova_assets_tests.scenarios.test_hive_metastore import published_shop
published_shop(Path(sys.argv[1]), sys.argv[2], sys.argv[3], partitions_per_call=1).publish()
"""


@pytest.mark.crash
@pytest.mark.parametrize("point", CRASHES)
def test_the_marker_of_a_day_comes_last(metastore: str, name: str, tmp_path: Path, point: str) -> None:
    """Killed on the way: no marker of the sealed day is to be seen before all its partitions are."""
    shop = published_shop(tmp_path, metastore, name, partitions_per_call=1)
    shop.insert(*FIRST)
    shop.publish()
    shop.insert(*THEN)
    sealed = [s.group for s in shop.store.seal("actions")]
    assert "2024-01-02" in sealed
    marker = shop.folder / "dt=2024-01-02" / "_SUCCESS"
    dead = run_python(["-c", WORKER, str(tmp_path), metastore, name], {"NOVA_CRASH_AT": point})
    assert dead.returncode == -9, dead.stderr
    if marker.exists():
        assert {"2024-01-02/login", "2024-01-02/a/b"} <= locations(metastore, name).keys()
    assert marker.exists() == (point == "edition.shown")
    for folder in locations(metastore, name).values():
        assert any(Path(folder.removeprefix("file:")).glob("*.parquet")), "every partition has its files"
    shop.publish()
    newest = parameters(metastore, name)["nova.edition"]
    assert marker.exists() and shop.resolved.name == newest.zfill(8)
    assert {Path(f).parts[-3] for f in locations(metastore, name).values()} == {shop.resolved.name}
    assert shop.publish() == []


def test_a_metastore_that_is_away_delays_the_publication_alone(metastore: str, name: str, tmp_path: Path) -> None:
    line = hive_metastore.Line(metastore)
    shop = published_shop(tmp_path, line.address, name)
    shop.insert(*FIRST)
    shop.publish()
    shop.store.catalog.register_notifiers([NotifierSubscription("team", ("publication_failing",))])
    line.is_cut = True
    assert shop.insert(*THEN).seq == 2, "commits do not wait"
    with pytest.raises(nova.TableUnavailable, match="does not answer") as caught:
        shop.publish()
    assert "the next publication repeats this one" in str(caught.value)
    assert shop.in_folder() == FIRST and parameters(metastore, name)["nova.edition"] == "1"
    assert [t.id for t in shop.store.to_publish("actions")] in ([], ["hive:exports/actions"])
    assert shop.store.catalog.open_problems("publication_failing"), "it is reported as other failures are"
    line.is_cut = False
    assert [kind for kind, _, _ in shop.publish()] == ["hive"]
    assert shop.in_folder() == sorted(FIRST + THEN) and len(locations(metastore, name)) == 5
    assert not shop.store.catalog.open_problems("publication_failing")
    line.close()


def test_tables_of_others_are_left_alone(metastore: str, hive_spark: SparkWithHive, name: str, tmp_path: Path) -> None:
    hive_spark.sql(f"CREATE TABLE shop.{name} (a int) STORED AS PARQUET")
    shop = published_shop(tmp_path, metastore, name)
    shop.insert(*FIRST)
    with pytest.raises(nova.TableTaken, match="exists already in the Hive metastore"):
        shop.publish()
    with pytest.raises(nova.DefinitionError, match="not published"):
        shop.store.unpublish("actions", "hive:elsewhere")
    assert not shop.folder.exists() and hive_spark.sql(f"SELECT * FROM shop.{name}") == []
    nowhere = Shop(tmp_path / "b", publish=nova.hive("b", metastore=metastore, table="nowhere.actions"))
    nowhere.insert(*FIRST)
    with pytest.raises(nova.TableUnavailable, match="has no database 'nowhere'"):
        nowhere.publish()


def test_unpublished_and_moved(metastore: str, name: str, tmp_path: Path) -> None:
    shop = published_shop(tmp_path, metastore, name)
    shop.insert(*FIRST)
    shop.publish()
    moved = published_shop(tmp_path, metastore, f"{name}_moved")
    assert moved.publish() == [("hive", 2, 1)], "a new name is a new edition"
    assert name not in tables(metastore) and f"{name}_moved" in tables(metastore)
    alone = Shop(tmp_path, publish=nova.hive("exports/actions"))
    assert alone.publish() == [("hive", 3, 1)] and f"{name}_moved" not in tables(metastore)
    moved.publish()
    assert f"{name}_moved" in tables(metastore)
    # Even after the metastore has left the definition, the table can be withdrawn.
    assert alone.store.unpublish("actions") == ["hive:exports/actions"]
    assert f"{name}_moved" not in tables(metastore) and not shop.folder.exists()
    assert list((tmp_path / "exports").iterdir()) == []


def test_columns_come_and_go(metastore: str, hive_spark: SparkWithHive, name: str, tmp_path: Path) -> None:
    table = nova.hive("exports/x", metastore=metastore, table=f"shop.{name}")
    versions = [
        "id bigint, n int",
        "id bigint, n int, more struct<a:string,b:array<decimal(5,2)>>",
        "id bigint, n bigint",
    ]
    for version, ddl in enumerate(versions, 1):
        with nova.open(
            nova.Project(channels=[nova.Channel("x", schema=ddl, publish=table)]),
            settings=nova_settings(tmp_path),
        ) as store:
            store.register(store.project, replace=True)
            store.insert("x", pa.table({"id": pa.array([version]), "n": pa.array([version], pa.int32())}))
            store.publish("x")
        hive_spark.sql(f"REFRESH TABLE shop.{name}")
        assert len(hive_spark.sql(f"SELECT id, n FROM shop.{name}")) == version
        assert [r[0] for r in hive_spark.sql(f"DESCRIBE shop.{name}")] == [c.split()[0] for c in ddl.split(", ")]


def nova_settings(root: Path) -> Any:
    from nova_assets.settings import Settings

    return Settings(f"sqlite:///{root}/c.db", str(root / "wh"), root=root)


def test_what_hive_cannot_say_is_refused(metastore: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="metastore= and table= together"):
        nova.hive("x", metastore=metastore)
    for bad in ("thrift://user:secret@host:9083", "http://host:9083", "thrift://host", "thrift://host:99999"):
        with pytest.raises(DefinitionError, match="invalid metastore=") as caught:
            nova.hive("x", metastore=bad, table="a.b")
        assert "secret" not in str(caught.value)
    table = nova.hive("exports/x", metastore=metastore, table=f"shop.{name}")
    channel = nova.Channel("x", schema="id bigint, at timestamp_ntz", publish=table)
    with nova.open(nova.Project(channels=[channel]), settings=nova_settings(tmp_path)) as store:
        store.insert("x", pa.table({"id": [1], "at": pa.array([None], pa.timestamp("us"))}))
        with pytest.raises(NotSupported, match="'at' cannot be registered in a Hive metastore"):
            store.publish("x")
    assert name not in tables(metastore) and not (tmp_path / "exports" / "x").exists()


def test_pyiceberg_reads_an_iceberg_table_of_the_metastore(
    metastore: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog import load_catalog

    for option, value in {"TYPE": "hive", "URI": metastore, "WAREHOUSE": f"file://{tmp_path}/lake"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__{option}", value)
    shop = Shop(tmp_path, publish=nova.iceberg(f"shop.{name}", catalog=name))
    shop.insert(*FIRST)
    shop.publish()
    shop.insert(*THEN)
    shop.publish()
    options = {"type": "hive", "uri": metastore}
    found = load_catalog("other", **options).load_table(f"shop.{name}").scan(row_filter="action = 'login'").to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 3, 5]
    assert parameters(metastore, name)["table_type"].lower() == "iceberg"
    iceberg = one_table(metastore, name, "id bigint, n bigint, dt string", "dt")
    with iceberg as store, pytest.raises(NotSupported, match="is an Iceberg table"):
        store.refresh("tickets")
    shop.store.unpublish("actions")
    assert name not in tables(metastore)


# The source.

SCHEMA = "product string, price bigint, day string, shop string"


@contextmanager
def one_table(metastore: str, name: str, schema: str = SCHEMA, *dimensions: str, **external: Any) -> Iterator[Store]:
    """A store whose channel ``tickets`` is a table of the metastore."""
    channel = nova.Channel(
        "tickets",
        schema=schema,
        partitions=[nova.dynamic(d) for d in dimensions or ("day", "shop")],
        external=nova.external(f"{metastore}/shop.{name}", **external),
    )
    with World(nova.Project(channels=[channel])) as store:
        yield store


def sell(hive_spark: SparkWithHive, name: str, day: str, shop: str, *prices: int) -> None:
    """The other system adds rows to its table."""
    rows = ", ".join(f"('pen', {p}, '{day}', '{shop}')" for p in prices)
    hive_spark.sql(f"INSERT INTO shop.{name} VALUES {rows}")


def make_table(hive_spark: SparkWithHive, name: str, stored_as: str = "PARQUET") -> None:
    hive_spark.sql(
        f"CREATE TABLE shop.{name} (product string, price bigint) PARTITIONED BY (day string, shop string) "
        f"STORED AS {stored_as}"
    )


def prices(store: Store, **options: Any) -> list[tuple[int, str, str]]:
    rows = store.read("tickets", **options).to_arrow().to_pylist()
    return sorted((r["price"], r["day"], r["shop"]) for r in rows)


class CountedListings:
    """The folders that a store lists."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listed: list[str] = []
        real = store.engine.list_external_files

        def list_files(location: str) -> Any:
            self.listed.append("/".join(location.split("/")[-2:]))
            return real(location)

        monkeypatch.setattr(store.engine, "list_external_files", list_files)

    def taken(self) -> list[str]:
        listed, self.listed = sorted(self.listed), []
        return listed


@pytest.mark.parametrize("stored_as", ["PARQUET", "ORC"])
def test_a_table_is_followed_by_the_log(
    metastore: str, hive_spark: SparkWithHive, name: str, stored_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(hive_spark, name, stored_as)
    sell(hive_spark, name, "2022-03-30", "Paris", 1, 2)
    sell(hive_spark, name, "2022-03-30", "Rome/East", 3)
    with one_table(metastore, name, format=stored_as.lower()) as store:
        listings = CountedListings(store, monkeypatch)
        first = store.refresh("tickets")
        assert (
            first.changed == ("day=2022-03-30/shop=Paris", "day=2022-03-30/shop=Rome/East") or len(first.changed) == 2
        )
        assert prices(store) == [(1, "2022-03-30", "Paris"), (2, "2022-03-30", "Paris"), (3, "2022-03-30", "Rome/East")]
        assert len(listings.taken()) == 2
        assert store.refresh("tickets").same == 2 and listings.taken() == [], "the log has nothing new"

        sell(hive_spark, name, "2022-03-31", "Paris", 4)
        sell(hive_spark, name, "2022-03-30", "Paris", 5)
        again = store.refresh("tickets")
        assert len(again.changed) == 2 and again.same == 1
        assert listings.taken() == ["day=2022-03-30/shop=Paris", "day=2022-03-31/shop=Paris"]
        assert [p for p, _, _ in prices(store)] == [1, 2, 3, 4, 5]

        hive_spark.sql(f"ALTER TABLE shop.{name} DROP PARTITION (day = '2022-03-30', shop = 'Paris')")
        hive_spark.sql(
            f"ALTER TABLE shop.{name} PARTITION (day = '2022-03-31', shop = 'Paris') "
            "RENAME TO PARTITION (day = '2022-04-01', shop = 'Paris')"
        )
        moved = store.refresh("tickets")
        assert sorted(moved.gone) == ["day=2022-03-30/shop=Paris", "day=2022-03-31/shop=Paris"]
        assert prices(store) == [(3, "2022-03-30", "Rome/East"), (4, "2022-04-01", "Paris")]
        assert prices(store, partition="day=2022-04-01/shop=Paris") == [(4, "2022-04-01", "Paris")]


def test_a_partition_may_lie_anywhere(
    metastore: str, hive_spark: SparkWithHive, name: str, tmp_path: Path, spark: Any
) -> None:
    make_table(hive_spark, name)
    sell(hive_spark, name, "2022-03-30", "Paris", 1)
    for folder, price in (("archive", 7), ("day=1999-01-01/shop=Nowhere", 8)):  # a misleading name is not believed
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"product": ["ink"], "price": [price]}), tmp_path / folder / "a.parquet")
        day = f"2022-02-0{price}"
        hive_spark.sql(
            f"ALTER TABLE shop.{name} ADD PARTITION (day = '{day}', shop = 'Oslo') LOCATION '{tmp_path / folder}'"
        )
    with one_table(metastore, name) as store:
        assert len(store.refresh("tickets").changed) == 3
        expected = [(1, "2022-03-30", "Paris"), (7, "2022-02-07", "Oslo"), (8, "2022-02-08", "Oslo")]
        assert prices(store) == expected
        in_spark = store.read("tickets").to_spark().collect()
        assert sorted((r["price"], r["day"], r["shop"]) for r in in_spark) == expected
    assert {tuple(r) for r in hive_spark.sql(f"SELECT price, day, shop FROM shop.{name}")} == {
        tuple(map(str, r)) for r in expected
    }, "as Spark reads it"


def test_what_the_log_does_not_say_is_found_in_a_day(
    metastore: str, hive_spark: SparkWithHive, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(hive_spark, name)
    sell(hive_spark, name, "2022-03-30", "Paris", 1)
    with one_table(metastore, name) as store:
        store.refresh("tickets")
        folder = Path(locations(metastore, name)["2022-03-30/Paris"].removeprefix("file:"))
        pq.write_table(pa.table({"product": ["ink"], "price": [9]}), folder / "behind-its-back.parquet")
        assert store.refresh("tickets").seq is None
        position = store.catalog.external_position("tickets")
        assert position is not None
        store.catalog.set_external_position(
            "tickets", replace(position, listed_at=position.listed_at - timedelta(days=1))
        )
        assert store.refresh("tickets").seq is not None and [p for p, _, _ in prices(store)] == [1, 9]
        # Events that the metastore has deleted, or a log that was started again, make everything be compared.
        pq.write_table(pa.table({"product": ["ink"], "price": [10]}), folder / "again.parquet")
        position = store.catalog.external_position("tickets")
        assert position is not None
        store.catalog.set_external_position("tickets", replace(position, event_id=position.event_id + 1_000))
        assert store.refresh("tickets").seq is not None and [p for p, _, _ in prices(store)] == [1, 9, 10]


def test_a_partition_that_cannot_be_shown_is_looked_at_again(
    metastore: str, hive_spark: SparkWithHive, name: str
) -> None:
    make_table(hive_spark, name)
    sell(hive_spark, name, "2022-03-30", "Paris", 1)
    with one_table(metastore, name) as store:
        store.refresh("tickets")
        sell(hive_spark, name, "2022-03-31", "Paris", 2)
        folder = Path(locations(metastore, name)["2022-03-31/Paris"].removeprefix("file:"))
        (folder / "torn.parquet").write_bytes(b"PAR1 and then nothing")
        assert list(store.refresh("tickets").bad) == ["day=2022-03-31/shop=Paris"]
        assert [p for p, _, _ in prices(store)] == [1]
        (folder / "torn.parquet").unlink()  # no event tells
        assert store.refresh("tickets").changed == ("day=2022-03-31/shop=Paris",)
        assert [p for p, _, _ in prices(store)] == [1, 2]
        hive_spark.sql(f"ALTER TABLE shop.{name} ADD PARTITION (day = '2022-04-01', shop = 'Rome')")
        later = Path(locations(metastore, name)["2022-04-01/Rome"].removeprefix("file:"))
        later.rmdir()
        assert store.refresh("tickets").unfinished == ("day=2022-04-01/shop=Rome",), "its folder comes later"
        (later / "deeper").mkdir(parents=True)
        pq.write_table(pa.table({"product": ["ink"], "price": [3]}), later / "deeper" / "a.parquet")
        [why] = store.refresh("tickets").bad.values()
        assert "subfolders with files" in why


def test_sql_and_ticks_over_a_table_of_the_metastore(
    metastore: str, hive_spark: SparkWithHive, name: str, tmp_path: Path, spark: Any
) -> None:
    make_table(hive_spark, name)
    sell(hive_spark, name, "2022-03-30", "Paris", 1, 2)
    (tmp_path / "tickets.sql").write_text(
        "FOR t IN TIMESERIES('2022-03-30', '2022-03-31') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')\n"
        "CREATE EXTERNAL TABLE tickets (product STRING, price BIGINT, day STRING, shop STRING)\n"
        f"USING parquet PARTITIONED BY (day, shop) LOCATION '{metastore}/shop.{name}'".replace(
            "LET d", ", shop IN ('Paris') LET day"
        ).replace(" , shop", ", shop")
    )
    (tmp_path / "sales.sql").write_text(
        "FOR t IN TIMESERIES('2022-03-30', '2022-03-31') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')\n"
        "INSERT OVERWRITE sales PARTITION (day = d)\n"
        "SELECT SUM(price) AS revenue FROM tickets WHERE tickets.day = :d"
    )
    with World(nova.Project(nova.datasets(tmp_path)), spark) as store:
        assert [r.partition for r in store.tick()] == ["day=2022-03-30"], "the other day is not there yet"
        sell(hive_spark, name, "2022-03-31", "Paris", 4)
        assert [r.partition for r in store.tick()] == ["day=2022-03-31"]
        assert sorted(r["revenue"] for r in store.read("sales").to_arrow().to_pylist()) == [3, 4]


def test_a_table_without_partitions(metastore: str, hive_spark: SparkWithHive, name: str) -> None:
    hive_spark.sql(f"CREATE TABLE shop.{name} (product string, price bigint) STORED AS PARQUET")
    hive_spark.sql(f"INSERT INTO shop.{name} VALUES ('pen', 1)")
    channel = nova.Channel(
        "tickets", schema="product string, price bigint", external=nova.external(f"{metastore}/shop.{name}")
    )
    with World(nova.Project(channels=[channel])) as store:
        for expected in ([1], [1, 2]):
            store.refresh("tickets")
            assert sorted(store.read("tickets").to_arrow()["price"].to_pylist()) == expected
            assert store.refresh("tickets").seq is None
            hive_spark.sql(f"INSERT INTO shop.{name} VALUES ('pen', 2)")


def test_definitions_that_contradict_the_metastore(metastore: str, hive_spark: SparkWithHive, name: str) -> None:
    make_table(hive_spark, name)
    sell(hive_spark, name, "2022-03-30", "Paris", 1)
    hive_spark.sql(f"CREATE VIEW shop.{name}_v AS SELECT * FROM shop.{name}")
    wrong: list[tuple[str, Any, str, dict[str, Any]]] = [
        (SCHEMA.replace("price", "prize"), SchemaMismatch, "'prize'", {}),
        (SCHEMA.replace("bigint", "int"), SchemaMismatch, "price bigint", {}),
    ]
    for schema, kind, text, options in wrong:
        with one_table(metastore, name, schema, **options) as store, pytest.raises(kind, match=text):
            store.refresh("tickets")
    with one_table(metastore, name, SCHEMA, "day") as store, pytest.raises(SchemaMismatch, match="partition columns"):
        store.refresh("tickets")
    with one_table(metastore, name, format="orc") as store:
        assert "its files are parquet" in next(iter(store.refresh("tickets").bad.values()))
    for table, text in ((f"{name}_v", "is a view"), ("absent", "has no table")):
        with one_table(metastore, table) as store, pytest.raises((NotSupported, SourceUnavailable), match=text):
            store.refresh("tickets")
    for bad in ("thrift://host/shop.tickets", "thrift://host:9083", "thrift://me:secret@host:9083/shop.tickets"):
        with pytest.raises(DefinitionError, match=r"thrift://HOST:PORT/DATABASE\.TABLE"):
            nova.Project(channels=[nova.Channel("t", schema="a int", external=nova.external(bad))])


def test_a_metastore_that_is_away_changes_nothing(metastore: str, hive_spark: SparkWithHive, name: str) -> None:
    make_table(hive_spark, name)
    sell(hive_spark, name, "2022-03-30", "Paris", 1)
    line = hive_metastore.Line(metastore)
    with one_table(line.address, name) as store:
        store.refresh("tickets")
        line.is_cut = True
        with pytest.raises(SourceUnavailable, match="does not answer"):
            store.refresh("tickets")
        assert store.refresh_all()[0].error is not None and [p for p, _, _ in prices(store)] == [1]
    line.close()


def _partition_of(client: Any, name: str, values: list[str], folder: str) -> Any:
    from hive_metastore.ttypes import Partition

    storage = client.get_table("shop", name).sd
    storage.location = f"file:{folder}/stray"
    return Partition(values=values, dbName="shop", tableName=name, sd=storage, parameters={})
