"""Retries of nova.connect(): which requests are sent again."""

from __future__ import annotations

import time
from types import SimpleNamespace

import httpx
import pyarrow as pa
import pytest

import nova_assets as nova


def answer_with_statuses(connection: nova.Connection, *statuses: int) -> list[httpx.Request]:
    """The service answers with these statuses, one after the other; then as the last. Gives what it was asked."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        request.read()
        requests.append(request)
        status = statuses[min(len(requests), len(statuses)) - 1]
        codes = {503: "NOVA-COMMIT-OUTCOME-UNKNOWN", 504: "NOVA-REQUEST-TIMED-OUT", 429: "NOVA-SERVICE-BUSY"}
        return httpx.Response(status, json={"detail": "not now", "status": status, "code": codes.get(status)})

    connection._transport.http_client = httpx.Client(base_url="http://there", transport=httpx.MockTransport(answer))
    return requests


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transport does not wait between its attempts. Other threads of this process wait as usual."""
    waits = SimpleNamespace(sleep=lambda seconds: None, monotonic=time.monotonic)
    monkeypatch.setattr("nova_assets.client.transport.time", waits)


@pytest.mark.parametrize("status", [429, 503, 504])
def test_an_insert_is_sent_until_it_is_acknowledged(status: int) -> None:
    """With one key; and where no answer comes, the error tells that key."""
    with nova.connect("http://there") as connection:
        requests = answer_with_statuses(connection, status)
        with pytest.raises(nova.NovaError) as error:
            connection.insert("orders", pa.table({"id": [1]}))
    keys = {request.headers["idempotency-key"] for request in requests}
    assert (
        len(requests) == 8 and keys == {error.value.idempotency_key} and error.value.idempotency_key in str(error.value)
    )


@pytest.mark.parametrize("first", [httpx.ConnectError, httpx.ReadError])
def test_an_insert_that_never_came_through(first: type[Exception]) -> None:
    """Whether it may have come about: not where nothing of it has ever reached anybody."""
    failures: list[type[Exception]] = [first]

    def fail(request: httpx.Request) -> httpx.Response:
        raise (failures.pop() if failures else httpx.ConnectError)("connection refused")

    with nova.connect("http://there") as connection:
        connection._transport.http_client = httpx.Client(base_url="http://there", transport=httpx.MockTransport(fail))
        with pytest.raises(nova.NovaError) as error:
            connection.insert("orders", pa.table({"id": [1]}))
    assert ("the first request may have succeeded" in str(error.value)) == (first is httpx.ReadError)


@pytest.mark.parametrize(("status", "sent"), [(429, 8), (503, 1), (504, 1)])
def test_what_may_not_be_done_twice_is_sent_once(status: int, sent: int) -> None:
    """Unless it was turned away at the door."""
    with nova.connect("http://there") as connection:
        requests = answer_with_statuses(connection, status)
        with pytest.raises(nova.NovaError):
            connection.restore("orders", 1)
    assert len(requests) == sent
