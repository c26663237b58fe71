"""Who may ask the service: not pages of other sites, not strangers by a name of their own, and where tokens are asked
for, only who has one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from nova_assets.errors import BadToken, NotAllowed, NovaError, RequestRefused
from nova_assets.model.token import Token, parse
from nova_assets.service.http.asgi import HEALTH, App, Receive, Scope, Send, header, headers_named, state_of
from nova_assets.service.http.caller import LOCAL, Caller
from nova_assets.service.http.exposure import Exposure, host_of, may_be_called, parse_address
from nova_assets.service.http.problems import send_problem

Find = Callable[[str], Token | None]
"""Id -> the token, valid or not."""

_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-proto")
_FORWARDED_MORE = (b"x-forwarded-prefix", b"x-forwarded-server", b"x-forwarded-ssl", b"x-real-ip")
_MOST = 1024
"""Tokens that are remembered."""


def utc_now() -> datetime:
    return datetime.now(UTC)


class Tokens:
    """Finds out whose token a text is, and does not ask the catalog about each request."""

    def __init__(self, find: Find, now: Callable[[], datetime] = utc_now, seconds: float = 5.0) -> None:
        self.find = find
        self.now = now
        self.seconds = seconds
        self._known: dict[str, tuple[Token, float]] = {}

    async def caller(self, authorization: Iterable[str]) -> Caller:
        """Who asks, by the values of the header.

        Raises:
            BadToken: in the same words whatever is wrong, so that nobody learns which tokens there are.
        """
        given = [text.partition(" ") for text in authorization]
        if len(given) == 1 and given[0][0].lower() == "bearer":
            parts = parse(given[0][2].strip())
            token = None if parts is None else await self._token(parts[0])
            if parts is not None and token is not None and token.has_secret(parts[1]) and token.is_valid(self.now()):
                return Caller(token.name, token)
        raise BadToken(
            "the request has no valid token",
            expected="Authorization: Bearer nova_…",
            next="ask who runs the service for a token: nova token add",
            reason="token",
        )

    async def _token(self, token_id: str) -> Token | None:
        known = self._known.get(token_id)
        if known is not None and time.monotonic() - known[1] < self.seconds:
            return known[0]
        asked = time.monotonic()
        token = await asyncio.to_thread(self.find, token_id)
        self._known.pop(token_id, None)
        if token is not None:  # what is unknown is asked for again: a token works as soon as it is made
            while len(self._known) >= _MOST:
                self._known.pop(next(iter(self._known)))
            self._known[token_id] = (token, asked)
        return token


class Guard:
    """Lets in who may ask, and leaves in ``state["caller"]`` who that is."""

    def __init__(self, app: App, exposure: Exposure, tokens: Tokens | None = None) -> None:
        if exposure.asks_tokens and tokens is None:
            raise ValueError("tokens are asked for, and there is no way to look them up")
        self.app = app
        self.exposure = exposure
        self.tokens = tokens if exposure.asks_tokens else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            try:
                await self._admit(scope)
            except NovaError as error:
                state_of(scope)["failure"] = error
                await send_problem(scope, send, error)
                return
            await self.app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        """Raises NovaError where the request is refused."""
        peer = (scope.get("client") or (None,))[0]
        forwarded = _take_forwarded(scope)
        if scope["path"] in HEALTH:
            state_of(scope)["caller"] = Caller("")
            return
        if self.exposure.is_proxy(peer):
            self._believe(scope, forwarded)
        else:
            self._refuse_detours(peer, forwarded)
        self._refuse_strangers(scope)
        _refuse_other_sites(scope)
        authorization = headers_named(scope, b"authorization")
        state_of(scope)["caller"] = Caller(LOCAL) if self.tokens is None else await self.tokens.caller(authorization)

    def _believe(self, scope: Scope, forwarded: dict[bytes, list[str]]) -> None:
        """What the proxy says of who asks."""
        scheme = _last(forwarded, b"x-forwarded-proto")
        if scheme is not None and scheme.lower() != "https" and not self.exposure.tls:
            raise NotAllowed(
                "the proxy was asked without TLS, so that the token could be read on its way",
                found=f"x-forwarded-proto: {scheme[:20]}",
                expected="https",
                reason="proxy",
            )
        if scheme is not None:
            scope["scheme"] = "https" if scheme.lower() == "https" else "http"
        host = _last(forwarded, b"x-forwarded-host")
        if host is not None:
            others = [(n, v) for n, v in scope["headers"] if n.lower() != b"host"]
            scope["headers"] = [*others, (b"host", host.encode("latin-1"))]
        hops = [hop.strip() for value in forwarded.get(b"x-forwarded-for", ()) for hop in value.split(",")]
        asking = next((hop for hop in reversed(hops) if not self.exposure.is_proxy(hop)), None)
        if asking is not None and parse_address(asking) is not None:
            scope["client"] = (str(parse_address(asking)), 0)

    def _refuse_detours(self, peer: str | None, forwarded: dict[bytes, list[str]]) -> None:
        """What came over a way that nobody has stated."""
        if self.exposure.through_proxy_alone and not _is_loopback(peer):
            raise NotAllowed(
                "the service is asked through its proxy alone: without TLS, tokens could be read on their way",
                expected="a request from an address that was stated as --proxy",
                reason="proxy",
            )
        if self.tokens is None and forwarded:
            raise NotAllowed(
                "the request came through a proxy that nobody has stated, and the service asks for no tokens",
                expected="requests of this machine alone",
                next="nova serve --auth tokens --proxy ADDRESS, with the address of the proxy",
                reason="proxy",
            )

    def _refuse_strangers(self, scope: Scope) -> None:
        hosts = headers_named(scope, b"host")
        named = host_of(hosts[0]) if len(hosts) == 1 else None
        if named is None:
            raise RequestRefused(
                "the request does not say which host it asks",
                found=f"{len(hosts)} host headers" if len(hosts) != 1 else "an unreadable host header",
                expected="one host header",
                status=400,
                reason="host",
            )
        own = [scope["server"][0]] if scope.get("server") else []
        if not may_be_called(self.exposure, named[0], own):
            raise RequestRefused(
                "the service does not go by this name",
                found=f"host: {named[0][:100]}",
                expected="localhost, the address that it listens on, or a name that was given as --public-name",
                next=f"nova serve --public-name {named[0][:100]}, if that is its name",
                status=421,
                reason="host",
            )


def _refuse_other_sites(scope: Scope) -> None:
    """Pages of other sites, in the browser of one who can reach the service."""
    origins = headers_named(scope, b"origin")
    site = header(scope, b"sec-fetch-site") or ""
    if site.lower() == "cross-site" or any(not _is_same(origin, header(scope, b"host") or "") for origin in origins):
        raise NotAllowed(
            "the request comes from a page of another site",
            found=f"origin: {origins[0][:100]}" if origins else "sec-fetch-site: cross-site",
            expected="pages of the service's own, or a program",
            reason="origin",
        )


def _is_same(origin: str, host: str) -> bool:
    """Whether an origin is the host that is asked; where no port is named, it is that of the origin's scheme."""
    try:
        parts = urlsplit(origin)
        usual = {"http": 80, "https": 443}[parts.scheme]
        port = parts.port or usual
    except (KeyError, ValueError):
        return False
    named = host_of(host)
    return named is not None and parts.hostname == named[0] and port == int(named[1] or usual)


def _take_forwarded(scope: Scope) -> dict[bytes, list[str]]:
    """What a request says to have been forwarded for: nothing behind the guard sees it any more."""
    taken = (*_FORWARDED, *_FORWARDED_MORE)
    found: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        if name.lower() in taken:
            found.setdefault(name.lower(), []).append(value.decode("latin-1"))
    if found:
        scope["headers"] = [(n, v) for n, v in scope["headers"] if n.lower() not in taken]
    return found


def _last(forwarded: dict[bytes, list[str]], name: bytes) -> str | None:
    """What the proxy itself has said: it adds at the end to what it was given."""
    values = forwarded.get(name)
    return values[-1].rpartition(",")[2].strip() if values else None


def _is_loopback(peer: str | None) -> bool:
    try:
        return peer is not None and (parse_address(peer) or ip_address(peer)).is_loopback
    except ValueError:
        return False
