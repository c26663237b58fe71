"""A service on SQLite answers probes, and each row that it or another process has acknowledged is there once."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from nova_assets_tests.catalog_acts import Deployment, open_store, read_head
from nova_assets_tests.catalog_service import Service, deleted_files, run_service
from nova_assets_tests.effort import examples, long_except
from nova_assets_tests.service.watched_app import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.crash]


@pytest.mark.parametrize("path", long_except(["/readyz", "/healthz", "/metrics"], "/readyz"))
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
