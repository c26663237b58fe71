"""HTTP client of view services. If the service fails or answers wrongly, a fallback answers instead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from nova_assets.file_views.responses import TimelineProof
from nova_assets.http_addresses import AddressPool, split_addresses, trusted_ssl_context
from nova_assets.masking import get_logger, mask_address, remember_secrets
from nova_assets.model.timeline import TimelinePosition

log = get_logger("nova_assets.views")

T = TypeVar("T")

_MIN_BYTES_PER_SECOND = 2**20
"""Minimum rate, in bytes per second, at which a large answer may exceed the timeout."""


_REASONS_OF_QUESTION = ("refused", "behind")
"""Reasons that concern one question, and not the service."""


class NoUsableAnswer(Exception):
    """The service gave no reliable answer.

    Args:
        reason: ``unreachable``, ``slow``, ``busy``, ``failing`` or ``wrong``; ``paused`` while the service is not asked
            after such a failure; ``refused`` if it rejected this question; ``behind`` if the known position is too old
            for the service to prove its answer.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass
class ClientCounts:
    """Number of questions by source of the answer, in this process.

    Args:
        served: answered by the service.
        fell_back: reason -> number answered from the catalog instead.
    """

    served: int = 0
    fell_back: dict[str, int] = field(default_factory=dict)

    def count_fallback(self, reason: str) -> None:
        self.fell_back[reason] = self.fell_back.get(reason, 0) + 1

    def as_json(self) -> dict[str, Any]:
        return {"served": self.served, "fell_back": dict(self.fell_back)}


class ViewServiceClient:
    """Client of a view service, at one or several addresses.

    After a failure, the address is not asked for a moment. So a broken service costs its clients no more than an
    occasional timeout, and they return to it on their own. Another address is asked instead, unless the timeout has
    passed already.

    Args:
        url: address of the service, or several addresses of services with the same catalog.
        token: access token; None if the service requires none.
        timeout_seconds: maximum seconds of an answer.
        catalog_id: expected identity of the service's catalog; None to accept any.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        token: str | None = None,
        timeout_seconds: float = 2.0,
        catalog_id: str | None = None,
    ) -> None:
        self.addresses = split_addresses(url)
        remember_secrets(*self.addresses, values={"token": token or ""})
        self.timeout_seconds = timeout_seconds
        self.catalog_id = catalog_id
        self.counts = ClientCounts()
        self._token = token
        self._http_client: Any = None
        self._pool = AddressPool(self.addresses)
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """State without the connections. Other processes open their own."""
        return {
            "url": self.addresses,
            "timeout": self.timeout_seconds,
            "catalog": self.catalog_id,
            "_token": self._token,
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["url"], state["_token"], state["timeout"], state["catalog"])  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"<Client {', '.join(map(mask_address, self.addresses))}>"

    def query_or_fall_back(
        self,
        channel: str,
        endpoint: str,
        parameters: Mapping[str, Any],
        known_position: TimelinePosition,
        decode_answer: Callable[[bytes], tuple[TimelineProof, T]],
        fallback: Callable[[], T],
    ) -> T:
        """Answer of the service about a channel, or result of ``fallback`` if the service gives no reliable answer.

        Args:
            endpoint: last part of the path, such as ``files``.
            parameters: query parameters.
            known_position: the caller's position in the channel's timeline; the answer must continue from there.
            decode_answer: decodes the body of the answer. Any exception that it raises marks the answer as wrong.
        """
        reason = "paused"
        for address in self._pool.available():
            started_at = time.monotonic()
            try:
                answer = self._query_service(address, channel, endpoint, parameters, known_position, decode_answer)
            except NoUsableAnswer as error:
                reason = error.reason
                if reason in _REASONS_OF_QUESTION:
                    break
                if self._pool.record_failure(address, started_at):
                    log.warning("the service %s is not asked for a moment: %s", address, error)
                if reason == "slow":  # the caller has waited long enough
                    break
                continue
            if self._pool.record_success(address):
                log.info("the service %s answers again", address)
            with self._lock:
                self.counts.served += 1
            return answer
        with self._lock:
            self.counts.count_fallback(reason)
        return fallback()

    def _query_service(
        self,
        address: str,
        channel: str,
        endpoint: str,
        parameters: Mapping[str, Any],
        known_position: TimelinePosition,
        decode_answer: Callable[[bytes], tuple[TimelineProof, T]],
    ) -> T:
        path = f"/v1/channels/{quote(channel, safe='')}/{endpoint}"
        query_parameters = {name: value for name, value in parameters.items() if value not in (None, "")}
        try:
            body = self._get_body(address, path, {**query_parameters, "known": str(known_position), "fresh": "false"})
        except NoUsableAnswer:
            raise
        except Exception as error:  # no job fails because of the service
            raise NoUsableAnswer("failing", type(error).__name__) from error
        try:
            proof, answer = decode_answer(body)
        except Exception as error:  # a malformed answer
            raise NoUsableAnswer("wrong", f"{type(error).__name__}: {error}") from error
        if not proof.links and proof.position.step > known_position.step:
            raise NoUsableAnswer("behind", f"it is {proof.position.step - known_position.step} instants ahead")
        if not proof.continues_from(known_position):
            raise NoUsableAnswer(
                "wrong", f"it is at {proof.position.step} of another timeline than {known_position.step} is of"
            )
        return answer

    def _get_body(self, address: str, path: str, parameters: Mapping[str, Any]) -> bytes:
        import httpx

        deadline = time.monotonic() + self.timeout_seconds
        try:
            with self._connected().stream("GET", f"{address}{path}", params=parameters) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    # httpx times each chunk separately. A large answer may take longer if it arrives fast enough.
                    if time.monotonic() > deadline + len(body) / _MIN_BYTES_PER_SECOND:
                        raise NoUsableAnswer("slow", f"no answer within {self.timeout_seconds:g} s")
        except httpx.TimeoutException as error:
            raise NoUsableAnswer("slow", f"no answer within {self.timeout_seconds:g} s") from error
        except httpx.HTTPError as error:
            raise NoUsableAnswer("unreachable", str(error)) from error
        if response.status_code in (429, 503, 504):
            raise NoUsableAnswer("busy", f"status {response.status_code}")
        if response.status_code == 409:
            raise NoUsableAnswer("wrong", "it has another timeline")
        if response.status_code in (401, 403, 404, 410, 422):
            raise NoUsableAnswer("refused", f"status {response.status_code}")
        if response.status_code != 200:
            raise NoUsableAnswer("failing", f"status {response.status_code}")
        if self.catalog_id is not None and response.headers.get("nova-catalog") != self.catalog_id:
            raise NoUsableAnswer("wrong", "it answers for another catalog")
        return bytes(body)

    def _connected(self) -> Any:
        with self._lock:
            if self._http_client is None:
                import httpx

                headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
                limits = httpx.Limits(max_keepalive_connections=16)
                timeout = httpx.Timeout(self.timeout_seconds, connect=min(self.timeout_seconds, 1.0))
                self._http_client = httpx.Client(
                    headers=headers,
                    timeout=timeout,
                    limits=limits,
                    trust_env=False,
                    verify=trusted_ssl_context(),
                )
            return self._http_client

    def close(self) -> None:
        with self._lock:
            http_client, self._http_client = self._http_client, None
        if http_client is not None:
            http_client.close()
