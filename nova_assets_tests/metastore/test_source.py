"""A real Hive metastore as the source of a table that another system writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import nova_assets as nova
from nova_assets.cli.main import cli
from nova_assets.errors import DefinitionError, NotSupported, SchemaMismatch, SourceUnavailable
from nova_assets.metastore.client import HiveMetastore
from nova_assets.testing import World
from nova_assets_tests.metastore import servers
from nova_assets_tests.metastore.tables import SCHEMA, Tills, one_table, prices

pytestmark = pytest.mark.slow

PARIS, ROME = ("2022-03-30", "Paris"), ("2022-03-30", "Rome%2FEast")


@pytest.fixture
def tills(metastore: str, name: str, tmp_path: Path) -> Tills:
    return Tills(metastore, name, tmp_path / "tills")


class Asked:
    """The partitions for which the metastore was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all = 0
        self.single: list[tuple[str, ...]] = []
        real_all, real_single = HiveMetastore.partitions, HiveMetastore.partition

        def partitions(metastore: HiveMetastore) -> Any:
            self.all += 1
            return real_all(metastore)

        def partition(metastore: HiveMetastore, values: tuple[str, ...]) -> Any:
            self.single.append(tuple(values))
            return real_single(metastore, values)

        monkeypatch.setattr(HiveMetastore, "partitions", partitions)
        monkeypatch.setattr(HiveMetastore, "partition", partition)

    def taken(self) -> tuple[int, list[tuple[str, ...]]]:
        asked = self.all, sorted(self.single)
        self.all, self.single = 0, []
        return asked


def test_the_log_names_the_partitions_to_ask_for(tills: Tills, monkeypatch: pytest.MonkeyPatch) -> None:
    tills.sell(PARIS, 1, 2)
    tills.sell(("2022-03-30", "Rome/East"), 3, folder=tills.folder(*ROME))
    with one_table(tills.metastore, tills.name) as store:
        asked = Asked(monkeypatch)
        assert len(store.refresh("tickets").changed) == 2
        assert prices(store) == [(1, "2022-03-30", "Paris"), (2, "2022-03-30", "Paris"), (3, "2022-03-30", "Rome/East")]
        assert asked.taken() == (1, [])
        assert store.refresh("tickets").same == 2 and asked.taken() == (0, []), "the log has nothing new"

        tills.sell(("2022-03-31", "Paris"), 4)
        tills.sell(PARIS, 5, name="b.parquet")  # into a partition that exists: most writers tell nothing of it
        again = store.refresh("tickets")
        assert sorted(again.changed) == ["day=2022-03-30/shop=Paris", "day=2022-03-31/shop=Paris"] and again.same == 1
        assert asked.taken() == (0, [("2022-03-31", "Paris")])
        assert [p for p, _, _ in prices(store)] == [1, 2, 3, 4, 5]

        tills.drop(*PARIS)
        tills.rename(("2022-03-31", "Paris"), ("2022-04-01", "Paris"), tills.folder("2022-03-31", "Paris"))
        moved = store.refresh("tickets")
        assert sorted(moved.gone) == ["day=2022-03-30/shop=Paris", "day=2022-03-31/shop=Paris"]
        assert asked.taken() == (0, [PARIS, ("2022-03-31", "Paris"), ("2022-04-01", "Paris")])
        assert prices(store) == [(3, "2022-03-30", "Rome/East"), (4, "2022-04-01", "Paris")]
        assert prices(store, partition="day=2022-04-01/shop=Paris") == [(4, "2022-04-01", "Paris")]
        assert store.preview_refresh("tickets").same == 2


@pytest.mark.spark
def test_a_partition_may_lie_anywhere(tills: Tills, tmp_path: Path, spark: Any) -> None:
    tills.sell(PARIS, 1)
    tills.sell(("2022-02-07", "Oslo"), 7, folder=tmp_path / "archive")
    tills.sell(("2022-02-08", "Oslo"), 8, folder=tmp_path / "day=1999-01-01" / "shop=Nowhere")  # is not believed
    with one_table(tills.metastore, tills.name) as store:
        assert len(store.refresh("tickets").changed) == 3
        expected = [(1, "2022-03-30", "Paris"), (7, "2022-02-07", "Oslo"), (8, "2022-02-08", "Oslo")]
        assert prices(store) == expected
        in_spark = store.read("tickets").to_spark().collect()
        assert sorted((r["price"], r["day"], r["shop"]) for r in in_spark) == expected
        tills.sell(("2022-02-07", "Oslo"), 9, folder=tmp_path / "archive", name="b.parquet")
        assert store.refresh("tickets").changed == ("day=2022-02-07/shop=Oslo",)
        assert [p for p, _, _ in prices(store)] == [1, 7, 8, 9]


def test_many_partitions_are_listed_together(tills: Tills, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(25):
        tills.sell(("2022-03-30", f"shop{n}"), n)
    with one_table(tills.metastore, tills.name) as store:
        listed: list[str] = []
        real = store.engine.external_files.list_files
        monkeypatch.setattr(
            store.engine.external_files, "list_files", lambda where: (listed.append(where), real(where))[1]
        )
        assert len(store.refresh("tickets").changed) == 25 and listed == [str(tills.root)]
        assert [p for p, _, _ in prices(store)] == list(range(25))


def test_an_incomplete_log_is_not_trusted(tills: Tills, monkeypatch: pytest.MonkeyPatch) -> None:
    tills.sell(PARIS, 1)
    with one_table(tills.metastore, tills.name) as store:
        store.refresh("tickets")
        asked = Asked(monkeypatch)
        position = store.catalog.sources.position("tickets")
        assert position is not None
        day_ago = position.listed_at - timedelta(days=1)
        for known in (
            replace(position, event_id=position.event_id + 1_000),  # a log that was begun again
            replace(position, listed_at=day_ago),
            replace(position, source="another metastore"),
            replace(position, head=7),
        ):
            store.catalog.sources.set_position("tickets", known)
            assert store.refresh("tickets").seq is None and asked.taken() == (1, []), known
            assert store.refresh("tickets").seq is None and asked.taken() == (0, [])
        tills.sell(("2022-03-31", "Paris"), 2)
        real = HiveMetastore.events_after
        # The metastore has deleted the events up to the last one.
        monkeypatch.setattr(HiveMetastore, "events_after", lambda self, after, limit: real(self, after, limit)[-1:])
        tills.sell(("2022-04-01", "Paris"), 3)
        assert len(store.refresh("tickets").changed) == 2 and asked.taken() == (1, [])


@pytest.mark.core
def test_a_partition_that_cannot_be_shown_is_looked_at_again(tills: Tills) -> None:
    tills.sell(PARIS, 1)
    with one_table(tills.metastore, tills.name) as store:
        store.refresh("tickets")
        tills.sell(("2022-03-31", "Paris"), 2)
        torn = tills.folder("2022-03-31", "Paris") / "torn.parquet"
        torn.write_bytes(b"PAR1 and then nothing")
        assert list(store.refresh("tickets").bad) == ["day=2022-03-31/shop=Paris"]
        assert [p for p, _, _ in prices(store)] == [1]
        torn.unlink()  # no event tells
        assert store.refresh("tickets").changed == ("day=2022-03-31/shop=Paris",)
        assert [p for p, _, _ in prices(store)] == [1, 2]
        later = tills.folder("2022-04-01", "Rome")
        tills.add(("2022-04-01", "Rome"), later)
        later.rmdir()  # which the metastore has made
        assert store.refresh("tickets").unfinished == ("day=2022-04-01/shop=Rome",), "its folder comes later"
        (later / "deeper").mkdir(parents=True)
        pq.write_table(pa.table({"product": ["ink"], "price": [3]}), later / "deeper" / "a.parquet")
        [why] = store.refresh("tickets").bad.values()
        assert "subfolders with files" in why
        for file in tills.folder(*PARIS).iterdir():
            file.unlink()
        tills.folder(*PARIS).rmdir()  # lost, and the metastore still has the partition
        assert "day=2022-03-30/shop=Paris" in store.refresh("tickets").bad


@pytest.mark.spark
def test_sql_and_ticks(tills: Tills, tmp_path: Path, spark: Any) -> None:
    tills.sell(PARIS, 1, 2)
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "tickets.sql").write_text(
        "FOR t IN TIMESERIES('2022-03-30', '2022-03-31'), shop IN ('Paris') LET day = DATE_FORMAT(t, 'yyyy-MM-dd')\n"
        "CREATE EXTERNAL TABLE tickets (product STRING, price BIGINT, day STRING, shop STRING)\n"
        f"USING parquet PARTITIONED BY (day, shop) LOCATION '{tills.metastore}/shop.{tills.name}'"
    )
    (tmp_path / "sql" / "sales.sql").write_text(
        "FOR t IN TIMESERIES('2022-03-30', '2022-03-31') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')\n"
        "INSERT OVERWRITE sales PARTITION (day = d)\n"
        "SELECT SUM(price) AS revenue FROM tickets WHERE tickets.day = :d"
    )
    with World(nova.Project(nova.datasets(tmp_path / "sql")), spark) as store:
        assert [r.partition for r in store.tick()] == ["day=2022-03-30"], "the other day is not there yet"
        tills.sell(("2022-03-31", "Paris"), 4)
        assert [r.partition for r in store.tick()] == ["day=2022-03-31"]
        assert sorted(r["revenue"] for r in store.read("sales").to_arrow().to_pylist()) == [3, 4]


def test_a_table_without_partitions(metastore: str, name: str, tmp_path: Path) -> None:
    tills = Tills(metastore, name, tmp_path / "tills", keys=())
    schema, table = "product string, price bigint", nova.external(f"{metastore}/shop.{name}")
    with World(nova.Project(channels=[nova.Channel("tickets", schema=schema, external=table)])) as store:
        for n in (1, 2):
            tills.sell((), n, name=f"{n}.parquet")
            assert store.refresh("tickets").seq == n
            assert sorted(store.read("tickets").to_arrow()["price"].to_pylist()) == list(range(1, n + 1))
            assert store.refresh("tickets").seq is None


def test_definitions_that_contradict_the_metastore(tills: Tills) -> None:
    tills.sell(PARIS, 1)
    metastore, name = tills.metastore, tills.name
    for schema, text in (
        (SCHEMA.replace("price", "prize"), "'prize'"),
        (SCHEMA.replace("bigint", "int"), "price bigint"),
    ):
        with one_table(metastore, name, schema) as store, pytest.raises(SchemaMismatch, match=text):
            store.refresh("tickets")
    with one_table(metastore, name, SCHEMA, "day") as store, pytest.raises(SchemaMismatch, match="partition columns"):
        store.refresh("tickets")
    with one_table(metastore, name, format="orc") as store:
        assert "its files are parquet" in next(iter(store.refresh("tickets").bad.values()))
    with servers.client(metastore) as client:
        view = client.get_table("shop", name)
        view.tableName, view.tableType, view.parameters = f"{name}_v", "VIRTUAL_VIEW", {}
        client.create_table(view)
    with one_table(metastore, f"{name}_v") as store, pytest.raises(NotSupported, match="is a view"):
        store.refresh("tickets")
    with one_table(metastore, "absent") as store, pytest.raises(SourceUnavailable, match="has no table"):
        store.refresh("tickets")
    for bad in ("thrift://host/shop.tickets", "thrift://host:9083", "thrift://me:secret@host:9083/shop.tickets"):
        with pytest.raises(DefinitionError, match=r"thrift://HOST:PORT/DATABASE\.TABLE"):
            nova.Project(channels=[nova.Channel("t", schema="a int", external=nova.external(bad))])


def test_a_definition_is_written_then_followed(tills: Tills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``nova external add`` and ``nova external check``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOVA_PROJECT", f"{tills.name}:project")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{tills.name}.py").write_text("import nova_assets as n\nproject = n.Project(n.datasets('sql'))\n")

    def call(*arguments: str) -> Result:
        sys.modules.pop(tills.name, None)
        return CliRunner().invoke(cli, ["external", *arguments], prog_name="nova")

    tills.alter(("price", "decimal(10,2)"), ("code", "char(3)"))
    address = f"{tills.metastore}/shop.{tills.name}"
    added = call("add", address, "--name", "tickets", "--done", "_SUCCESS")
    assert (added.exit_code, added.output) == (0, "wrote sql/tickets.sql; next: nova refresh tickets\n")
    written = (tmp_path / "sql" / "tickets.sql").read_text()
    assert (
        written
        == f"""\
CREATE EXTERNAL TABLE tickets (
  product STRING,
  price DECIMAL(10,2),
  code STRING,
  day STRING,
  shop STRING
)
USING parquet
PARTITIONED BY (day, shop)
LOCATION '{address}'
TBLPROPERTIES ('done' = '_SUCCESS')
"""
    )
    assert call("check").output == "tickets: as its source\n"
    tills.alter(("price", "double"), ("code", None))
    tills.alter(("size", "struct<w:int,h:int>"))
    broken = call("check")
    assert broken.exit_code == 1
    assert broken.output.splitlines() == [
        "tickets:",
        "  breaking: price decimal(10,2) is now double",
        "  breaking: code string was dropped",
        "  size struct<w:int,h:int> was added",
    ]
    assert call("check", "--write").exit_code == 0 and call("check").output == "tickets: as its source\n"
    kept = written.replace("DECIMAL(10,2)", "DOUBLE").replace("  code STRING,\n", "")
    assert (tmp_path / "sql" / "tickets.sql").read_text() == kept.replace(
        "shop STRING", "shop STRING,\n  size struct<w:int,h:int>"
    )

    tills.alter(("kind", "uniontype<int,string>"))
    assert call("check").output == "tickets: as its source\n", "Spark has no such type, and the channel needs none"
    refused = call("add", address, "--name", "other")
    assert refused.exit_code == 1 and "uniontype" in refused.stderr
    with one_table(tills.metastore, tills.name) as store, pytest.raises(SchemaMismatch, match="price"):
        store.refresh("tickets")  # declares bigint
    with one_table(tills.metastore, tills.name, SCHEMA.replace("bigint", "double")) as store:
        assert store.refresh("tickets").changed == ()
    for wrong, text in ((f"{tills.metastore}/shop.absent", "has no table"), ("thrift://there", "DATABASE.TABLE")):
        refused = call("add", wrong)
        assert refused.exit_code == 1 and text in refused.stderr
    assert [f.name for f in (tmp_path / "sql").iterdir()] == ["tickets.sql"]


@pytest.mark.core
def test_a_metastore_that_is_away_changes_nothing(tills: Tills) -> None:
    tills.sell(PARIS, 1)
    line = servers.Line(tills.metastore)
    with one_table(line.address, tills.name) as store:
        store.refresh("tickets")
        line.is_cut = True
        with pytest.raises(SourceUnavailable, match="does not answer"):
            store.refresh("tickets")
        assert store.refresh_all()[0].error is not None and [p for p, _, _ in prices(store)] == [1]
    line.close()


@pytest.fixture
def without_log(tmp_path: Path) -> Iterator[str]:
    with servers.server(tmp_path / "server", notification_log=False) as address:
        yield address


@pytest.mark.long
def test_without_a_log_the_metastore_lists_the_partitions(
    without_log: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tills = Tills(without_log, name, tmp_path / "tills")
    tills.sell(PARIS, 1)
    with one_table(without_log, name) as store:
        asked = Asked(monkeypatch)
        for n in (1, 2):
            tills.sell(("2022-04-01", f"shop{n}"), n)
            assert "day=2022-04-01" in str(store.refresh("tickets").changed) and asked.taken() == (1, [])
        tills.drop(*PARIS)
        assert store.refresh("tickets").gone == ("day=2022-03-30/shop=Paris",)
        assert store.catalog.sources.position("tickets") is None
