"""Many connections of one caller, callers who leave, and a catalog that is damaged under a service."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.service.assembly import build_server, build_service
from nova_assets.service.http.config import ServiceConfig
from nova_assets_tests import patient
from nova_assets_tests.service.small_app import serve_small_app

pytestmark = pytest.mark.slow

STOCK = nova.Channel("stock", schema="sku bigint")


@contextlib.contextmanager
def open_connections(url: str, count: int) -> Iterator[list[socket.socket]]:
    """Connections on which half a head is sent, and then nothing."""
    place = (str(urlsplit(url).hostname), int(urlsplit(url).port or 0))
    made = []
    try:
        for _ in range(count):
            made.append(one := socket.create_connection(place))
            one.settimeout(10)
            with contextlib.suppress(OSError):  # closed at once
                one.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        time.sleep(0.3)
        yield made
    finally:
        for one in made:
            one.close()


def count_open(connections: list[socket.socket]) -> int:
    """How many the service has not closed."""
    found = 0
    for one in connections:
        one.setblocking(False)
        try:
            found += one.recv(1) != b""
        except BlockingIOError:
            found += 1
        except OSError:
            pass
    return found


def test_connections_that_stay_half_open_are_closed() -> None:
    with (
        serve_small_app(max_connections=20, header_seconds=0.5) as (url, _),
        open_connections(url, 20) as connections,
    ):
        assert count_open(connections) == 20 and patient.get(f"{url}/healthz").status_code == 503
        time.sleep(1.0)
        assert patient.get(f"{url}/healthz").status_code == 200


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nova.Store]:
    project = nova.Project(channels=[STOCK])
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", service="embedded") as opened:
        opened.register(STOCK)
        opened.insert("stock", [{"sku": 1}])
        yield opened


def test_who_goes_away_during_an_upload_is_a_line_and_no_traceback(
    store: nova.Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nova_assets.service")
    before = store.catalog.definitions.channel("stock").head
    with build_server(build_service(store, ServiceConfig(port=0))).in_background() as url:
        place = urlsplit(url)
        for chunked in (b"Content-Length: 1000000", b"Transfer-Encoding: chunked"):
            with socket.create_connection((str(place.hostname), int(place.port or 0))) as leaving:
                head = b"POST /v1/channels/stock/blocks HTTP/1.1\r\nHost: localhost\r\n"
                leaving.sendall(head + b"Content-Type: application/x-ndjson\r\n" + chunked + b"\r\n\r\n")
                leaving.sendall(b'b\r\n{"sku": 2}\n\r\n')
                time.sleep(0.2)
        until = time.monotonic() + 10
        while time.monotonic() < until and len(log_records(caplog)) < 2:
            time.sleep(0.05)
    assert [(r.levelname, r.exc_info, r.__dict__["refused"]) for r in log_records(caplog)] == [
        ("INFO", None, "went_away")
    ] * 2
    assert (
        store.catalog.definitions.channel("stock").head == before
        and store.catalog.staging.executions_with_blocks() == []
    )


def log_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [r for r in caplog.records if r.name == "nova_assets.service" and r.__dict__.get("method") == "POST"]


def drop(table: str) -> Any:
    def do(store: nova.Store, file: Path) -> None:
        other: Any = open_catalog(store.settings.catalog)
        other.database.write(lambda c: c.exec_driver_sql(f"DROP TABLE {table}"))
        other.close()

    return do


def overwrite(store: nova.Store, file: Path) -> None:
    file.write_bytes(os.urandom(8192))


def remove(store: nova.Store, file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(
    ("damage", "detail", "said"),
    [
        (drop("nova_pins"), "the catalog is damaged", "the table nova_pins is missing"),
        (drop("nova_tokens"), "the catalog is damaged", "the table nova_tokens is missing"),
        (remove, "the file of the catalog is not in place", "its file c.db is missing"),
        (
            overwrite,
            "the file of the catalog is not in place",
            "its file c.db was overwritten with an older file, or with something else",
        ),
    ],
    ids=["a table", "another table", "gone", "overwritten"],
)
def test_a_damaged_catalog_is_not_ready_and_says_why(
    store: nova.Store, tmp_path: Path, damage: Any, detail: str, said: str
) -> None:
    file = tmp_path / "c.db"
    with build_server(build_service(store, ServiceConfig(port=0))).in_background() as url:
        assert patient.get(f"{url}/readyz").json() == {"status": "ready"}
        shutil.copy(file, tmp_path / "kept.db")
        damage(store, file)
        time.sleep(1.1)  # it looks once a second
        answer = patient.get(f"{url}/readyz")
        assert (answer.status_code, answer.json()["detail"]) == (503, detail)
        assert answer.json()["found"] == said and str(tmp_path) not in answer.text
        assert patient.get(f"{url}/healthz").status_code == 200


def test_a_service_is_not_ready_beside_a_catalog_that_another_version_has_migrated(
    store: nova.Store, tmp_path: Path
) -> None:
    with build_server(build_service(store, ServiceConfig(port=0))).in_background() as url:
        other: Any = open_catalog(store.settings.catalog)
        other.database.write(lambda c: c.exec_driver_sql("UPDATE nova_version SET version_num = '9999'"))
        other.close()
        answer = patient.get(f"{url}/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "NOVA-CATALOG-VERSION")
        assert patient.get(f"{url}/healthz").status_code == 200


def test_a_service_is_ready_once_its_views_have_caught_up(store: nova.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    service = build_service(store, ServiceConfig(port=0))
    with build_server(service).in_background() as url:
        assert patient.get(f"{url}/v1/channels/stock/files").status_code == 200
        with nova.open(catalog=store.settings.catalog, warehouse=store.settings.warehouse) as other:
            other.insert("stock", [{"sku": 2}])
        monkeypatch.setattr("nova_assets.service.service_state._CATCH_UP_SECONDS", -1.0)
        unready = patient.get(f"{url}/readyz")
        assert (unready.status_code, unready.json()["found"]) == (503, "channels with newer instants: 1")
        monkeypatch.setattr("nova_assets.service.service_state._CATCH_UP_SECONDS", 2.0)
        assert patient.get(f"{url}/readyz").json() == {"status": "ready"}
        assert service.query_handler.follower.catch_up(-1.0) == 0
