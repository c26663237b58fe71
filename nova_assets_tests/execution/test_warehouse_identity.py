"""A catalog knows its warehouse: with another one it is neither opened nor written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.store.store import Store

ROW = [{"k": 1}]
channel = nova.Channel("c", schema="k bigint")


def opened(folder: Path, warehouse: str = "wh") -> Store:
    return nova.open(nova.Project(channels=[channel]), f"sqlite:///{folder}/c.db", folder / warehouse)


def rows(store: Store) -> int:
    return int(store.read("c").to_arrow().num_rows)


def test_another_warehouse_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    opened(tmp_path).insert("c", ROW)
    (tmp_path / "other").mkdir()
    for other in ("other", "nowhere"):
        with pytest.raises(nova.WarehouseMismatch) as caught:
            opened(tmp_path, other)
        assert str(tmp_path / "wh") in str(caught.value) and "NOVA_WAREHOUSE" in str(caught.value)
        assert "mounted" in str(caught.value)
    assert not (tmp_path / "nowhere").exists() and not list((tmp_path / "other").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="open files are found in /proc")
def test_a_deployment_that_is_not_opened_leaves_its_catalog_closed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.insert("c", ROW)
    with pytest.raises(nova.WarehouseMismatch) as refused:
        opened(tmp_path, "nowhere")
    open_files = [os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in os.listdir("/proc/self/fd")]
    assert not [file for file in open_files if file.startswith(str(tmp_path))]
    assert refused.tb, "its frames have held what the call had opened"


def test_a_process_that_opened_before_the_first_write_commits_nothing_elsewhere(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path, "other")
    first.insert("c", ROW)
    with pytest.raises(nova.WarehouseMismatch):
        second.insert("c", ROW)
    assert first.channels()[0].head == 1 and not (tmp_path / "other" / "blocks").exists()


def test_first_writes_at_once_agree(tmp_path: Path) -> None:
    stores = [opened(tmp_path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda s: s.insert("c", ROW), stores))
    assert rows(opened(tmp_path)) == 4


def test_a_warehouse_that_was_moved_whole_goes_on(tmp_path: Path) -> None:
    opened(tmp_path).insert("c", ROW)
    shutil.move(tmp_path / "wh", tmp_path / "moved")
    with pytest.raises(nova.WarehouseMismatch):
        opened(tmp_path)
    store = opened(tmp_path, "moved")
    store.insert("c", ROW)
    assert rows(store) == 2


@pytest.mark.parametrize("mark", ["empty", "none"])
def test_a_deployment_of_an_older_version_adopts_its_warehouse_and_no_other(tmp_path: Path, mark: str) -> None:
    with opened(tmp_path) as store:
        store.insert("c", ROW)
        of_catalog = tmp_path / "wh" / "catalogs" / store.catalog.identity.get()
    of_catalog.write_text("") if mark == "empty" else of_catalog.unlink()
    with sqlite3.connect(tmp_path / "c.db") as database:
        database.execute("UPDATE nova_identity SET warehouse = NULL, warehouse_address = NULL")
    with pytest.raises(nova.WarehouseMismatch, match="nor the last committed file"):
        opened(tmp_path, "other")
    with opened(tmp_path) as store:
        store.insert("c", ROW)
        assert rows(store) == 2 and store.catalog.identity.warehouse()[0] == of_catalog.read_text() != ""
