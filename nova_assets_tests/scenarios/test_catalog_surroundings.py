"""A deployment on SQLite goes on when the temporary folder, the disk or the current folder is not as it was."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from nova_assets.errors import CatalogUnavailable
from nova_assets_tests.catalog_acts import (
    Deployment,
    copy_file,
    insert_many,
    open_store,
    run_nova,
    wait_seconds,
    wait_stopped,
)
from nova_assets_tests.catalog_service import run_service
from nova_assets_tests.effort import examples
from nova_assets_tests.mounts import needs_mount, small_disk
from nova_assets_tests.service.watched_app import child_processes, is_running, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.crash]


# The temporary folder, and relative addresses.


def empty_folder(folder: Path) -> None:
    """As a cleaner of temporary folders does."""
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def test_instances_go_on_when_the_temporary_folder_is_emptied(
    deployment: Deployment, outside: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with run_service(deployment, outside, "--instances", "2", TMPDIR=str(temporary)) as service:
        service.insert()
        empty_folder(temporary)
        assert service.probe("/metrics") == 200
        assert service.process is not None
        instances = child_processes(service.process.pid)
        victim = min(instances)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not is_running(victim), "an instance outlives SIGKILL")
        wait_until(lambda: len(child_processes(service.process.pid) - {victim}) >= len(instances), "it is not replaced")  # type: ignore[union-attr]
        service.insert(5)
        assert [service.probe("/metrics") for _ in range(5)] == [200] * 5
        assert service.stop() == 0
    deployment.assert_acknowledged_once()


def test_a_service_goes_on_when_the_temporary_folder_is_emptied(
    deployment: Deployment, outside: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with run_service(deployment, outside, TMPDIR=str(temporary)) as service:
        service.insert()
        empty_folder(temporary)
        service.insert()
        assert service.probe("/metrics") == 200 and service.probe("/readyz") == 200
        assert service.stop() == 0
    deployment.assert_acknowledged_once()


def test_a_relative_catalog_is_meant_from_the_projects_folder(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "below").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[tool.nova]\nwarehouse = "wh"\n')
    relative = {"NOVA_CATALOG": "sqlite:///state/catalog.db"}
    assert run_nova("init", folder=project, environment=relative).returncode == 0
    assert (project / "state" / "catalog.db").is_file()
    listing = run_nova("channels", folder=project / "below", environment=relative)
    assert listing.returncode == 0, listing.stderr
    assert list((project / "below").iterdir()) == []


@pytest.mark.core
@pytest.mark.parametrize("command", [("channels",), ("insert", "events", "rows.jsonl"), ("gc",)])
def test_a_command_makes_no_catalog_at_an_address_that_was_set(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Another folder has no project, so the address does not lead to the catalog."""
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n')
    ended = run_nova(*command, folder=tmp_path, environment={"NOVA_CATALOG": "sqlite:///state/catalog.db"})
    assert ended.returncode == 1 and "NOVA-CATALOG-UNAVAILABLE" in ended.stderr, ended.stderr
    assert str(tmp_path / "state" / "catalog.db") in ended.stderr, "it says where it looked"
    assert not (tmp_path / "state" / "catalog.db").exists()


# What always held.


@needs_mount
def test_a_full_disk_refuses_inserts_and_loses_none(deployment: Deployment, outside: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, "3m"):
        small = deployment.at(disk / "catalog.db")
        copy_file(deployment.catalog, small.catalog)
        assert small.run_nova("doctor", "--claim").returncode == 0
        with run_service(small, outside) as service:
            service.insert(5)
            fill(disk)
            statuses = [service.try_insert().status_code for _ in range(40)]
            refused = [s for s in statuses if s != 200]
            assert refused and set(refused) == {503}
            (disk / "ballast").unlink()
            service.insert(5)
            assert service.probe("/readyz") == 200
            service.kill()
        small.assert_acknowledged_once()


def fill(disk: Path) -> None:
    """Leave hardly any space on a disk."""
    space = os.statvfs(disk)
    with (disk / "ballast").open("wb") as ballast:
        ballast.write(b"x" * max(0, space.f_bavail * space.f_frsize - 40_000))


def test_a_process_that_is_stopped_for_longer_than_its_lease(deployment: Deployment) -> None:
    with open_store(deployment, lease=1.0) as stopped, open_store(deployment, lease=1.0) as other:
        stopped.insert(2)
        for _ in range(examples(1, 5)):
            stopped.send(insert_many, len(deployment.acknowledged), 10)
            os.kill(stopped.pid, signal.SIGSTOP)
            wait_stopped(stopped.pid)
            try:
                wait_seconds(1.5)
                try:
                    other.insert(3)
                except CatalogUnavailable as error:  # it was stopped within a transaction, and holds the lock
                    assert "locked" in str(error)
            finally:
                os.kill(stopped.pid, signal.SIGCONT)
            deployment.acknowledged += stopped.receive()
    deployment.assert_acknowledged_once()
