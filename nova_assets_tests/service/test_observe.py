"""What a service tells of itself, and what it keeps to itself."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from nova_assets.service.http.access_log import configure_json_logging
from nova_assets_tests.service.small_app import TokenIssuer, build_guarded_app, make_request_sender, serve_small_app


@pytest.fixture
def log_lines() -> Iterator[Any]:
    """Gives the lines that were logged, parsed."""
    stream = io.StringIO()
    loggers = [logging.getLogger(name) for name in ("nova_assets.service", "uvicorn.error")]
    before = [(lo, lo.handlers, lo.propagate, lo.level) for lo in loggers]
    configure_json_logging(stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for logger, handlers, propagate, level in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_a_request_is_one_line(issuer: TokenIssuer, log_lines: Any) -> None:
    send_request, headers = (
        make_request_sender(build_guarded_app(issuer, auth="tokens")),
        issuer.add_token_header("ann"),
    )
    answer = send_request("GET", "/v1/channels/orders?at=7", headers={**headers, "x-request-id": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"
    [line] = log_lines()
    assert line.pop("ms") >= 0 and line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "nova_assets.service",
        "message": "request",
        "request_id": "abc-1",
        "method": "GET",
        "route": "/v1/channels/{channel}",
        "status": 200,
        "bytes_in": 0,
        "bytes_out": len(answer.content),
        "caller": "ann",
        "channel": "orders",
        "execution_id": "e1",
    }


def test_a_route_of_a_router_is_named_whole(log_lines: Any) -> None:
    make_request_sender(build_guarded_app())("GET", "/v1/apart/orders/rows")
    [line] = log_lines()
    assert line["route"] == "/v1/apart/{channel}/rows" and line["channel"] == "orders"


def test_neither_tokens_nor_queries_nor_what_is_sent_are_logged(issuer: TokenIssuer, log_lines: Any) -> None:
    send_request, headers = (
        make_request_sender(build_guarded_app(issuer, auth="tokens")),
        issuer.add_token_header("ann"),
    )
    token = headers["authorization"].removeprefix("Bearer ")
    send_request("GET", "/v1/channels/orders?at=7&key=jane.doe", headers=headers)
    send_request("GET", f"/v1/whoami?token={token}")
    send_request("GET", "/v1/whoami", headers={"authorization": f"Bearer {token}x"})
    send_request("GET", "/v1/whoami", headers={**headers, "x-request-id": token})
    send_request("POST", "/v1/insert", headers=headers, content=b"jane.doe")
    logged = json.dumps(log_lines())
    assert len(log_lines()) == 5 and "jane.doe" not in logged and token[-20:] not in logged


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, 'a"b', "ä".encode().decode("latin-1"), "nova_x"])
def test_an_id_that_cannot_be_one_is_replaced(given: str) -> None:
    answer = make_request_sender(build_guarded_app())(
        "GET", "/v1/whoami", headers=[(b"x-request-id", given.encode("latin-1"))]
    )
    assert answer.headers["x-request-id"] != given and len(answer.headers["x-request-id"]) == 32


def test_failures_are_logged_with_what_callers_are_not_told(issuer: TokenIssuer, log_lines: Any) -> None:
    send_request, headers = (
        make_request_sender(build_guarded_app(issuer, auth="tokens")),
        issuer.add_token_header("ann"),
    )
    issuer.is_catalog_down = True
    answer = send_request("GET", "/v1/whoami", headers=headers)
    issuer.is_catalog_down = False
    send_request("GET", "/v1/broken", headers=headers)
    catalog, bug = log_lines()
    assert catalog["level"] == bug["level"] == "ERROR"
    assert catalog["request_id"] == answer.json()["request_id"] and "db.internal" in catalog["error"]
    assert "hunter2" in bug["exc_info"] and bug["status"] == 500


def test_refusals_are_counted_by_reason_and_requests_by_route(issuer: TokenIssuer) -> None:
    app, headers = (
        build_guarded_app(issuer, auth="tokens", max_body=10),
        issuer.add_token_header("ann", read=("stock",)),
    )
    send_request = make_request_sender(app)
    send_request("GET", "/v1/whoami")
    send_request("GET", "/v1/whoami", headers={**headers, "host": "evil.example.org"})
    send_request("GET", "/v1/whoami", headers={**headers, "origin": "https://evil.example.org"})
    send_request("POST", "/v1/insert", headers=headers, content=b"x" * 11)
    send_request("POST", "/v1/insert", headers=headers, content=b"x" * 7)
    for channel in ("orders", "secret_1", "secret_2"):
        send_request("GET", f"/v1/channels/{channel}", headers=headers)
    send_request("GET", "/v1/nonsense", headers=headers)
    send_request("BREW", "/v1/whoami", headers=headers)
    page = send_request("GET", "/metrics", headers=headers).text
    told = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    refusals = {k.split('"')[1]: float(v) for k, v in told.items() if k.startswith("nova_service_refusals_total")}
    expected = {"token": 1, "host": 1, "origin": 1, "body": 1, "not_allowed": 3, "status_404": 1, "status_405": 1}
    assert refusals == expected
    route = 'nova_service_requests_total{method="GET",route="/v1/channels/{channel}",status="403"}'
    assert told[route] == "3.0" and "secret" not in page and "BREW" not in page
    assert told['nova_service_received_bytes_total{method="POST",route="/v1/insert"}'] == "7.0"
    assert told["nova_service_requests_in_flight"] == "1.0", "the one that asks"


def test_every_service_has_metrics_of_its_own_and_takes_further_ones() -> None:
    one, other = build_guarded_app(), build_guarded_app()
    views = Counter("nova_views_hits", "Hits.", registry=CollectorRegistry())
    one.metrics.registry.register(views)
    views.inc(3)
    assert "nova_views_hits_total 3.0" in make_request_sender(one)("GET", "/metrics").text
    assert "nova_views" not in make_request_sender(other)("GET", "/metrics").text


def test_an_answer_that_is_cut_short_says_so_in_the_log(log_lines: Any) -> None:
    with (
        serve_small_app(request_seconds=5, shutdown_grace=0.2) as (url, _),
        httpx.stream("GET", f"{url}/v1/stream?parts=100"),
    ):
        pass
    [line] = [line for line in log_lines() if line.get("route") == "/v1/stream"]
    assert line["status"] == 200 and line["cut_short"]
