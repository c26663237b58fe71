"""A small app with routes of every kind behind the middleware: called in this process, or over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import StreamingResponse

from nova_assets.errors import CatalogUnavailable, ChannelNotFound
from nova_assets.model.token import Grants, Token, mint_token
from nova_assets.service.http import problems
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import resolve_exposure
from nova_assets.service.http.guard import Caller
from nova_assets.service.http.metrics import ServiceMetrics
from nova_assets.service.http.server import GuardedApp, Server

NOW = datetime(2024, 1, 1, tzinfo=UTC)


class TokenIssuer:
    """Tokens that a service looks up, and the clock by which they expire."""

    def __init__(self) -> None:
        self.now = NOW
        self.tokens_by_id: dict[str, Token] = {}
        self.lookup_count = 0
        self.is_catalog_down = False

    def add_token_header(
        self, name: str = "ann", expires_in: float | None = None, **grants: tuple[str, ...]
    ) -> dict[str, str]:
        """Add a token. Returns the header with which a caller presents it."""
        given: Grants = grants or {"read": ("*",)}  # type: ignore[assignment]
        expires = None if expires_in is None else self.now + timedelta(seconds=expires_in)
        text, token = mint_token(name, given, self.now, expires)
        self.tokens_by_id[token.id] = token
        return {"authorization": f"Bearer {text}"}

    def find_token(self, token_id: str) -> Token | None:
        self.lookup_count += 1
        if self.is_catalog_down:
            raise CatalogUnavailable(
                "the catalog postgresql://ann:***@db.internal/nova does not answer", found="10.0.0.7"
            )
        return self.tokens_by_id.get(token_id)

    def read_clock(self) -> datetime:
        return self.now


def build_small_app(observed: ServiceMetrics) -> FastAPI:
    """Routes of every kind that the middleware has to deal with."""
    app = FastAPI()
    problems.install_error_handlers(app)
    app.add_route("/metrics", observed.metrics_response)
    _add_quick_routes(app)
    _add_failing_routes(app)
    _add_slow_routes(app)
    apart = APIRouter(prefix="/v1/apart")

    @apart.get("/{channel}/rows")
    async def rows_of(channel: str) -> dict[str, str]:
        return {"channel": channel}

    app.include_router(apart)
    return app


def _add_quick_routes(app: FastAPI) -> None:
    @app.get("/healthz")
    @app.get("/readyz")
    async def health() -> dict[str, bool]:
        return {"ok": True}

    @app.get("/v1/channels/{channel}")
    async def channel(channel: str, request: Request, at: int = 0) -> dict[str, Any]:
        caller: Caller = request.state.caller
        caller.require_right("read", channel)
        if channel != "orders":
            raise ChannelNotFound(f"there is no channel {channel!r}", channel=channel)
        request.state.execution_id = "e1"
        return {"channel": channel, "caller": caller.name, "at": at}

    @app.get("/v1/whoami")
    async def whoami(request: Request) -> dict[str, Any]:
        return {
            "caller": request.state.caller.name,
            "client": request.scope["client"][0],
            "url": str(request.url),
            "forwarded": [k for k in request.headers if "forward" in k],
        }

    @app.get("/v1/pid")
    async def pid() -> int:
        return os.getpid()

    @app.post("/v1/insert")
    async def insert(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}


def _add_failing_routes(app: FastAPI) -> None:
    @app.post("/v1/refuse")
    async def refuse() -> None:
        raise ChannelNotFound("there is no such channel")

    @app.get("/v1/broken")
    async def broken() -> None:
        raise RuntimeError("the password is hunter2, see /srv/secret/place")


def _add_slow_routes(app: FastAPI) -> None:
    @app.get("/v1/slow")
    async def slow(seconds: float = 5) -> dict[str, float]:
        await asyncio.sleep(seconds)
        return {"slept": seconds}

    @app.get("/v1/blocked")
    def blocked(seconds: float = 2) -> dict[str, float]:
        time.sleep(seconds)
        return {"slept": seconds}

    @app.get("/v1/hang")
    async def hang(seconds: float = 60) -> None:
        time.sleep(seconds)  # in the event loop

    @app.get("/v1/stream")
    async def stream(seconds: float = 0.1, parts: int = 8) -> StreamingResponse:
        async def rows() -> AsyncIterator[bytes]:
            for _ in range(parts):
                yield b"row\n"
                await asyncio.sleep(seconds)

        return StreamingResponse(rows())

    @app.get("/v1/flood")
    async def flood() -> StreamingResponse:
        async def rows() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 65536

        return StreamingResponse(rows())


def build_guarded_app(issuer: TokenIssuer | None = None, has_token: bool = True, **config: Any) -> GuardedApp:
    """The small app behind the middleware."""
    issuer = issuer or TokenIssuer()
    given = ServiceConfig(**{"port": 0, **config})
    observed = ServiceMetrics()
    exposure = resolve_exposure(given, has_token)
    return GuardedApp(build_small_app(observed), given, exposure, issuer.find_token, issuer.read_clock, observed)


RequestSender = Callable[..., httpx.Response]


def make_request_sender(
    app: GuardedApp, client: str = "127.0.0.1", base_url: str = "http://127.0.0.1"
) -> RequestSender:
    """Function that sends a request to an app in this process, such as ``send_request("GET", "/v1/whoami")``."""

    def send_request(method: str, path: str, **kwargs: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(app=app, client=(client, 4711), raise_app_exceptions=False)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url=base_url) as session:
                return await session.request(method, path, **kwargs)

        return asyncio.run(once())

    return send_request


@contextlib.contextmanager
def serve_small_app(**config: Any) -> Iterator[tuple[str, GuardedApp]]:
    """Serve the small app on a real socket. Yields its address and the guarded app."""
    made = build_guarded_app(**config)
    with Server(made).in_background() as url:
        yield url, made


def send_raw(url: str, *parts: bytes | float, timeout: float = 10) -> bytes:
    """Send bytes over a socket and return the whole response. A number is a pause in seconds."""
    at = urlsplit(url)
    with socket.create_connection((at.hostname or "", at.port or 0), timeout=timeout) as connection:
        for part in parts:
            if isinstance(part, float):
                time.sleep(part)
                continue
            with contextlib.suppress(ConnectionError):
                connection.sendall(part)
        got = b""
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(65536):
                got += chunk
        return got
