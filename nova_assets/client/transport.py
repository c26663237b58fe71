"""HTTP requests to the service, with retries at one or several addresses."""

from __future__ import annotations

import contextlib
import io
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import httpx
import pyarrow as pa

from nova_assets.client.rows import ByteStreamFile, truncated_stream_error
from nova_assets.errors import ServiceUnavailable, SettingsError
from nova_assets.http_addresses import AddressPool, check_http_address, split_addresses, trusted_ssl_context
from nova_assets.masking import mask_address, remember_secrets
from nova_assets.nova_error import NovaError
from nova_assets.service.http.problems import error_from_problem

MAX_ATTEMPTS = 8
"""Number of rounds in which a request is tried at each address."""

_HEALTH_TIMEOUT = 5.0
"""Seconds to wait for an address that is used for the first time."""

T = TypeVar("T")

_RETRYABLE_STATUSES = (429, 503, 504)
"""HTTP statuses after which the client retries a repeatable request."""


class ServiceTransport:
    """Sends requests to a service, at one or several addresses.

    Args:
        url: address of the service, or several addresses of services with the same catalog.
        token: access token. None for a service without tokens.
        timeout_seconds: time to wait for the start of a response, and for each part of it.

    Raises:
        SettingsError: an address is invalid.
    """

    def __init__(self, url: str | Sequence[str], token: str | None, timeout_seconds: float) -> None:
        self.addresses = tuple(check_http_address("url", address) for address in split_addresses(url or ""))
        remember_secrets(*self.addresses, values={"token": token or ""})
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http_client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=10.0),
            trust_env=False,
            verify=trusted_ssl_context(),
        )
        self._pool = AddressPool(self.addresses)
        self._deployment_by_address: dict[str, str] = {}

    def close(self) -> None:
        self.http_client.close()

    def get(self, path: str, read_answer: Callable[[Any], T], **parameters: Any) -> T:
        """A resource, read from its JSON value. Parameters that are None are left out."""
        query = _drop_none_values(parameters)
        return _read_body(
            self._send_with_retries(lambda address: self.http_client.get(f"{address}{path}", params=query)), read_answer
        )

    def post(self, path: str, body: Mapping[str, Any], read_answer: Callable[[Any], T]) -> T:
        """Send a request that changes state. It is sent again only if no service has begun with it."""
        return _read_body(
            self._send_with_retries(
                lambda address: self.http_client.post(f"{address}{path}", json=body), is_repeatable=False
            ),
            read_answer,
        )

    def post_file(
        self,
        path: str,
        file: IO[bytes],
        media_type: str,
        parameters: Mapping[str, Any],
        idempotency_key: str | None,
        read_answer: Callable[[Any], T],
    ) -> T:
        """Send a file. The request is repeatable, since it has an idempotency key or changes nothing."""
        headers = {
            "Content-Type": media_type,
            **({} if idempotency_key is None else {"Idempotency-Key": idempotency_key}),
        }

        def send(address: str) -> httpx.Response:
            size = str(file.seek(0, io.SEEK_END))
            file.seek(0)
            return self.http_client.post(
                f"{address}{path}",
                params=_drop_none_values(parameters),
                headers={**headers, "Content-Length": size},
                content=iter(lambda: file.read(1 << 20), b""),
            )

        return _read_body(self._send_with_retries(send), read_answer)

    @contextmanager
    def stream_rows(self, path: str, body: Mapping[str, Any]) -> Iterator[pa.RecordBatchReader]:
        """Stream the rows of a response.

        Raises:
            ServiceUnavailable: the stream ended too early.
        """

        serving_address = self.addresses[0]

        def send_request(address: str) -> httpx.Response:
            nonlocal serving_address
            serving_address = address
            request = self.http_client.build_request("POST", f"{address}{path}", json=body)
            response = self.http_client.send(request, stream=True)
            if response.status_code != 200:
                response.read()
            return response

        try:
            with contextlib.closing(self._send_with_retries(send_request)) as response:
                source = ByteStreamFile(response.iter_bytes())
                try:
                    with pa.ipc.open_stream(pa.PythonFile(source, mode="r")) as reader:
                        yield reader
                        source.check_complete()
                except (pa.ArrowException, OSError) as error:
                    if source.is_truncated:
                        raise truncated_stream_error() from error
                    raise
        except httpx.TransportError as error:
            self._pool.record_failure(serving_address, time.monotonic())
            raise unreachable_error(serving_address, error, interrupted=True) from error

    def _send_with_retries(
        self, send_request: Callable[[str], httpx.Response], is_repeatable: bool = True
    ) -> httpx.Response:
        """Send a request to the address whose turn it is, and retry failures at the other addresses.

        Args:
            send_request: sends the request to an address.
            is_repeatable: the request may take effect twice, or has an idempotency key.
        """
        reached_service = False
        for address, is_last_attempt in self._attempts():
            started_at = time.monotonic()
            is_sending = False
            try:
                self._check_same_deployment(address)
                is_sending = True
                response = send_request(address)
            except httpx.TransportError as error:
                self._pool.record_failure(address, started_at)
                unsent = not is_sending or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                reached_service = reached_service or not unsent
                if is_last_attempt or is_untrusted_certificate(error) or not (is_repeatable or unsent):
                    raise unreachable_error(address, error, not reached_service) from error
                continue
            reached_service = True
            if response.status_code == 503:
                self._pool.record_failure(address, started_at)
            else:
                self._pool.record_success(address)
            may_retry = is_not_started(response) or (is_repeatable and response.status_code in _RETRYABLE_STATUSES)
            if is_last_attempt or not may_retry:
                return check_response(response)
        raise AssertionError("unreachable")

    def _attempts(self) -> Iterator[tuple[str, bool]]:
        """Addresses to try one after the other, and whether this is the last attempt. Waits after each round."""
        for round_number in range(1, MAX_ATTEMPTS + 1):
            candidates = self._pool.candidates()
            for address in candidates:
                yield address, round_number == MAX_ATTEMPTS and address == candidates[-1]
            time.sleep(min(0.1 * 2**round_number, 3.0) * random.uniform(0.5, 1.0))

    def _check_same_deployment(self, address: str) -> None:
        """Ask an address which catalog it serves, and compare the answer with those of the other addresses.

        The question comes before the first request to the address. An address that passed is not asked again, and a
        single address is never asked. A service that does not name its catalog passes.

        Raises:
            SettingsError: the address serves another catalog.
            httpx.TransportError: the address does not answer, or with another status than 200.
        """
        if len(self.addresses) == 1 or address in self._deployment_by_address:
            return
        response = self.http_client.get(f"{address}/healthz", timeout=_HEALTH_TIMEOUT)
        if response.status_code != 200:  # of a proxy, or of a service at its limit: it says nothing of the catalog
            raise httpx.ConnectError(f"/healthz answered with status {response.status_code}")
        identity = response.headers.get("nova-catalog", "")
        self._deployment_by_address[address] = identity
        others = {a: i for a, i in self._deployment_by_address.items() if i and identity and i != identity}
        if others:
            del self._deployment_by_address[address]
            raise SettingsError(
                "the addresses belong to services of different deployments",
                found=", ".join(map(mask_address, (address, *others))),
                expected="addresses of services that share one catalog",
                next="connect to each deployment separately",
            )


def _read_body(response: httpx.Response, read_answer: Callable[[Any], T]) -> T:
    """What the body of a successful response says.

    Raises:
        ServiceUnavailable: the body is none of the service's, such as the page of a proxy.
    """
    try:
        return read_answer(response.json())
    except Exception as error:  # whatever a reader meets in a body of another form
        raise ServiceUnavailable(
            "the answer of the service cannot be read",
            found=f"{type(error).__name__}: {error}"[:200],
            expected="an answer of nova serve in the version of this client",
            next="check the address, and the versions of service and client",
            reason="answer",
        ) from error


def _drop_none_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def check_response(response: httpx.Response) -> httpx.Response:
    """Return a successful response. Raises the error that the response body describes otherwise."""
    if response.status_code == 200:
        return response
    try:
        body = response.json()
    except ValueError:
        body = {"detail": f"the service answered with status {response.status_code}", "status": response.status_code}
        if response.status_code in (502, 503, 504):  # of a reverse proxy, or of uvicorn beyond its limit of connections
            body["code"] = ServiceUnavailable.code
    raise error_from_problem(body if isinstance(body, dict) else {"detail": str(body)})


def is_not_started(response: httpx.Response) -> bool:
    """Whether the service has refused a request before it began with it. Even a change can then be sent again."""
    if response.status_code == 429:
        return True
    try:
        body = response.json() if response.status_code == 503 else None
    except ValueError:
        return False
    return isinstance(body, dict) and body.get("not_started") is True


def unreachable_error(
    url: str, error: Exception, request_unsent: bool = False, *, interrupted: bool = False
) -> NovaError:
    """Error for a service that does not answer.

    Args:
        request_unsent: no part of the request has reached the service, so nothing can have been changed.
        interrupted: the service had begun its response.
    """
    fields = {**({"unsent": True} if request_unsent else {}), **({"interrupted": True} if interrupted else {})}
    found = f"{type(error).__name__}: {error}".strip(": ")
    if is_untrusted_certificate(error):
        return ServiceUnavailable(
            f"the certificate of the service {url} is not trusted",
            found=found,
            next="set SSL_CERT_FILE to a file that contains this certificate, or the certificate of its authority",
            **fields,
        )
    https_hint = "; if the service uses TLS, connect to https://" if url.startswith("http://") else ""
    what = f"the service {url} does not answer"
    return ServiceUnavailable(
        what, found=found, next=f"check that the service runs, or start it with nova serve{https_hint}", **fields
    )


def is_untrusted_certificate(error: Exception) -> bool:
    """Whether the TLS certificate of the service failed verification."""
    return isinstance(error, httpx.ConnectError) and "CERTIFICATE_VERIFY_FAILED" in str(error)
