"""Malformed HTTP: chunks, headers and request lines."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest

from nova_assets.service.http.asgi import ARROW
from nova_assets_tests.service.raw_requests import assert_no_server_paths, send_raw_request
from nova_assets_tests.service.served_deployment import ServedDeployment, encode_arrow_stream, sample_rows
from nova_assets_tests.service.small_app import send_raw


def _head(deployment: ServedDeployment, *lines: str, start: str = "POST /v1/channels/stock/blocks HTTP/1.1") -> bytes:
    return "\r\n".join(
        [start, f"host: {urlsplit(deployment.url).netloc}", f"content-type: {ARROW}", *lines, "", ""]
    ).encode()


@pytest.mark.parametrize(
    "after",
    [
        *(b"-1\r\n", b"FFFFFFFFFFFFFFFFF\r\n", b"0x5\r\nhello\r\n", b"5 5\r\nhello\r\n", b"\r\n\r\n", b"5\rhello\r\n"),
        *(b"5\r\nhelloxx0\r\n\r\n", b"\x00\r\n", b"+5\r\nhello\r\n", b"5_0\r\n", b"\xd9\xa5\r\nhello\r\n"),
    ],
)
def test_a_chunk_that_is_none_ends_the_connection(deployment: ServedDeployment, after: bytes) -> None:
    before = deployment.channel_contents("stock")
    hidden = _head(deployment, start="GET /v1/channels HTTP/1.1")
    answer = send_raw(
        deployment.url, _head(deployment, "transfer-encoding: chunked") + after + b"0\r\n\r\n" + hidden, timeout=5
    )
    assert answer.count(b"HTTP/1.1 ") <= 1 and b" 200 OK" not in answer, answer
    assert deployment.channel_contents("stock") == before


def test_what_comes_after_a_body_is_no_header_of_it(deployment: ServedDeployment) -> None:
    """Trailers tell nothing: not who asks, nor how long the body is, nor which key it has."""
    body = encode_arrow_stream(sample_rows("stock", 1))
    chunks = b"%x;a=b\r\n%s\r\n0\r\n" % (len(body), body)
    trailers = b"idempotency-key: late\r\nx-request-id: late\r\nhost: evil.example.org\r\n\r\n"
    sent = _head(deployment, "transfer-encoding: chunked", "connection: close") + chunks + trailers
    first, second = send_raw(deployment.url, sent), send_raw(deployment.url, sent)
    assert b" 200 OK" in first and b" 200 OK" in second and b'"repeated":true' not in second


@pytest.mark.parametrize(
    "line",
    [
        *("x y: z", " folded", "\tfolded", "x\0y: z", "x: \0", ": empty", "no colon", "x: a\rb", "x(y): z", "é: x"),
    ],
)
def test_a_header_that_is_none_is_refused(deployment: ServedDeployment, line: str) -> None:
    start = _head(deployment, start="GET /v1/channels HTTP/1.1")[:-2]
    answer = send_raw(deployment.url, start + line.encode("latin-1") + b"\r\nconnection: close\r\n\r\n", timeout=5)
    assert answer.startswith(b"HTTP/1.1 400"), answer


@pytest.mark.parametrize(
    "start",
    [
        *("GET /v1/channels", "GET /v1/channels HTTP/2.0", "GET /v1/channels HTTP/1.1 x"),
        *(
            "GE T /v1/channels HTTP/1.1",
            "CONNECT 127.0.0.1:80 HTTP/1.1",
            "GET v1/channels HTTP/1.1",
            "\x16\x03 / HTTP/1.1",
        ),
        *(
            "get /v1/channels HTTP/1.1",
            "PRI * HTTP/2.0",
            "DELETE /v1/channels/stock HTTP/1.1",
            "TRACE /v1/channels HTTP/1.1",
        ),
    ],
)
def test_a_request_line_that_is_none_is_refused(deployment: ServedDeployment, start: str) -> None:
    answer = send_raw(deployment.url, _head(deployment, "connection: close", start=start), timeout=5)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 405")), answer
    assert_no_server_paths(deployment, answer)


@pytest.mark.parametrize(
    "header",
    [
        *("x-http-method-override: DELETE", "x-original-url: /v1/channels/quokka_ledger", "x-rewrite-url: /v1/nowhere"),
        *("upgrade: h2c", "cookie: token=nova_x", "range: bytes=0-1", "accept: text/html", "accept-encoding: gzip"),
        *("if-none-match: *", "te: trailers", "expect: 200-ok", "x-request-id: a\tb", "proxy: http://evil.example.org"),
    ],
)
def test_headers_that_mean_something_elsewhere_mean_nothing_here(deployment: ServedDeployment, header: str) -> None:
    _, usual = send_raw_request(deployment, "/v1/channels/stock")
    status, answer = send_raw_request(deployment, "/v1/channels/stock", header)
    assert status == 200 and answer.split(b"\r\n\r\n")[1] == usual.split(b"\r\n\r\n")[1], answer
    assert b"a\tb" not in answer


def test_what_is_put_into_an_address_is_no_header_of_the_answer(deployment: ServedDeployment) -> None:
    for text in ("x\r\nset-cookie: a=b", "x\nset-cookie: a=b", "x\u2028set-cookie: a=b", "x\0"):
        for target in (
            f"/v1/channels/{quote(text)}",
            f"/v1/executions?binding={quote(text)}",
            f"/v1/{quote(text)}?{quote(text)}",
        ):
            _, answer = send_raw_request(deployment, target)
            assert b"set-cookie" not in answer.split(b"\r\n\r\n")[0].lower()
