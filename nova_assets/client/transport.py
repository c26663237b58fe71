"""HTTP requests to the service, with retries."""

from __future__ import annotations

import contextlib
import io
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import httpx
import pyarrow as pa

from nova_assets.client.failures import check_response, is_untrusted_certificate, unreachable_error
from nova_assets.client.rows import ByteStreamFile, truncated_stream_error
from nova_assets.file_views.trusted_certificates import trusted_ssl_context
from nova_assets.masking import remember_secrets
from nova_assets.settings import check_http_address

MAX_ATTEMPTS = 8
_RETRYABLE_STATUSES = (429, 503, 504)
"""HTTP statuses after which the client retries a repeatable request."""


class ServiceTransport:
    """Sends requests to one service.

    Args:
        token: access token. None for a service without tokens.
        timeout_seconds: time to wait for the start of a response, and for each part of it.
    """

    def __init__(self, url: str, token: str | None, timeout_seconds: float) -> None:
        self.url = url.rstrip("/")
        remember_secrets(url, values={"token": token or ""})
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http_client = httpx.Client(
            base_url=check_http_address("url", self.url),
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=10.0),
            trust_env=False,
            verify=trusted_ssl_context(),
        )

    def close(self) -> None:
        self.http_client.close()

    def get(self, path: str, **parameters: Any) -> Any:
        """JSON value of a resource. Parameters that are None are left out."""
        query = _drop_none_values(parameters)
        return self._send_with_retries(lambda: self.http_client.get(path, params=query)).json()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request that changes state. It is sent again only if it did not reach the service."""
        return self._send_with_retries(lambda: self.http_client.post(path, json=body), is_repeatable=False).json()

    def post_file(
        self, path: str, file: IO[bytes], media_type: str, parameters: Mapping[str, Any], idempotency_key: str | None
    ) -> Any:
        """Send a file. The request is repeatable, since it has an idempotency key or changes nothing."""
        headers = {
            "Content-Type": media_type,
            **({} if idempotency_key is None else {"Idempotency-Key": idempotency_key}),
        }

        def send() -> httpx.Response:
            size = str(file.seek(0, io.SEEK_END))
            file.seek(0)
            return self.http_client.post(
                path,
                params=_drop_none_values(parameters),
                headers={**headers, "Content-Length": size},
                content=iter(lambda: file.read(1 << 20), b""),
            )

        return self._send_with_retries(send).json()

    @contextmanager
    def stream_rows(self, path: str, body: Mapping[str, Any]) -> Iterator[pa.RecordBatchReader]:
        """Stream the rows of a response.

        Raises:
            ServiceUnavailable: the stream ended too early.
        """

        def send_request() -> httpx.Response:
            response = self.http_client.send(self.http_client.build_request("POST", path, json=body), stream=True)
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
            raise unreachable_error(self.url, error) from error

    def _send_with_retries(
        self, send_request: Callable[[], httpx.Response], is_repeatable: bool = True
    ) -> httpx.Response:
        """Send a request and retry failures with exponential backoff."""
        reached_service = False
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                response = send_request()
            except httpx.TransportError as error:
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                reached_service = reached_service or not unsent
                if attempt == MAX_ATTEMPTS or is_untrusted_certificate(error) or not (is_repeatable or unsent):
                    raise unreachable_error(self.url, error, not reached_service) from error
            else:
                reached_service = True
                # Status 429 means that the service has not started the request, so even a change can be sent again.
                if attempt == MAX_ATTEMPTS or response.status_code not in (
                    _RETRYABLE_STATUSES if is_repeatable else (429,)
                ):
                    return check_response(response)
            time.sleep(min(0.1 * 2**attempt, 3.0) * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")


def _drop_none_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}
