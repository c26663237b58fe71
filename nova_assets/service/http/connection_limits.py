"""Limits of connections: header time and size, unread responses, and the number of connections in total and per
address.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import cache
from typing import Any

from nova_assets.errors import RequestRefused
from nova_assets.nova_error import NovaError
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import Exposure
from nova_assets.service.http.problems import CONTENT_TYPE, problem_from_error

_PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


def limited_protocol(config: ServiceConfig, exposure: Exposure) -> type[asyncio.Protocol]:
    """Uvicorn's installed HTTP protocol class, extended with these limits."""
    return type(
        "Bounded", (_limited_protocol_base(),), {"limits": config, "exposure": exposure, "of_address": Counter()}
    )


@cache
def _limited_protocol_base() -> Any:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as Base  # type: ignore[assignment]

    class Bounded(Base):
        """Protocol that limits the request headers before uvicorn starts a request cycle."""

        limits: ServiceConfig
        exposure: Exposure
        of_address: Counter[str]
        _counted_address: str | None = None
        _header_bytes = 0
        _in_headers = True
        _head_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > self.limits.max_connections or not self._count_connection():
                transport.abort()
                return
            self._start_header_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_timer("_head_timer")
            self._cancel_timer("_write_timer")
            if self._counted_address is not None:
                self.of_address[self._counted_address] -= 1
                if not self.of_address[self._counted_address]:
                    del self.of_address[self._counted_address]
                self._counted_address = None
            super().connection_lost(exc)

        def _count_connection(self) -> bool:
            """Count this connection for its address. Returns False if the address has reached its limit."""
            address = str((self.client or ("",))[0])
            if self.exposure.is_proxy(address):
                return True
            if self.of_address[address] >= self.limits.max_connections_per_address:
                return False
            self._counted_address = address
            self.of_address[address] += 1
            return True

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            in_body = before is not None and before.more_body and not before.response_complete
            super().data_received(data)
            if self.cycle is not before:
                self._header_bytes = 0
                self._cancel_timer("_head_timer")
            elif not in_body and not self.transport.is_closing():
                self._header_bytes += len(data)
                if self._header_bytes > self.limits.max_headers + self.limits.max_url:
                    self._refuse_and_close("the headers are too large", 431, "headers")
                elif self._head_timer is None:
                    self._start_header_timer()

        def on_message_begin(self) -> None:
            self._in_headers = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_headers = False
            super().on_headers_complete()

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._in_headers:  # trailers of a chunked body must not count as headers: no proxy has checked them
                super().on_header(name, value)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._cancel_timer("_write_timer")
            self._write_timer = self.loop.call_later(self.limits.send_idle_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            self._cancel_timer("_write_timer")
            super().resume_writing()

        def send_400_response(self, msg: str) -> None:
            self._refuse_and_close("the request is no HTTP", 400, "http")

        def _start_header_timer(self) -> None:
            seconds = self.limits.header_seconds
            what = f"the headers did not arrive within {seconds:g} seconds"
            self._head_timer = self.loop.call_later(seconds, self._refuse_and_close, what, 408, "headers_slow")

        def _cancel_timer(self, timer_attribute: str) -> None:
            timer = getattr(self, timer_attribute)
            if timer is not None:
                timer.cancel()
                setattr(self, timer_attribute, None)

        def _refuse_and_close(self, message: str, status: int, reason: str) -> None:
            """Close the connection, after an error response if that cannot be mistaken for another response."""
            if self.transport.is_closing():
                return
            silent = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
            if not silent and (self._header_bytes or status != 408):
                self.transport.write(_raw_problem_response(RequestRefused(message, status=status, reason=reason)))
            self.transport.close()

    return Bounded


def _raw_problem_response(error: NovaError) -> bytes:
    status, body = problem_from_error(error)
    sent = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: {CONTENT_TYPE}\r\ncontent-length: {len(sent)}\r\n"
    return f"{head}connection: close\r\n\r\n".encode() + sent
