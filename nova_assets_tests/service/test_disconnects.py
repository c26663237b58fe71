"""Callers that disconnect or stop reading: nothing stays pinned, and nothing is half inserted."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest

from nova_assets.service.http.asgi import ARROW
from nova_assets_tests.service.served_deployment import ServedDeployment, encode_arrow_stream, sample_rows


@pytest.fixture(scope="module")
def large_channel_url(deployment: ServedDeployment) -> str:
    """A channel of which much more comes than lies in the buffers of a connection."""
    some = np.random.default_rng(1).integers(0, 2**60, 6_000_000)
    deployment.store.insert("later", pa.table({"n": some}))
    return f"{deployment.url}/v1/channels/later/data"


def _running_read_count(deployment: ServedDeployment) -> int:
    return sum(e.purpose == "read" for e in deployment.store.catalog.executions.running())


def _wait_until(holds: Callable[[], bool], seconds: float = 5) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_who_goes_away_holds_no_pin(deployment: ServedDeployment, large_channel_url: str, how: str) -> None:
    at = urlsplit(deployment.url)
    for _ in range(3):
        with socket.create_connection((at.hostname or "", at.port or 0)) as connection:
            if how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(f"GET {urlsplit(large_channel_url).path} HTTP/1.1\r\nhost: {at.netloc}\r\n\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            _wait_until(lambda: _running_read_count(deployment) == 1)
        _wait_until(lambda: _running_read_count(deployment) == 0)


@pytest.mark.slow
def test_who_reads_nothing_holds_no_pin(deployment: ServedDeployment, large_channel_url: str) -> None:
    at = urlsplit(deployment.url)
    with socket.create_connection((at.hostname or "", at.port or 0)) as connection:
        connection.sendall(f"GET {urlsplit(large_channel_url).path} HTTP/1.1\r\nhost: {at.netloc}\r\n\r\n".encode())
        _wait_until(lambda: _running_read_count(deployment) == 1)
        _wait_until(lambda: _running_read_count(deployment) == 0, seconds=10)


@pytest.mark.slow
def test_who_goes_away_before_the_body_has_come_changes_nothing(deployment: ServedDeployment) -> None:
    at, before = (
        urlsplit(deployment.url),
        (deployment.channel_contents("stock"), deployment.file_digests(), deployment.unfinished_executions()),
    )
    body = encode_arrow_stream(sample_rows("stock", 1))
    lines = ["POST /v1/channels/stock/blocks HTTP/1.1", f"host: {at.netloc}", f"content-type: {ARROW}"]
    for sized in (f"content-length: {len(body) + 1}", "transfer-encoding: chunked"):
        with socket.create_connection((at.hostname or "", at.port or 0)) as connection:
            sent = body if sized.startswith("content") else b"%x\r\n%s\r\n" % (len(body), body)
            connection.sendall("\r\n".join([*lines, sized, "", ""]).encode() + sent)
            time.sleep(0.2)
    time.sleep(0.5)
    assert (
        deployment.channel_contents("stock"),
        deployment.file_digests(),
        deployment.unfinished_executions(),
    ) == before
