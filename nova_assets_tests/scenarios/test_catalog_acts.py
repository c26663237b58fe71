"""What an operator does around a running deployment on SQLite: each acknowledged row is there once afterwards, or the
insert was refused.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import nova_assets as nova
from nova_assets.errors import CatalogUnavailable, CopyUndecided
from nova_assets_tests.catalog_acts import (
    Deployment,
    Service,
    StoreProcess,
    bind_mount,
    check_integrity,
    create_deployment,
    deleted_files,
    digest,
    insert_row,
    log_frames,
    needs_mount,
    open_store,
    read_head,
    read_rows,
    run_nova,
    run_service,
    small_disk,
    unmount,
    wait_seconds,
    wait_stopped,
)
from nova_assets_tests.effort import examples, long_except
from nova_assets_tests.service.watched_app import child_processes, is_running, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.crash]


replaces_files = pytest.mark.usefixtures("expected_deleted_files")
"""Mark of a test that replaces or removes files of an open catalog on purpose."""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return create_deployment(tmp_path / "project")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the project, for the service's log and views."""
    return tmp_path / "service"


def copy_file(source: Path, target: Path) -> None:
    """``cp``, which writes into an existing file."""
    subprocess.run(["cp", str(source), str(target)], check=True)


# Probes.


@pytest.mark.parametrize("path", long_except(["/readyz", "/healthz", "/metrics"], "/readyz", "/healthz"))
def test_a_probe_leaves_the_log_to_the_service(deployment: Deployment, outside: Path, path: str) -> None:
    with run_service(deployment, outside) as service:
        service.insert()
        assert service.probe(path) == 200
        listing = deployment.run_nova("channels")
        assert listing.returncode == 0, listing.stderr
        service.insert(2)
        assert deployment.read_rows() == deployment.acknowledged, "another process sees each row at once"
        assert deleted_files(service.pids) == []
        service.kill()
    with open_store(deployment) as store:
        assert store.call(read_head) == 3
    deployment.assert_acknowledged_once()


def test_a_probe_between_inserts_of_two_processes(deployment: Deployment, outside: Path) -> None:
    with run_service(deployment, outside) as service:
        service.insert()
        assert service.probe("/readyz") == 200
        for _ in range(3):
            with open_store(deployment) as store:
                store.insert(10)
            service.insert()
            assert service.probe("/readyz") == 200
        assert service.stop() == 0
    deployment.assert_acknowledged_once()


def test_probed_instances_keep_the_log_that_others_see(deployment: Deployment, outside: Path) -> None:
    with run_service(deployment, outside, "--instances", "2") as service:
        for _ in range(20):
            service.probe("/readyz")
        for _ in range(3):
            service.insert()
            assert sorted(deployment.read_rows()) == sorted(deployment.acknowledged), "an insert is visible at once"
            service.probe("/readyz")
        assert deleted_files(service.pids) == []
        service.kill()
    deployment.assert_acknowledged_once()


class Client(threading.Thread):
    """Inserts one row after the other, now through the one service and now through the other."""

    def __init__(self, number: int, services: list[Service]) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.services = services
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.ended = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.ended.is_set():
            number += 1
            self.insert(f"client-{self.number}-{number}", number)

    def insert(self, row: str, number: int) -> None:
        """Insert a row until it is acknowledged. The key makes a repetition harmless."""
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": row}
        for attempt in range(2_000):
            service = self.services[(number + attempt) % len(self.services)]
            try:
                response = httpx.post(
                    f"{service.url}/v1/channels/events/blocks",
                    content=f'{{"id": "{row}"}}',
                    headers=headers,
                    timeout=20,
                )
            except httpx.HTTPError:
                self.ended.wait(0.05)
                continue
            if response.status_code == 200:
                self.acknowledged.append(row)
                return
            if response.status_code not in (429, 503):
                self.refused.append(response.text)
                return
            self.ended.wait(0.05)
        self.refused.append(f"{row} is never acknowledged")


@pytest.mark.long
def test_two_probed_services_on_one_catalog_are_killed_in_turn(deployment: Deployment, outside: Path) -> None:
    with run_service(deployment, outside / "one") as one, run_service(deployment, outside / "two") as two:
        services = [one, two]
        clients = [Client(n, services) for n in range(2)]
        for client in clients:
            client.start()
        for kill in range(examples(2, 12)):
            before = sum(len(c.acknowledged) for c in clients)
            wait_until(
                lambda: sum(len(c.acknowledged) for c in clients) > before + 5,  # noqa: B023
                "the clients get on",
                60,
            )
            for service in services:
                service.probe("/readyz")
            victim = services[kill % 2]
            victim.kill()
            victim.start()
        for client in clients:
            client.ended.set()
        for client in clients:
            client.join(60)
        assert deleted_files(one.pids | two.pids) == []
        assert one.stop() == 0 and two.stop() == 0
    assert [r for c in clients for r in c.refused] == []
    deployment.acknowledged += [row for c in clients for row in c.acknowledged]
    print(f"{len(deployment.acknowledged)} rows acknowledged, {len(deployment.read_rows())} there")
    deployment.assert_acknowledged_once()


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
        with pytest.raises(CatalogUnavailable, match=re.escape(str(deployment.catalog))) as refused:
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
        other.call(replace_all_rows, "of the copy")
        with pytest.raises(CopyUndecided, match="--claim"):
            other.call(collect)
    assert files <= data_files(deployment.warehouse), "the original needs them"
    deployment.assert_acknowledged_once()

    claim = copied.run_nova("doctor", "--claim")
    assert claim.returncode == 0, claim.stdout + claim.stderr
    with pytest.raises(nova.WarehouseMismatch):
        StoreProcess(deployment).insert()
    with open_store(copied, gc_grace=GC_GRACE) as other:
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


def insert_many(store: nova.Store, batch: int, count: int) -> list[str]:
    rows = [f"batch-{batch}-{n}" for n in range(count)]
    for row in rows:
        insert_row(store, row)
    return rows


# Backups, and logs that are left behind.


@pytest.mark.parametrize("restore", ["mv", "cp"])
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
