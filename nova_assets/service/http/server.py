"""HTTP server of a service: listening, orderly shutdown, in the foreground or in a background thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import uvicorn

from nova_assets.errors import ServiceRefused, ServiceUnavailable, SettingsError
from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import Receive, Scope, Send
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.connection_limits import LimitedProtocol
from nova_assets.service.http.listening_socket import bind_listening_socket, local_service_url
from nova_assets.service.http.middleware import GuardedApp

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


def open_listening_socket(config: ServiceConfig) -> socket.socket:
    """Bind the configured port, if the certificate is usable.

    Raises:
        PortTaken, ServiceRefused: the port cannot be bound.
        SettingsError: the certificate or its key is unusable.
    """
    _check_tls(config)
    return bind_listening_socket(config.host, config.port)


def _check_tls(config: ServiceConfig) -> None:
    if not config.tls_cert:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            config.tls_cert, config.tls_key, password=_reject_password_request
        )
    except (OSError, ssl.SSLError) as error:
        missing_files = [str(p) for p in (config.tls_cert, config.tls_key) if p and not Path(p).is_file()]
        load_error = f"{config.tls_cert}, {config.tls_key}: {error}"
        raise SettingsError(
            "the certificate and its key cannot be used",
            found=f"no file {' nor '.join(missing_files)} in {Path.cwd()}" if missing_files else load_error,
            expected="PEM files of a certificate and its key, without a password",
        ) from error


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

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals stop the service without ending the process, which chooses its own exit code."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self.handle_exit) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)

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


def _reject_password_request() -> str:
    """Refuse keys with a password. Without this callback, OpenSSL would ask for the password on the terminal."""
    return ""


def exit_process_now(code: int = 0) -> NoReturn:
    """End this process without its clean-up, which work in progress would delay, or which belongs to its parent."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
