"""Limits of requests and connections: sizes, times and numbers, over a real socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from nova_assets.client.transport import check_response, is_not_started
from nova_assets.errors import ServiceUnavailable
from nova_assets.service.http.request_limits import timeout_advice
from nova_assets_tests import patient
from nova_assets_tests.service.small_app import send_raw, serve_small_app

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def limited_url() -> Iterator[str]:
    """A service with small limits, on a socket."""
    limits = {"max_body": 1000, "max_url": 500, "max_headers": 2000, "request_seconds": 1.0, "upload_idle_seconds": 0.5}
    with serve_small_app(**limits, upload_seconds=1.5, header_seconds=0.7) as (url, _):
        yield url


def request_head(url: str, *lines: str, start: str = "POST /v1/insert HTTP/1.1") -> bytes:
    return "\r\n".join([start, f"host: {urlsplit(url).netloc}", *lines, "", ""]).encode()


def send_raw_at_once(url: str, *requests: list[bytes | float]) -> list[bytes]:
    """Answers to requests of several connections, which wait at the same time."""
    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(lambda parts: send_raw(url, *parts), requests))


def response_status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(limited_url: str) -> None:
    answer = send_raw(limited_url, request_head(limited_url, "content-length: 1001", "expect: 100-continue"))
    assert response_status(answer) == 413 and b"100 Continue" not in answer and b"at most 1,000 bytes" in answer
    assert patient.post(f"{limited_url}/v1/insert", content=b"x" * 1000).json() == {"bytes": 1000}
    refused = patient.post(f"{limited_url}/v1/insert", content=b"x" * 5_000_000)
    assert refused.status_code == 413, "also who sends it all the same gets to read why"
    assert response_status(send_raw(limited_url, request_head(limited_url, f"content-length: {'9' * 18}"))) == 413


def test_a_body_in_chunks_is_refused_as_soon_as_it_is_too_large(limited_url: str) -> None:
    def parts(count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield b"x" * 100

    assert patient.post(f"{limited_url}/v1/insert", content=parts(10)).json() == {"bytes": 1000}
    refused = patient.post(f"{limited_url}/v1/insert", content=parts(11))
    assert refused.status_code == 413 and refused.json()["code"] == "NOVA-REQUEST-REFUSED"
    endless = [request_head(limited_url, "transfer-encoding: chunked"), *[chunk(b"x" * 600), 0.05] * 3]
    assert response_status(send_raw(limited_url, *endless)) == 413


def test_a_body_that_pauses_or_drips_is_given_up(limited_url: str) -> None:
    pausing, dripping = send_raw_at_once(
        limited_url,
        [request_head(limited_url, "content-length: 10"), b"x", 0.7],
        [request_head(limited_url, "content-length: 100"), *[b"x", 0.2] * 9],
    )
    assert response_status(pausing) == 408 and b"for 0.5 seconds" in pausing and b"nothing was done" in pausing
    assert response_status(dripping) == 408 and b"within 1.5 seconds" in dripping


def test_waiting_for_a_body_is_not_the_handlers_time(limited_url: str) -> None:
    answer = send_raw(
        limited_url, request_head(limited_url, "content-length: 4", "connection: close"), *[b"x", 0.35] * 4
    )
    assert response_status(answer) == 200 and answer.endswith(b'{"bytes":4}')


@pytest.mark.core
def test_headers_and_addresses_are_bounded(limited_url: str) -> None:
    long = patient.get(f"{limited_url}/v1/channels/{'x' * 600}")
    assert long.status_code == 414 and long.json()["expected"] == "at most 500 bytes"
    assert patient.get(f"{limited_url}/v1/channels/orders?at=1&x={'y' * 600}").status_code == 414
    big = patient.get(f"{limited_url}/v1/whoami", headers={"x-a": "y" * 2000})
    assert big.status_code == 431 and big.headers["content-type"] == "application/problem+json"
    many = patient.get(f"{limited_url}/v1/whoami", headers=[(f"x-{n}", "") for n in range(300)])
    assert many.status_code == 431


@pytest.mark.core
def test_headers_that_never_end_are_cut_off(limited_url: str) -> None:
    endless = send_raw(limited_url, request_head(limited_url)[:-2], *[b"x-a: " + b"y" * 1000 + b"\r\n", 0.01] * 10)
    assert response_status(endless) == 431 and b"application/problem+json" in endless
    url = send_raw(limited_url, b"GET /" + b"x" * 3000, 0.05, b"y")
    assert response_status(url) == 431


def test_headers_that_drip_are_cut_off(limited_url: str) -> None:
    answer, silence = send_raw_at_once(limited_url, [request_head(limited_url)[:-2], *[b"x", 0.2] * 6], [])
    assert response_status(answer) in (0, 408)
    assert silence == b"", "who says nothing is hung up on"


@pytest.mark.core
def test_a_request_that_takes_too_long_is_told_so_even_if_it_cannot_be_stopped(limited_url: str) -> None:
    paths = ("/v1/slow?seconds=5", "/v1/blocked?seconds=3")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda path: patient.get(limited_url + path), paths))
    for path, answer in zip(paths, answers, strict=True):
        assert answer.status_code == 504 and "request less" in answer.json()["next"], path
        assert answer.json()["code"] == "NOVA-REQUEST-TIMED-OUT", path


@pytest.mark.core
@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "/v1/channels/c/files", "request less"),
        ("POST", "/v1/channels/c/read", "request less"),
        ("POST", "/v1/channels/c/blocks", "same Idempotency-Key"),
        ("POST", "/v1/channels/c/restore", "timeline before you repeat it"),
    ],
)
def test_what_to_do_about_what_takes_too_long(method: str, path: str, says: str) -> None:
    """Only an insert may be asked for again blindly."""
    assert says in timeout_advice({"method": method, "path": path})


def test_an_answer_that_has_begun_may_take_longer(limited_url: str) -> None:
    assert patient.get(f"{limited_url}/v1/stream?seconds=0.2&parts=8").text == "row\n" * 8


@pytest.mark.core
@pytest.mark.parametrize(
    "lines",
    [
        ("content-length: 5", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", "content-length: 5"),
        ("content-length: 5", "content-length: 6"),
        ("content-length: 5, 6",),
        ("content-length: -5",),
        ("content-length: +5",),
        ("content-length: 0x5",),
        ("transfer-encoding: chunked, identity",),
        ("transfer-encoding: xchunked",),
        ("transfer-encoding : chunked",),
        ("transfer-encoding: chunked", "transfer-encoding: chunked"),
    ],
)
def test_a_request_that_could_hide_another_one_is_refused_and_hung_up_on(
    limited_url: str, lines: tuple[str, ...]
) -> None:
    hidden = request_head(limited_url, start="GET /v1/whoami HTTP/1.1")
    for path in ("/v1/insert", "/healthz"):
        request_bytes = request_head(limited_url, *lines, start=f"POST {path} HTTP/1.1")
        answer = send_raw(limited_url, request_bytes + b"0\r\n\r\n" + hidden + hidden, timeout=5)
        assert response_status(answer) == 400, answer
        assert answer.count(b"HTTP/1.1 ") == 1 and b"connection: close" in answer.lower()


@pytest.mark.core
@pytest.mark.parametrize("hosts", [[], ["127.0.0.1", "evil.example.org"], ["evil.example.org", "127.0.0.1"], ["a b"]])
def test_a_request_says_once_which_host_it_asks(limited_url: str, hosts: list[str]) -> None:
    lines = ["GET /v1/whoami HTTP/1.1", *[f"host: {h}" for h in hosts], "connection: close", "", ""]
    assert response_status(send_raw(limited_url, "\r\n".join(lines).encode())) == 400


@pytest.mark.core
def test_what_is_no_http_gets_a_problem_too(limited_url: str) -> None:
    answer = send_raw(limited_url, b"\x16\x03\x01\x02\x00nonsense\r\n\r\n")
    assert response_status(answer) == 400 and b"application/problem+json" in answer


@pytest.mark.core
def test_a_websocket_is_not_there(limited_url: str) -> None:
    upgrade = (
        "connection: Upgrade, close",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: eA==",
    )
    assert (
        response_status(
            send_raw(limited_url, request_head(limited_url, *upgrade, start="GET /v1/nothing HTTP/1.1"), timeout=9)
        )
        == 404
    )


@pytest.mark.core
def test_a_refusal_before_the_body_has_come_keeps_the_connection_where_it_can(limited_url: str) -> None:
    with httpx.Client(base_url=limited_url, timeout=patient.SECONDS) as session:
        for _ in range(3):
            answer = session.post("/v1/refuse", content=b"x" * 900)
            assert answer.status_code == 404 and "connection" not in answer.headers
        assert session.post("/v1/insert", content=b"xyz").json() == {"bytes": 3}


def test_more_requests_than_may_be_are_told_to_ask_again_but_health_is_answered() -> None:
    with serve_small_app(max_requests=2) as (url, _), ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(httpx.get, f"{url}/v1/slow?seconds=1") for _ in range(2)]
        _wait_until(lambda: patient.get(f"{url}/v1/whoami").status_code == 429)
        refused = patient.get(f"{url}/v1/whoami")
        assert refused.headers["retry-after"] == "1" and refused.json()["code"] == "NOVA-SERVICE-BUSY"
        assert patient.get(f"{url}/healthz").status_code == patient.get(f"{url}/readyz").status_code == 200
        assert [b.result().status_code for b in busy] == [200, 200]
        assert patient.get(f"{url}/v1/whoami").status_code == 200


def test_work_that_cannot_be_stopped_counts_as_long_as_it_goes_on() -> None:
    with serve_small_app(max_requests=1, request_seconds=0.2) as (url, _):
        assert patient.get(f"{url}/v1/blocked?seconds=1").status_code == 504
        assert patient.get(f"{url}/v1/whoami").status_code == 429
        _wait_until(lambda: patient.get(f"{url}/v1/whoami").status_code == 200)


def test_connections_are_bounded() -> None:
    import socket

    with serve_small_app(max_connections=3) as (url, _):
        at = (urlsplit(url).hostname, urlsplit(url).port)
        held = [socket.create_connection(at) for _ in range(3)]  # type: ignore[arg-type]
        time.sleep(0.1)
        refused = patient.get(f"{url}/v1/whoami")
        assert refused.status_code == 503 and not is_not_started(refused)
        with pytest.raises(ServiceUnavailable, match="status 503"):
            check_response(refused)
        for connection in held:
            connection.close()
        _wait_until(lambda: patient.get(f"{url}/healthz").status_code == 200)


def test_who_does_not_read_an_answer_holds_nothing_up() -> None:
    import socket

    with serve_small_app(max_requests=1, send_idle_seconds=0.3) as (url, app):
        at = (urlsplit(url).hostname, urlsplit(url).port)
        with socket.create_connection(at) as idle:  # type: ignore[arg-type]
            idle.sendall(request_head(url, start="GET /v1/flood HTTP/1.1"))
            _wait_until(lambda: app.active_requests.handler_count == 1)
            _wait_until(lambda: patient.get(f"{url}/v1/whoami").status_code == 200)


def _wait_until(holds: Any, seconds: float = 5) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


def test_callers_do_not_get_each_others_answers_under_load() -> None:
    before = threading.active_count()  # tests before this one may have left some
    with serve_small_app(max_requests=8) as (url, _):

        def send_request(n: int) -> bool:
            with httpx.Client(base_url=url, timeout=patient.SECONDS) as session:
                said = [session.get(f"/v1/channels/orders?at={n * 100 + i}") for i in range(20)]
            return all(a.status_code == 429 or a.json()["at"] == n * 100 + i for i, a in enumerate(said))

        with ThreadPoolExecutor(12) as pool:
            assert all(pool.map(send_request, range(12)))
        assert threading.active_count() < before + 30
