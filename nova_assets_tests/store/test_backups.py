"""Backups of a deployment: they are complete while others write, and their files stay until the hold ends."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets_tests.dagster_dev import waited_for
from nova_assets_tests.effort import examples
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.scenarios import contention_worker

HOUR, DAY = 3600.0, 86400.0
channel = nova.Channel("source", merge=nova.Upsert(key="k"), schema="k bigint, v bigint")
project = nova.Project(channels=[channel])


def insert(store: Store, *keys: int) -> None:
    store.insert("source", [{"k": k, "v": k} for k in keys])


def replace_and_collect(store: Store, clock: TestClock, seconds: float) -> None:
    """New rows, a compaction and a collection; then the collected files would be deleted."""
    insert(store, 100)
    store.compact("source")
    store.collect_garbage("source")
    clock.advance(seconds)
    store.delete_collected()


def listed_files(folder: Path) -> list[str]:
    return (folder / "files.txt").read_text().splitlines()


def missing_files(folder: Path, warehouse: Path) -> list[str]:
    return [path for path in listed_files(folder) if not (warehouse / path).is_file()]


def keys_of(store: Store) -> set[int]:
    rows: Any = store.read("source").to_spark()
    return {row["k"] for row in rows}


@pytest.mark.slow
def test_what_a_backup_lists_stays_until_it_is_released(opened: Opener, clock: TestClock, tmp_path: Path) -> None:
    store, folder = opened(project), tmp_path / "backups" / "monday"
    insert(store, 1)
    insert(store, 2)
    planned = store.backup(folder, dry_run=True)
    assert not folder.parent.exists() and store.backups() == [] and planned.backup.id == ""
    summary = store.backup(folder)
    files = [tmp_path / "wh" / path for path in listed_files(folder)]
    assert (summary.files, summary.bytes) == (planned.files, planned.bytes) == (len(files), summary.bytes)
    blocks = [f for f in files if f.parent.parent.name == "blocks"]
    assert len(blocks) == 2 and sum(f.stat().st_size for f in blocks) == summary.bytes
    assert [b.folder for b in store.backups()] == [str(folder)]

    replace_and_collect(store, clock, 2 * HOUR)
    replace_and_collect(store, clock, 2 * DAY)
    assert missing_files(folder, tmp_path / "wh") == []
    assert store.release_backup(folder).id == summary.backup.id and store.backups() == []
    store.delete_collected()
    assert not any(f.exists() for f in blocks)
    assert keys_of(store) == {1, 2, 100}


def test_a_hold_ends_by_itself(opened: Opener, clock: TestClock, tmp_path: Path) -> None:
    store = opened(project)
    insert(store, 1)
    insert(store, 2)
    summary = store.backup(tmp_path / "backup", hold="3d")
    replace_and_collect(store, clock, 3 * DAY - 1)
    assert missing_files(tmp_path / "backup", tmp_path / "wh") == []
    clock.advance(1)
    store.delete_collected()
    assert len(missing_files(tmp_path / "backup", tmp_path / "wh")) == 2 and store.backups() == []
    released = store.release_backup(tmp_path / "backup")
    assert released.id == summary.backup.id and not released.is_held(clock())


def test_what_was_collected_before_is_not_listed_and_not_held(opened: Opener, clock: TestClock, tmp_path: Path) -> None:
    store = opened(project)
    insert(store, 1)
    before = set((tmp_path / "wh" / "blocks").iterdir())
    replace_and_collect(store, clock, HOUR / 2)
    store.backup(tmp_path / "backup")
    assert not {Path(path).parent.name for path in listed_files(tmp_path / "backup")} & {f.name for f in before}
    clock.advance(HOUR)
    store.delete_collected()
    assert not any(f.exists() for f in before) and missing_files(tmp_path / "backup", tmp_path / "wh") == []


def test_a_backup_is_found_by_its_folder_or_its_id(opened: Opener, tmp_path: Path) -> None:
    store = opened(project)
    insert(store, 1)
    backups = [store.backup(tmp_path / name).backup for name in ("moved", "removed", "named")]
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "removed")
    found = [
        store.release_backup(text, dry_run=True)
        for text in (tmp_path / "elsewhere", tmp_path / "removed", backups[2].id[:12])
    ]
    assert found == backups and len(store.backups()) == 3
    with pytest.raises(nova.ArgumentRefused, match=r"(?s)'nothing'.*nova backup lists") as refused:
        store.release_backup("nothing")
    assert all(b.folder in str(refused.value) for b in backups)
    store.backup(tmp_path / "removed")
    shutil.rmtree(tmp_path / "removed")
    with pytest.raises(nova.ArgumentRefused, match=r"several backups match '.*removed'"):
        store.release_backup(tmp_path / "removed")
    assert len(store.backups()) == 4


@pytest.mark.parametrize("hold", ["", "soon", "7", "0d", "9999999w"])
def test_a_hold_is_a_period(opened: Opener, tmp_path: Path, hold: str) -> None:
    store = opened(project)
    with pytest.raises(nova.ArgumentRefused, match="not a period"):
        store.backup(tmp_path / "backup", hold=hold)
    assert store.backups() == [] and not (tmp_path / "backup").exists()


def test_a_folder_that_holds_something_is_left_alone(opened: Opener, tmp_path: Path) -> None:
    store = opened(project)
    insert(store, 1)
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "catalog.db").write_text("another one")
    (tmp_path / "file").touch()
    for folder, found in (("backup", "contains catalog.db"), ("file", "a file"), ("file/below", "Not a directory")):
        with pytest.raises(nova.ArgumentRefused, match=found):
            store.backup(tmp_path / folder)
    with pytest.raises(nova.ArgumentRefused, match="no path of this host"):
        store.backup("s3://bucket/backup")
    assert (tmp_path / "backup" / "catalog.db").read_text() == "another one" and store.backups() == []
    (tmp_path / "backup" / "catalog.db").unlink()
    assert store.backup(tmp_path / "backup").files == 2


def test_a_backup_that_fails_leaves_nothing_and_holds_nothing(opened: Opener, tmp_path: Path) -> None:
    store = opened(project)
    insert(store, 1)
    folder = tmp_path / "backup"
    folder.mkdir()
    for name in ("files.txt", "backup.json"):
        # A link into a missing folder cannot be written. It is made once the folder was found to be empty.
        hold_and_link(store, folder, name)
        with pytest.raises(nova.ArgumentRefused, match=r"(?s)cannot be written.*nothing is held"):
            store.backup(folder)
        assert list(folder.iterdir()) == [] and store.backups() == []
    assert store.backup(folder).files == 2


def hold_and_link(store: Store, folder: Path, name: str) -> None:
    """Put a link that cannot be written into the folder of the next backup, as soon as its hold is recorded."""
    record_backup = store.catalog.backups.record

    def record_and_link(*arguments: object) -> object:
        del store.catalog.backups.record
        (folder / name).symlink_to(folder / "missing" / "file")
        return record_backup(*arguments)  # type: ignore[arg-type]

    store.catalog.backups.record = record_and_link  # type: ignore[method-assign,assignment]


def test_postgres_gets_a_list_of_files_and_the_command_for_the_copy(opened: Opener, tmp_path: Path) -> None:
    store = opened(project)
    insert(store, 1)
    summary = store.backup(tmp_path / "backup")
    is_postgres = store.catalog.url.startswith("postgresql")
    names = {"files.txt", "backup.json", *(() if is_postgres else ("catalog.db",))}
    assert {f.name for f in (tmp_path / "backup").iterdir()} == names
    assert (summary.catalog_file is None) == (summary.dump_command is not None) == is_postgres
    assert not is_postgres or f"--file {tmp_path}/backup/catalog.dump" in str(summary.dump_command)
    assert json.loads((tmp_path / "backup" / "backup.json").read_text()) == {
        "id": summary.backup.id,
        "made_at": "2024-01-01T00:00:00+00:00",
        "held_until": "2024-01-08T00:00:00+00:00",
        "catalog": store.catalog.url,
        "catalog_id": store.catalog.identity.get(),
        "warehouse": str(tmp_path / "wh"),
        "files": 2,
        "bytes": summary.bytes,
    }


@pytest.mark.slow
def test_a_backup_under_four_writers_has_each_row_that_was_acknowledged_before(tmp_path: Path) -> None:
    catalog, warehouse = tmp_path / "live" / "catalog.db", tmp_path / "live" / "wh"
    with contention_worker.open_store(f"sqlite:///{catalog}", str(warehouse)) as store:
        store.register(store.project)
        with four_writers(f"sqlite:///{catalog}", warehouse) as acknowledged:
            for n in range(examples(5, 50)):
                target = len(acknowledged) + random.randint(1, 30)
                waited_for(partial(has_length, acknowledged, target), "another insert", pace=0.01)
                before = set(acknowledged)
                folder = tmp_path / f"backup_{n}"
                store.backup(folder)
                restored = restore(folder, warehouse, tmp_path / f"restored_{n}")
                assert before <= restored, f"{len(before - restored)} acknowledged rows are missing"
                shutil.rmtree(tmp_path / f"restored_{n}")
        assert len(acknowledged) > 5


def has_length(keys: list[int], length: int) -> bool:
    return len(keys) >= length


def restore(folder: Path, warehouse: Path, target: Path) -> set[int]:
    """Restore a backup and its files into another folder. Returns the keys that a reader finds there."""
    for path in listed_files(folder):
        (target / "wh" / path).parent.mkdir(parents=True, exist_ok=True)
        os.link(warehouse / path, target / "wh" / path)  # a copy of a file that never changes
    assert {f.name for f in folder.iterdir()} == {"catalog.db", "files.txt", "backup.json"}
    shutil.copy(folder / "catalog.db", target / "catalog.db")
    with closing(sqlite3.connect(target / "catalog.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with contention_worker.open_store(f"sqlite:///{target}/catalog.db", str(target / "wh")) as store:
        return keys_of(store)


@contextmanager
def four_writers(catalog: str, warehouse: Path) -> Iterator[list[int]]:
    """Four processes that insert, and the keys that they were told are stored."""
    acknowledged: list[int] = []
    command = [sys.executable, "-m", contention_worker.__name__, catalog, str(warehouse), "3600", "insert"]
    writers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(4)]
    readers = [threading.Thread(target=read_keys, args=(w, acknowledged)) for w in writers]
    try:
        for reader in readers:
            reader.start()
        yield acknowledged
        assert all(w.poll() is None for w in writers), "a writer has ended"
    finally:
        for writer in writers:
            writer.kill()
        for reader, writer in zip(readers, writers, strict=True):
            reader.join()
            writer.wait()


def read_keys(writer: subprocess.Popen[str], acknowledged: list[int]) -> None:
    assert writer.stdout is not None
    acknowledged.extend(int(line) for line in iter(writer.stdout.readline, "") if line.endswith("\n"))


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_restored_catalog_holds_the_files_of_its_own_backup(opened: Opener, clock: TestClock, tmp_path: Path) -> None:
    store, folder = opened(project), tmp_path / "backup"
    insert(store, 1)
    insert(store, 2)
    store.backup(folder)
    replace_and_collect(store, clock, 2 * HOUR)
    insert(store, 3)
    restored = restored_store(folder, tmp_path, clock)
    assert keys_of(restored) == {1, 2}
    assert [b.folder for b in restored.backups()] == [str(folder)]
    restored.close()


def restored_store(folder: Path, tmp_path: Path, clock: TestClock) -> Store:
    """A store on a copy of the backup in another folder, over the same warehouse."""
    from nova_assets.catalog.open_catalog import open_catalog
    from nova_assets.settings import load_settings
    from nova_assets_tests.stub_engine import StubEngine

    (tmp_path / "restored").mkdir()
    shutil.copy(folder / "catalog.db", tmp_path / "restored" / "catalog.db")
    url = f"sqlite:///{tmp_path}/restored/catalog.db"
    settings = load_settings(start_folder=tmp_path, catalog=url, warehouse=str(tmp_path / "wh"))
    return Store(settings, project, open_catalog(url, clock=clock), StubEngine(tmp_path / "wh"))
