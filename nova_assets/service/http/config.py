"""How the service listens, whom it believes, and how much it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from nova_assets.errors import SettingsError

Auth = Literal["auto", "tokens", "none"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What ``nova serve`` is given. As it stands, the service is reached from this machine alone.

    Args:
        host: the address to listen on. Any but this machine's own needs tokens, and TLS or a proxy.
        port: 0 for any that is free.
        auth: ``tokens``: each request needs one. ``none``: whoever reaches the service may do everything. ``auto``:
            none as long as it can be reached from this machine alone, otherwise tokens.
        tls_cert, tls_key: PEM files of the certificate (with its chain) and its key.
        proxies: addresses or networks (``10.0.0.0/8``) of the reverse proxy that terminates TLS. Only what comes from
            there is believed when it says for whom it asks.
        public_names: further host names by which the service is called.
        max_body: bytes of a request's body.
        max_requests: requests that are at work at once; more are told to ask again.
        max_connections: connections that are open at once; more are closed.
        max_connections_per_address: of these, from one address: so that nobody alone shuts others out. A proxy that is
            stated may have as many as there are.
        max_url: bytes of a request's path and query.
        max_headers: bytes of its headers.
        request_seconds: how long a request may take until its answer begins; waiting for its body does not count.
        header_seconds: how long its headers may take to arrive.
        upload_idle_seconds: how long a body may pause.
        upload_seconds: how long a body may take altogether.
        send_idle_seconds: how long a caller may leave a part of its answer unread.
        stream_seconds: how long rows may take to be sent altogether; until then they are pinned.
        shutdown_grace: seconds that requests at work get when the service is told to stop.
        token_seconds: for how long a token that was looked up is not looked up again: that much later a revocation
            takes effect.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    auth: Auth = "auto"
    tls_cert: str | None = None
    tls_key: str | None = None
    proxies: tuple[str, ...] = ()
    public_names: tuple[str, ...] = ()
    max_body: int = 64 * _MIB
    max_requests: int = 64
    max_connections: int = 1000
    max_connections_per_address: int = 200
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
            raise SettingsError("there is no such port", found=self.port, expected="0 to 65535; 0 for any that is free")
        if self.auth not in get_args(Auth):
            raise SettingsError("auth is none", found=repr(self.auth), expected=", ".join(get_args(Auth)))
        low = [n for n in _POSITIVE_FIELDS if getattr(self, n) <= 0] + [
            n for n in _NON_NEGATIVE_FIELDS if getattr(self, n) < 0
        ]
        if low:
            found = ", ".join(f"{name}={getattr(self, name)}" for name in low)
            raise SettingsError("the service could do nothing within these limits", found=found, expected="above 0")
        if not 0 <= self.token_seconds <= 5:
            raise SettingsError(
                "a revocation would take effect too late", found=self.token_seconds, expected="0 to 5 seconds"
            )


_POSITIVE_FIELDS = (
    *("max_body", "max_requests", "max_connections", "max_connections_per_address", "max_url", "max_headers"),
    *("request_seconds", "header_seconds", "upload_idle_seconds", "upload_seconds"),
    *("send_idle_seconds", "stream_seconds"),
)
_NON_NEGATIVE_FIELDS = ("shutdown_grace",)
