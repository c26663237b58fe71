"""``nova serve --instances`` beside a second service on one catalog, while a client writes and reads through both: an
instance is killed, one is stopped, and then the second service dies. Each acknowledged row is there once."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets_tests.service.service_process import ServiceProcess, run_service_process
from nova_assets_tests.service.watched_app import child_processes, is_running, wait_until


class Writer(threading.Thread):
    """Inserts a row at a time, and reads all rows from time to time, until it is told to stop."""

    def __init__(self, name: str, addresses: list[str]) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.acknowledged: list[str] = []
        self.failures: list[BaseException] = []
        self.ended = threading.Event()
        self._addresses = addresses

    def run(self) -> None:
        try:
            with nova.connect(self._addresses, timeout=20) as connection:
                while not self.ended.is_set():
                    row = f"{self.name}-{len(self.acknowledged)}"
                    connection.insert("events", [{"id": row}])
                    self.acknowledged.append(row)
                    rows = connection.read("events").to_arrow().column("id").to_pylist()
                    assert set(self.acknowledged) <= set(rows), "a row that was acknowledged cannot be read"
        except BaseException as error:
            self.failures.append(error)

    def wait_for_more(self) -> None:
        """Wait until it has inserted rows since now."""
        before = len(self.acknowledged)
        wait_until(lambda: bool(self.failures) or len(self.acknowledged) > before + 2, f"{self.name} is stuck", 60)
        assert not self.failures, self.failures


def watched_instances(service: ServiceProcess) -> set[int]:
    """Processes of the instances. Their own children, which decode bodies, do not count."""
    assert service._process is not None
    return child_processes(service._process.pid)


@pytest.mark.slow
@pytest.mark.crash
def test_clients_notice_nothing_of_instances_and_services_that_fail(tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/c.db"
    with nova.open(catalog=catalog, warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("events", merge=nova.Append(), schema="id string"))
    with (
        run_service_process(tmp_path, catalog, "watched", "--instances", "2", "--instance-timeout", "3") as watched,
        run_service_process(tmp_path, catalog, "second") as second,
    ):
        writers = [Writer(name, [watched.url, second.url]) for name in ("one", "two")]
        for writer in writers:
            writer.start()
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            victim = min(watched_instances(watched))
            os.kill(victim, fault)
            for writer in writers:
                writer.wait_for_more()
            wait_until(lambda pid=victim: not is_running(pid), f"an instance outlives {fault!r}")  # type: ignore[misc]
            wait_until(lambda: len(watched_instances(watched)) == 2, "it is not replaced")
        second.kill()
        for writer in writers:
            writer.wait_for_more()
            writer.ended.set()
        for writer in writers:
            writer.join(60)
        instances = watched_instances(watched)
        assert watched.stop() == 0
        assert not any(map(is_running, instances))
    assert [f for w in writers for f in w.failures] == []
    with nova.open(catalog=catalog, warehouse=tmp_path / "wh") as store:
        rows = store.read("events").to_arrow().column("id").to_pylist()
    acknowledged = [row for writer in writers for row in writer.acknowledged]
    print(f"{len(acknowledged)} rows acknowledged, {len(rows)} there")
    assert sorted(rows) == sorted(acknowledged)
    folders = {p.name for p in (tmp_path / "watched-views").iterdir() if p.is_dir()}
    assert folders == {"instance-1", "instance-2"}, "a replacement continues with the views of the one it replaces"
