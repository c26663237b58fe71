"""Callers that disconnect or stop reading: nothing stays pinned, and nothing is half inserted."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest

from nova_assets.service.http.media_types import ARROW
from nova_assets_tests.service.deployed import Deployed, rows_of, stream_of


@pytest.fixture(scope="module")
def large(there: Deployed) -> str:
    """A channel of which much more comes than lies in the buffers of a connection."""
    some = np.random.default_rng(1).integers(0, 2**60, 6_000_000)
    there.store.insert("later", pa.table({"n": some}))
    return f"{there.url}/v1/channels/later/data"


def _reads(there: Deployed) -> int:
    return sum(e.purpose == "read" for e in there.store.catalog.running_executions())


def _until(holds: Callable[[], bool], seconds: float = 5) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_who_goes_away_holds_no_pin(there: Deployed, large: str, how: str) -> None:
    at = urlsplit(there.url)
    for _ in range(3):
        with socket.create_connection((at.hostname or "", at.port or 0)) as connection:
            if how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(f"GET {urlsplit(large).path} HTTP/1.1\r\nhost: {at.netloc}\r\n\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            _until(lambda: _reads(there) == 1)
        _until(lambda: _reads(there) == 0)


def test_who_reads_nothing_holds_no_pin(there: Deployed, large: str) -> None:
    at = urlsplit(there.url)
    with socket.create_connection((at.hostname or "", at.port or 0)) as connection:
        connection.sendall(f"GET {urlsplit(large).path} HTTP/1.1\r\nhost: {at.netloc}\r\n\r\n".encode())
        _until(lambda: _reads(there) == 1)
        _until(lambda: _reads(there) == 0, seconds=10)


def test_who_goes_away_before_the_body_has_come_changes_nothing(there: Deployed) -> None:
    at, before = urlsplit(there.url), (there.standing("stock"), there.files(), there.unfinished())
    body = stream_of(rows_of("stock", 1))
    lines = ["POST /v1/channels/stock/blocks HTTP/1.1", f"host: {at.netloc}", f"content-type: {ARROW}"]
    for sized in (f"content-length: {len(body) + 1}", "transfer-encoding: chunked"):
        with socket.create_connection((at.hostname or "", at.port or 0)) as connection:
            sent = body if sized.startswith("content") else b"%x\r\n%s\r\n" % (len(body), body)
            connection.sendall("\r\n".join([*lines, sized, "", ""]).encode() + sent)
            time.sleep(0.2)
    time.sleep(0.5)
    assert (there.standing("stock"), there.files(), there.unfinished()) == before
