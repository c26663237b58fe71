"""Who is let in, and how much is taken: as callers see it, in this process and on a real socket."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from nova_assets.service.http.request_limits import timeout_advice
from nova_assets_tests import patient
from nova_assets_tests.service.conftest import Issuer, asking, raw, served, shell

PUBLIC = {"host": "0.0.0.0", "tls_cert": "c.pem", "tls_key": "k.pem", "public_names": ("nova.example.org",)}
BEHIND = {"host": "0.0.0.0", "proxies": ("10.1.0.0/16",), "public_names": ("nova.example.org",)}


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that was answered, which has all its parts."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status and body["code"] == code and body["title"] and body["detail"]
    assert body["type"].startswith("urn:nova:problem:")
    assert body["request_id"] == response.headers["x-request-id"]
    return body


# --- names, pages of other sites, proxies


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST:1"])
def test_it_answers_to_the_names_of_this_machine(host: str) -> None:
    assert asking(shell())("GET", "/v1/whoami", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example.org", "127.0.0.1.nip.io:8765", "10.0.0.5", "localhost.evil.net"])
def test_a_strangers_name_is_no_way_in(host: str) -> None:
    ask = asking(shell())
    assert "host:" in problem(ask("GET", "/v1/whoami", headers={"host": host}), 421, "NOVA-REQUEST-REFUSED")["found"]
    assert ask("GET", "/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example.org"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://127.0.0.1:8766"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:99999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "Cross-Site", "origin": "http://127.0.0.1:8765"},
    ],
)
def test_pages_of_other_sites_may_not_ask(headers: dict[str, str]) -> None:
    ask = asking(shell())
    for method, path in (("POST", "/v1/insert"), ("GET", "/v1/whoami"), ("OPTIONS", "/v1/insert")):
        answer = ask(method, path, headers={"host": "127.0.0.1:8765", **headers})
        problem(answer, 403, "NOVA-NOT-ALLOWED")
        assert not [h for h in answer.headers if h.startswith("access-control")]


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8765", "http://127.0.0.1:8765"),
        ("localhost", "http://localhost"),
        ("localhost:80", "http://localhost"),
        ("[::1]:8765", "http://[::1]:8765"),
    ],
)
def test_pages_of_its_own_may(host: str, origin: str) -> None:
    headers = {"host": host, "origin": origin, "sec-fetch-site": "same-origin"}
    assert asking(shell())("POST", "/v1/insert", headers=headers, content=b"x").json() == {"bytes": 1}


def test_what_is_said_to_be_forwarded_is_believed_of_the_proxy_alone(issuer: Issuer) -> None:
    said = {"x-forwarded-for": "6.6.6.6, 203.0.113.9, 10.1.0.2", "x-forwarded-proto": "https", "host": "internal:1"}
    headers = {**issuer.issue(), **said, "x-forwarded-host": "nova.example.org"}
    app = shell(issuer, **BEHIND)
    seen = asking(app, client="10.1.0.1")("GET", "/v1/whoami", headers=headers).json()
    assert seen["client"] == "203.0.113.9", "the nearest that is no proxy: what is left of it anybody may have said"
    assert seen["url"].startswith("https://nova.example.org/") and seen["forwarded"] == []
    app = shell(issuer, **PUBLIC)
    seen = asking(app, client="10.1.0.1")("GET", "/v1/whoami", headers={**headers, "host": "nova.example.org"}).json()
    assert seen["client"] == "10.1.0.1" and seen["url"].startswith("http://nova.example.org/")
    assert seen["forwarded"] == []


def test_a_name_that_a_stranger_says_was_forwarded_is_not_believed(issuer: Issuer) -> None:
    headers = {**issuer.issue(), "host": "evil.example.org", "x-forwarded-host": "nova.example.org"}
    problem(asking(shell(issuer, **PUBLIC))("GET", "/v1/whoami", headers=headers), 421, "NOVA-REQUEST-REFUSED")


def test_without_tls_only_the_proxy_and_this_machine_may_ask(issuer: Issuer) -> None:
    app, headers = shell(issuer, **BEHIND), {**issuer.issue(), "host": "nova.example.org"}
    answer = asking(app, client="192.168.0.9")("GET", "/v1/whoami", headers=headers)
    assert "proxy" in problem(answer, 403, "NOVA-NOT-ALLOWED")["detail"]
    assert asking(app, client="10.1.7.7")("GET", "/v1/whoami", headers=headers).status_code == 200
    assert asking(app, client="127.0.0.1")("GET", "/v1/whoami", headers=headers).status_code == 200
    assert asking(app, client="192.168.0.9")("GET", "/readyz").status_code == 200


def test_a_proxy_that_was_asked_without_tls_is_told_so(issuer: Issuer) -> None:
    headers = {**issuer.issue(), "host": "nova.example.org", "x-forwarded-proto": "http"}
    problem(
        asking(shell(issuer, **BEHIND), client="10.1.0.1")("GET", "/v1/whoami", headers=headers),
        403,
        "NOVA-NOT-ALLOWED",
    )


@pytest.mark.parametrize("header", ["x-forwarded-for", "Forwarded", "X-Real-IP"])
def test_without_tokens_a_proxy_that_nobody_stated_is_no_way_in(header: str) -> None:
    answer = asking(shell())("GET", "/v1/whoami", headers={header: "203.0.113.9"})
    assert "--proxy" in problem(answer, 403, "NOVA-NOT-ALLOWED")["next"]


# --- tokens


def test_without_tokens_everybody_on_this_machine_may_do_everything() -> None:
    assert asking(shell())("GET", "/v1/channels/orders").json()["caller"] == "local"


def test_with_tokens_the_caller_is_known_by_name(issuer: Issuer) -> None:
    ask = asking(shell(issuer, auth="tokens"))
    assert ask("GET", "/v1/channels/orders", headers=issuer.issue("ann")).json()["caller"] == "ann"
    lower = {"authorization": issuer.issue("bob")["authorization"].replace("Bearer", "bearer")}
    assert ask("GET", "/v1/channels/orders", headers=lower).json()["caller"] == "bob"


def test_no_token_and_every_wrong_one_are_told_the_same(issuer: Issuer) -> None:
    ask = asking(shell(issuer, auth="tokens", token_seconds=0))
    good = issuer.issue("ann")["authorization"]
    expired = issuer.issue("old", expires_in=1)["authorization"]
    revoked = issuer.issue("gone")["authorization"]
    issuer.known = {i: t if t.name != "gone" else _revoked(t, issuer) for i, t in issuer.known.items()}
    issuer.now += timedelta(seconds=1)
    wrong = [
        *(None, "", "Bearer", "Bearer ", "Basic YW5uOmFubg==", good.removeprefix("Bearer "), f"{good}x", good[:-1]),
        *(good.replace("nova_", "nova_0000", 1), f"Bearer nova_{'0' * 16}_{'a' * 43}", f"{good}, {good}"),
        *(expired, revoked),
    ]
    told = []
    for text in wrong:
        answer = ask("GET", "/v1/channels/orders", headers={} if text is None else {"authorization": text})
        body = problem(answer, 401, "NOVA-BAD-TOKEN")
        assert answer.headers["www-authenticate"] == 'Bearer realm="nova"'
        told.append({k: v for k, v in body.items() if k != "request_id"})
    assert all(body == told[0] for body in told)
    twice = [("authorization", good), ("authorization", good)]
    assert ask("GET", "/v1/whoami", headers=twice).status_code == 401
    assert ask("GET", f"/v1/whoami?token={good[7:]}").status_code == 401
    assert ask("GET", "/v1/channels/orders", headers={"authorization": good}).status_code == 200


def _revoked(token: Any, issuer: Issuer) -> Any:
    from dataclasses import replace

    return replace(token, revoked_at=issuer.now)


def test_an_unknown_address_is_no_oracle_without_a_token(issuer: Issuer) -> None:
    ask = asking(shell(issuer, auth="tokens"))
    for path in ("/v1/channels/orders", "/v1/channels/nothing", "/v1/nonsense", "/docs", "/openapi.json", "/metrics"):
        assert ask("GET", path).status_code == 401, path


def test_who_may_not_read_a_channel_is_not_told_whether_it_is_there(issuer: Issuer) -> None:
    ask, headers = asking(shell(issuer, auth="tokens")), issuer.issue("eve", read=("stock",), write=("orders",))
    told = []
    for channel in ("orders", "nothing"):
        body = problem(ask("GET", f"/v1/channels/{channel}", headers=headers), 403, "NOVA-NOT-ALLOWED")
        told.append(json.dumps(body).replace(channel, "CHANNEL").replace(body["request_id"], ""))
    assert told[0] == told[1] and "--read CHANNEL" in told[0]
    ann = issuer.issue("ann", read=("*",))
    problem(ask("GET", "/v1/channels/nothing", headers=ann), 404, "NOVA-CHANNEL-NOT-FOUND")


def test_health_is_open_and_metrics_want_any_token(issuer: Issuer) -> None:
    ask = asking(shell(issuer, auth="tokens"))
    assert ask("GET", "/healthz").status_code == ask("GET", "/readyz").status_code == 200
    assert ask("GET", "/metrics").status_code == 401
    assert "nova_service_requests_total" in ask("GET", "/metrics", headers=issuer.issue(write=("x",))).text
    assert asking(shell())("GET", "/metrics").status_code == 200


def test_a_token_is_looked_up_once_and_a_revocation_counts_within_seconds(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, headers = asking(shell(issuer, auth="tokens")), issuer.issue("ann")
    assert [ask("GET", "/v1/whoami", headers=headers).status_code for _ in range(3)] == [200] * 3
    assert issuer.looks == 1
    issuer.known = {i: _revoked(t, issuer) for i, t in issuer.known.items()}
    assert ask("GET", "/v1/whoami", headers=headers).status_code == 200
    moved = time.monotonic() + 5
    monkeypatch.setattr("nova_assets.service.http.guard.time.monotonic", lambda: moved)
    assert ask("GET", "/v1/whoami", headers=headers).status_code == 401


def test_a_token_expires_to_the_second_and_a_new_one_works_at_once(issuer: Issuer) -> None:
    ask, headers = asking(shell(issuer, auth="tokens")), issuer.issue("ann", expires_in=10)
    assert ask("GET", "/v1/whoami", headers=headers).status_code == 200
    issuer.now += timedelta(seconds=10)
    assert ask("GET", "/v1/whoami", headers=headers).status_code == 401
    later = issuer.issue("bob")
    known, issuer.known = issuer.known, {}
    assert ask("GET", "/v1/whoami", headers=later).status_code == 401
    issuer.known = known
    assert ask("GET", "/v1/whoami", headers=later).status_code == 200


def test_a_catalog_that_does_not_answer_is_no_reason_to_let_anybody_in_or_to_tell_where_it_is(issuer: Issuer) -> None:
    ask, headers = asking(shell(issuer, auth="tokens")), issuer.issue("ann")
    issuer.fails = True
    answer = ask("GET", "/v1/whoami", headers=headers)
    problem(answer, 503, "NOVA-CATALOG-UNAVAILABLE")
    assert answer.headers["retry-after"] and not any(w in answer.text for w in ("postgres", "10.0.0.7", "db.internal"))


# --- how much is taken


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """A service with small limits, on a socket."""
    limits = {"max_body": 1000, "max_url": 500, "max_headers": 2000, "request_seconds": 1.0, "upload_idle_seconds": 0.5}
    with served(**limits, upload_seconds=1.5, header_seconds=0.7) as (url, _):
        yield url


def head(url: str, *lines: str, start: str = "POST /v1/insert HTTP/1.1") -> bytes:
    return "\r\n".join([start, f"host: {urlsplit(url).netloc}", *lines, "", ""]).encode()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(small: str) -> None:
    answer = raw(small, head(small, "content-length: 1001", "expect: 100-continue"))
    assert status_of(answer) == 413 and b"100 Continue" not in answer and b"at most 1,000 bytes" in answer
    assert patient.post(f"{small}/v1/insert", content=b"x" * 1000).json() == {"bytes": 1000}
    refused = patient.post(f"{small}/v1/insert", content=b"x" * 5_000_000)
    assert refused.status_code == 413, "also who sends it all the same gets to read why"
    assert status_of(raw(small, head(small, f"content-length: {'9' * 18}"))) == 413


def test_a_body_in_chunks_is_refused_as_soon_as_it_is_too_large(small: str) -> None:
    def parts(count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield b"x" * 100

    assert patient.post(f"{small}/v1/insert", content=parts(10)).json() == {"bytes": 1000}
    refused = patient.post(f"{small}/v1/insert", content=parts(11))
    assert refused.status_code == 413 and refused.json()["code"] == "NOVA-REQUEST-REFUSED"
    endless = [head(small, "transfer-encoding: chunked"), *[chunk(b"x" * 600), 0.05] * 3]
    assert status_of(raw(small, *endless)) == 413


def test_a_body_that_pauses_or_drips_is_given_up(small: str) -> None:
    began = time.monotonic()
    pausing = raw(small, head(small, "content-length: 10"), b"x", 0.7)
    assert status_of(pausing) == 408 and b"for 0.5 seconds" in pausing and b"nothing was done" in pausing
    dripping = raw(small, head(small, "content-length: 100"), *[b"x", 0.2] * 9)
    assert status_of(dripping) == 408 and b"within 1.5 seconds" in dripping
    assert time.monotonic() - began < 9


def test_waiting_for_a_body_is_not_the_handlers_time(small: str) -> None:
    answer = raw(small, head(small, "content-length: 4", "connection: close"), *[b"x", 0.35] * 4)
    assert status_of(answer) == 200 and answer.endswith(b'{"bytes":4}')


def test_headers_and_addresses_are_bounded(small: str) -> None:
    long = patient.get(f"{small}/v1/channels/{'x' * 600}")
    assert long.status_code == 414 and long.json()["expected"] == "at most 500 bytes"
    assert patient.get(f"{small}/v1/channels/orders?at=1&x={'y' * 600}").status_code == 414
    big = patient.get(f"{small}/v1/whoami", headers={"x-a": "y" * 2000})
    assert big.status_code == 431 and big.headers["content-type"] == "application/problem+json"
    many = patient.get(f"{small}/v1/whoami", headers=[(f"x-{n}", "") for n in range(300)])
    assert many.status_code == 431


def test_headers_that_never_end_are_cut_off(small: str) -> None:
    endless = raw(small, head(small)[:-2], *[b"x-a: " + b"y" * 1000 + b"\r\n", 0.01] * 10)
    assert status_of(endless) == 431 and b"application/problem+json" in endless
    url = raw(small, b"GET /" + b"x" * 3000, 0.05, b"y")
    assert status_of(url) == 431


def test_headers_that_drip_are_cut_off(small: str) -> None:
    began = time.monotonic()
    answer = raw(small, head(small)[:-2], *[b"x", 0.2] * 6)
    assert status_of(answer) in (0, 408) and time.monotonic() - began < 3
    assert raw(small, timeout=5) == b"", "who says nothing is hung up on"


def test_a_request_that_takes_too_long_is_told_so_even_if_it_cannot_be_stopped(small: str) -> None:
    for path in ("/v1/slow?seconds=5", "/v1/blocked?seconds=3"):
        began = time.monotonic()
        answer = patient.get(small + path)
        assert answer.status_code == 504 and "ask for less" in answer.json()["next"], path
        assert answer.json()["code"] == "NOVA-REQUEST-TIMED-OUT" and time.monotonic() - began < 2, path


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "/v1/channels/c/files", "ask for less"),
        ("POST", "/v1/channels/c/read", "ask for less"),
        ("POST", "/v1/channels/c/blocks", "same Idempotency-Key"),
        ("POST", "/v1/channels/c/restore", "timeline before it is asked for again"),
    ],
)
def test_what_to_do_about_what_takes_too_long(method: str, path: str, says: str) -> None:
    """Only an insert may be asked for again blindly."""
    assert says in timeout_advice({"method": method, "path": path})


def test_an_answer_that_has_begun_may_take_longer(small: str) -> None:
    assert patient.get(f"{small}/v1/stream?seconds=0.2&parts=8").text == "row\n" * 8


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
def test_a_request_that_could_hide_another_one_is_refused_and_hung_up_on(small: str, lines: tuple[str, ...]) -> None:
    hidden = head(small, start="GET /v1/whoami HTTP/1.1")
    for path in ("/v1/insert", "/healthz"):
        asked = head(small, *lines, start=f"POST {path} HTTP/1.1")
        answer = raw(small, asked + b"0\r\n\r\n" + hidden + hidden, timeout=5)
        assert status_of(answer) == 400, answer
        assert answer.count(b"HTTP/1.1 ") == 1 and b"connection: close" in answer.lower()


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1", "evil.example.org"], ["evil.example.org", "127.0.0.1"], ["a b"]])
def test_a_request_says_once_which_host_it_asks(small: str, hosts: list[str]) -> None:
    lines = ["GET /v1/whoami HTTP/1.1", *[f"host: {h}" for h in hosts], "connection: close", "", ""]
    assert status_of(raw(small, "\r\n".join(lines).encode())) == 400


def test_what_is_no_http_gets_a_problem_too(small: str) -> None:
    answer = raw(small, b"\x16\x03\x01\x02\x00nonsense\r\n\r\n")
    assert status_of(answer) == 400 and b"application/problem+json" in answer


def test_a_websocket_is_not_there(small: str) -> None:
    upgrade = (
        "connection: Upgrade, close",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: eA==",
    )
    assert status_of(raw(small, head(small, *upgrade, start="GET /v1/nothing HTTP/1.1"), timeout=9)) == 404


def test_a_refusal_before_the_body_has_come_keeps_the_connection_where_it_can(small: str) -> None:
    with httpx.Client(base_url=small, timeout=patient.SECONDS) as session:
        for _ in range(3):
            answer = session.post("/v1/refuse", content=b"x" * 900)
            assert answer.status_code == 404 and "connection" not in answer.headers
        assert session.post("/v1/insert", content=b"xyz").json() == {"bytes": 3}


def test_more_requests_than_may_be_are_told_to_ask_again_but_health_is_answered() -> None:
    with served(max_requests=2) as (url, _), ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(httpx.get, f"{url}/v1/slow?seconds=1") for _ in range(2)]
        _until(lambda: patient.get(f"{url}/v1/whoami").status_code == 429)
        refused = patient.get(f"{url}/v1/whoami")
        assert refused.headers["retry-after"] == "1" and refused.json()["code"] == "NOVA-SERVICE-BUSY"
        assert patient.get(f"{url}/healthz").status_code == patient.get(f"{url}/readyz").status_code == 200
        assert [b.result().status_code for b in busy] == [200, 200]
        assert patient.get(f"{url}/v1/whoami").status_code == 200


def test_work_that_cannot_be_stopped_counts_as_long_as_it_goes_on() -> None:
    with served(max_requests=1, request_seconds=0.2) as (url, _):
        assert patient.get(f"{url}/v1/blocked?seconds=1").status_code == 504
        assert patient.get(f"{url}/v1/whoami").status_code == 429
        _until(lambda: patient.get(f"{url}/v1/whoami").status_code == 200)


def test_connections_are_bounded() -> None:
    import socket

    with served(max_connections=3) as (url, _):
        at = (urlsplit(url).hostname, urlsplit(url).port)
        held = [socket.create_connection(at) for _ in range(3)]  # type: ignore[arg-type]
        time.sleep(0.1)
        with pytest.raises(httpx.TransportError):
            patient.get(f"{url}/healthz")
        for connection in held:
            connection.close()
        _until(lambda: patient.get(f"{url}/healthz").status_code == 200)


def test_who_does_not_read_an_answer_holds_nothing_up() -> None:
    import socket

    with served(max_requests=1, send_idle_seconds=0.3) as (url, app):
        at = (urlsplit(url).hostname, urlsplit(url).port)
        with socket.create_connection(at) as idle:  # type: ignore[arg-type]
            idle.sendall(head(url, start="GET /v1/flood HTTP/1.1"))
            _until(lambda: app.active_requests.handler_count == 1)
            _until(lambda: patient.get(f"{url}/v1/whoami").status_code == 200)


def _until(holds: Any, seconds: float = 5) -> None:
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
    with served(max_requests=8) as (url, _):

        def ask(n: int) -> bool:
            with httpx.Client(base_url=url, timeout=patient.SECONDS) as session:
                said = [session.get(f"/v1/channels/orders?at={n * 100 + i}") for i in range(20)]
            return all(a.status_code == 429 or a.json()["at"] == n * 100 + i for i, a in enumerate(said))

        with ThreadPoolExecutor(12) as pool:
            assert all(pool.map(ask, range(12)))
        assert threading.active_count() < before + 30
