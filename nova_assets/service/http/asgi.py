"""ASGI in a few words: its types, headers, and an answer that is sent whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

HEALTH = frozenset({"/healthz", "/readyz"})
"""Asked by whoever looks after processes: open to all, and answered however much is at work."""

DISCONNECTED: Message = {"type": "http.disconnect"}


def header_values(scope: Scope, name: bytes) -> list[str]:
    """All values of a header, in their order."""
    return [value.decode("latin-1") for n, value in scope["headers"] if n.lower() == name]


def single_header_value(scope: Scope, name: bytes) -> str | None:
    """The value of a header that is there once; None for none, or several."""
    found = header_values(scope, name)
    return found[0] if len(found) == 1 else None


def request_state(scope: Scope) -> dict[str, Any]:
    """What is known of a request, for all who handle it: ``request.state`` of routes."""
    state: dict[str, Any] = scope.setdefault("state", {})
    return state


async def send_response(
    send: Send, status: int, body: bytes, content_type: str, headers: Iterable[tuple[str, str]]
) -> None:
    """Send a whole answer."""
    sent = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    sent += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body, "more_body": False})
