"""The server below a service: listens, stops in good order, and runs in the foreground or beside other work."""

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
from pathlib import Path
from typing import Any

import uvicorn

from nova_assets.errors import ServiceRefused, ServiceUnavailable, SettingsError
from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import Receive, Scope, Send
from nova_assets.service.http.connection_limits import limited_protocol
from nova_assets.service.http.middleware import GuardedApp
from nova_assets.service.http.port import bind_listening_socket, local_service_url

_LOGGER = get_logger("nova_assets.service")

_POLL_SECONDS = 0.05
_KEEP_ALIVE_SECONDS = 30
"""Seconds for which a connection stays open that nobody asks on: longer than clients keep theirs (httpx: 5), so that
none asks on one that is just being closed."""

_START_TIMEOUT = 60.0
"""Seconds that a service in the background has to start."""


class Server:
    """A shell that listens.

    When it is told to stop, nobody new is let in; whoever has a connection still is told 503, by ``/readyz`` too;
    requests at work get ``shutdown_grace`` seconds, and are cut short then.

    Raises:
        PortTaken, ServiceRefused: when it begins to listen.
        SettingsError: the certificate or its key cannot be used.
    """

    def __init__(self, guarded_app: GuardedApp) -> None:
        self.guarded_app = guarded_app
        self.config = guarded_app.config
        self.before_forced_exit: Callable[[], None] = lambda: None
        """Called before a process ends beside work that cannot be stopped."""
        self._socket: socket.socket | None = None

    def listen(self) -> str:
        """Take the port. Gives the address under which the service will answer."""
        if self._socket is None:
            self._check_tls()
            self._socket = bind_listening_socket(self.config.host, self.config.port)
        return local_service_url(self._socket, self.config.host, self.guarded_app.exposure.tls)

    def run(self) -> None:
        """Serve in the foreground until SIGTERM or SIGINT, and return when all is answered. A second SIGINT hurries.

        Where something is at work then that cannot be stopped, the process ends all the same, with 0: whatever it was
        changing is in the catalog whole, or not at all (R2, R3).
        """
        server = self._make_uvicorn()
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve_until_stopped())
            server.raise_failure()
            if self.guarded_app.active_requests.handler_count:
                _LOGGER.warning(
                    "stopped beside work that cannot be stopped",
                    extra={"at_work": self.guarded_app.active_requests.handler_count},
                )
                self.before_forced_exit()
                _end_process()

    @contextlib.contextmanager
    def in_background(self) -> Iterator[str]:
        """Serve from a thread of this process while the block lasts. Gives the address. Signals are left alone."""
        url = self.listen()
        server = self._make_uvicorn()

        def serve() -> None:
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(server.serve_until_stopped())

        thread = threading.Thread(target=serve, name="nova-service", daemon=True)
        thread.start()
        try:
            server.await_start(thread)
            yield url
        finally:
            server.should_exit = True
            thread.join(self.config.shutdown_grace + 5)

    def _make_uvicorn(self) -> _UvicornServer:
        self.listen()
        assert self._socket is not None
        bound, self._socket = self._socket, None
        return _UvicornServer(self.guarded_app, bound)

    def _check_tls(self) -> None:
        if not self.config.tls_cert:
            return
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.config.tls_cert, self.config.tls_key, password=_no_password
            )
        except (OSError, ssl.SSLError) as error:
            lacking = [str(p) for p in (self.config.tls_cert, self.config.tls_key) if p and not Path(p).is_file()]
            there = f"{self.config.tls_cert}, {self.config.tls_key}: {error}"
            raise SettingsError(
                "the certificate and its key cannot be used",
                found=f"no file {' nor '.join(lacking)} in {Path.cwd()}" if lacking else there,
                expected="PEM files of a certificate and the key that belongs to it, without a password",
            ) from error


class _UvicornServer(uvicorn.Server):
    """Uvicorn, stopped our way."""

    def __init__(self, guarded_app: GuardedApp, listening_socket: socket.socket) -> None:
        self.guarded_app = guarded_app
        self.listening_socket = listening_socket
        self.failure: BaseException | None = None
        config = guarded_app.config
        tls: dict[str, Any] = {"ssl_certfile": config.tls_cert, "ssl_keyfile": config.tls_key}
        protocol: Any = limited_protocol(config, guarded_app.exposure)
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
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=1,
                **(tls if guarded_app.exposure.tls else {}),
            )
        )

    async def _asgi_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The shell; remembers why the app would not start."""
        try:
            await self.guarded_app(scope, receive, send)
        except Exception as error:
            if scope["type"] == "lifespan":
                self.failure = error
            raise

    async def serve_until_stopped(self) -> None:
        """Serve until told to stop."""
        try:
            await self.serve(sockets=[self.listening_socket])
        except SystemExit as end:  # how uvicorn says that the app's lifespan would not begin
            self.failure = self.failure or end
        finally:
            self.listening_socket.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        work, loop = self.guarded_app.active_requests, asyncio.get_running_loop()
        work.start_draining()
        for server in self.servers:
            server.close()
        until = loop.time() + self.guarded_app.config.shutdown_grace
        while work.unanswered_count and loop.time() < until and not self.force_exit:
            await asyncio.sleep(_POLL_SECONDS)
        work.refuse_unanswered()
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the service, and not the process that has served: its exit code is its own."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self.handle_exit) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)

    def await_start(self, thread: threading.Thread) -> None:
        """Wait until it answers. Raises what kept it from that."""
        for _ in range(int(_START_TIMEOUT / _POLL_SECONDS)):
            if self.started:
                return
            thread.join(_POLL_SECONDS)
            if not thread.is_alive():
                break
        self.raise_failure()
        if not self.started:
            raise ServiceUnavailable("the service does not start", next="look into the log of nova_assets.service")

    def raise_failure(self) -> None:
        """Raises what kept the app from starting, or went wrong when it ended."""
        if isinstance(self.failure, NovaError):
            raise self.failure
        if self.failure is not None and not self.started:
            why = f"{type(self.failure).__name__}: {self.failure}"
            raise ServiceRefused("the service does not start", found=why) from self.failure


def _no_password() -> str:
    """A key with a password is refused; without this, OpenSSL would ask for it on the terminal."""
    return ""


def _end_process() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)
