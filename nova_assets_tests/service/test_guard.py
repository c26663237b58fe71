"""Who is let in, and how much is taken: as callers see it, in this process and on a real socket."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import httpx
import pytest

from nova_assets_tests.service.small_app import TokenIssuer, build_guarded_app, make_request_sender

PUBLIC = {"host": "0.0.0.0", "tls_cert": "c.pem", "tls_key": "k.pem", "public_names": ("nova.example.org",)}
BEHIND = {"host": "0.0.0.0", "proxies": ("10.1.0.0/16",), "public_names": ("nova.example.org",)}


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
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
    assert make_request_sender(build_guarded_app())("GET", "/v1/whoami", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example.org", "127.0.0.1.nip.io:8765", "10.0.0.5", "localhost.evil.net"])
def test_a_strangers_name_is_no_way_in(host: str) -> None:
    send_request = make_request_sender(build_guarded_app())
    assert (
        "host:"
        in assert_problem(send_request("GET", "/v1/whoami", headers={"host": host}), 421, "NOVA-REQUEST-REFUSED")[
            "found"
        ]
    )
    assert send_request("GET", "/healthz", headers={"host": host}).status_code == 200


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
    send_request = make_request_sender(build_guarded_app())
    for method, path in (("POST", "/v1/insert"), ("GET", "/v1/whoami"), ("OPTIONS", "/v1/insert")):
        answer = send_request(method, path, headers={"host": "127.0.0.1:8765", **headers})
        assert_problem(answer, 403, "NOVA-NOT-ALLOWED")
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
    assert make_request_sender(build_guarded_app())("POST", "/v1/insert", headers=headers, content=b"x").json() == {
        "bytes": 1
    }


def test_what_is_said_to_be_forwarded_is_believed_of_the_proxy_alone(issuer: TokenIssuer) -> None:
    said = {"x-forwarded-for": "6.6.6.6, 203.0.113.9, 10.1.0.2", "x-forwarded-proto": "https", "host": "internal:1"}
    headers = {**issuer.add_token_header(), **said, "x-forwarded-host": "nova.example.org"}
    app = build_guarded_app(issuer, **BEHIND)
    seen = make_request_sender(app, client="10.1.0.1")("GET", "/v1/whoami", headers=headers).json()
    assert seen["client"] == "203.0.113.9", "the nearest that is no proxy: what is left of it anybody may have said"
    assert seen["url"].startswith("https://nova.example.org/") and seen["forwarded"] == []
    app = build_guarded_app(issuer, **PUBLIC)
    seen = make_request_sender(app, client="10.1.0.1")(
        "GET", "/v1/whoami", headers={**headers, "host": "nova.example.org"}
    ).json()
    assert seen["client"] == "10.1.0.1" and seen["url"].startswith("http://nova.example.org/")
    assert seen["forwarded"] == []


def test_a_name_that_a_stranger_says_was_forwarded_is_not_believed(issuer: TokenIssuer) -> None:
    headers = {**issuer.add_token_header(), "host": "evil.example.org", "x-forwarded-host": "nova.example.org"}
    assert_problem(
        make_request_sender(build_guarded_app(issuer, **PUBLIC))("GET", "/v1/whoami", headers=headers),
        421,
        "NOVA-REQUEST-REFUSED",
    )


def test_without_tls_only_the_proxy_and_this_machine_may_ask(issuer: TokenIssuer) -> None:
    app, headers = build_guarded_app(issuer, **BEHIND), {**issuer.add_token_header(), "host": "nova.example.org"}
    answer = make_request_sender(app, client="192.168.0.9")("GET", "/v1/whoami", headers=headers)
    assert "proxy" in assert_problem(answer, 403, "NOVA-NOT-ALLOWED")["detail"]
    assert make_request_sender(app, client="10.1.7.7")("GET", "/v1/whoami", headers=headers).status_code == 200
    assert make_request_sender(app, client="127.0.0.1")("GET", "/v1/whoami", headers=headers).status_code == 200
    assert make_request_sender(app, client="192.168.0.9")("GET", "/readyz").status_code == 200


def test_a_proxy_that_was_asked_without_tls_is_told_so(issuer: TokenIssuer) -> None:
    headers = {**issuer.add_token_header(), "host": "nova.example.org", "x-forwarded-proto": "http"}
    assert_problem(
        make_request_sender(build_guarded_app(issuer, **BEHIND), client="10.1.0.1")(
            "GET", "/v1/whoami", headers=headers
        ),
        403,
        "NOVA-NOT-ALLOWED",
    )


@pytest.mark.parametrize("header", ["x-forwarded-for", "Forwarded", "X-Real-IP"])
def test_without_tokens_a_proxy_that_nobody_stated_is_no_way_in(header: str) -> None:
    answer = make_request_sender(build_guarded_app())("GET", "/v1/whoami", headers={header: "203.0.113.9"})
    assert "--proxy" in assert_problem(answer, 403, "NOVA-NOT-ALLOWED")["next"]


# --- tokens


def test_without_tokens_everybody_on_this_machine_may_do_everything() -> None:
    assert make_request_sender(build_guarded_app())("GET", "/v1/channels/orders").json()["caller"] == "local"


def test_with_tokens_the_caller_is_known_by_name(issuer: TokenIssuer) -> None:
    send_request = make_request_sender(build_guarded_app(issuer, auth="tokens"))
    assert send_request("GET", "/v1/channels/orders", headers=issuer.add_token_header("ann")).json()["caller"] == "ann"
    lower = {"authorization": issuer.add_token_header("bob")["authorization"].replace("Bearer", "bearer")}
    assert send_request("GET", "/v1/channels/orders", headers=lower).json()["caller"] == "bob"


def test_no_token_and_every_wrong_one_are_told_the_same(issuer: TokenIssuer) -> None:
    send_request = make_request_sender(build_guarded_app(issuer, auth="tokens", token_seconds=0))
    good = issuer.add_token_header("ann")["authorization"]
    expired = issuer.add_token_header("old", expires_in=1)["authorization"]
    revoked = issuer.add_token_header("gone")["authorization"]
    issuer.tokens_by_id = {i: t if t.name != "gone" else _revoked(t, issuer) for i, t in issuer.tokens_by_id.items()}
    issuer.now += timedelta(seconds=1)
    wrong = [
        *(None, "", "Bearer", "Bearer ", "Basic YW5uOmFubg==", good.removeprefix("Bearer "), f"{good}x", good[:-1]),
        *(good.replace("nova_", "nova_0000", 1), f"Bearer nova_{'0' * 16}_{'a' * 43}", f"{good}, {good}"),
        *(expired, revoked),
    ]
    told = []
    for text in wrong:
        answer = send_request("GET", "/v1/channels/orders", headers={} if text is None else {"authorization": text})
        body = assert_problem(answer, 401, "NOVA-BAD-TOKEN")
        assert answer.headers["www-authenticate"] == 'Bearer realm="nova"'
        told.append({k: v for k, v in body.items() if k != "request_id"})
    assert all(body == told[0] for body in told)
    twice = [("authorization", good), ("authorization", good)]
    assert send_request("GET", "/v1/whoami", headers=twice).status_code == 401
    assert send_request("GET", f"/v1/whoami?token={good[7:]}").status_code == 401
    assert send_request("GET", "/v1/channels/orders", headers={"authorization": good}).status_code == 200


def _revoked(token: Any, issuer: TokenIssuer) -> Any:
    from dataclasses import replace

    return replace(token, revoked_at=issuer.now)


def test_an_unknown_address_is_no_oracle_without_a_token(issuer: TokenIssuer) -> None:
    send_request = make_request_sender(build_guarded_app(issuer, auth="tokens"))
    for path in ("/v1/channels/orders", "/v1/channels/nothing", "/v1/nonsense", "/docs", "/openapi.json", "/metrics"):
        assert send_request("GET", path).status_code == 401, path


def test_who_may_not_read_a_channel_is_not_told_whether_it_is_there(issuer: TokenIssuer) -> None:
    send_request, headers = (
        make_request_sender(build_guarded_app(issuer, auth="tokens")),
        issuer.add_token_header("eve", read=("stock",), write=("orders",)),
    )
    told = []
    for channel in ("orders", "nothing"):
        body = assert_problem(send_request("GET", f"/v1/channels/{channel}", headers=headers), 403, "NOVA-NOT-ALLOWED")
        told.append(json.dumps(body).replace(channel, "CHANNEL").replace(body["request_id"], ""))
    assert told[0] == told[1] and "--read CHANNEL" in told[0]
    ann = issuer.add_token_header("ann", read=("*",))
    assert_problem(send_request("GET", "/v1/channels/nothing", headers=ann), 404, "NOVA-CHANNEL-NOT-FOUND")


def test_health_is_open_and_metrics_want_any_token(issuer: TokenIssuer) -> None:
    send_request = make_request_sender(build_guarded_app(issuer, auth="tokens"))
    assert send_request("GET", "/healthz").status_code == send_request("GET", "/readyz").status_code == 200
    assert send_request("GET", "/metrics").status_code == 401
    assert (
        "nova_service_requests_total"
        in send_request("GET", "/metrics", headers=issuer.add_token_header(write=("x",))).text
    )
    assert make_request_sender(build_guarded_app())("GET", "/metrics").status_code == 200


def test_a_token_is_looked_up_once_and_a_revocation_counts_within_seconds(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_request, headers = (
        make_request_sender(build_guarded_app(issuer, auth="tokens")),
        issuer.add_token_header("ann"),
    )
    assert [send_request("GET", "/v1/whoami", headers=headers).status_code for _ in range(3)] == [200] * 3
    assert issuer.lookup_count == 1
    issuer.tokens_by_id = {i: _revoked(t, issuer) for i, t in issuer.tokens_by_id.items()}
    assert send_request("GET", "/v1/whoami", headers=headers).status_code == 200
    moved = time.monotonic() + 5
    monkeypatch.setattr("nova_assets.service.http.guard.time.monotonic", lambda: moved)
    assert send_request("GET", "/v1/whoami", headers=headers).status_code == 401


def test_a_token_expires_to_the_second_and_a_new_one_works_at_once(issuer: TokenIssuer) -> None:
    send_request, headers = (
        make_request_sender(build_guarded_app(issuer, auth="tokens")),
        issuer.add_token_header("ann", expires_in=10),
    )
    assert send_request("GET", "/v1/whoami", headers=headers).status_code == 200
    issuer.now += timedelta(seconds=10)
    assert send_request("GET", "/v1/whoami", headers=headers).status_code == 401
    later = issuer.add_token_header("bob")
    known, issuer.tokens_by_id = issuer.tokens_by_id, {}
    assert send_request("GET", "/v1/whoami", headers=later).status_code == 401
    issuer.tokens_by_id = known
    assert send_request("GET", "/v1/whoami", headers=later).status_code == 200


def test_a_catalog_that_does_not_answer_is_no_reason_to_let_anybody_in_or_to_tell_where_it_is(
    issuer: TokenIssuer,
) -> None:
    send_request, headers = (
        make_request_sender(build_guarded_app(issuer, auth="tokens")),
        issuer.add_token_header("ann"),
    )
    issuer.is_catalog_down = True
    answer = send_request("GET", "/v1/whoami", headers=headers)
    assert_problem(answer, 503, "NOVA-CATALOG-UNAVAILABLE")
    assert answer.headers["retry-after"] and not any(w in answer.text for w in ("postgres", "10.0.0.7", "db.internal"))


# --- how much is taken
