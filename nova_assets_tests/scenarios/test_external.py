"""A table that another system keeps: read where it is, followed as it changes, and never touched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import nova_assets as nova
from nova_assets.errors import (
    BadRecord,
    DefinitionError,
    FileMissing,
    InputsMissing,
    NotSupported,
    SchemaMismatch,
    SourceUnavailable,
)
from nova_assets.store.store import Store
from nova_assets.testing import World

pytestmark = pytest.mark.spark

VIEW = """
FOR t IN TIMESERIES('2022-03-30', '2022-03-31'), store IN ('Detroit', 'Paris')
LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
CREATE EXTERNAL TABLE tickets (product STRING, price DECIMAL(10,2), day STRING, store STRING)
USING {format} PARTITIONED BY (day, store) LOCATION '{location}' {more}
"""
SALES = """
FOR t IN TIMESERIES('2022-03-30', '2022-03-31') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE sales PARTITION (day = d)
SELECT store, SUM(price) AS revenue FROM tickets WHERE tickets.day = :d GROUP BY store
"""
DAYS, SHOPS = ("2022-03-30", "2022-03-31"), ("Detroit", "Paris")


class Tills:
    """The other system, with a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, day: str, store: str) -> Path:
        return self.root / f"day={day}" / f"store={store}"

    def sell(self, day: str, store: str, *prices: str, name: str = "part-0.parquet", **columns: Any) -> Path:
        folder = self.folder(day, store)
        folder.mkdir(parents=True, exist_ok=True)
        given = {
            "product": pa.array(["pen"] * len(prices)),
            "price": pa.array([Decimal(p) for p in prices], pa.decimal128(10, 2)),
            **columns,
        }
        table = pa.table({n: v for n, v in given.items() if v is not None})
        write = orc.write_table if name.endswith(".orc") else pq.write_table
        write(table, folder / name)
        return folder / name

    def all_of_it(self) -> None:
        for day in DAYS:
            for n, store in enumerate(SHOPS):
                self.sell(day, store, f"{n + 1}.00", f"{n + 1}.50")

    def listing(self) -> dict[str, tuple[int, int]]:
        """Every file, with its size and time."""
        files = (f for f in self.root.rglob("*") if f.is_file())
        return {str(f): (f.stat().st_size, f.stat().st_mtime_ns) for f in files}


@pytest.fixture
def tills(tmp_path: Path) -> Tills:
    return Tills(tmp_path / "tills")


@pytest.fixture
def opened(tmp_path: Path, tills: Tills, spark: Any) -> Iterator[Any]:
    """A store over the view of the tills, and the sales."""
    worlds: list[World] = []

    def go(format: str = "parquet", more: str = "") -> Store:
        (tmp_path / "sql").mkdir(exist_ok=True)
        view = VIEW.format(location=tills.root, format=format, more=more)
        (tmp_path / "sql" / "tickets.sql").write_text(view)
        (tmp_path / "sql" / "sales.sql").write_text(SALES)
        worlds.append(World(nova.Project(nova.datasets(tmp_path / "sql")), spark))
        store: Store = worlds[-1].__enter__()
        return store

    yield go
    for world in worlds:
        world.__exit__(None, None, None)


def revenue(store: Store, day: str) -> dict[str, Decimal]:
    rows = store.read("sales", partition=f"day={day}").to_arrow().to_pylist()
    return {r["store"]: r["revenue"] for r in rows}


def made(store: Store) -> list[str]:
    """One tick: the partitions that it makes."""
    ran = store.tick()
    assert not [r.error for r in ran if r.error]
    return [r.partition for r in ran]


@pytest.mark.parametrize(("format", "name"), [("parquet", "part-0.parquet"), ("orc", "part-0.orc")])
def test_it_is_read_where_it_is_and_followed(tills: Tills, opened: Any, format: str, name: str) -> None:
    for day in DAYS:
        for n, shop in enumerate(SHOPS):
            tills.sell(day, shop, f"{n + 1}.00", f"{n + 1}.50", name=name)
    before = tills.listing()
    store = opened(format)
    assert made(store) == ["day=2022-03-30", "day=2022-03-31"]
    assert revenue(store, "2022-03-30") == {"Detroit": Decimal("2.50"), "Paris": Decimal("4.50")}
    rows = store.read("tickets", partition="day=2022-03-31/store=Paris").to_arrow().to_pylist()
    assert [(r["price"], r["day"], r["store"]) for r in rows] == [
        (Decimal("2.00"), "2022-03-31", "Paris"),
        (Decimal("2.50"), "2022-03-31", "Paris"),
    ]
    blocks = Path(store.engine.warehouse.address) / "blocks"
    assert len(list(blocks.iterdir())) == 2, "those of sales: nothing was copied"
    assert made(store) == [] and store.refresh("tickets").same == 4

    tills.sell("2022-03-31", "Paris", "7.00", name=name)
    assert made(store) == ["day=2022-03-31"], "and not the other day"
    assert revenue(store, "2022-03-31") == {"Detroit": Decimal("2.50"), "Paris": Decimal("7.00")}
    tills.sell("2022-03-30", "Detroit", "0.50", name=f"more-{name}")
    assert made(store) == ["day=2022-03-30"]
    assert revenue(store, "2022-03-30") == {"Detroit": Decimal("3.00"), "Paris": Decimal("4.50")}
    store.collect_garbage("tickets")
    store.runtime.delete_dead_staging()
    assert {f: s for f, s in tills.listing().items() if f in before}.keys() == before.keys(), "none was deleted"


def test_who_reads_it_waits_for_what_there_should_be(tills: Tills, opened: Any) -> None:
    tills.sell("2022-03-30", "Detroit", "1.00")
    store = opened()
    assert made(store) == []
    assert {w.waits_for for w in store.next_tick().waits} == {
        "tickets/day=2022-03-30/store=Paris",
        "tickets/day=2022-03-31/store=Detroit",
    }
    with pytest.raises(InputsMissing, match="tickets/day=2022-03-30/store=Paris"):
        store.run("sales", "day=2022-03-30")
    tills.sell("2022-03-30", "Paris", "2.00")
    assert made(store) == ["day=2022-03-30"]


def test_it_is_complete_when_its_writer_says_so(tills: Tills, opened: Any) -> None:
    tills.all_of_it()
    (tills.folder("2022-03-30", "Detroit") / "_SUCCESS").touch()
    store = opened(more="TBLPROPERTIES ('done' = '_SUCCESS')")
    said = store.refresh("tickets")
    assert said.changed == ("day=2022-03-30/store=Detroit",) and len(said.unfinished) == 3
    assert made(store) == []
    (tills.folder("2022-03-30", "Paris") / "_SUCCESS").touch()
    assert made(store) == ["day=2022-03-30"]


def test_what_is_gone_is_gone_and_makes_nothing_anew(tills: Tills, opened: Any) -> None:
    tills.all_of_it()
    store = opened()
    assert len(made(store)) == 2
    shutil.rmtree(tills.folder("2022-03-31", "Paris"))
    assert store.preview_refresh("tickets").gone == ("day=2022-03-31/store=Paris",)
    said = store.refresh("tickets")
    assert said.gone == ("day=2022-03-31/store=Paris",) and said.seq == 2
    assert made(store) == []
    assert store.read("tickets").to_arrow().num_rows == 6
    tills.sell("2022-03-31", "Paris", "9.00")
    assert made(store) == ["day=2022-03-31"]


def test_a_look_that_is_older_than_what_is_known_commits_nothing(
    tills: Tills, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two refresh at once: the one that has looked before a file came, and goes on after the other."""
    tills.sell("2022-03-30", "Detroit", "1.00")
    store = opened()
    look, once = store.engine.external_files.list_files, iter([True])

    def slow(location: str) -> Any:
        seen = look(location)
        if next(once, False):
            tills.sell("2022-03-31", "Paris", "2.00")
            assert store.refresh("tickets").seq == 1
        return seen

    monkeypatch.setattr(store.engine.external_files, "list_files", slow)
    assert store.refresh("tickets").seq is None, "it has looked again, and there was nothing left to say"
    assert store.read("tickets").to_arrow().num_rows == 2


def test_it_is_refreshed_some_partitions_at_a_time(tills: Tills, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_assets.store.external_tables.PARTITIONS_PER_COMMIT", 3)
    tills.all_of_it()
    store = opened()
    assert store.refresh("tickets").seq == 2
    assert store.read("tickets").to_arrow().num_rows == 8 and store.refresh("tickets").same == 4


def test_a_location_that_is_gone_changes_nothing(tills: Tills, opened: Any) -> None:
    tills.all_of_it()
    store = opened()
    made(store)
    tills.root.rename(tills.root.with_name("elsewhere"))
    with pytest.raises(SourceUnavailable, match="cannot be listed") as caught:
        store.refresh("tickets")
    assert "the channel keeps its earlier state" in str(caught.value)
    [said] = store.refresh_all()
    assert said.needs_attention and "cannot be listed" in said.problems_text
    assert made(store) == []
    with pytest.raises(FileMissing, match="was changed or removed by the system that writes it") as missing:
        store.read("tickets").to_arrow()
    assert "nova refresh tickets, then repeat the read" in str(missing.value)
    tills.root.with_name("elsewhere").rename(tills.root)
    assert store.read("tickets").to_arrow().num_rows == 8


@pytest.mark.core
def test_a_file_that_became_another_since_is_not_read(tills: Tills, opened: Any) -> None:
    tills.all_of_it()
    store = opened()
    store.refresh("tickets")
    tills.sell("2022-03-31", "Paris", *["1.00"] * 50)
    with pytest.raises(FileMissing, match=r"store=Paris/part-0.parquet was changed"):
        store.read("tickets").to_arrow()


@pytest.mark.core
def test_a_partition_with_a_file_that_is_not_as_declared_stays_as_it_was(tills: Tills, opened: Any) -> None:
    tills.all_of_it()
    tills.sell("2022-03-30", "Paris", "1.00", price=pa.array([1.0]))
    (tills.folder("2022-03-31", "Detroit") / "part-1.parquet").write_bytes(b"no parquet at all")
    store = opened()
    said = store.refresh("tickets")
    assert set(said.bad) == {"day=2022-03-30/store=Paris", "day=2022-03-31/store=Detroit"} and said.needs_attention
    first, second = (said.bad[p] for p in sorted(said.bad))
    assert "column 'price' of external channel 'tickets' has another type in" in first
    assert "found:    double" in first and "expected: decimal(10,2)" in first
    assert "part-1.parquet cannot be read" in second
    assert {p.partition for p in store.partitions("tickets")} == {
        "day=2022-03-30/store=Detroit",
        "day=2022-03-31/store=Paris",
    }


@pytest.mark.core
def test_a_column_that_no_file_has_is_refused(tills: Tills, opened: Any) -> None:
    for day in DAYS:
        for shop in SHOPS:
            tills.sell(day, shop, "1.00", price=None, cost=pa.array([Decimal("1.00")], pa.decimal128(10, 2)))
    with pytest.raises(SchemaMismatch, match="no file of external channel 'tickets' contains 'price'") as caught:
        opened().refresh("tickets")
    assert "found:    cost, product" in str(caught.value)


def test_a_column_that_came_later_is_null_before(tills: Tills, opened: Any) -> None:
    tills.all_of_it()
    tills.sell("2022-03-30", "Paris", "1.00", product=None)
    rows = (store := opened()).refresh("tickets") and store.read("tickets").to_arrow().to_pylist()
    assert {r["product"] for r in rows if (r["day"], r["store"]) == ("2022-03-30", "Paris")} == {None}
    assert {r["product"] for r in rows if r["store"] == "Detroit"} == {"pen"}


def test_nobody_writes_it_here(tills: Tills, opened: Any) -> None:
    tills.all_of_it()
    store = opened()
    store.refresh("tickets")
    for attempt in (
        lambda: store.insert("tickets", [{"product": "ink"}], partition="day=2022-03-30/store=Paris"),
        lambda: store.restore("tickets", 0),
        lambda: store.drop("tickets", "day=2022-03-30/store=Paris"),
    ):
        with pytest.raises(DefinitionError, match="channel 'tickets' is external: another system writes it"):
            attempt()
    assert store.compact("tickets", force=True) is None
    assert store.read("tickets").to_arrow().num_rows == 8


@pytest.mark.core
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "Delta Lake"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
    ],
)
def test_a_table_whose_own_metadata_says_which_files_count_is_refused(
    tills: Tills, opened: Any, path: str, kind: str
) -> None:
    tills.all_of_it()
    file = tills.root / path
    file.parent.mkdir()
    file.write_text("{}")
    with pytest.raises(NotSupported, match=f"is a table of {kind}"):
        opened().refresh("tickets")


def test_an_unpartitioned_one(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "sql").mkdir()
    there = tmp_path / "rates"
    there.mkdir()
    pq.write_table(pa.table({"Currency": ["EUR"], "rate": [1.5]}), there / "000000_0")
    statement = f"CREATE EXTERNAL TABLE rates (currency STRING, rate DOUBLE) USING parquet LOCATION '{there}'"
    (tmp_path / "sql" / "rates.sql").write_text(statement)
    (tmp_path / "sql" / "best.sql").write_text("SELECT MAX(rate) AS rate FROM rates")
    with World(nova.Project(nova.datasets(tmp_path / "sql")), spark) as store:
        assert made(store) == [""]
        assert store.read("best").to_arrow().to_pylist() == [{"rate": 1.5}]
        assert store.read("rates").to_arrow().to_pylist() == [{"currency": "EUR", "rate": 1.5}]
        pq.write_table(pa.table({"currency": ["USD"], "rate": [2.5]}), there / "000001_0")
        assert made(store) == [""]
        assert store.read("best").to_arrow().to_pylist() == [{"rate": 2.5}]
        for file in there.iterdir():
            file.unlink()
        assert made(store) == [""], "where nothing says what there should be, what is gone is news"
        assert store.read("best").to_arrow().to_pylist() == [{"rate": None}]
        assert made(store) == [] and not store.refresh("rates").gone


@pytest.mark.core
def test_of_what_others_write_only_the_newest_state_is_known(tills: Tills, opened: Any) -> None:
    tills.all_of_it()
    store = opened()
    store.refresh("tickets")
    with pytest.raises(DefinitionError, match="is external and has no changes to read: only its newest state is known"):
        store.read("tickets", since=0)


def test_values_as_spark_and_hive_write_them(tmp_path: Path, spark: Any) -> None:
    """Folders that Spark has written, with nulls, numbers and characters that are escaped."""
    there = tmp_path / "there"
    frame = spark.createDataFrame([(1, "a/b=c", 7), (2, None, 8), (3, "%20 é", None)], "v int, name string, n int")
    frame.write.partitionBy("name", "n").parquet(str(there))
    channel = nova.Channel(
        "there",
        schema="v int, name string, n int",
        partitions=[nova.dynamic("name"), nova.dynamic("n")],
        external=nova.external(str(there)),
    )
    with World(nova.Project(channels=[channel]), spark) as store:
        said = store.refresh("there")
        assert len(said.changed) == 3 and not said.ignored
        rows = sorted(tuple(r.values()) for r in store.read("there").to_arrow().to_pylist())
        assert rows == [(1, "a/b=c", 7), (2, None, 8), (3, "%20 é", None)]
        for partition, (v, _, _) in zip(sorted(said.changed), [(3, 0, 0), (2, 0, 0), (1, 0, 0)], strict=True):
            [row] = store.read("there", partition=partition).to_arrow().to_pylist()
            assert row["v"] == v


@pytest.mark.core
def test_a_file_that_is_damaged_after_it_was_looked_at(tills: Tills, opened: Any) -> None:
    with pytest.raises(BadRecord):
        store = opened()
        path = tills.sell("2022-03-30", "Paris", "1.00")
        path.write_bytes(b"x" * path.stat().st_size)
        from nova_assets.model.file_source import ExternalFileInfo

        store.engine.external_files.describe_files(
            store.project.channel("tickets"), "", [ExternalFileInfo(str(path), path.stat().st_size, 1)]
        )


def test_a_partition_that_should_not_be_there_any_more_is_kept_current(
    tills: Tills, tmp_path: Path, spark: Any
) -> None:
    """Its readers may still be there; one that never was known is none of the channel's."""
    scopes = VIEW.replace("'2022-03-30', '2022-03-31'", "last => 2")
    (tmp_path / "tickets.sql").write_text(scopes.format(location=tills.root, format="parquet", more=""))
    for day in DAYS:
        tills.sell(day, "Paris", "1.00")
    with World(nova.Project(nova.datasets(tmp_path)), spark) as store:
        catalog: Any = store.catalog
        catalog.database.clock = lambda: datetime(2022, 3, 31, 12, tzinfo=UTC)
        assert store.refresh("tickets").changed == tuple(f"day={d}/store=Paris" for d in DAYS)
        catalog.database.clock = lambda: datetime(2022, 4, 2, 12, tzinfo=UTC)
        tills.sell(DAYS[0], "Paris", "9.00", name="late.parquet")
        tills.sell("2022-03-29", "Paris", "1.00")
        found = store.refresh("tickets")
        assert found.changed == (f"day={DAYS[0]}/store=Paris",) and found.same == 1
        assert found.beyond == ("day=2022-03-29/store=Paris",)
        prices = store.read("tickets", partition=f"day={DAYS[0]}/store=Paris").to_arrow()["price"].to_pylist()
        assert sorted(prices) == [Decimal("1.00"), Decimal("9.00")]
