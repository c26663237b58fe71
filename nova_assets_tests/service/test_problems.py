"""What callers are told when something is wrong, and what they are not told."""

from __future__ import annotations

import pytest

from nova_assets import errors
from nova_assets.errors import DefinitionConflict, RequestRefused
from nova_assets.nova_error import NovaError
from nova_assets.service.http.problems import error_from_problem, problem_from_error, problem_headers, redact_paths
from nova_assets_tests.service.small_app import build_guarded_app, make_request_sender

KINDS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, NovaError)]

STATUSES = {
    **dict.fromkeys(("CHANNEL-NOT-FOUND", "BINDING-NOT-FOUND", "VERSION-NOT-FOUND", "DEFINITION-NOT-FOUND"), 404),
    **dict.fromkeys(("BLOCK-COLLECTED", "DEFINITION-REMOVED"), 410),
    **dict.fromkeys(("BAD-KEY", "BAD-RECORD", "CHECK-FAILED", "DEFINITION", "EMPTY-INPUT", "PARTITION", "SQL"), 422),
    **dict.fromkeys(
        ("SCHEMA-MISMATCH", "TOO-MANY-BAD-RECORDS", "SUM-OVERFLOW", "VALUE-REFUSED", "ARGUMENT", "RENAMED"), 422
    ),
    **dict.fromkeys(("COMMIT-CONFLICT", "EXECUTION-IN-PROGRESS", "EXECUTION-NOT-LIVE", "DEFINITION-CONFLICT"), 409),
    **dict.fromkeys(("UNREPRESENTABLE-CHANGE", "MODEL-CHANGED", "IDEMPOTENCY-CONFLICT", "GROUP-SEALED"), 409),
    **dict.fromkeys(("INPUTS-MISSING", "TABLE-TAKEN", "TIMELINE-DIFFERS"), 409),
    **dict.fromkeys(("CATALOG-UNAVAILABLE", "CATALOG-VERSION", "COPY-UNDECIDED"), 503),
    **dict.fromkeys(("ENGINE-UNAVAILABLE", "WAREHOUSE-UNAVAILABLE"), 503),
    **dict.fromkeys(("SOURCE-UNAVAILABLE", "TABLE-UNAVAILABLE", "DAGSTER-UNAVAILABLE", "SERVICE-UNAVAILABLE"), 503),
    **dict.fromkeys(("COMMIT-OUTCOME-UNKNOWN", "STORAGE-FAILED"), 503),
    **dict.fromkeys(("ERROR", "SETTINGS", "FILE-MISSING", "TASK-FAILED", "SERVICE-REFUSED", "PORT-TAKEN"), 500),
    **dict.fromkeys(("FILE-ALTERED", "QUERY-REFUSED", "WAREHOUSE-MISMATCH", "NOTIFICATION-FAILED"), 500),
    **{"BAD-TOKEN": 401, "NOT-ALLOWED": 403, "REQUEST-REFUSED": 400, "SERVICE-BUSY": 429},
    **{"NOT-SUPPORTED": 501, "REQUEST-TIMED-OUT": 504},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_error_has_its_status(kind: type[NovaError]) -> None:
    status, body = problem_from_error(kind("what happened", found="this", expected="that", next="do so"), "r1")
    assert status == STATUSES[kind.code.removeprefix("NOVA-")] == body["status"]
    assert body["code"] == kind.code and body["request_id"] == "r1" and body["title"] and body["detail"]
    headers = dict(problem_headers(status))
    assert headers["cache-control"] == "no-store"
    assert ("retry-after" in headers) == (status in (429, 503)) and ("www-authenticate" in headers) == (status == 401)


@pytest.mark.parametrize("kind", [k for k in KINDS if STATUSES[k.code.removeprefix("NOVA-")] in (500, 503)])
def test_what_goes_on_inside_is_not_told(kind: type[NovaError]) -> None:
    secret = "postgresql://ann:hunter2@db.internal/nova at 10.0.0.7, /srv/wh/part-1.parquet"
    if kind is errors.ServiceUnavailable:
        return
    _, body = problem_from_error(
        kind(secret, found=secret, expected=secret, next=secret, channel="c", file=secret), "r1"
    )
    assert not any(word in str(body) for word in ("hunter2", "db.internal", "10.0.0.7", "/srv", "parquet"))
    assert body["next"], "there is always something to do"


def test_an_error_that_nobody_knows_is_told_by_its_request_alone() -> None:
    status, body = problem_from_error(RuntimeError("hunter2"), "r1")
    assert status == 500 and body["code"] == "NOVA-UNEXPECTED" and "hunter2" not in str(body) and "r1" in body["next"]


def test_who_asks_is_told_of_what_they_asked_for() -> None:
    error = errors.VersionNotFound.of("orders", 9, 4)
    _, body = problem_from_error(error)
    assert (body["detail"], body["found"], body["expected"]) == ("channel 'orders' has no version 9", "9", "0 to 4")
    assert body["channel"] == "orders" and body["head"] == 4 and body["type"] == "urn:nova:problem:version-not-found"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/srv/upload/tmp123/orders.csv: line 3", "…/orders.csv: line 3"),
        ("cannot read '/srv/wh/a b.parquet'", "cannot read '…/a b.parquet'"),
        ("file:///srv/wh/x.parquet is gone", "…/x.parquet is gone"),
        ("s3://bucket/prefix/x.parquet", "…/x.parquet"),
        ("postgresql+psycopg://ann:pw@db:5432/nova", "…/nova"),
        ("sqlite:////srv/catalog.db", "…/catalog.db"),
        (r"C:\data\wh\x.csv", "…/x.csv"),
        ("path=/srv/wh/x.csv", "path=…/x.csv"),
        ("day=2024-01-01/site=x", "day=2024-01-01/site=x"),
        ("Δ(4→5) of orders and/or stock", "Δ(4→5) of orders and/or stock"),
        ("see https://example.org/a/b/c", "see https://example.org/a/b/c"),
        ("application/json; text/csv", "application/json; text/csv"),
    ],
)
def test_places_of_the_services_own_machine_are_not_told(text: str, told: str) -> None:
    assert redact_paths(text) == told
    assert problem_from_error(errors.BadRecord(text))[1]["detail"] == told


def test_channels_that_who_asks_may_not_know_of_are_not_named() -> None:
    _, body = problem_from_error(errors.ChannelNotFound("there is no channel 'ordres'", expected="orders, salaries"))
    assert "salaries" not in str(body) and "ordres" in body["detail"]


def test_a_client_gets_the_error_back() -> None:
    error = DefinitionConflict("there is one", found="this", expected="that", next="do so", channel="orders")
    again = error_from_problem(problem_from_error(error, "r1")[1])
    assert type(again) is DefinitionConflict and again.render() == error.render()
    assert again.channel == "orders" and again.request_id == "r1" and again.status == 409
    assert type(error_from_problem({"title": "Bad Gateway", "status": 502})) is NovaError
    assert error_from_problem(problem_from_error(RequestRefused("no", status=421))[1]).status == 421


def test_what_the_framework_refuses_is_a_problem_too() -> None:
    send_request = make_request_sender(build_guarded_app())
    missing = send_request("GET", "/v1/nonsense")
    assert missing.status_code == 404 and missing.json()["code"] == "NOVA-REQUEST-REFUSED"
    wrong = send_request("DELETE", "/v1/whoami")
    assert wrong.status_code == 405 and wrong.headers["allow"] == "GET"
    query = send_request("GET", "/v1/channels/orders?at=yesterday")
    assert query.status_code == 400 and "query.at" in query.json()["detail"] and "integer" in query.json()["found"]
    for answer in (missing, wrong, query):
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_a_bug_is_answered_without_its_words() -> None:
    answer = make_request_sender(build_guarded_app())("GET", "/v1/broken")
    assert answer.status_code == 500 and answer.json()["code"] == "NOVA-UNEXPECTED"
    assert "hunter2" not in answer.text and answer.headers["x-request-id"] in answer.json()["next"]
