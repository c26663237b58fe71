"""Errors of the client: error responses of the service, and unreachable services."""

from __future__ import annotations

import httpx

from nova_assets.errors import ServiceUnavailable
from nova_assets.nova_error import NovaError
from nova_assets.service.http.problems import error_from_problem


def check_response(response: httpx.Response) -> httpx.Response:
    """Return a successful response. Raises the error that the response body describes otherwise."""
    if response.status_code == 200:
        return response
    try:
        body = response.json()
    except ValueError:
        body = {"detail": f"the service answered with status {response.status_code}", "status": response.status_code}
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
