"""One request and its answer, within limits: of its body, of the time that its handler takes, of the patience with who
sends and who reads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from nova_assets.errors import NovaError, RequestRefused, RequestTimedOut
from nova_assets.service.http.asgi import DISCONNECTED, Message, Receive, Scope, Send, headers_named
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.problems import send_problem

_AT_HAND = 0.02
"""Seconds in which what is left of a body is taken that lies ready."""

_LINGER = 2.0
"""Seconds for which a connection stays open whose request was answered before its body had come: closed at once, its
caller would see a broken pipe, and not the answer."""


class Exchange:
    """Stands between the server and the handler of a request.

    What was refused is refused for good: whatever the handler answers afterwards goes nowhere. A handler that wants a
    body reads it before it answers; what it left unread then is dropped.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, config: ServiceConfig) -> None:
        loop = asyncio.get_running_loop()
        self.scope = scope
        self.config = config
        self.refusal: asyncio.Future[NovaError] = loop.create_future()
        self.started = False
        self.received = 0
        self._receive = receive
        self._send = send
        self._loop = loop
        self._whole = not _has_body(scope)
        self._waited_for = any(v.lower() == "100-continue" for v in headers_named(scope, b"expect"))
        self._receiving = False
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._left = config.request_seconds
        self._since = loop.time()
        self._upload_until = loop.time() + config.upload_seconds
        self.answered: Callable[[], None] = lambda: None

    @property
    def refused(self) -> bool:
        return self.refusal.done()

    def refuse(self, error: NovaError) -> None:
        """Answer with this, unless an answer has begun; that is cut short then."""
        if not self.refusal.done():
            self.refusal.set_result(error)

    def begin(self) -> None:
        """The time of the handler starts now."""
        self._since = self._loop.time()
        self._timer = self._loop.call_later(max(self._left, 0), self._too_long)

    def end(self) -> None:
        """The handler has ended, or is not waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def receive(self) -> Message:
        """The next part of the request, for its handler."""
        if self.refused:
            return DISCONNECTED
        if self._whole:
            return await self._receive()
        async with self._not_counted():
            message = await self._next()
        return message if not self.refused else DISCONNECTED

    async def send(self, message: Message) -> None:
        """A part of the answer, from its handler."""
        if self.refused:
            return
        if message["type"] == "http.response.start":
            await self._drained(_AT_HAND)
            if self.refused:
                return
            self.started = True
            self.end()
            self._closing = not self._whole
            if self._closing:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        elif self._closing and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            self.answered()  # what is waited for now is the caller's time
            await self._drained(_LINGER)
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)
        if message.get("more_body", False):
            await asyncio.sleep(0)  # who has hung up takes all at once: an answer without end would let nobody else in

    async def answer(self, error: NovaError, close: bool = False) -> None:
        """Answer with a refusal, in place of the handler, if that has not begun to.

        Args:
            close: and end the connection.
        """
        if self.started:
            return
        self.started = True
        await self._drained(_AT_HAND)
        unread = not self._whole

        async def lingering(message: Message) -> None:
            if unread and message["type"] == "http.response.body":
                await self._send({**message, "more_body": True})
                await self._drained(_LINGER)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await self._send(message)

        await send_problem(self.scope, lingering, error, close=close or unread)

    async def _next(self) -> Message:
        now = self._loop.time()
        patience = min(self.config.upload_idle_seconds, self._upload_until - now)
        try:
            async with asyncio.timeout(max(patience, 0)):
                return self._counted(await self._receive())
        except TimeoutError:
            self.refuse(_too_slow(self.config, now >= self._upload_until - self.config.upload_idle_seconds))
            return DISCONNECTED

    def _counted(self, message: Message) -> Message:
        if message["type"] != "http.request":
            self._whole = True
            return message
        self.received += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self.received > self.config.max_body:
            self.refuse(too_large(self.config.max_body, f"more than {self.received - 1:,} bytes"))
        return message

    async def _drained(self, seconds: float) -> None:
        """Take what is left of the body, within limits, and forget it. What the caller holds back until it is asked for
        is not asked for; and what the handler is waiting for is not taken from it."""
        if self._whole or self._receiving or (self._waited_for and not self.received):
            return
        taken = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._whole and taken <= self.config.max_body:
                    message = await self._receive()
                    taken += len(message.get("body", b""))
                    self._whole = message["type"] != "http.request" or not message.get("more_body", False)

    @contextlib.asynccontextmanager
    async def _not_counted(self) -> AsyncIterator[None]:
        """The handler waits for the caller: that is not its time."""
        self._receiving = True
        counting = self._timer is not None
        if counting:
            self.end()
            self._left -= self._loop.time() - self._since
        try:
            yield
        finally:
            self._receiving = False
            if counting and not self.started and not self.refused:
                self.begin()

    def _too_long(self) -> None:
        self.refuse(
            RequestTimedOut(
                f"the request was not answered within {self.config.request_seconds:g} seconds",
                expected="less to be done at once",
                next=afterwards(self.scope),
                reason="too_long",
            )
        )


def afterwards(scope: Scope) -> str:
    """What to do about a request that takes too long."""
    if scope["method"] in ("GET", "HEAD") or scope["path"].endswith("/read"):
        return "ask for less; or for longer: nova serve --request-seconds"
    if scope["path"].endswith("/blocks"):
        return "it may still come about: ask again with the same Idempotency-Key, and it is done once"
    return "it may still come about: look at the channel's pending and timeline before it is asked for again"


def too_large(limit: int, found: str) -> RequestRefused:
    """The refusal of a body that is too large."""
    return RequestRefused(
        "the body of the request is too large",
        found=found,
        expected=f"at most {limit:,} bytes",
        next="send it in parts",
        status=413,
        reason="body",
    )


def _too_slow(config: ServiceConfig, altogether: bool) -> RequestRefused:
    seconds = config.upload_seconds if altogether else config.upload_idle_seconds
    what = f"the body of the request did not arrive within {seconds:g} seconds"
    if not altogether:
        what = f"nothing of the body of the request arrived for {seconds:g} seconds"
    return RequestRefused(what, next="nothing was done: send it again", status=408, reason="slow")


def _has_body(scope: Scope) -> bool:
    lengths = headers_named(scope, b"content-length")
    return bool(headers_named(scope, b"transfer-encoding")) or any(v.strip() not in ("", "0") for v in lengths)
