"""The warehouse's folder: what lies there, whose it is, and that nothing outside of it is touched. No Spark."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.engine.spark_engine import SparkEngine
from nova_assets.engine.storage.warehouse import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "wh")


def test_what_is_not_there_is_listed_as_nothing_and_not_made(warehouse: Warehouse) -> None:
    assert (
        warehouse.list_block_entries() == []
        and warehouse.catalogs_with_marker() == frozenset()
        and warehouse.file_size("blocks/a/b") is None
    )
    assert not warehouse.root.exists()


def test_a_listing_has_size_and_time_and_goes_no_deeper_than_a_blocks_folder(warehouse: Warehouse) -> None:
    folder = Path(warehouse.prepare_empty_block_folder("blocks/a"))
    (folder / "part-0").write_text("four")
    (folder / "deep").mkdir()
    (folder / "deep" / "er").write_text("")
    (warehouse.root / "blocks" / "round").symlink_to(warehouse.root / "blocks")
    found = {e.path: e for e in warehouse.list_block_entries()}
    assert {"blocks/a", "blocks/a/part-0", "blocks/a/deep", "blocks/round"} <= set(found)
    assert "blocks/a/deep/er" not in found and max(p.count("/") for p in found) == 2
    assert found["blocks/a/part-0"].bytes == 4 and not found["blocks/a/part-0"].is_folder
    assert found["blocks/a"].is_folder and abs(datetime.now(UTC) - found["blocks/a"].modified_at) < timedelta(minutes=5)


def test_a_status_call_answers_for_files_of_the_warehouse_alone(warehouse: Warehouse) -> None:
    folder = Path(warehouse.prepare_empty_block_folder("blocks/a"))
    (folder / "part-0").write_text("four")
    (warehouse.root.parent / "secret").write_text("not ours")
    assert warehouse.file_size("blocks/a/part-0") == 4
    assert warehouse.file_size("blocks/a/part-1") is None and warehouse.file_size("blocks/a") is None
    assert warehouse.file_size("../secret") is None and warehouse.file_size("blocks/../../secret") is None


def test_a_catalog_leaves_one_mark_with_the_warehouses_identity(warehouse: Warehouse) -> None:
    assert warehouse.read_catalog_marker("one") is None
    warehouse.write_catalog_marker("one", "w1")
    warehouse.write_catalog_marker("two", "w2")
    (warehouse.root / "catalogs" / "three").touch()  # as older versions left it
    (warehouse.root / "catalogs" / ".half").touch()
    assert warehouse.catalogs_with_marker() == {"one", "two", "three"}
    assert [warehouse.read_catalog_marker(c) for c in ("one", "two", "three", "four")] == ["w1", "w2", "", None]
    with pytest.raises(nova.WarehouseUnavailable):
        warehouse.write_catalog_marker("../blocks/x", "w1")


def test_an_orphan_that_leads_elsewhere_is_not_followed(warehouse: Warehouse, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "data").write_text("somebody's")
    warehouse.prepare_empty_block_folder("blocks/a")
    (warehouse.root / "blocks" / "link").symlink_to(elsewhere)
    with pytest.raises(nova.WarehouseUnavailable, match="is a symbolic link"):
        warehouse.delete_block_folder("blocks/link")
    with pytest.raises(nova.WarehouseUnavailable, match="is a symbolic link"):
        warehouse.delete_files(["blocks/link/data"])
    assert (elsewhere / "data").exists()


def test_several_processes_delete_the_same_files(warehouse: Warehouse) -> None:
    names = [f"blocks/b{number}/part-0" for number in range(400)]
    for name in names:
        (Path(warehouse.prepare_empty_block_folder(name.rpartition("/")[0])) / "part-0").touch()
    kept = Path(warehouse.prepare_empty_block_folder("blocks/kept"))
    for name in ("part-0", "part-1"):
        (kept / name).touch()
    with ThreadPoolExecutor(4) as threads:
        for deleted in [threads.submit(warehouse.delete_files, [*names, "blocks/kept/part-0"]) for _ in range(4)]:
            deleted.result()
    assert [entry.path for entry in warehouse.list_block_entries()] == ["blocks/kept", "blocks/kept/part-1"]


def test_a_folder_is_deleted_although_another_process_deletes_in_it(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(warehouse.prepare_empty_block_folder("blocks/a"))
    (folder / "_temporary").mkdir()
    scan = os.scandir

    def scan_late(path: Any) -> Any:
        if (folder / "_temporary").exists():
            entries = list(scan(path))
            (folder / "_temporary").rmdir()  # by Spark, between the listing and the deletion
            return contextlib.nullcontext(entries)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_late)
    warehouse.delete_block_folder("blocks/a")
    assert not folder.exists()
    warehouse.delete_block_folder("blocks/a")


def test_a_deleted_staged_folder_tells_its_files(tmp_path: Path) -> None:
    """Not those that Spark hides, such as checksums and unfinished attempts."""
    engine = SparkEngine(tmp_path / "wh")
    folder = Path(engine.warehouse.prepare_empty_block_folder("blocks/a"))
    for name in ("part-1", "part-0", ".part-0.crc", "_SUCCESS"):
        (folder / name).touch()
    (folder / "_temporary").mkdir()
    assert engine.warehouse.delete_staged_folder("blocks/a") == ["blocks/a/part-0", "blocks/a/part-1"]
    assert not folder.exists() and engine.warehouse.delete_staged_folder("blocks/a") == []


def test_the_engine_writes_its_catalogs_mark_with_its_first_block(tmp_path: Path) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("c", schema="k bigint"))
        assert isinstance(store.engine, SparkEngine) and not (tmp_path / "wh").exists()
        store.insert("c", [{"k": 1}])
        assert store.engine.warehouse.catalogs_with_marker() == {store.catalog.identity.get()}


def test_a_base_of_files_of_other_blocks_leaves_no_empty_folder(tmp_path: Path) -> None:
    channel = nova.Channel("c", schema="k int, t string", compaction=nova.Compaction(target=1000))
    project = nova.Project([], channels=[channel])
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh") as store:
        for n in range(3):
            store.insert("c", [{"k": n, "t": os.urandom(4000).hex()}])
        commit = store.compact("c", force=True)
        assert commit is not None and len(commit.blocks[0].manifest.files) == 3
        folders = list((tmp_path / "wh" / "blocks").iterdir())
        assert len(folders) == 3 and all(any(f.iterdir()) for f in folders)
        assert store.read("c").to_arrow().num_rows == 3
