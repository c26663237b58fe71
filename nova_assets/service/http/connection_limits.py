"""Uvicorn's HTTP protocol, with limits for what uvicorn leaves unlimited: time and size of the headers, and the time in
which a client may leave a response unread.

Uvicorn limits the number of connections. A reverse proxy limits the connections of one address.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from nova_assets.errors import RequestRefused
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.problems import CONTENT_TYPE, problem_from_error

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as UvicornProtocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as UvicornProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as UvicornProtocol


class LimitedProtocol(UvicornProtocol):
    """Protocol that limits the request headers before uvicorn starts a request cycle."""

    _header_bytes = 0
    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle

    def __init__(self, limits: ServiceConfig, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        cycle_before = self.cycle
        is_in_body = cycle_before is not None and cycle_before.more_body and not cycle_before.response_complete
        super().data_received(data)
        if self.cycle is not cycle_before:
            self._header_bytes = 0
            self._stop_header_timer()
        elif not is_in_body and not self.transport.is_closing():
            self._header_bytes += len(data)
            if self._header_bytes > self._limits.max_headers + self._limits.max_url:
                self._refuse_and_close("the headers are too large", 431, "headers")
            elif self._header_timer is None:
                self._start_header_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        is_trailer = self.cycle is not None and self.cycle.scope is self.scope
        if not is_trailer:  # trailers of a chunked body must not count as headers: no proxy has checked them
            super().on_header(name, value)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._limits.send_idle_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._write_timer.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self._refuse_and_close("the request is not valid HTTP", 400, "http")

    def _start_header_timer(self) -> None:
        seconds = self._limits.header_seconds
        message = f"the headers did not arrive within {seconds:g} seconds"
        self._header_timer = self.loop.call_later(seconds, self._refuse_and_close, message, 408, "headers_slow")

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse_and_close(self, message: str, status: int, reason: str) -> None:
        """Close the connection, after an error response if that cannot be mistaken for another response."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        is_response_open = cycle is not None and cycle.response_started and not cycle.response_complete
        if not is_response_open and (self._header_bytes or status != 408):
            body = json.dumps(problem_from_error(RequestRefused(message, status=status, reason=reason)).body).encode()
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {CONTENT_TYPE}\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()
