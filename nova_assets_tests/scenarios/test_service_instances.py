"""Two services on one PostgreSQL, one of which is killed every few seconds, under inserts that are tried again: each
insert that was acknowledged is there once, and nothing else is."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import nova_assets as nova
from nova_assets.service.assembly import serve_in_background
from nova_assets_tests import patient
from nova_assets_tests.service.service_process import ServiceProcess, run_service_process

SECONDS, EVERY = 30, 5
CLIENTS = 4


class Client(threading.Thread):
    """Sends rows, each insert until it is acknowledged, now to the one service and now to the other."""

    def __init__(self, number: int, services: list[ServiceProcess], ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.services = services
        self.ended = ended
        self.acknowledged: list[str] = []
        self.sent = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        rng = random.Random(self.number)
        while not self.ended.is_set():
            rows = [{"id": uuid.uuid4().hex, "client": self.number} for _ in range(rng.randint(1, 5))]
            self.insert(rows, uuid.uuid4().hex, rng)

    def insert(self, rows: list[dict[str, object]], key: str, rng: random.Random) -> None:
        body = "".join(json.dumps(row) + "\n" for row in rows)
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        until = time.monotonic() + 60
        while time.monotonic() < until:
            self.sent += 1
            try:
                url = f"{rng.choice(self.services).url}/v1/channels/events/blocks"
                answer = patient.post(url, content=body, headers=headers, timeout=rng.choice([0.2, 5.0, 5.0]))
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                self.acknowledged += [str(row["id"]) for row in rows]
                return
            if answer.status_code not in (429, 503):
                self.wrong.append(f"{answer.status_code} {answer.text}")
                return
            time.sleep(0.05)
        self.wrong.append("no answer within a minute")


@contextmanager
def run_service_in_this_process(folder: Path, catalog: str) -> Iterator[str]:
    """Serve with a store, file views and caches of its own. Yields the address."""
    with (
        nova.open(catalog=catalog, warehouse=folder / "wh", service="embedded") as store,
        serve_in_background(store) as url,
    ):
        yield url


@pytest.mark.slow
def test_a_service_goes_on_where_another_one_has_stopped(tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    channel = nova.Channel("events", merge=nova.Append(), schema="id string, client int")
    with nova.open(catalog=catalog, warehouse=tmp_path / "wh") as store:
        store.register(channel)

    def insert(url: str, key: str) -> object:
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        body = json.dumps({"id": key, "client": 1})
        answer = patient.post(f"{url}/v1/channels/events/blocks", content=body, headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()["numbers"]["events"]

    def ids(url: str) -> list[str]:
        with nova.connect(url) as connection:
            return sorted(connection.read("events").to_arrow().column("id").to_pylist())

    with run_service_in_this_process(tmp_path, catalog) as other:
        assert ids(other) == []
        for seq, key in enumerate(("a", "b"), start=1):
            with run_service_in_this_process(tmp_path, catalog) as stopped:
                assert insert(stopped, key) == seq
            # The client did not get the answer, and sends the insert to every service that there is.
            with run_service_in_this_process(tmp_path, catalog) as started:
                assert insert(other, key) == insert(started, key) == seq
                assert ids(other) == ids(started) == ["a", "b"][:seq]


@pytest.mark.postgres
@pytest.mark.long
@pytest.mark.crash
@pytest.mark.exhaustive
def test_each_acknowledged_insert_is_there_once_and_nothing_else(tmp_path: Path, postgres_catalog_url: str) -> None:
    channel = nova.Channel("events", merge=nova.Append(), schema="id string, client int")
    with nova.open(catalog=postgres_catalog_url, warehouse=tmp_path / "wh") as store:
        store.register(channel)
    ended = threading.Event()
    with (
        run_service_process(tmp_path, postgres_catalog_url, "one") as one,
        run_service_process(tmp_path, postgres_catalog_url, "two") as two,
    ):
        services = [one, two]
        clients = [Client(n, services, ended) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        killed, began = 0, time.monotonic()
        while killed < SECONDS // EVERY:
            time.sleep(max(0.0, began + EVERY * (killed + 1) - time.monotonic()))
            victim = services[killed % 2]
            victim.kill()
            killed += 1
            victim.start()
        ended.set()
        for client in clients:
            client.join(90)
        assert one.stop() == 0 and two.stop() == 0
    assert [w for c in clients for w in c.wrong] == []
    acknowledged = Counter(i for c in clients for i in c.acknowledged)
    assert len(acknowledged) > 100
    with nova.open(catalog=postgres_catalog_url, warehouse=tmp_path / "wh") as store:
        there = Counter(store.read("events").to_arrow().column("id").to_pylist())
    sent = sum(c.sent for c in clients)
    print(f"{killed} kills, {sent} requests, {len(acknowledged)} rows acknowledged, {sum(there.values())} there")
    assert there == acknowledged, "each once, and none that nobody was told of"
