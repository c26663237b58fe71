"""HTTP server of a service: an app behind its middleware, and uvicorn with limits of headers and an orderly shutdown,
in the foreground or in a background thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import uvicorn

from nova_assets.errors import RequestRefused, ServiceRefused, ServiceUnavailable
from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import App, Receive, Scope, Send
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import Exposure
from nova_assets.service.http.guard import AccessGuard, TokenAuthenticator, TokenLookup, utc_now
from nova_assets.service.http.listening_socket import local_service_url, open_listening_socket
from nova_assets.service.http.metrics import MetricsMiddleware, ServiceMetrics
from nova_assets.service.http.problems import CONTENT_TYPE, problem_from_error
from nova_assets.service.http.request_limits import ActiveRequests, AdmissionLimits

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as UvicornProtocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as UvicornProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as UvicornProtocol


_LOGGER = get_logger("nova_assets.service")

_POLL_SECONDS = 0.05
_KEEP_ALIVE_SECONDS = 30
"""Seconds for which an idle connection stays open.

Longer than the keep-alive of clients (httpx: 5), so that no client sends a request on a connection that is closing.
"""

_NEW_CONNECTION_SECONDS = 0.5
"""Seconds after a stop signal in which connections without a request may send their first request."""

_START_TIMEOUT = 60.0
"""Time limit in seconds for the start of a background service."""


class GuardedApp:
    """An app behind its middleware.

    Args:
        app: the routes. They find ``caller`` and ``request_id`` in ``request.state``. They may set ``channel`` and
            ``execution_id`` there for the log.
        exposure: how the service is reached. See ``resolve_exposure``.
        find_token: lookup of a token by its id, such as ``Catalog.tokens.get``.
        now: clock for the expiry of tokens, such as ``Catalog.now``.
        metrics: metrics of the service. By default, new ones.
    """

    def __init__(
        self,
        app: App,
        config: ServiceConfig,
        exposure: Exposure,
        find_token: TokenLookup | None = None,
        now: Callable[[], datetime] = utc_now,
        metrics: ServiceMetrics | None = None,
    ) -> None:
        self.config = config
        self.exposure = exposure
        self.metrics = metrics or ServiceMetrics()
        self.active_requests = ActiveRequests()
        tokens = None if find_token is None else TokenAuthenticator(find_token, now, config.token_seconds)
        guarded = AccessGuard(app, exposure, tokens)
        self._app: App = MetricsMiddleware(AdmissionLimits(guarded, config, self.active_requests), self.metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class Server:
    """A guarded app with its listening socket.

    After a stop signal, new connections are refused. The first requests of connections that were just accepted are
    answered. Later requests get 503, also from ``/readyz``. Requests in progress get ``shutdown_grace`` seconds, then
    they are cut short.

    Args:
        listening_socket: a socket that is already bound. By default, the server binds the configured port itself.

    Raises:
        PortTaken, ServiceRefused: when the server begins to listen.
        SettingsError: the certificate or its key is unusable.
    """

    def __init__(self, guarded_app: GuardedApp, listening_socket: socket.socket | None = None) -> None:
        self.guarded_app = guarded_app
        self.config = guarded_app.config
        self.before_forced_exit: Callable[[], None] = lambda: None
        """Called before the process exits while work is in progress that cannot be stopped."""
        self._socket = listening_socket

    def listen(self) -> str:
        """Bind the port. Returns the address of the service."""
        if self._socket is None:
            self._socket = open_listening_socket(self.config)
        return local_service_url(self._socket, self.config.host, self.guarded_app.exposure.tls)

    def run(self, heartbeat: Callable[[], None] | None = None) -> None:
        """Serve in the foreground until SIGTERM or SIGINT. Returns when all requests are answered. A second SIGINT
        skips the wait.

        If work is in progress that cannot be stopped, the process exits with code 0 all the same. Its changes are in
        the catalog completely or not at all (R2, R3).

        Args:
            heartbeat: called by the event loop about once per second, also while requests in progress are finished.
        """
        server = self._create_uvicorn_server(heartbeat)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve_until_stopped())
            server.raise_start_error()
            if self.guarded_app.active_requests.handler_count:
                _LOGGER.warning(
                    "stopped while requests were still in progress",
                    extra={"at_work": self.guarded_app.active_requests.handler_count},
                )
                self.before_forced_exit()
                exit_process_now()

    @contextlib.contextmanager
    def in_background(self) -> Iterator[str]:
        """Serve from a thread of this process while the context lasts. Yields the address. Signal handlers stay
        unchanged.
        """
        url = self.listen()
        server = self._create_uvicorn_server()

        def serve() -> None:
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(server.serve_until_stopped())

        thread = threading.Thread(target=serve, name="nova-service", daemon=True)
        thread.start()
        try:
            server.wait_until_started(thread)
            yield url
        finally:
            server.should_exit = True
            thread.join(self.config.shutdown_grace + 5)

    def _create_uvicorn_server(self, heartbeat: Callable[[], None] | None = None) -> _UvicornServer:
        self.listen()
        assert self._socket is not None
        bound, self._socket = self._socket, None
        return _UvicornServer(self.guarded_app, bound, heartbeat)


class _UvicornServer(uvicorn.Server):
    """Uvicorn with our own shutdown."""

    def __init__(
        self,
        guarded_app: GuardedApp,
        listening_socket: socket.socket,
        heartbeat: Callable[[], None] | None = None,
    ) -> None:
        self.guarded_app = guarded_app
        self.listening_socket = listening_socket
        self.heartbeat = heartbeat
        self.failure: BaseException | None = None
        config = guarded_app.config
        tls: dict[str, Any] = {"ssl_certfile": config.tls_cert, "ssl_keyfile": config.tls_key}
        protocol: Any = partial(LimitedProtocol, config)
        super().__init__(
            uvicorn.Config(
                self._asgi_app,
                http=protocol,
                interface="asgi3",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=config.max_connections,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=1,
                callback_notify=self._beat,
                timeout_notify=0,
                **(tls if guarded_app.exposure.tls else {}),
            )
        )

    async def _asgi_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The guarded app. Remembers the exception if the app fails to start."""
        try:
            await self.guarded_app(scope, receive, send)
        except Exception as error:
            if scope["type"] == "lifespan":
                self.failure = error
            raise

    async def _beat(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat()

    async def serve_until_stopped(self) -> None:
        """Serve until a stop is requested."""
        try:
            await self.serve(sockets=[self.listening_socket])
        except SystemExit as end:  # raised by uvicorn if the app's lifespan fails to start
            self.failure = self.failure or end
        finally:
            self.listening_socket.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        active_requests, loop = self.guarded_app.active_requests, asyncio.get_running_loop()
        for server in self.servers:
            server.close()
        await self._serve_new_connections()
        active_requests.start_draining()
        deadline = loop.time() + self.guarded_app.config.shutdown_grace
        while active_requests.unanswered_count and loop.time() < deadline and not self.force_exit:
            await self._beat()
            await asyncio.sleep(_POLL_SECONDS)
        await self._beat()
        active_requests.refuse_unanswered()
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    async def _serve_new_connections(self) -> None:
        """Wait for the first request of each connection that was accepted just before the stop.

        Uvicorn would close such a connection, and its client could not know whether the request has begun.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _NEW_CONNECTION_SECONDS
        await asyncio.sleep(_POLL_SECONDS)
        while loop.time() < deadline and any(getattr(c, "cycle", None) is None for c in self.server_state.connections):
            await asyncio.sleep(_POLL_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # uvicorn would raise them again, but this process chooses its own exit code

    def wait_until_started(self, thread: threading.Thread) -> None:
        """Wait until the service answers. Raises the error that prevented the start."""
        for _ in range(int(_START_TIMEOUT / _POLL_SECONDS)):
            if self.started:
                return
            thread.join(_POLL_SECONDS)
            if not thread.is_alive():
                break
        self.raise_start_error()
        if not self.started:
            raise ServiceUnavailable("the service does not start", next="read the log of nova_assets.service")

    def raise_start_error(self) -> None:
        """Raise the error that prevented the start of the app, or that occurred at its end."""
        if isinstance(self.failure, NovaError):
            raise self.failure
        if self.failure is not None and not self.started:
            why = f"{type(self.failure).__name__}: {self.failure}"
            raise ServiceRefused("the service does not start", found=why) from self.failure


def exit_process_now(code: int = 0) -> NoReturn:
    """End this process without its clean-up, which work in progress would delay, or which belongs to its parent."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class LimitedProtocol(UvicornProtocol):
    """Uvicorn's protocol, with limits for what uvicorn leaves unlimited: time and size of the headers, and the time for
    which a client may leave a response unread.

    Uvicorn limits the number of connections, and a reverse proxy those of one address (decision 0095).
    """

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
