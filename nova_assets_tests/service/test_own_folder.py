"""A running service survives cleaners of temporary folders, and also the loss of its own folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import nova_assets as nova
from nova_assets_tests import patient
from nova_assets_tests.service.service_process import ServiceProcess
from nova_assets_tests.service.watched_app import child_processes, is_running, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.crash]

INSTANCES = 2


class ServiceWithFolders(ServiceProcess):
    """A service of several instances with a temporary folder of its own."""

    def __init__(self, folder: Path, catalog: str) -> None:
        super().__init__(folder, catalog, "service", "--instances", str(INSTANCES))
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.environment = {"TMPDIR": str(self.temporary)}
        self.own = folder / ".nova" / "service"

    @property
    def instances(self) -> set[int]:
        return child_processes(self.pid)

    def insert(self, number: int) -> int:
        address = f"{self.url}/v1/channels/stock/blocks"
        headers = {"content-type": "application/x-ndjson"}
        return patient.post(address, content=f'{{"k": {number}}}\n', headers=headers).status_code

    def metrics(self) -> httpx.Response:
        return patient.get(f"{self.url}/metrics")

    def counted(self, metric: str) -> float:
        """Sum of a metric over all its labels."""
        lines = self.metrics().text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(metric))

    def replace_an_instance(self) -> None:
        victim = min(self.instances)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not is_running(victim) and len(self.instances) == INSTANCES, self.log.read_text()[-2000:])
        for _ in range(20):  # whichever instance answers
            assert patient.get(f"{self.url}/readyz").status_code == 200


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def lose(folder: Path, remains: Path) -> None:
    """Remove a folder at once, so that no instance writes into it meanwhile.

    Args:
        remains: folder on the same file system, for what is removed.
    """
    shutil.rmtree(folder.rename(remains / f"lost-{folder.name}"))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceWithFolders]:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    with nova.open(catalog=catalog, warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("stock", schema="k bigint"))
    service = ServiceWithFolders(tmp_path, catalog)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def test_instances_survive_the_loss_of_temporary_folders_and_of_their_own(service: ServiceWithFolders) -> None:
    assert service.insert(1) == 200
    assert list(service.temporary.iterdir()) == [], "nothing of the service is in the temporary folder"
    for number, remove in enumerate(
        (lambda: empty(service.temporary), lambda: lose(service.own, service.folder)), start=2
    ):
        remove()
        for _ in range(10):  # whichever instance answers
            answer = service.metrics()
            assert answer.status_code == 200, answer.text
        service.replace_an_instance()
        assert service.insert(number) == 200
        assert service.metrics().status_code == 200
    assert "Traceback" not in service.log.read_text()


def test_counts_of_all_instances_are_visible_again_after_a_loss(service: ServiceWithFolders) -> None:
    for loss in (service.own, next(service.own.glob("nova-instances-*"))):
        lose(loss, service.folder)
        # Each instance notices at its next heartbeat, within about a second.
        wait_until(
            lambda: len(list(service.own.glob("nova-instances-*/gauge_livesum_*.db"))) == INSTANCES,
            f"{list(service.own.rglob('*'))}",
        )
        before = service.counted('nova_service_requests_total{method="GET",route="/readyz"')
        for _ in range(20):
            assert patient.get(f"{service.url}/readyz").status_code == 200
        assert service.counted('nova_service_requests_total{method="GET",route="/readyz"') == before + 20
        assert service.counted("nova_service_requests_in_flight") == 1, "the request that asks"


def test_its_own_folder_is_empty_after_it_ends(service: ServiceWithFolders) -> None:
    assert service.insert(1) == 200
    assert list(service.own.iterdir())
    assert service.stop() == 0
    assert list(service.own.iterdir()) == []


def test_the_next_service_removes_the_folders_of_a_killed_one(service: ServiceWithFolders) -> None:
    assert service.insert(1) == 200
    instances = service.instances
    service.kill()
    wait_until(lambda: not any(map(is_running, instances)), "the instances end after their watchdog")
    left = set(service.own.glob("nova-instances-*"))
    assert left
    for folder in left:
        os.utime(folder, (0, 0))
    service.start()
    assert not any(folder.exists() for folder in left)
    assert service.insert(2) == 200


def test_files_that_are_lost_before_the_first_heartbeat_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "instances"
    program = """
import os, shutil
from nova_assets.service.http.metrics import ServiceMetrics
folder = os.environ["PROMETHEUS_MULTIPROC_DIR"]
metrics = ServiceMetrics()
shutil.rmtree(folder)
print(metrics.has_lost_shared_files())
"""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True", done.stdout + done.stderr
