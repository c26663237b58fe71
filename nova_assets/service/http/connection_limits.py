"""Limits of connections: header time and size, unread responses, and the number of connections in total and per
address.

Hand-written, because uvicorn limits neither the time of the headers nor the connections of one address (decision 0044).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nova_assets.errors import RequestRefused
from nova_assets.nova_error import NovaError
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import Exposure
from nova_assets.service.http.problems import CONTENT_TYPE, problem_from_error

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as UvicornProtocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as UvicornProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as UvicornProtocol

_PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


def build_limited_protocol(config: ServiceConfig, exposure: Exposure) -> type[asyncio.Protocol]:
    """Uvicorn's installed HTTP protocol class, extended with the limits of one server."""
    return type(
        "ServerProtocol",
        (LimitedProtocol,),
        {"limits": config, "exposure": exposure, "connections_by_address": Counter()},
    )


class _Timer:
    """Delayed call that can be cancelled and started again."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(
        self, loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[..., None], *arguments: Any
    ) -> None:
        """Call the function after this time, in place of an earlier call."""
        self.cancel()
        self._handle = loop.call_later(seconds, callback, *arguments)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class LimitedProtocol(UvicornProtocol):
    """Protocol that limits the request headers before uvicorn starts a request cycle."""

    limits: ServiceConfig
    exposure: Exposure
    connections_by_address: Counter[str]
    _counted_address: str | None = None
    _header_bytes = 0
    _is_in_headers = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._header_timer = _Timer()
        self._write_timer = _Timer()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections or not self._try_to_register_connection():
            transport.abort()
            return
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._header_timer.cancel()
        self._write_timer.cancel()
        if self._counted_address is not None:
            self.connections_by_address[self._counted_address] -= 1
            if not self.connections_by_address[self._counted_address]:
                del self.connections_by_address[self._counted_address]
            self._counted_address = None
        super().connection_lost(exc)

    def _try_to_register_connection(self) -> bool:
        """Count this connection for its address. Returns False if the address has reached its limit."""
        address = str((self.client or ("",))[0])
        if self.exposure.is_proxy(address):
            return True
        if self.connections_by_address[address] >= self.limits.max_connections_per_address:
            return False
        self._counted_address = address
        self.connections_by_address[address] += 1
        return True

    def data_received(self, data: bytes) -> None:
        cycle_before = self.cycle
        is_in_body = cycle_before is not None and cycle_before.more_body and not cycle_before.response_complete
        super().data_received(data)
        if self.cycle is not cycle_before:
            self._header_bytes = 0
            self._header_timer.cancel()
        elif not is_in_body and not self.transport.is_closing():
            self._header_bytes += len(data)
            if self._header_bytes > self.limits.max_headers + self.limits.max_url:
                self._refuse_and_close("the headers are too large", 431, "headers")
            elif not self._header_timer.is_running:
                self._start_header_timer()

    def on_message_begin(self) -> None:
        self._is_in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_headers:  # trailers of a chunked body must not count as headers: no proxy has checked them
            super().on_header(name, value)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer.start(self.loop, self.limits.send_idle_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._write_timer.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self._refuse_and_close("the request is not valid HTTP", 400, "http")

    def _start_header_timer(self) -> None:
        seconds = self.limits.header_seconds
        message = f"the headers did not arrive within {seconds:g} seconds"
        self._header_timer.start(self.loop, seconds, self._refuse_and_close, message, 408, "headers_slow")

    def _refuse_and_close(self, message: str, status: int, reason: str) -> None:
        """Close the connection, after an error response if that cannot be mistaken for another response."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        is_response_open = cycle is not None and cycle.response_started and not cycle.response_complete
        if not is_response_open and (self._header_bytes or status != 408):
            self.transport.write(_raw_problem_response(RequestRefused(message, status=status, reason=reason)))
        self.transport.close()


def _raw_problem_response(error: NovaError) -> bytes:
    status, body = problem_from_error(error)
    sent = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: {CONTENT_TYPE}\r\ncontent-length: {len(sent)}\r\n"
    return f"{head}connection: close\r\n\r\n".encode() + sent
