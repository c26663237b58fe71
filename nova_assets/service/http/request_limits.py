"""Limits of requests: a limited number at once, each with limits for its body, its handler's time, and waiting for the
client.

Hand-written, because uvicorn and Starlette limit neither the time of a body nor that of a handler (decision 0044).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from anyio import CancelScope

from nova_assets.errors import RequestRefused, RequestTimedOut, ServiceBusy, ServiceUnavailable
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import (
    DISCONNECTED,
    HEALTH_PATHS,
    App,
    Message,
    Receive,
    Scope,
    Send,
    header_values,
    request_state,
)
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.problems import refusal_reason, send_problem

_DRAIN_SECONDS = 0.02
"""Seconds in which the rest of a body is read that has already arrived."""

_LINGER_SECONDS = 2.0
"""Seconds for which a connection stays open after an early response, while its body still arrives.

If the connection closed at once, the client would see a broken pipe instead of the response.
"""


class LimitedExchange:
    """Layer between the server and the handler of a request.

    A refusal is final: later messages of the handler are dropped. A handler that needs the body reads it before it
    responds. The rest of the body is dropped.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, config: ServiceConfig) -> None:
        loop = asyncio.get_running_loop()
        self.scope = scope
        self.config = config
        self.refusal: asyncio.Future[NovaError] = loop.create_future()
        self.is_response_started = False
        self.received_bytes = 0
        self._receive = receive
        self._send = send
        self._loop = loop
        self._body_complete = not _has_body(scope)
        self._expects_continue = any(v.lower() == "100-continue" for v in header_values(scope, b"expect"))
        self._handler_is_receiving = False
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._seconds_left = config.request_seconds
        self._timer_started_at = loop.time()
        self._upload_until = loop.time() + config.upload_seconds
        self.on_answered: Callable[[], None] = lambda: None

    @property
    def is_refused(self) -> bool:
        return self.refusal.done()

    def refuse(self, error: NovaError) -> None:
        """Respond with this error. If a response has begun, it is cut short."""
        if not self.refusal.done():
            self.refusal.set_result(error)

    def start_timer(self) -> None:
        """Start the handler's time limit."""
        self._timer_started_at = self._loop.time()
        self._timer = self._loop.call_later(max(self._seconds_left, 0), self._refuse_timed_out)

    def stop_timer(self) -> None:
        """Stop the time limit, since the handler has ended or its result is no longer needed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def receive(self) -> Message:
        """Next part of the request, for its handler."""
        if self.is_refused:
            return DISCONNECTED
        if self._body_complete:
            return await self._receive()
        async with self._pause_timer():
            message = await self._receive_within_time_limits()
        return message if not self.is_refused else DISCONNECTED

    async def send(self, message: Message) -> None:
        """Send a part of the handler's response."""
        if self.is_refused:
            return
        if message["type"] == "http.response.start":
            await self._drain_body(_DRAIN_SECONDS)
            if self.is_refused:
                return
            self.stop_timer()
        await self._send_and_drain_body(message)
        if message.get("more_body", False):
            await asyncio.sleep(0)  # sending to a closed connection never waits: an endless response blocks the loop

    async def answer_with_error(self, error: NovaError, close: bool = False) -> None:
        """Respond with an error in place of the handler, unless the handler's response has begun.

        Args:
            close: also close the connection.
        """
        if self.is_response_started:
            return
        self.is_response_started = True
        await self._drain_body(_DRAIN_SECONDS)
        await send_problem(self.scope, self._send_and_drain_body, error, close=close and self._body_complete)

    async def _send_and_drain_body(self, message: Message) -> None:
        """Send a part of a response. If the body has not arrived yet, drop its rest before the response ends, and
        then close the connection.
        """
        if message["type"] == "http.response.start":
            self.is_response_started = True
            self._closing = not self._body_complete
            if self._closing:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        elif self._closing and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            if not self.is_refused:  # a refused handler may still be at work
                self.on_answered()  # from here on, only the client causes delay
            await self._drain_body(_LINGER_SECONDS)
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _receive_within_time_limits(self) -> Message:
        now = self._loop.time()
        timeout_seconds = min(self.config.upload_idle_seconds, self._upload_until - now)
        try:
            async with asyncio.timeout(max(timeout_seconds, 0)):
                return self._record_received_message(await self._receive())
        except TimeoutError:
            self.refuse(_slow_upload_error(self.config, now >= self._upload_until - self.config.upload_idle_seconds))
            return DISCONNECTED

    def _record_received_message(self, message: Message) -> Message:
        if message["type"] != "http.request":
            self._body_complete = True
            return message
        self.received_bytes += len(message.get("body", b""))
        self._body_complete = not message.get("more_body", False)
        if self.received_bytes > self.config.max_body:
            self.refuse(body_too_large_error(self.config.max_body, f"more than {self.received_bytes - 1:,} bytes"))
        return message

    async def _drain_body(self, seconds: float) -> None:
        """Read and drop the rest of the body, within limits.

        Nothing is read if the client waits for ``100 Continue``, or if the handler is reading the body itself.
        """
        if self._body_complete or self._handler_is_receiving or (self._expects_continue and not self.received_bytes):
            return
        dropped_bytes = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._body_complete and dropped_bytes <= self.config.max_body:
                    message = await self._receive()
                    dropped_bytes += len(message.get("body", b""))
                    self._body_complete = message["type"] != "http.request" or not message.get("more_body", False)

    @contextlib.asynccontextmanager
    async def _pause_timer(self) -> AsyncIterator[None]:
        """Pause the handler's time limit while it waits for the client."""
        self._handler_is_receiving = True
        counting = self._timer is not None
        if counting:
            self.stop_timer()
            self._seconds_left -= self._loop.time() - self._timer_started_at
        try:
            yield
        finally:
            self._handler_is_receiving = False
            if counting and not self.is_response_started and not self.is_refused:
                self.start_timer()

    def _refuse_timed_out(self) -> None:
        self.refuse(
            RequestTimedOut(
                f"the request was not answered within {self.config.request_seconds:g} seconds",
                expected="a smaller request",
                next=timeout_advice(self.scope),
                reason="too_long",
            )
        )


def timeout_advice(scope: Scope) -> str:
    """Advice for a request that took too long."""
    if scope["method"] in ("GET", "HEAD") or scope["path"].endswith("/read"):
        return "request less, or raise the limit: nova serve --request-seconds"
    if scope["path"].endswith("/blocks"):
        return "the insert may still succeed: repeat it with the same Idempotency-Key, and it takes effect once"
    return "the request may still succeed: check the channel's pending and timeline before you repeat it"


def body_too_large_error(max_bytes: int, actual_size: str) -> RequestRefused:
    """Error for a request body that is too large."""
    return RequestRefused(
        "the request body is too large",
        found=actual_size,
        expected=f"at most {max_bytes:,} bytes",
        next="send several smaller requests",
        status=413,
        reason="body",
    )


def _slow_upload_error(config: ServiceConfig, total_time_exceeded: bool) -> RequestRefused:
    seconds = config.upload_seconds if total_time_exceeded else config.upload_idle_seconds
    message = f"the request body did not arrive within {seconds:g} seconds"
    if not total_time_exceeded:
        message = f"no part of the request body arrived for {seconds:g} seconds"
    return RequestRefused(message, next="nothing was done: send the request again", status=408, reason="slow")


def _has_body(scope: Scope) -> bool:
    lengths = header_values(scope, b"content-length")
    return bool(header_values(scope, b"transfer-encoding")) or any(v.strip() not in ("", "0") for v in lengths)


class ActiveRequests:
    """Requests in progress of one service.

    A request counts until its handler has ended, even if its caller was already told that it timed out. A thread that
    waits for a database cannot be stopped, and must not be joined by an unlimited number of others.
    """

    def __init__(self) -> None:
        self.is_draining = False
        self.handler_count = 0
        self.open_exchanges: set[LimitedExchange] = set()

    @property
    def unanswered_count(self) -> int:
        """Number of callers that wait for an answer or for the rest of it."""
        return len(self.open_exchanges)

    def start_draining(self) -> None:
        """Refuse new requests from now on, since the service is shutting down."""
        self.is_draining = True

    def refuse_unanswered(self) -> None:
        """Refuse all unanswered requests because of the shutdown. Answers that have begun are cut short."""
        for exchange in list(self.open_exchanges):
            exchange.refuse(stopping_error())


def stopping_error(*, not_started: bool = False) -> ServiceUnavailable:
    """Error for requests during the shutdown.

    Args:
        not_started: the request was refused before its handler began, so that clients may repeat even a change.
    """
    return ServiceUnavailable(
        "the service is shutting down",
        next="retry in a moment, or on another instance",
        reason="stopping",
        **({"not_started": True} if not_started else {}),
    )


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
