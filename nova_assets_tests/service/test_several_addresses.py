"""nova.connect() with several addresses: which calls are repeated elsewhere, and which are not."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import pyarrow as pa
import pytest

import nova_assets as nova

COMMIT = {
    **{"id": "c1", "execution": "e1", "binding": None, "at": "2024-01-01T00:00:00+00:00"},
    **{"numbers": {"orders": 1}, "heads": {"orders": 1}, "repeated": False, "blocks": [], "details": {}},
}

Answer = httpx.Response | Exception


class Hosts:
    """Stand-ins for two services. ``answers`` says how each answers a request; ``asked`` lists the hosts in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Callable[[httpx.Request], Answer]) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = answers
        self.waited: list[float] = []
        # The names in these two modules alone: other threads of this process wait and draw as usual.
        waits = SimpleNamespace(sleep=self.waited.append, monotonic=time.monotonic)
        draws = SimpleNamespace(randrange=lambda stop: 0, uniform=lambda low, high: high)
        monkeypatch.setattr("nova_assets.client.transport.time", waits)
        monkeypatch.setattr("nova_assets.http_addresses.random", draws)
        self.connection = nova.connect([f"http://{host}" for host in answers])
        self.connection._transport.http_client = httpx.Client(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/healthz":
            return httpx.Response(200, headers={"nova-catalog": "one"}, json={"status": "alive"})
        request.read()
        self.requests.append(request)
        answer = self._answers[request.url.host](request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def asked(self) -> list[str]:
        return [request.url.host for request in self.requests]


def ok(request: httpx.Request) -> Answer:
    return httpx.Response(200, json=COMMIT if request.method == "POST" else [])


def fails_with(error: type[Exception]) -> Callable[[httpx.Request], Answer]:
    return lambda request: error("the line is dead")


def refuses(status: int, **more: object) -> Callable[[httpx.Request], Answer]:
    return lambda request: httpx.Response(status, json={"detail": "not now", "status": status, **more})


def test_calls_are_spread_among_the_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(monkeypatch, a=ok, b=ok)
    for _ in range(4):
        hosts.connection.channels()
    assert hosts.asked == ["a", "b", "a", "b"] and hosts.waited == []


@pytest.mark.parametrize("failure", [fails_with(httpx.ConnectError), fails_with(httpx.ReadTimeout), refuses(503)])
def test_an_address_that_fails_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, failure: Callable[[httpx.Request], Answer]
) -> None:
    """At once, and by the next calls without asking it."""
    hosts = Hosts(monkeypatch, a=failure, b=ok)
    for _ in range(4):
        hosts.connection.channels()
    assert hosts.asked == ["a", "b", "b", "b", "b"] and hosts.waited == []


def test_an_insert_whose_fate_is_unknown_is_repeated_elsewhere_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(monkeypatch, a=fails_with(httpx.ReadError), b=ok)
    assert hosts.connection.insert("orders", pa.table({"id": [1]})).seq == 1
    assert hosts.asked == ["a", "b"]
    assert len({request.headers["idempotency-key"] for request in hosts.requests}) == 1
    assert hosts.requests[0].content == hosts.requests[1].content != b""


@pytest.mark.parametrize("failure", [fails_with(httpx.ReadError), refuses(503), refuses(504)])
def test_a_change_that_may_have_begun_is_not_repeated_elsewhere(
    monkeypatch: pytest.MonkeyPatch, failure: Callable[[httpx.Request], Answer]
) -> None:
    hosts = Hosts(monkeypatch, a=failure, b=ok)
    with pytest.raises(nova.NovaError):
        hosts.connection.restore("orders", 1)
    assert hosts.asked == ["a"]


@pytest.mark.parametrize(
    "failure", [fails_with(httpx.ConnectError), refuses(503, not_started=True), refuses(429, code="NOVA-SERVICE-BUSY")]
)
def test_a_change_that_has_not_begun_is_made_elsewhere(
    monkeypatch: pytest.MonkeyPatch, failure: Callable[[httpx.Request], Answer]
) -> None:
    hosts = Hosts(monkeypatch, a=failure, b=ok)
    assert hosts.connection.restore("orders", 1).seq == 1
    assert hosts.asked == ["a", "b"]


def test_rows_that_are_cut_off_are_read_again_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    table, sink = pa.table({"id": list(range(1000))}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole, cut = sink.getvalue(), sink.getvalue()[:-2000]
    hosts = Hosts(
        monkeypatch,
        a=lambda request: httpx.Response(200, content=cut),
        b=lambda request: httpx.Response(200, content=whole),
    )
    assert hosts.connection.read("orders").to_arrow().equals(table)
    assert hosts.asked == ["a", "b"]
    rows = hosts.connection.read("orders")
    with pytest.raises(nova.ServiceUnavailable, match="before the last row"), rows.batches() as reader:
        reader.read_all()  # some of the rows may have been used


def test_no_address_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(monkeypatch, a=fails_with(httpx.ConnectError), b=fails_with(httpx.ConnectError))
    with pytest.raises(nova.ServiceUnavailable, match="does not answer"):
        hosts.connection.channels()
    assert hosts.asked.count("a") == hosts.asked.count("b") == 8 and len(hosts.waited) == 7


def test_addresses_of_different_deployments_are_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = Hosts(monkeypatch, a=ok, b=ok)
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/healthz":
            return httpx.Response(200, headers={"nova-catalog": f"of {request.url.host}"})
        sent.append(request)
        return httpx.Response(200, json=[])

    hosts.connection._transport.http_client = httpx.Client(transport=httpx.MockTransport(answer))
    hosts.connection.channels()
    with pytest.raises(nova.SettingsError, match="different deployments"):
        hosts.connection.channels()
    assert [request.url.host for request in sent] == ["a"]


def test_an_address_that_does_not_say_its_deployment_gets_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reverse proxy answers 502, and a service at its limit 503, without the identity of a catalog."""
    hosts = Hosts(monkeypatch, a=ok, b=ok)
    sent: list[str] = []
    refused = iter([502, 503])

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/healthz":
            if request.url.host == "b" and (status := next(refused, None)) is not None:
                return httpx.Response(status, text="Service Unavailable")
            return httpx.Response(200, headers={"nova-catalog": f"of {request.url.host}"})
        sent.append(request.url.host)
        return httpx.Response(200, json=[])

    hosts.connection._transport.http_client = httpx.Client(transport=httpx.MockTransport(answer))
    for _ in range(10):
        hosts.connection.channels()
    assert sent == ["a"] * 10
