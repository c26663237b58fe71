"""Copies of a catalog, restored backups, and warehouses that go away: nothing that is needed is deleted or mistaken."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.database.sqlite_place import Place, RecordedPlace, place_change
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.engine.spark_engine import SparkEngine
from nova_assets.errors import CopyUndecided, VersionNotFound, WarehouseMismatch
from nova_assets.execution.warehouse_identity import claim_warehouse
from nova_assets.settings import Settings
from nova_assets_tests.execution.rule_channels import read
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

ORDERS = nova.Channel("orders", schema="id bigint", merge=nova.Append())
PROJECT = nova.Project(channels=[ORDERS])


@contextmanager
def opened(file: Path, warehouse: Path) -> Iterator[nova.Store]:
    settings = Settings(f"sqlite:///{file}", str(warehouse), gc_grace=0.001, grace=0.001)
    with nova.open(PROJECT, settings=settings) as store:
        store.register(ORDERS)
        yield store


def insert(store: nova.Store, *ids: int) -> int:
    return store.insert("orders", [{"id": n} for n in ids]).seq


def ids(store: nova.Store, **version: int) -> list[int]:
    return sorted(store.read("orders", **version).to_arrow()["id"].to_pylist())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A deployment with versions 1 to 3, a copy of its catalog at version 2, and compacted blocks."""
    with opened(tmp_path / "c.db", tmp_path / "wh") as store:
        insert(store, 1)
        insert(store, 2)
    shutil.copy(tmp_path / "c.db", tmp_path / "backup.db")
    with opened(tmp_path / "c.db", tmp_path / "wh") as store:
        insert(store, 3)
    return tmp_path


def data_files(folder: Path) -> set[Path]:
    return {p for p in folder.rglob("*") if p.is_file() and "blocks" in p.parts}


def claim(store: nova.Store) -> None:
    claim_warehouse(store.catalog, SparkEngine(store.settings.warehouse))


def restore_by_rename(backup: Path, file: Path) -> None:
    shutil.copy(backup, file.with_name("new.db"))
    file.with_name("new.db").rename(file)


def test_a_restored_catalog_gives_no_number_twice(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    restore_by_rename(home / "backup.db", home / "c.db")
    with caplog.at_level(logging.WARNING), opened(home / "c.db", home / "wh") as store:
        assert "was put in place of another one" in caplog.text and "nova doctor --repair" in caplog.text
        assert ids(store) == [1, 2]
        number = insert(store, 4)
        assert number > 1_000_000 and insert(store, 5) == number + 1
        assert ids(store) == [1, 2, 4, 5] and ids(store, since=2) == [4, 5] and ids(store, at=2) == [1, 2]
        store.compact("orders")
        assert ids(store, since=2) == [4, 5] and ids(store, since=number) == [5]
        for lost in ({"at": 3}, {"since": 3}, {"at": number - 1}, {"at": number + 1, "since": 3}):
            with pytest.raises(VersionNotFound, match="has lost version"):
                store.read("orders", **lost)
        with pytest.raises(VersionNotFound, match="has lost version"), store.pin("orders", since=3):
            pass
        with pytest.raises(VersionNotFound, match="has lost version"):
            store.restore("orders", at=3)
        with pytest.raises(VersionNotFound, match="has lost version"):
            store.provenance("orders", at=3)
        assert store.collect_garbage("orders"), "it is no copy, and collects"


def test_a_backup_that_is_restored_twice_gives_no_number_twice(home: Path) -> None:
    """Nor does one that is made after the first restore, nor a channel that the lost commits have created."""
    created_later = nova.Channel("created_later", schema="id bigint", merge=nova.Append())
    numbers: list[int] = []
    for _ in range(3):
        restore_by_rename(home / "backup.db", home / "c.db")
        with opened(home / "c.db", home / "wh") as store:
            store.backup(home / f"backup_{len(numbers)}")
            store.register(created_later)
            numbers += [insert(store, 4), store.insert("created_later", [{"id": 1}]).seq]
    restore_by_rename(home / "backup_0" / "catalog.db", home / "c.db")
    with opened(home / "c.db", home / "wh") as store:
        store.register(created_later)
        numbers += [insert(store, 4), store.insert("created_later", [{"id": 1}]).seq]
    assert len({*numbers}) == 8 and min(numbers) > 1_000_000


def test_a_binding_of_a_restored_catalog_reads_each_row_once(tmp_path: Path) -> None:
    copied = nova.Channel("copied", schema="id bigint", merge=nova.Append())

    @nova.task(consumes=nova.new(ORDERS), produces=nova.delta(copied))
    def copy(orders: list[Row]) -> list[Row]:
        return orders

    project = nova.Project([nova.bind(nova.Workflowette("copy", [copy]), when=nova.on_data(ORDERS))])

    @contextmanager
    def stub_store() -> Iterator[nova.Store]:
        catalog = open_catalog(f"sqlite:///{tmp_path / 'c.db'}")
        with nova.Store(Settings("", ""), project, catalog, StubEngine(tmp_path / "wh")) as store:
            store.register(project)
            yield store

    with stub_store() as store:
        store.insert("orders", [{"id": 1}])
        store.run("copy")
    shutil.copy(tmp_path / "c.db", tmp_path / "backup.db")
    with stub_store() as store:
        store.insert("orders", [{"id": 2}])
        store.run("copy")
    restore_by_rename(tmp_path / "backup.db", tmp_path / "c.db")
    with stub_store() as store:
        assert [r.binding for r in store.run_due()] == [], "everything in the backup was read"
        store.insert("orders", [{"id": 3}])
        assert [c.lag for c in store.cursors()] == [1], "the numbers that were left out are no unread commits"
        store.run("copy")
        store.insert("orders", [{"id": 4}])
        store.run("copy")
        assert sorted(r["id"] for r in read(store, "copied")) == [1, 3, 4]


def test_a_copy_deletes_nothing_until_a_person_decides(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "elsewhere").mkdir()
    shutil.copy(home / "c.db", home / "elsewhere" / "c.db")
    with opened(home / "c.db", home / "wh") as original:
        before = data_files(home / "wh")
        with caplog.at_level(logging.WARNING), opened(home / "elsewhere" / "c.db", home / "wh") as copy:
            assert f"is a copy of {home / 'c.db'}" in caplog.text and "nova doctor --claim" in caplog.text
            for write in (lambda: insert(copy, 9), lambda: copy.compact("orders")):
                with pytest.raises(CopyUndecided, match="nothing is committed"):
                    write()
            with pytest.raises(CopyUndecided):
                copy.collect_garbage("orders")
            assert copy.delete_collected() == 0
        assert data_files(home / "wh") >= before and ids(original) == [1, 2, 3]
        assert insert(original, 4) == 4


def test_the_copy_that_claims_the_warehouse_is_the_only_one_that_writes(home: Path) -> None:
    (home / "elsewhere").mkdir()
    shutil.copy(home / "c.db", home / "elsewhere" / "c.db")
    with opened(home / "c.db", home / "wh") as original, opened(home / "elsewhere" / "c.db", home / "wh") as copy:
        insert(original, 4)
        claim(copy)
        with pytest.raises(WarehouseMismatch, match="nova doctor --claim takes it back"):
            insert(original, 5)
        with pytest.raises(WarehouseMismatch):
            original.collect_garbage("orders")
        assert ids(original) == [1, 2, 3, 4], "nothing was lost, and reads go on"
        assert insert(copy, 6) > 1_000_000 and ids(copy) == [1, 2, 3, 6]
        copy.compact("orders")
        assert copy.collect_garbage("orders").blocks
        claim(original)
        with pytest.raises(WarehouseMismatch):
            insert(copy, 7)


def test_a_claim_that_was_cut_off_is_repeated(home: Path) -> None:
    with opened(home / "c.db", home / "wh") as store:
        store.engine.warehouse.write_catalog_marker(store.catalog.identity.get(), "of a claim that was killed")
        with pytest.raises(WarehouseMismatch):
            insert(store, 4)
        claim(store)
        assert ids(store) == [1, 2, 3] and insert(store, 4) == 4


def leave_empty(warehouse: Path) -> Callable[[], object]:
    """As an unmounted file system leaves its mount point."""
    put_back = move_away(warehouse)
    warehouse.mkdir()
    return put_back


def move_away(warehouse: Path) -> Callable[[], object]:
    moved = warehouse.rename(warehouse.with_name("moved"))

    def put_back() -> None:
        shutil.rmtree(warehouse, ignore_errors=True)  # with blocks that were staged meanwhile
        moved.rename(warehouse)

    return put_back


def exchange(warehouse: Path) -> Callable[[], object]:
    put_back = leave_empty(warehouse)
    with opened(warehouse.with_name("other.db"), warehouse) as other:
        insert(other, 9)
    return put_back


@pytest.mark.slow
@pytest.mark.parametrize("go_away", [move_away, leave_empty, exchange])
def test_nothing_is_committed_without_the_warehouse(
    home: Path, go_away: Callable[[Path], Callable[[], object]]
) -> None:
    with opened(home / "c.db", home / "wh") as store:
        insert(store, 4)
        put_back = go_away(home / "wh")
        with pytest.raises(WarehouseMismatch):
            insert(store, 5)
        put_back()
        assert ids(store) == [1, 2, 3, 4]
        assert insert(store, 6) == 5 and ids(store) == [1, 2, 3, 4, 6]


@pytest.mark.postgres
def test_a_claim_on_postgresql_gives_no_number_twice(tmp_path: Path, postgres_catalog_url: str) -> None:
    """A dump that was restored in another database looks like the original, so a person says what it is."""
    with nova.open(PROJECT, settings=Settings(postgres_catalog_url, str(tmp_path / "wh"))) as store:
        store.register(ORDERS)
        insert(store, 1)
        claim(store)
        assert insert(store, 2) > 1_000_000 and ids(store) == [1, 2]


def test_places() -> None:
    place = Place(1, 2, 3, 4, "/srv/c.db")
    recorded = RecordedPlace(place)
    assert place_change(recorded, place) == "none"
    assert place_change(RecordedPlace(None), place) == "new"
    assert place_change(recorded, Place(1, 2, 3, 5, "/other/c.db")) == "renamed", "another folder, as by a bind mount"
    assert place_change(recorded, Place(1, 2, 3, 4, "/srv/d.db")) == "renamed"
    assert place_change(recorded, Place(7, 2, 8, 4, "/srv/c.db")) == "renamed", "another device, as after a restart"
    assert place_change(recorded, Place(7, 2, 8, 4, "/volume/c.db")) == "copied", "the same inode on another device"
    assert place_change(recorded, Place(1, 9, 3, 4, "/srv/c.db")) == "restored"
    assert place_change(recorded, Place(1, 9, 3, 5, "/other/c.db")) == "copied"
    assert place_change(RecordedPlace(place, "2026-01-01"), place) == "restored", "even with the same inode"
    assert place_change(RecordedPlace(place, "2026-01-01"), Place(1, 9, 3, 5, "/other/c.db")) == "copied"
    assert RecordedPlace.parse(place.as_text()) == recorded and RecordedPlace.parse(None).place is None


def test_the_place_of_an_unchanged_catalog_is_recorded_once(tmp_path: Path) -> None:
    for _ in range(3):
        open_catalog(f"sqlite:///{tmp_path / 'c.db'}").close()
    reopened = open_catalog(f"sqlite:///{tmp_path / 'c.db'}")
    assert reopened.identity.copied_from() is None
    reopened.definitions.register([ORDERS])
    assert reopened.histories.lost_numbers("orders") == []
    reopened.close()
