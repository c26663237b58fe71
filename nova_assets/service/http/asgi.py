"""ASGI types, header access, complete responses, and media types of bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
"""Health checks by process supervisors. They need no token, and are answered under any load."""

DISCONNECTED: Message = {"type": "http.disconnect"}


def header_values(scope: Scope, name: bytes) -> list[str]:
    """All values of a header, in order."""
    return [value.decode("latin-1") for n, value in scope["headers"] if n.lower() == name]


def single_header_value(scope: Scope, name: bytes) -> str | None:
    """Value of a header that occurs exactly once, otherwise None."""
    values = header_values(scope, name)
    return values[0] if len(values) == 1 else None


def request_state(scope: Scope) -> dict[str, Any]:
    """State of a request that all its handlers share: ``request.state`` of routes."""
    state: dict[str, Any] = scope.setdefault("state", {})
    return state


async def send_response(
    send: Send, status: int, body: bytes, content_type: str, headers: Iterable[tuple[str, str]]
) -> None:
    """Send a complete response."""
    sent = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    sent += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body, "more_body": False})


JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
LINES = "application/x-ndjson"
