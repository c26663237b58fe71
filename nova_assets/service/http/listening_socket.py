"""Listening socket of the service: binding, its certificate, and the URL for clients of this machine."""

from __future__ import annotations

import errno
import socket
import ssl
from pathlib import Path

from nova_assets.errors import PortTaken, ServiceRefused, SettingsError
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import parse_address


def open_listening_socket(config: ServiceConfig) -> socket.socket:
    """Bind the configured port, if the certificate is usable.

    Raises:
        PortTaken, ServiceRefused: the port cannot be bound.
        SettingsError: the certificate or its key is unusable.
    """
    _check_tls(config)
    return _bind(config.host, config.port)


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


def _bind(host: str, port: int) -> socket.socket:
    name = host.strip().removeprefix("[").removesuffix("]")
    name = "127.0.0.1" if name.lower().rstrip(".") == "localhost" else name or "0.0.0.0"
    try:
        family, *_, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        dualstack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        bound = socket.create_server(address, family=family, backlog=2048, dualstack_ipv6=dualstack)
    except OSError as error:
        raise _bind_error(host, port, error) from error
    bound.setblocking(False)
    return bound


def local_service_url(listening_socket: socket.socket, host: str, tls: bool) -> str:
    """Address of a service on this socket, for clients on this machine."""
    parsed_host = parse_address(host)
    address = (
        listening_socket.getsockname()[0] if parsed_host is None or not parsed_host.is_unspecified else "127.0.0.1"
    )
    name = host if parsed_host is None and host else f"[{address}]" if ":" in address else address
    return f"{'https' if tls else 'http'}://{name}:{listening_socket.getsockname()[1]}"


def _bind_error(host: str, port: int, error: OSError) -> PortTaken | ServiceRefused:
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"port {port} is taken",
            expected="a free port",
            next="end the process on the port (ss -ltnp shows it), or use a free port: --port 0",
            port=port,
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return ServiceRefused(
            f"this user may not listen on port {port}", found=str(error), expected="1024 or above", next="--port 8765"
        )
    return ServiceRefused(
        f"the service cannot listen on {host!r}",
        found=error.strerror or str(error),
        expected="an address of this machine",
        next="leave out --host, or name an address that the command ip address lists",
    )


def _reject_password_request() -> str:
    """Refuse keys with a password. Without this callback, OpenSSL would ask for the password on the terminal."""
    return ""
