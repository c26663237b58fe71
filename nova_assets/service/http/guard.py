"""Access control: callers and their rights, no pages of other sites, no foreign host names, and a valid token if tokens
are required.

Hand-written, because the middleware of Starlette and uvicorn ignores what this service must refuse (decision 0044).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from nova_assets.errors import BadToken, NotAllowed, RequestRefused
from nova_assets.model.token import Right, Token, parse_token
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import (
    HEALTH_PATHS,
    App,
    Receive,
    Scope,
    Send,
    header_values,
    request_state,
    single_header_value,
)
from nova_assets.service.http.exposure import Exposure, is_allowed_host, parse_address, parse_host_header
from nova_assets.service.http.problems import send_problem

LOCAL_CALLER_NAME = "local"
"""Name of the caller of a service without tokens."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request.

    Args:
        name: name of the token, shown in logs.
        token: None for a caller with all rights, on a service that only this machine can reach.
    """

    name: str
    token: Token | None = None

    def has_right(self, right: Right, channel: str) -> bool:
        """Whether the caller has this right on a channel."""
        return self.token is None or self.token.allows(right, channel)

    def require_right(self, right: Right, channel: str) -> None:
        """Check that the caller has this right on a channel.

        Check before looking up the channel: a caller without read access must not learn whether the channel exists.

        Raises:
            NotAllowed: answered with 403.
        """
        if not self.has_right(right, channel):
            raise NotAllowed(
                f"the token {self.name!r} grants no right to {right} channel {channel!r}",
                expected=f"a token that was created with --{right} {channel} or a matching pattern",
                next="ask the operator of the service for a token",
                right=right,
                channel=channel,
            )

    def channels_with_right(self, right: Right, names: Iterable[str]) -> list[str]:
        """The given channels on which the caller has this right, in order."""
        return list(names) if self.token is None else self.token.allowed_channels(right, names)


TokenLookup = Callable[[str], Token | None]
"""Function from a token id to the token, valid or not."""

_FORWARDED_HEADERS = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-proto")
_OTHER_PROXY_HEADERS = (b"x-forwarded-prefix", b"x-forwarded-server", b"x-forwarded-ssl", b"x-real-ip")
_MAX_CACHED_TOKENS = 1024
"""Maximum number of cached tokens."""


def utc_now() -> datetime:
    return datetime.now(UTC)


class TokenAuthenticator:
    """Authenticates callers by their tokens, with a cache in front of the catalog."""

    def __init__(
        self, find_token: TokenLookup, now: Callable[[], datetime] = utc_now, cache_seconds: float = 5.0
    ) -> None:
        self.find_token = find_token
        self.now = now
        self.cache_seconds = cache_seconds
        self._cached_tokens: dict[str, tuple[Token, float]] = {}

    async def authenticate(self, authorization_headers: Iterable[str]) -> Caller:
        """Caller of a request, by the values of its ``Authorization`` header.

        Raises:
            BadToken: with the same message for every cause, so that nobody learns which tokens exist.
        """
        schemes_and_values = [text.partition(" ") for text in authorization_headers]
        if len(schemes_and_values) == 1 and schemes_and_values[0][0].lower() == "bearer":
            id_and_secret = parse_token(schemes_and_values[0][2].strip())
            token = None if id_and_secret is None else await self._find_cached_token(id_and_secret[0])
            if (
                id_and_secret is not None
                and token is not None
                and token.has_secret(id_and_secret[1])
                and token.is_valid(self.now())
            ):
                return Caller(token.name, token)
        raise BadToken(
            "the request has no valid token",
            expected="Authorization: Bearer nova_…",
            next="ask the operator of the service for a token: nova token add",
            reason="token",
        )

    async def _find_cached_token(self, token_id: str) -> Token | None:
        cached = self._cached_tokens.get(token_id)
        if cached is not None and time.monotonic() - cached[1] < self.cache_seconds:
            return cached[0]
        looked_up_at = time.monotonic()
        token = await asyncio.to_thread(self.find_token, token_id)
        self._cached_tokens.pop(token_id, None)
        if token is not None:  # unknown ids are not cached, so that a new token works at once
            while len(self._cached_tokens) >= _MAX_CACHED_TOKENS:
                self._cached_tokens.pop(next(iter(self._cached_tokens)))
            self._cached_tokens[token_id] = (token, looked_up_at)
        return token


class AccessGuard:
    """ASGI middleware that admits authorized requests and stores the caller in ``state["caller"]``."""

    def __init__(self, app: App, exposure: Exposure, authenticator: TokenAuthenticator | None = None) -> None:
        if exposure.requires_tokens and authenticator is None:
            raise ValueError("the service requires tokens but has no authenticator")
        self.app = app
        self.exposure = exposure
        self.authenticator = authenticator if exposure.requires_tokens else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            try:
                await self._admit_request(scope)
            except NovaError as error:
                request_state(scope)["failure"] = error
                await send_problem(scope, send, error)
                return
            await self.app(scope, receive, send)

    async def _admit_request(self, scope: Scope) -> None:
        """Check one request and store its caller.

        Raises:
            NovaError: the request is refused.
        """
        peer = (scope.get("client") or (None,))[0]
        forwarded = _pop_forwarded_headers(scope)
        if scope["path"] in HEALTH_PATHS:
            request_state(scope)["caller"] = Caller("")
            return
        if self.exposure.is_proxy(peer):
            self._apply_forwarded_headers(scope, forwarded)
        else:
            self._check_proxy_is_configured(peer, forwarded)
        self._check_host_header(scope)
        _check_same_site(scope)
        authorization = header_values(scope, b"authorization")
        request_state(scope)["caller"] = (
            Caller(LOCAL_CALLER_NAME)
            if self.authenticator is None
            else await self.authenticator.authenticate(authorization)
        )

    def _apply_forwarded_headers(self, scope: Scope, forwarded: dict[bytes, list[str]]) -> None:
        """Take scheme, host and client address from the proxy's headers."""
        scheme = _last_forwarded_value(forwarded, b"x-forwarded-proto")
        if scheme is not None and scheme.lower() != "https" and not self.exposure.tls:
            raise NotAllowed(
                "the client used no TLS to reach the proxy, so its token travelled unencrypted",
                found=f"x-forwarded-proto: {scheme[:20]}",
                expected="https",
                reason="proxy",
            )
        if scheme is not None:
            scope["scheme"] = "https" if scheme.lower() == "https" else "http"
        host = _last_forwarded_value(forwarded, b"x-forwarded-host")
        if host is not None:
            other_headers = [(n, v) for n, v in scope["headers"] if n.lower() != b"host"]
            scope["headers"] = [*other_headers, (b"host", host.encode("latin-1"))]
        forwarded_addresses = [
            address.strip() for value in forwarded.get(b"x-forwarded-for", ()) for address in value.split(",")
        ]
        client_address = next(
            (address for address in reversed(forwarded_addresses) if not self.exposure.is_proxy(address)), None
        )
        if client_address is not None and parse_address(client_address) is not None:
            scope["client"] = (str(parse_address(client_address)), 0)

    def _check_proxy_is_configured(self, peer: str | None, forwarded: dict[bytes, list[str]]) -> None:
        """Refuse requests that bypass the configured proxy, or that come through an unknown proxy."""
        if self.exposure.requires_proxy and not _is_loopback_peer(peer):
            raise NotAllowed(
                "the service accepts requests only through its proxy: without TLS, tokens would travel unencrypted",
                expected="a request from an address that --proxy names",
                reason="proxy",
            )
        if self.authenticator is None and forwarded:
            raise NotAllowed(
                "the request came through an unknown proxy, and the service requires no tokens",
                expected="requests of this machine alone",
                next="nova serve --auth tokens --proxy ADDRESS, with the address of the proxy",
                reason="proxy",
            )

    def _check_host_header(self, scope: Scope) -> None:
        hosts = header_values(scope, b"host")
        name_and_port = parse_host_header(hosts[0]) if len(hosts) == 1 else None
        if name_and_port is None:
            raise RequestRefused(
                "the request does not say which host it asks",
                found=f"{len(hosts)} host headers" if len(hosts) != 1 else "an unreadable host header",
                expected="one host header",
                status=400,
                reason="host",
            )
        connection_addresses = [scope["server"][0]] if scope.get("server") else []
        if not is_allowed_host(self.exposure, name_and_port[0], connection_addresses):
            raise RequestRefused(
                "the service has no such host name",
                found=f"host: {name_and_port[0][:100]}",
                expected="localhost, an address of the service, or a name that --public-name gives",
                next=f"if this is a name of the service: nova serve --public-name {name_and_port[0][:100]}",
                status=421,
                reason="host",
            )


def _check_same_site(scope: Scope) -> None:
    """Refuse requests from pages of other sites, in the browser of a user who can reach the service."""
    origins = header_values(scope, b"origin")
    site = single_header_value(scope, b"sec-fetch-site") or ""
    if site.lower() == "cross-site" or any(
        not _is_same_origin(origin, single_header_value(scope, b"host") or "") for origin in origins
    ):
        raise NotAllowed(
            "the request comes from a page of another site",
            found=f"origin: {origins[0][:100]}" if origins else "sec-fetch-site: cross-site",
            expected="a page of the service itself, or a program",
            reason="origin",
        )


def _is_same_origin(origin: str, host: str) -> bool:
    """Whether an origin is the requested host. A missing port means the default port of the origin's scheme."""
    try:
        parts = urlsplit(origin)
        default_port = {"http": 80, "https": 443}[parts.scheme]
        port = parts.port or default_port
    except (KeyError, ValueError):
        return False
    host_name_and_port = parse_host_header(host)
    return (
        host_name_and_port is not None
        and parts.hostname == host_name_and_port[0]
        and port == int(host_name_and_port[1] or default_port)
    )


def _pop_forwarded_headers(scope: Scope) -> dict[bytes, list[str]]:
    """Remove the forwarded headers from a request, so that no later handler sees them. Returns their values."""
    removed_names = (*_FORWARDED_HEADERS, *_OTHER_PROXY_HEADERS)
    values_by_name: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        if name.lower() in removed_names:
            values_by_name.setdefault(name.lower(), []).append(value.decode("latin-1"))
    if values_by_name:
        scope["headers"] = [(n, v) for n, v in scope["headers"] if n.lower() not in removed_names]
    return values_by_name


def _last_forwarded_value(forwarded: dict[bytes, list[str]], header_name: bytes) -> str | None:
    """Value that the proxy itself appended. Earlier values come from its client."""
    values = forwarded.get(header_name)
    return values[-1].rpartition(",")[2].strip() if values else None


def _is_loopback_peer(peer: str | None) -> bool:
    try:
        return peer is not None and (parse_address(peer) or ip_address(peer)).is_loopback
    except ValueError:
        return False
