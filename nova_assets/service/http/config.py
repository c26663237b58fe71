"""Configuration of the service: listen address, trust and limits."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from nova_assets.errors import SettingsError

AuthMode = Literal["auto", "tokens", "none"]

_MIB = 1024 * 1024
_MAY_BE_ZERO = ("port", "shutdown_grace", "token_seconds")


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """Configuration of ``nova serve``. With the defaults, only this machine can reach the service.

    Args:
        host: listen address. An address other than loopback needs tokens, and TLS or a proxy.
        port: 0 for any free port.
        auth: ``tokens``: each request needs a token. ``none``: every caller has all rights. ``auto``: no tokens if only
            this machine can reach the service, otherwise tokens.
        tls_cert, tls_key: PEM files of the certificate (with its chain) and its key.
        proxies: addresses or networks (``10.0.0.0/8``) of the reverse proxy that terminates TLS. Forwarded headers are
            trusted only from there.
        public_names: further host names of the service.
        max_body: size limit of a request body in bytes.
        max_requests: maximum number of concurrent requests. Further requests are told to retry.
        max_connections: number of open connections from which on requests get 503.
        max_url: size limit of path and query in bytes.
        max_headers: size limit of the request headers in bytes.
        request_seconds: time limit until the response begins, without the time to receive the body.
        header_seconds: time limit to receive the headers.
        upload_idle_seconds: longest pause while a body is received.
        upload_seconds: time limit to receive a body.
        send_idle_seconds: longest time that a client may leave a part of the response unread.
        stream_seconds: time limit to send rows, which are pinned for that time.
        shutdown_grace: seconds that requests in progress get when the service is told to stop.
        token_seconds: cache time of tokens. A revocation takes effect after this time at the latest.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    auth: AuthMode = "auto"
    tls_cert: str | None = None
    tls_key: str | None = None
    proxies: tuple[str, ...] = ()
    public_names: tuple[str, ...] = ()
    max_body: int = 64 * _MIB
    max_requests: int = 64
    max_connections: int = 1000
    max_url: int = 8192
    max_headers: int = 32768
    request_seconds: float = 30.0
    header_seconds: float = 10.0
    upload_idle_seconds: float = 30.0
    upload_seconds: float = 900.0
    send_idle_seconds: float = 60.0
    stream_seconds: float = 3600.0
    shutdown_grace: float = 10.0
    token_seconds: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise SettingsError("the port is invalid", found=self.port, expected="0 to 65535; 0 for any free port")
        if self.auth not in get_args(AuthMode):
            raise SettingsError(
                "auth has an unknown value", found=repr(self.auth), expected=", ".join(get_args(AuthMode))
            )
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        limits = {name: value for name, value in values.items() if isinstance(value, int | float)}
        too_low = [f"{name}={n}" for name, n in limits.items() if n < 0 or (n == 0 and name not in _MAY_BE_ZERO)]
        if too_low:
            raise SettingsError(
                "limits of the service are too low", found=", ".join(too_low), expected="numbers above 0"
            )
        if not 0 <= self.token_seconds <= 5:
            raise SettingsError(
                "a revocation would take effect too late", found=self.token_seconds, expected="0 to 5 seconds"
            )
