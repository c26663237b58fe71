"""``nova serve``, as a process: started, asked, stopped; and refused where others could do everything."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.settings import VIEW_STORAGES
from nova_assets_tests import patient
from nova_assets_tests.cli.conftest import Nova
from nova_assets_tests.effort import long_except
from nova_assets_tests.service.service_process import run_service_process

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("views", long_except(VIEW_STORAGES, "disk"))
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, views: str) -> None:
    """What was put in through one service is read through the next, which goes on from the views of the first."""
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    with nova.open(catalog=catalog, warehouse=tmp_path / "wh") as store:
        store.register(nova.Channel("prices", merge=nova.Upsert(key="id"), schema="id bigint, price double"))
    with (
        run_service_process(tmp_path, catalog, "service", "--views", views) as service,
        nova.connect(service.url) as there,
    ):
        assert there.insert("prices", [{"id": 1, "price": 1.5}]).seq == 1
        assert len(patient.get(f"{service.url}/v1/channels/prices/files").json()["blocks"]) == 1
        assert service.stop() == 0
        service.start()
        assert there.read("prices").to_arrow().to_pylist() == [{"id": 1, "price": 1.5}]
        assert len(patient.get(f"{service.url}/v1/channels/prices/files").json()["blocks"]) == 1
        loaded = [
            m
            for m in patient.get(f"{service.url}/metrics").text.splitlines()
            if m.startswith("nova_views_loaded_total")
        ]
        assert loaded == ["nova_views_loaded_total 0.0"], "nothing was loaded anew"
        assert service.stop() == 0
        lines = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
    inserts = [line for line in lines if line.get("route") == "/v1/channels/{channel}/blocks"]
    assert [(line["status"], line["channel"]) for line in inserts] == [(200, "prices")]
    assert all(len(line["execution_id"]) == 32 for line in inserts), "logs tell of executions"


@pytest.mark.core
def test_it_does_not_listen_to_others_without_tokens(nova: Nova) -> None:
    output = nova("serve", "--host", "0.0.0.0")
    assert output.code == 1 and "[NOVA-SERVICE-REFUSED]" in output.err and "nova token add" in output.err


@pytest.mark.core
def test_a_port_that_is_taken_is_said(nova: Nova) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        output = nova("serve", "--port", str(other.getsockname()[1]))
    assert output.code == 1 and "[NOVA-PORT-TAKEN]" in output.err and "--port 0" in output.err


@pytest.mark.core
@pytest.mark.parametrize(
    "options",
    [
        *(("--views", "paper"), ("--port", "high"), ("--auth", "maybe")),
        *(("--instances", "0"), ("--instances", "-1"), ("--instance-timeout", "1")),
    ],
)
def test_wrong_use(nova: Nova, options: tuple[str, str]) -> None:
    assert nova("serve", *options).code == 2
