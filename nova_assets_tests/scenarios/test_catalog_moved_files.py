"""The file of an open catalog is moved, removed or named twice: each insert is there once, or was refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nova_assets.errors import CatalogUnavailable
from nova_assets_tests.catalog_acts import (
    Deployment,
    StoreProcess,
    insert_row,
    log_frames,
    open_store,
    read_head,
    replaces_files,
)
from nova_assets_tests.catalog_service import run_service
from nova_assets_tests.effort import examples, long_except
from nova_assets_tests.mounts import bind_mount, needs_mount
from nova_assets_tests.service.watched_app import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.crash]


# The file is replaced, renamed or removed under a service.


def replace_by_copy(deployment: Deployment) -> Path:
    """As rsync and restores do: write a copy beside the file, and rename it."""
    copied = deployment.folder / "copy.db"
    subprocess.run(["sqlite3", str(deployment.catalog), f"VACUUM INTO '{copied}'"], check=True)
    copied.rename(deployment.catalog)
    return deployment.catalog


def rename_file(deployment: Deployment) -> Path:
    moved = deployment.catalog.with_name("moved.db")
    for ending in ("", "-wal", "-shm"):
        Path(f"{deployment.catalog}{ending}").rename(f"{moved}{ending}")
    return moved


def rename_folder(deployment: Deployment) -> Path:
    moved = deployment.catalog.parent.with_name("moved")
    deployment.catalog.parent.rename(moved)
    return moved / deployment.catalog.name


def replace_folder(deployment: Deployment) -> Path:
    """A folder is swapped for an older copy of it, as a restored volume is."""
    moved = rename_folder(deployment)
    shutil.copytree(moved.parent, deployment.catalog.parent)
    return moved


def add_hard_link(deployment: Deployment) -> Path:
    deployment.catalog.with_name("link.db").hardlink_to(deployment.catalog)
    return deployment.catalog


ACTS: dict[str, Callable[[Deployment], Path]] = {
    "replaced by a copy": replace_by_copy,
    "renamed": rename_file,
    "its folder renamed": rename_folder,
    "its folder replaced": replace_folder,
    "linked": add_hard_link,
}
"""Act -> function that does it and returns the file in which all acknowledged rows still are."""


@replaces_files
@pytest.mark.parametrize("act", long_except(ACTS, "replaced by a copy", "its folder renamed", "linked"))
def test_a_service_whose_file_is_moved_refuses_further_inserts(deployment: Deployment, outside: Path, act: str) -> None:
    with run_service(deployment, outside) as service:
        service.insert(3)
        assert service.probe("/readyz") == 200
        moved = deployment.at(ACTS[act](deployment))
        service.assert_refuses()
        assert len(deployment.acknowledged) == 3
        service.kill()
    (deployment.catalog.with_name("link.db")).unlink(missing_ok=True)
    if act == "replaced by a copy":
        moved.remove_log()
    moved.assert_acknowledged_once()


@replaces_files
def test_a_service_whose_file_is_removed_refuses_further_inserts(deployment: Deployment, outside: Path) -> None:
    with run_service(deployment, outside) as service:
        service.insert(3)
        deployment.catalog.unlink()
        service.assert_refuses()
        assert service.stop() == 0
    assert not deployment.catalog.exists(), "nobody makes an empty catalog in its place"
    listing = deployment.run_nova("channels")
    assert listing.returncode == 1 and "NOVA-CATALOG-UNAVAILABLE" in listing.stderr, listing.stderr
    assert str(deployment.catalog) in listing.stderr and not deployment.catalog.exists()


@replaces_files
@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_service_whose_log_is_removed_refuses_further_inserts(
    deployment: Deployment, outside: Path, ending: str
) -> None:
    """The service writes the commits of the log that it has open into the file."""
    with run_service(deployment, outside) as service:
        service.insert(3)
        Path(f"{deployment.catalog}{ending}").unlink()
        service.assert_refuses()
        assert len(deployment.acknowledged) == 3
        service.kill()
    deployment.assert_acknowledged_once()


@replaces_files
def test_a_store_whose_file_is_replaced_refuses_reads_too(deployment: Deployment) -> None:
    with open_store(deployment) as store:
        store.insert(2)
        replace_by_copy(deployment)
        for function, arguments in ((insert_row, ("lost",)), (read_head, ())):
            with pytest.raises(CatalogUnavailable, match=r"catalog\.db"):
                store.call(function, *arguments)


def test_a_moved_project_is_opened_in_its_new_folder(deployment: Deployment, outside: Path) -> None:
    with run_service(deployment, outside) as service:
        service.insert(2)
        moved = deployment.folder.with_name("moved")
        deployment.folder.rename(moved)
        answers = [service.try_insert() for _ in range(2)]
        assert all(a.status_code >= 500 for a in answers), [a.text for a in answers]
        assert {a.json()["code"] for a in answers} <= {
            "NOVA-CATALOG-UNAVAILABLE",
            "NOVA-WAREHOUSE-UNAVAILABLE",
            "NOVA-WAREHOUSE-MISMATCH",
        }
        wait_until(lambda: service.probe("/readyz") == 503, "the service says that it is ready")
        service.kill()
    there = deployment.at(moved / "state" / "catalog.db", moved / "wh")
    there.assert_acknowledged_once()
    with open_store(there) as store:
        store.insert()
    there.assert_acknowledged_once()


# Two names of one file.


@pytest.mark.core
def test_a_catalog_with_a_second_hard_link_is_refused_by_either_name(deployment: Deployment) -> None:
    other = deployment.at(deployment.catalog.with_name("other.db"))
    with open_store(deployment) as store:
        store.insert(2)
        other.catalog.hardlink_to(deployment.catalog)
        for name in (deployment, other):
            with pytest.raises(CatalogUnavailable, match="link"):
                StoreProcess(name)
        with pytest.raises(CatalogUnavailable, match="link"):
            store.insert()
    other.catalog.unlink()
    deployment.assert_acknowledged_once()


@needs_mount
@pytest.mark.parametrize("first_ends", long_except(["stops", "is killed"], "is killed"))
def test_a_catalog_with_a_second_name_by_a_bind_mount(deployment: Deployment, tmp_path: Path, first_ends: str) -> None:
    """As containers mount a single file: the log of the second name would be another one."""
    (tmp_path / "container").mkdir()
    other = deployment.at(tmp_path / "container" / "catalog.db")
    other.catalog.touch()
    first = StoreProcess(deployment)
    with bind_mount(deployment.catalog, other.catalog):
        first.insert(2)
        with pytest.raises(CatalogUnavailable, match="they use another name of the file") as refused:
            StoreProcess(other)
        assert "mv " not in str(refused.value), "the log of a living process must stay where it is"
        first.insert(2)
        if first_ends == "stops":
            first.end()
            other.assert_acknowledged_once()
            with open_store(other) as second:
                second.insert()
            other.assert_acknowledged_once()
        else:
            first.kill()
            assert log_frames(deployment.log) > 0
            with pytest.raises(CatalogUnavailable, match=re.escape(str(deployment.log))):
                StoreProcess(other)
    deployment.assert_acknowledged_once()


@needs_mount
@pytest.mark.long
@pytest.mark.exhaustive
def test_inserts_of_two_processes_by_two_names_of_a_bind_mount(deployment: Deployment, tmp_path: Path) -> None:
    """The second name appears while the first process is inserting."""
    (tmp_path / "container").mkdir()
    other = deployment.at(tmp_path / "container" / "catalog.db")
    other.catalog.touch()
    with bind_mount(deployment.catalog, other.catalog), open_store(deployment) as first:
        for _ in range(examples(2, 40)):
            first.insert()
            with pytest.raises(CatalogUnavailable):
                StoreProcess(other)
    deployment.assert_acknowledged_once()


def test_two_processes_insert_through_a_symbolic_link(deployment: Deployment, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(deployment.catalog)
    with open_store(deployment) as first, open_store(deployment.at(link)) as second:
        for _ in range(examples(5, 40)):
            first.insert()
            second.insert()
    assert len(deployment.acknowledged) == examples(10, 80)
    deployment.assert_acknowledged_once()
