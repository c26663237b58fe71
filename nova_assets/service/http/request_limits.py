"""One request and its response within limits: body size, handler time, and waiting times for the client.

Hand-written, because uvicorn and Starlette limit neither the time of a body nor that of a handler (decision 0044).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from nova_assets.errors import RequestRefused, RequestTimedOut
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import DISCONNECTED, Message, Receive, Scope, Send, header_values
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.problems import send_problem

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
            self.is_response_started = True
            self.stop_timer()
            self._closing = not self._body_complete
            if self._closing:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        elif self._closing and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            self.on_answered()  # from here on, only the client causes delay
            await self._drain_body(_LINGER_SECONDS)
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)
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
        has_unread_body = not self._body_complete

        async def send_and_drain_body(message: Message) -> None:
            if has_unread_body and message["type"] == "http.response.body":
                await self._send({**message, "more_body": True})
                await self._drain_body(_LINGER_SECONDS)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await self._send(message)

        await send_problem(self.scope, send_and_drain_body, error, close=close or has_unread_body)

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
