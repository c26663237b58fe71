"""Section 1 of SQLite's page "How To Corrupt An SQLite Database File": another program writes, copies or removes the
file or its log.

Each test is called after the number of its section. ``test_sqlite_corruption.py`` has the other sections.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.errors import CatalogUnavailable
from nova_assets.nova_error import NovaError
from nova_assets_tests.catalog_acts import (
    Deployment,
    StoreProcess,
    check_integrity,
    create_deployment,
    digest,
    insert_row,
    log_frames,
    open_store,
    replaces_files,
)
from nova_assets_tests.catalog_service import run_service
from nova_assets_tests.effort import examples

pytestmark = [pytest.mark.slow, pytest.mark.crash]


def close_catalog_descriptors(store: nova.Store, replacement: str | None) -> int:
    """Close the descriptors under SQLite's feet. Another file then gets their numbers.

    Returns:
        Number of the descriptors.
    """
    taken = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if "catalog.db" in os.readlink(f"/proc/self/fd/{descriptor}"):
                os.close(descriptor)
                taken.append(descriptor)
    if replacement is not None:
        for _ in taken:
            os.open(replacement, os.O_RDWR)
    return len(taken)


def test_1_1_inserts_through_closed_descriptors_are_refused(deployment: Deployment) -> None:
    """As a library does that closes all descriptors of a process."""
    process = StoreProcess(deployment)
    process.insert(2)
    assert process.call(close_catalog_descriptors, None) > 0
    with pytest.raises(NovaError):
        process.insert()
    process.kill()
    deployment.assert_acknowledged_once()


def test_1_1_another_file_behind_the_descriptors_is_not_taken_for_the_catalog(
    deployment: Deployment, tmp_path: Path
) -> None:
    victim = tmp_path / "letter.txt"
    victim.write_text("of somebody else\n" * 1_000)
    before = digest(victim)
    process = StoreProcess(deployment)
    process.insert(2)
    assert process.call(close_catalog_descriptors, str(victim)) > 0
    try:
        with pytest.raises(NovaError):
            process.insert()
    finally:
        process.kill()
    assert digest(victim) == before
    deployment.assert_acknowledged_once()


def insert_until_stopped(store: nova.Store, folder: str) -> list[str]:
    """Insert rows until the file ``stop`` is there. Returns the acknowledged rows."""
    rows: list[str] = []
    while not (Path(folder) / "stop").exists():
        rows.append(f"{os.getpid()}-{len(rows)}")
        insert_row(store, rows[-1])
        (Path(folder) / f"{os.getpid()}.count").write_text(str(len(rows)))
    return rows


def test_1_2_a_backup_while_others_write_has_every_row_that_was_acknowledged_before(
    deployment: Deployment, tmp_path: Path
) -> None:
    with open_store(deployment) as one, open_store(deployment) as two:
        one.insert(3)
        for process in (one, two):
            process.send(insert_until_stopped, str(tmp_path))
        for number in range(examples(2, 20)):
            made = deployment.run_nova("backup", str(tmp_path / f"backup-{number}"))
            assert made.returncode == 0, made.stderr
        (tmp_path / "stop").touch()
        written = [*one.receive(), *two.receive()]
    for number in range(examples(2, 20)):
        restored = deployment.at(tmp_path / f"restored-{number}" / "catalog.db")
        restored.catalog.parent.mkdir()
        shutil.copyfile(tmp_path / f"backup-{number}" / "catalog.db", restored.catalog)
        rows = restored.read_rows()
        assert set(deployment.acknowledged) <= set(rows) <= {*deployment.acknowledged, *written}
        assert len(rows) == len(set(rows)) and check_integrity(restored.catalog) == "ok"


@replaces_files
def test_1_2_a_service_whose_file_is_overwritten_with_a_backup_refuses_further_inserts(
    deployment: Deployment, outside: Path, tmp_path: Path
) -> None:
    """``cp`` keeps the inode: the file under its name is the one that is open, with another content."""
    with open_store(deployment) as store:
        store.insert(2)
    backup = tmp_path / "backup.db"
    shutil.copyfile(deployment.catalog, backup)
    with open_store(deployment) as store:
        store.insert(30)
    with run_service(deployment, outside) as service:
        service.insert()
        subprocess.run(["cp", str(backup), str(deployment.catalog)], check=True)
        service.assert_refuses()
        service.kill()
    deployment.remove_log()
    del deployment.acknowledged[2:]
    deployment.assert_acknowledged_once()


def test_1_3_a_hot_log_that_is_deleted_takes_the_commits_since_the_last_checkpoint_with_it(
    deployment: Deployment,
) -> None:
    """Nothing tells that the log was there. What is left is the state of an earlier moment, without holes."""
    process = StoreProcess(deployment)
    process.insert(4)
    process.kill()
    assert log_frames(deployment.log) > 0
    deployment.remove_log()
    rows = deployment.read_rows()
    assert rows == deployment.acknowledged[: len(rows)] and check_integrity(deployment.catalog) == "ok"
    deployment.acknowledged[:] = rows
    with open_store(deployment) as store:
        store.insert(2)
    deployment.assert_acknowledged_once()


def test_1_4_the_log_of_another_catalog_is_refused_before_it_is_replayed(
    deployment: Deployment, tmp_path: Path
) -> None:
    other = create_deployment(tmp_path / "other")
    with open_store(deployment) as store:
        store.insert(3)
    process = StoreProcess(other)
    process.insert(3)
    process.kill()
    shutil.copyfile(other.log, deployment.log)
    before = digest(deployment.catalog)
    with pytest.raises(CatalogUnavailable, match=r"catalog\.db-wal"):
        StoreProcess(deployment)
    assert digest(deployment.catalog) == before
    deployment.remove_log()
    deployment.assert_acknowledged_once()
    other.assert_acknowledged_once()


@pytest.mark.core
def test_1_4_a_renamed_file_without_its_log_is_refused_until_the_log_follows(deployment: Deployment) -> None:
    process = StoreProcess(deployment)
    process.insert(3)
    process.kill()
    moved = deployment.at(deployment.catalog.with_name("moved.db"))
    deployment.catalog.rename(moved.catalog)
    with pytest.raises(CatalogUnavailable, match=re.escape(str(deployment.log))):
        StoreProcess(moved)
    deployment.log.rename(moved.log)
    moved.assert_acknowledged_once()
