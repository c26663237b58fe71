"""A warehouse is gone, a catalog is copied, or a backup meets an old log: each acknowledged row is there once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.errors import CatalogUnavailable, CopyUndecided
from nova_assets_tests.catalog_acts import (
    Deployment,
    StoreProcess,
    check_integrity,
    copy_file,
    digest,
    insert_many,
    insert_row,
    log_frames,
    open_store,
    read_head,
    read_rows,
    wait_seconds,
)
from nova_assets_tests.catalog_service import run_service
from nova_assets_tests.effort import examples, long_except
from nova_assets_tests.mounts import bind_mount, needs_mount, unmount

pytestmark = [pytest.mark.slow, pytest.mark.crash]


# The warehouse is gone.


@needs_mount
def test_an_unmounted_warehouse_refuses_inserts_until_it_is_mounted_again(
    deployment: Deployment, outside: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    deployment.warehouse.rename(disk) if deployment.warehouse.exists() else disk.mkdir()
    deployment.warehouse.mkdir()
    with run_service(deployment, outside) as service:
        with bind_mount(disk, deployment.warehouse):
            service.insert(2)
            unmount(deployment.warehouse)
            refused = [service.try_insert() for _ in range(2)]
        assert all(r.status_code >= 500 for r in refused), [r.text for r in refused]
        assert {r.json()["code"] for r in refused} <= {"NOVA-WAREHOUSE-UNAVAILABLE", "NOVA-WAREHOUSE-MISMATCH"}
        with bind_mount(disk, deployment.warehouse):
            deployment.assert_acknowledged_once()
            service.insert()
            deployment.assert_acknowledged_once()
            assert service.stop() == 0


def test_a_moved_warehouse_refuses_inserts_until_it_is_back(deployment: Deployment) -> None:
    moved = deployment.warehouse.with_name("moved")
    with open_store(deployment) as store:
        store.insert(2)
        deployment.warehouse.rename(moved)
        for _ in range(2):
            with pytest.raises(nova.WarehouseUnavailable):
                store.insert()
        assert store.call(read_head) == 2, "nothing was committed"
        shutil.rmtree(deployment.warehouse, ignore_errors=True)
        moved.rename(deployment.warehouse)
        assert store.call(read_rows) == deployment.acknowledged
        store.insert()
    deployment.assert_acknowledged_once()


# Copies.


def replace_all_rows(store: nova.Store, row: str) -> None:
    """Insert a base, which makes all earlier blocks garbage."""
    store.insert("events", [{"id": row}], kind="base")


GC_GRACE = 0.05


def collect(store: nova.Store) -> None:
    """Collect twice: the first call marks the blocks, and the second deletes their files."""
    store.collect_garbage("events")
    wait_seconds(2 * GC_GRACE)
    store.collect_garbage("events")


def data_files(warehouse: Path) -> set[str]:
    return {p.name for p in warehouse.glob("blocks/**/*") if p.is_file()}


def test_a_copied_catalog_deletes_nothing_until_a_person_has_decided(deployment: Deployment, tmp_path: Path) -> None:
    with open_store(deployment) as store:
        store.insert(3)
    (tmp_path / "copy").mkdir()
    copy_file(deployment.catalog, tmp_path / "copy" / "catalog.db")
    copied = deployment.at(tmp_path / "copy" / "catalog.db")
    files = data_files(deployment.warehouse)
    with open_store(copied, gc_grace=GC_GRACE) as other:
        for write in (partial(replace_all_rows, row="of the copy"), collect):
            with pytest.raises(CopyUndecided, match="--claim"):
                other.call(write)
    assert files <= data_files(deployment.warehouse), "the original needs them"
    deployment.assert_acknowledged_once()

    claim = copied.run_nova("doctor", "--claim")
    assert claim.returncode == 0, claim.stdout + claim.stderr
    with pytest.raises(nova.WarehouseMismatch):
        StoreProcess(deployment).insert()
    with open_store(copied, gc_grace=GC_GRACE) as other:
        other.call(replace_all_rows, "of the copy")
        other.call(collect)
        assert other.call(read_rows) == ["of the copy"]
    assert not files & data_files(deployment.warehouse)


def test_a_store_that_is_open_while_a_copy_claims_the_warehouse(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with open_store(deployment) as store:
        store.insert(2)
        subprocess.run(
            ["sqlite3", str(deployment.catalog), f"VACUUM INTO '{tmp_path / 'copy' / 'catalog.db'}'"], check=True
        )
        copied = deployment.at(tmp_path / "copy" / "catalog.db")
        claim = copied.run_nova("doctor", "--claim")
        assert claim.returncode == 0, claim.stdout + claim.stderr
        with pytest.raises(nova.WarehouseMismatch):
            store.insert()
    copied.assert_acknowledged_once()


def test_a_copied_project_is_a_deployment_of_its_own(deployment: Deployment, tmp_path: Path) -> None:
    """``cp -a`` of the whole project under a writer, opened elsewhere with its copied warehouse."""
    for attempt in range(examples(1, 24)):
        folder = tmp_path / f"copy-{attempt}"
        with open_store(deployment) as store:
            store.insert(3)
            before = list(deployment.acknowledged)
            store.send(insert_many, attempt, 10)
            subprocess.run(["cp", "-a", str(deployment.folder), str(folder)], check=True)
            deployment.acknowledged += store.receive()
        copied = deployment.at(folder / "state" / "catalog.db", folder / "wh")
        rows = copied.read_rows()
        assert rows[: len(before)] == before and set(rows) <= set(deployment.acknowledged)
        assert check_integrity(copied.catalog) == "ok"
        with open_store(copied) as other:
            other.call(insert_row, "of the copy")
        assert copied.read_rows() == [*rows, "of the copy"]
    deployment.assert_acknowledged_once()


# Backups, and logs that are left behind.


@pytest.mark.parametrize("restore", long_except(["mv", "cp"], "cp"))
def test_a_restored_backup_beside_an_old_log_is_refused_before_the_log_is_replayed(
    deployment: Deployment, tmp_path: Path, restore: str
) -> None:
    backup = tmp_path / "backup.db"
    with open_store(deployment) as store:
        store.insert(5)
    old_rows = list(deployment.acknowledged)
    copy_file(deployment.catalog, backup)
    with open_store(deployment) as store:
        store.insert(2)
    process = StoreProcess(deployment)
    process.insert(3)
    process.kill()
    assert log_frames(deployment.log) > 0
    saved, log = digest(backup), digest(deployment.log)
    subprocess.run([restore, str(backup), str(deployment.catalog)], check=True)

    for _ in range(2):
        with pytest.raises(CatalogUnavailable, match=r"catalog\.db-wal"):
            StoreProcess(deployment)
    listing = deployment.run_nova("channels")
    assert listing.returncode == 1 and "catalog.db-wal" in listing.stderr, listing.stderr
    assert (digest(deployment.catalog), digest(deployment.log)) == (saved, log), "nothing was replayed"

    deployment.remove_log()
    deployment.acknowledged[:] = old_rows
    deployment.assert_acknowledged_once()
    with open_store(deployment) as store:
        store.insert(2)
    deployment.assert_acknowledged_once()


def back_up_with_cp(deployment: Deployment, folder: Path) -> Path:
    folder.mkdir()
    copy_file(deployment.catalog, folder / "catalog.db")
    return folder / "catalog.db"


def back_up_with_nova(deployment: Deployment, folder: Path) -> Path:
    made = deployment.run_nova("backup", str(folder))
    assert made.returncode == 0, made.stderr
    return folder / "catalog.db"


@pytest.mark.parametrize(("back_up", "restore"), [(back_up_with_nova, "cp"), (back_up_with_cp, "mv")])
def test_numbers_that_others_have_seen_are_not_given_to_other_rows_after_a_restore(
    deployment: Deployment, tmp_path: Path, back_up: Callable[[Deployment, Path], Path], restore: str
) -> None:
    """A backup by ``cp`` that ``cp`` writes into the same file again cannot be told from the file itself."""
    with open_store(deployment) as store:
        store.insert(2)
    old_rows = list(deployment.acknowledged)
    backup = back_up(deployment, tmp_path / "backup")
    with open_store(deployment) as store:
        store.insert(3)
        seen = store.call(read_head)
    deployment.remove_log()
    subprocess.run([restore, str(backup), str(deployment.catalog)], check=True)
    deployment.acknowledged[:] = old_rows
    with open_store(deployment) as store:
        store.insert()
        assert store.call(read_head) > seen
    deployment.assert_acknowledged_once()


def test_a_restored_backup_that_the_log_continues_gets_the_rows_of_the_log(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Nothing was written into the file since the backup was made, so backup and log belong together."""
    with open_store(deployment) as store:
        store.insert(2)
    copy_file(deployment.catalog, tmp_path / "backup.db")
    process = StoreProcess(deployment)
    process.insert(2)
    process.kill()
    assert log_frames(deployment.log) > 0
    (tmp_path / "backup.db").rename(deployment.catalog)
    deployment.assert_acknowledged_once()


def test_a_log_that_a_killed_process_has_left_is_replayed(deployment: Deployment) -> None:
    for attempt in range(examples(2, 40)):
        process = StoreProcess(deployment)
        process.insert(attempt % 3 + 1)
        process.kill()
        assert log_frames(deployment.log) > 0
        with open_store(deployment) as store:
            store.insert()
    deployment.assert_acknowledged_once()


def hold_a_snapshot(store: nova.Store) -> None:
    """Keep a read transaction open, so that no checkpoint can begin the log anew."""
    connection = store.catalog.database.engine.raw_connection()
    connection.execute("BEGIN").close()
    connection.execute("SELECT count(*) FROM nova_channels").fetchall()
    store.held = connection


@pytest.mark.long
def test_a_long_log_of_a_killed_process_is_replayed(deployment: Deployment) -> None:
    """The log of thousands of pages is partly in the file already: checkpoints have run."""
    with open_store(deployment) as reader:
        reader.insert(5)
        reader.call(hold_a_snapshot)
        writer = StoreProcess(deployment)
        while log_frames(deployment.log) < examples(1_500, 5_000):
            writer.insert(10)
        writer.kill()
        reader.kill()
    frames = log_frames(deployment.log)
    with open_store(deployment) as store:
        store.insert()
    print(f"{frames} frames, {len(deployment.acknowledged)} rows")
    deployment.assert_acknowledged_once()


@pytest.mark.long
@pytest.mark.exhaustive
def test_a_log_that_was_begun_anew_by_checkpoints_is_replayed(deployment: Deployment) -> None:
    process = StoreProcess(deployment)
    for _ in range(examples(5, 20)):
        process.insert(40)
        process.kill()
        process = StoreProcess(deployment)
    process.kill()
    deployment.assert_acknowledged_once()
