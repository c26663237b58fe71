"""A real Hive metastore as the outlet of published channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.errors import DefinitionError, NotSupported
from nova_assets.model.notification import NotifierSubscription
from nova_assets.settings import Settings
from nova_assets_tests.effort import EXHAUSTIVE, long_except
from nova_assets_tests.forked import run_python
from nova_assets_tests.metastore import servers
from nova_assets_tests.metastore.tables import (
    THEN,
    Tills,
    events,
    locations,
    one_table,
    parameters,
    published_shop,
    tables,
)
from nova_assets_tests.publish.shop import FIRST, Shop

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("partitions_per_call", "expected"), [pytest.param(1, 3, marks=EXHAUSTIVE), (500, 1)])
def test_partitions_are_submitted_one_by_one_or_in_batches(
    metastore: str, name: str, tmp_path: Path, partitions_per_call: int, expected: int
) -> None:
    shop = published_shop(tmp_path, metastore, name, partitions_per_call=partitions_per_call)
    shop.insert(*FIRST)
    shop.publish()
    kinds = events(metastore, name)
    assert kinds == ["CREATE_TABLE", *["ADD_PARTITION"] * expected, "ALTER_TABLE"], "the edition's number is last"
    with servers.client(metastore) as client:
        stray = client.get_partition("shop", name, ["2024-01-01", "login"])
        stray.values, stray.sd.location = ["2020-01-01", "stray"], f"file:{tmp_path}/stray"
        client.add_partition(stray)
    shop.insert(*THEN)
    shop.publish()
    assert {p: Path(f).parts[-3] for p, f in locations(metastore, name).items()} == dict.fromkeys(
        ["2024-01-01/login", "2024-01-01/view", "2024-01-02/login", "2024-01-02/a/b", "2024-01-03/login"], "00000002"
    ), "all partitions, of one edition, and no other partition"


CRASHES = ["metastore.created", "metastore.batch:2", "metastore.submitted", "edition.shown"]
WORKER = """
import sys
from pathlib import Path
from nova_assets_tests.metastore.tables import published_shop
published_shop(Path(sys.argv[1]), sys.argv[2], sys.argv[3], partitions_per_call=1).publish()
"""


@pytest.mark.crash
@pytest.mark.parametrize("point", long_except(CRASHES, "metastore.batch:2"))
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
    line = servers.Line(metastore)
    shop = published_shop(tmp_path, line.address, name)
    shop.insert(*FIRST)
    shop.publish()
    shop.store.catalog.notifications.register_notifiers([NotifierSubscription("team", ("publication_failing",))])
    line.is_cut = True
    assert shop.insert(*THEN).seq == 2, "commits do not wait"
    with pytest.raises(nova.TableUnavailable, match="does not answer") as caught:
        shop.publish()
    assert "the next publication repeats this one" in str(caught.value)
    assert shop.in_folder() == FIRST and parameters(metastore, name)["nova.edition"] == "1"
    assert [t.id for t in shop.store.to_publish("actions")] in ([], ["hive:exports/actions"])
    assert shop.store.catalog.notifications.open_problems("publication_failing"), "it is reported as other failures are"
    line.is_cut = False
    assert [kind for kind, _, _ in shop.publish()] == ["hive"]
    assert shop.in_folder() == sorted(FIRST + THEN) and len(locations(metastore, name)) == 5
    assert not shop.store.catalog.notifications.open_problems("publication_failing")
    line.close()


def test_tables_of_others_are_left_alone(metastore: str, name: str, tmp_path: Path) -> None:
    Tills(metastore, name, tmp_path / "theirs").sell(("2022-03-30", "Paris"), 1)
    shop = published_shop(tmp_path, metastore, name)
    shop.insert(*FIRST)
    with pytest.raises(nova.TableTaken, match="exists already in the Hive metastore"):
        shop.publish()
    with pytest.raises(nova.DefinitionError, match="not published"):
        shop.store.unpublish("actions", "hive:elsewhere")
    assert not shop.folder.exists() and list(locations(metastore, name)) == ["2022-03-30/Paris"]
    nowhere = Shop(tmp_path / "b", publish=nova.hive("b", metastore=metastore, table="nowhere.actions"))
    nowhere.insert(*FIRST)
    with pytest.raises(nova.TableUnavailable, match="has no database 'nowhere'"):
        nowhere.publish()


@pytest.mark.core
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


def columns_of(metastore: str, name: str) -> list[str]:
    with servers.client(metastore) as client:
        return [f"{c.name} {c.type}" for c in client.get_table("shop", name).sd.cols]


def test_columns_come_and_go(metastore: str, name: str, tmp_path: Path) -> None:
    table = nova.hive("exports/x", metastore=metastore, table=f"shop.{name}")
    more = "struct<a:string,b:array<decimal(5,2)>>"
    versions: list[tuple[str, dict[str, Any]]] = [
        ("Id bigint, n int", {}),
        (f"Id bigint, n int, more {more}", {"more": {"a": "x", "b": []}}),
        ("n int, Id bigint", {}),  # another order: the table is made again
    ]
    for number, (ddl, others) in enumerate(versions, 1):
        channel = nova.Channel("x", schema=ddl, publish=table)
        with nova.open(nova.Project(channels=[channel]), settings=nova_settings(tmp_path)) as store:
            store.register(store.project, replace=True)
            store.insert("x", [{"Id": number, "n": number, **others}], kind="base")
            assert [e.number for e in store.publish("x")] == [number]
        assert columns_of(metastore, name) == ddl.lower().split(", ")


def nova_settings(root: Path) -> Settings:
    return Settings(f"sqlite:///{root}/c.db", str(root / "wh"), root=root)


@pytest.mark.core
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


PUBLISHER = """
import sys
from pathlib import Path
import nova_assets as nova
from nova_assets_tests.metastore.tables import THEN
from nova_assets_tests.publish.shop import FIRST, Shop
shop = Shop(Path(sys.argv[1]), publish=nova.iceberg(f"shop.{sys.argv[2]}", catalog="prod"))
for rows in (FIRST, THEN):
    shop.insert(*rows)
    shop.publish()
"""


def test_pyiceberg_reads_an_iceberg_table_of_the_metastore(metastore: str, name: str, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    prod = {"TYPE": "hive", "URI": metastore, "WAREHOUSE": f"file://{tmp_path}/lake"}
    environment = {f"PYICEBERG_CATALOG__PROD__{option}": value for option, value in prod.items()}
    published = run_python(["-c", PUBLISHER, str(tmp_path), name], environment)
    assert published.returncode == 0, published.stderr
    table = load_catalog("other", type="hive", uri=metastore).load_table(f"shop.{name}")
    assert sorted(table.scan(row_filter="action = 'login'").to_arrow()["id"].to_pylist()) == [1, 3, 5]
    iceberg = one_table(metastore, name, "id bigint, n bigint, dt string", "dt")
    with iceberg as store, pytest.raises(NotSupported, match="is an Iceberg table"):
        store.refresh("tickets")
