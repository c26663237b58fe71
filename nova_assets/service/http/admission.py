"""Admission control: a limited number of concurrent requests, each within its limits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from anyio import CancelScope

from nova_assets.errors import RequestRefused, ServiceBusy
from nova_assets.nova_error import NovaError
from nova_assets.service.http.active_requests import ActiveRequests, stopping_error
from nova_assets.service.http.asgi import HEALTH_PATHS, App, Receive, Scope, Send, header_values, request_state
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.problems import refusal_reason
from nova_assets.service.http.request_limits import LimitedExchange, body_too_large_error


class AdmissionLimits:
    """Runs a limited number of request handlers concurrently, and answers in their place if a limit is exceeded.

    A slow handler is cancelled. Its caller is answered at once, whether or not the handler can be stopped.
    """

    def __init__(self, app: App, config: ServiceConfig, active_requests: ActiveRequests) -> None:
        self.app = app
        self.config = config
        self.active_requests = active_requests
        self._handler_tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = LimitedExchange(scope, receive, send, self.config)
        refusal = self._admission_error(scope)
        if refusal is not None:
            is_shutting_down = self.active_requests.is_draining and scope["path"] not in HEALTH_PATHS
            await exchange.answer_with_error(refusal, close=is_shutting_down or isinstance(refusal, RequestRefused))
            return
        self.active_requests.open_exchanges.add(exchange)
        try:
            await self._run_handler(exchange)
        finally:
            self.active_requests.open_exchanges.discard(exchange)

    def _admission_error(self, scope: Scope) -> NovaError | None:
        """Reason to refuse a request before its handler starts, or None."""
        malformed_error = malformed_request_error(scope, self.config)
        if malformed_error is not None or scope["path"] == "/healthz":
            return malformed_error
        if self.active_requests.is_draining:
            return stopping_error(not_started=True)
        if scope["path"] in HEALTH_PATHS:
            return None
        if self.active_requests.handler_count >= self.config.max_requests:
            return ServiceBusy(
                f"the service handles {self.config.max_requests} requests already, which is its limit",
                next="retry in a second",
                reason="busy",
            )
        return None

    async def _run_handler(self, exchange: LimitedExchange) -> None:
        cancel_scope = CancelScope()
        handler = asyncio.ensure_future(self._run_handler_counted_until_answered(exchange, cancel_scope))
        self._handler_tasks.add(handler)
        handler.add_done_callback(self._handler_tasks.discard)
        exchange.start_timer()
        try:
            handler_or_refusal: set[asyncio.Future[Any]] = {handler, exchange.refusal}
            await asyncio.wait(handler_or_refusal, return_when=asyncio.FIRST_COMPLETED)
        finally:
            exchange.stop_timer()
            if not handler.done():
                cancel_scope.cancel()
        if exchange.is_refused:
            handler.add_done_callback(_ignore_handler_error)
            request_state(exchange.scope)["refused"] = refusal_reason(exchange.refusal.result())
            await exchange.answer_with_error(exchange.refusal.result())
        else:
            await handler

    async def _run_handler_counted_until_answered(self, exchange: LimitedExchange, cancel_scope: CancelScope) -> None:
        is_counted = exchange.scope["path"] not in HEALTH_PATHS
        self.active_requests.handler_count += is_counted

        def release_slot() -> None:
            nonlocal is_counted
            self.active_requests.handler_count -= is_counted
            is_counted = False

        exchange.on_answered = release_slot
        try:
            # Unlike a cancelled task, a cancelled scope waits for the thread in which a handler computes.
            with cancel_scope:
                await self.app(exchange.scope, exchange.receive, exchange.send)
        finally:
            release_slot()


def malformed_request_error(scope: Scope, config: ServiceConfig) -> RequestRefused | None:
    """Error for a request that is malformed regardless of its address, or None.

    Two content lengths, or a length together with chunked encoding, can smuggle a request past a proxy that interprets
    them differently.
    """
    if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
        return _malformed_error("the request uses an unsupported version of HTTP", None, "HTTP/1.1", 400, "http")
    url = len(scope.get("raw_path") or scope["path"].encode()) + len(scope.get("query_string", b""))
    if url > config.max_url:
        return _malformed_error(
            "the URL is too long", f"{url:,} bytes", f"at most {config.max_url:,} bytes", 414, "url"
        )
    size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if size > config.max_headers:
        expected = f"at most {config.max_headers:,} bytes"
        return _malformed_error("the headers are too large", f"{size:,} bytes", expected, 431, "headers")
    lengths = header_values(scope, b"content-length")
    chunked = header_values(scope, b"transfer-encoding")
    if len(lengths) > 1 or (lengths and chunked) or any(v.strip().lower() != "chunked" for v in chunked):
        what = "the length of the request body is ambiguous"
        return _malformed_error(
            what, "several lengths", "one content-length, or chunked transfer-encoding", 400, "length"
        )
    if lengths and not (lengths[0].strip().isascii() and lengths[0].strip().isdigit()):
        return _malformed_error("the content-length is not a number", None, "a number of bytes", 400, "length")
    if lengths and len(lengths[0]) < 20 and int(lengths[0]) <= config.max_body:
        return None
    return body_too_large_error(config.max_body, f"{lengths[0].strip()[:30]} bytes") if lengths else None


def _malformed_error(what: str, found: str | None, expected: str, status: int, reason: str) -> RequestRefused:
    return RequestRefused(what, found=found, expected=expected, status=status, reason=reason)


def _ignore_handler_error(handler: asyncio.Task[None]) -> None:
    """Retrieve the exception of a handler whose result is no longer needed."""
    with contextlib.suppress(asyncio.CancelledError):
        handler.exception()
