"""Answers disclose neither paths of the server nor channels that the caller may not read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from nova_assets.service.http.asgi import ARROW
from nova_assets_tests import patient
from nova_assets_tests.service.raw_requests import assert_no_server_paths, list_blocks
from nova_assets_tests.service.served_deployment import (
    CHANNELS,
    ServedDeployment,
    encode_arrow_stream,
    sample_rows,
    serve_deployment,
)

pytestmark = pytest.mark.slow


@pytest.mark.core
def test_no_answer_tells_where_things_are(
    deployment: ServedDeployment, send_request: Callable[..., httpx.Response]
) -> None:
    paths = ["channels", "executions", "cursors", "firings", "../metrics", "../healthz", "../readyz", "../nowhere"]
    names = [
        "",
        "/schema",
        "/partitions",
        "/blocks",
        "/timeline",
        "/pending",
        "/upkeep",
        "/files",
        "/history",
        "/instants",
    ]
    paths += [f"channels/{c}{name}" for c in CHANNELS for name in names]
    paths += [f"executions/{e.id}" for e in deployment.store.executions()]
    for path in paths:
        answer = send_request("GET", path)
        assert answer.status_code in (200, 404), (path, answer.text)
        assert_no_server_paths(deployment, answer.text + repr(answer.headers))


def test_what_a_caller_may_not_see_takes_no_room_of_what_they_may(tmp_path: Path) -> None:
    """The latest execution and firing are others'; the latest that the caller may see is told."""
    with serve_deployment(tmp_path, auth="tokens") as deployment:
        mine, all_ = (
            deployment.add_token_header("sums", read=("stock", "totals")),
            deployment.add_token_header("all", read=("*",)),
        )
        for what in ("executions", "firings"):
            url = f"{deployment.url}/v1/{what}"
            latest = patient.get(url, params={"limit": 1}, headers=all_).json()
            seen = patient.get(url, headers=mine).json()
            assert latest[0]["binding"] != "sums" and {found["binding"] for found in seen} == {"sums"}
            assert patient.get(url, params={"limit": 1}, headers=mine).json() == seen[:1]


def test_a_timeline_tells_by_whom_to_who_may_read_what_they_read(tmp_path: Path) -> None:
    with serve_deployment(tmp_path, auth="tokens") as deployment:
        url = f"{deployment.url}/v1/channels/totals/timeline"
        both, one = (
            deployment.add_token_header("both", read=("stock", "totals")),
            deployment.add_token_header("one", read=("totals",)),
        )
        [seen], [less] = patient.get(url, headers=both).json(), patient.get(url, headers=one).json()
    assert seen["binding"] == "sums" and seen["details"]["tasks"]
    assert less == {**seen, "binding": None, "details": {}}


def test_a_warehouse_that_is_broken_is_told_of_without_its_place(tmp_path: Path) -> None:
    with serve_deployment(tmp_path, auth="none") as broken:
        paths = [f["path"] for b in list_blocks(broken, "stock") for f in b["files"]]
        (tmp_path / "wh" / paths[0]).write_bytes(b"PAR1 nonsense PAR1")
        (tmp_path / "wh" / paths[1]).unlink()
        for route in ("data", "data?since=1", "data?at=3"):
            answer = patient.get(f"{broken.url}/v1/channels/stock/{route}")
            assert answer.status_code in (500, 503), answer.text
            assert_no_server_paths(broken, answer.text)
        assert [e for e in broken.store.catalog.executions.running() if e.purpose == "read"] == [], (
            "it lets go of its pins"
        )
        body = encode_arrow_stream(sample_rows("stock", 1))
        (tmp_path / "wh").rename(tmp_path / "elsewhere")
        (tmp_path / "wh").write_text("no folder")
        answer = patient.post(f"{broken.url}/v1/channels/stock/blocks", content=body, headers={"content-type": ARROW})
        assert answer.status_code in (500, 503), answer.text
        assert_no_server_paths(broken, answer.text)
